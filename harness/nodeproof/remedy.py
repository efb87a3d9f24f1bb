"""Hints for installing what is missing: setup scripts in a clone, packages in an installation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remedy:
    """How to get what is missing: the command in a clone, and the advice for an installation."""

    set_up: str
    installed: str


BASE = Remedy("make setup", "install it with your package manager")
MACHINES = Remedy(
    "infra/setup.sh libvirt", "`pip install 'nodeproof[libvirt]'`, and install it with your package manager"
)
"""How to get what virtual machines need."""
VAGRANT = Remedy("infra/setup.sh vagrant", "the Vagrantfile needs a clone of the repository")
_TOP = Path(__file__).resolve().parents[2]


def clone() -> Path | None:
    """Return the clone that this code runs from, or None if nodeproof was installed."""
    return _TOP if (_TOP / "infra" / "setup.sh").is_file() else None


def remedy(wanted: Remedy, top: Path = _TOP) -> str:
    """Return the hint for this environment; `top` is the root of a clone, if there is one."""
    if (top / "infra" / "setup.sh").is_file():
        return f"run `{wanted.set_up}`"
    return wanted.installed
