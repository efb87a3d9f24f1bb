"""Where nodeproof's own files are, and hints for installing what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path

from nodeproof.model.problem import Problem


@dataclass(frozen=True)
class Hint:
    """How to install a missing program: a command in the repository, and advice for an installed package."""

    set_up: str
    installed: str


BASE = Hint("make setup", "install it with your package manager")
MACHINES = Hint(
    "infra/setup.sh libvirt", "`pip install 'nodeproof[libvirt]'`, and install it with your package manager"
)
"""How to install what virtual machines need."""
BOX = Hint("make box", "run `nodeproof box`")
VAGRANT = Hint("infra/setup.sh vagrant", "the Vagrantfile needs the repository (git clone)")
_TOP = Path(__file__).resolve().parents[2]


def repository_root() -> Path | None:
    """Return the root of the repository that this code runs from, or None if nodeproof was installed."""
    return _TOP if (_TOP / "infra" / "setup.sh").is_file() else None


def shipped(path: str) -> Path:
    """Return a file of the repository, or else its copy in the installed package. Raises Problem."""
    data = Path(__file__).resolve().parent / "_data"
    for top in (_TOP, data):
        if (top / path).is_file():
            return top / path
    raise Problem(f"{path} is missing", str(data), "install nodeproof again, or run it from the repository")


def hint_for(hint: Hint, top: Path = _TOP) -> str:
    """Return the hint for this environment; `top` is the root of the repository, if there is one."""
    if (top / "infra" / "setup.sh").is_file():
        return f"run `{hint.set_up}`"
    return hint.installed


def page(path: str, top: Path = _TOP) -> str:
    """Return a page of the documentation: its path in the repository, or its address if there is none."""
    if (top / path).is_file():
        return path
    urls = dict(url.split(", ") for url in metadata("nodeproof").get_all("Project-URL") or ())
    return f"{urls['Source']}/blob/main/{path}"
