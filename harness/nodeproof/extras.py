"""The extras of the package: what `pip install nodeproof` leaves out, as the package's metadata lists it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from nodeproof.model.problem import Problem


def require(extra: str, where: str) -> None:
    """Check that all packages of an extra are installed. Raises Problem if one is missing."""
    missing = [name for name in _packages(extra) if not _is_installed(name)]
    if missing:
        raise Problem(
            f"not installed: {', '.join(missing)}", where, f"run `pip install 'nodeproof[{extra}]'`"
        )


def _packages(extra: str) -> Iterator[str]:
    """Yield the packages that an extra adds; metadata lists those of the extras in it, too."""
    for requirement in map(Requirement, requires("nodeproof") or ()):
        marker = requirement.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield requirement.name


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
