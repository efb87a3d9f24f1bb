"""`nodeproof bundle`: nodeproof and all parts of a lab in one archive, for a machine without a network.

Its `install.sh` makes a virtual environment from the wheels, and copies the parts into the cache.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from importlib.metadata import distribution, version
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeproof import hints, proc
from nodeproof.artifacts import csi
from nodeproof.artifacts.components import obtain
from nodeproof.cache import StepProgress, cache_dir
from nodeproof.labs.client.starting import find_sshd
from nodeproof.model.problem import Problem
from nodeproof.report import site

Report = Callable[[str], None]
TOP = "nodeproof-bundle"
"""The folder in the archive."""
_WHERE = "nodeproof bundle"
_INSTALLER = Path(__file__).parent / "artifacts" / "install.sh"
_WHEELS_TIMEOUT_S = 900.0
_FASTEST = 1


def write(path: Path, kubernetes_version: str, report: Report) -> None:
    """Write the archive; what is not built yet is built first. Raises Problem."""
    parts = list(_parts(kubernetes_version, report))
    try:
        with TemporaryDirectory(prefix=".nodeproof-bundle-", dir=path.parent) as folder:
            work = Path(folder)
            (work / "platform").write_text(f"{_platform()}\n")
            (work / "parts").write_text("".join(f"{part}\n" for part in parts))
            _fetch_wheels(work / "wheels", report)
            report("writing the archive")
            _pack(work, parts, work / "archive", report)
            (work / "archive").replace(path)
    except OSError as error:
        next_step = "choose another file, or free some space"
        raise Problem("the bundle cannot be written", str(path), next_step, str(error)) from error


def _parts(kubernetes_version: str, report: Report) -> Iterator[Path]:
    """Yield the paths, relative to the cache, of everything that a run needs there. Raises Problem."""
    components = obtain("build", kubernetes_version, report)
    cache = cache_dir()
    entries = {part.path.parents[1] for part in components.by_role.values()}
    entries |= {csi.obtain(report), site.install(site.find_node(), report).parents[2]}
    yield from sorted(entry.relative_to(cache) for entry in entries)
    sshd, link = Path(find_sshd()), cache / "sshd"
    if sshd.is_relative_to(link.resolve()):
        yield from (link.resolve().relative_to(cache.resolve()), link.relative_to(cache))


def _platform() -> str:
    """Return the platform and the Python of the wheels, in the form that install.sh compares."""
    return "{} Python {}.{}".format(sysconfig.get_platform(), *sys.version_info[:2])


def _fetch_wheels(folder: Path, report: Report) -> None:
    """Download the installed versions of all packages as wheels, and build nodeproof's. Raises Problem."""
    report("collecting the wheels of nodeproof and of the packages that it needs: about a minute")
    pip = [sys.executable, "-m", "pip"]
    try:
        freeze = [*pip, "freeze", "--exclude-editable", "--exclude", "nodeproof"]
        installed = proc.run(freeze, timeout_s=_WHEELS_TIMEOUT_S).stdout
        folder.mkdir()
        constraints = folder.with_name("constraints.txt")
        constraints.write_text(installed)
        options = ["--quiet", "--constraint", str(constraints), "--wheel-dir", str(folder)]
        proc.run([*pip, "wheel", *options, _requirement()], timeout_s=_WHEELS_TIMEOUT_S)
    except proc.CommandFailed as error:
        next_step = "make the bundle on a machine with a network, in an environment with pip"
        raise Problem("pip cannot collect the wheels", _WHERE, next_step, error.output) from error


def _requirement() -> str:
    """Return where pip gets this nodeproof: the checkout, what it was installed from, or an index."""
    checkout = hints.repository_root()
    origin = json.loads(distribution("nodeproof").read_text("direct_url.json") or "{}").get("url")
    address = checkout.as_uri() if checkout else origin
    return f"nodeproof[lab] @ {address}" if address else f"nodeproof[lab]=={version('nodeproof')}"


def _pack(work: Path, parts: list[Path], path: Path, report: Report) -> None:
    progress, packed = StepProgress(report), 0
    total = sum(map(_size, [work, *(cache_dir() / part for part in parts)]))

    def count(member: tarfile.TarInfo) -> tarfile.TarInfo:
        """Report what is packed before this file."""
        nonlocal packed
        progress.tick(f"writing the archive: {packed / 2**20:.0f} of {total / 2**20:.0f} MiB", packed, total)
        packed += member.size
        return member

    with tarfile.open(path, "w:gz", compresslevel=_FASTEST) as archive:
        archive.add(_INSTALLER, f"{TOP}/{_INSTALLER.name}")
        for name in ("platform", "parts", "wheels"):
            archive.add(work / name, f"{TOP}/{name}", filter=count)
        for part in parts:
            archive.add(cache_dir() / part, f"{TOP}/cache/{part}", filter=count)


def _size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
