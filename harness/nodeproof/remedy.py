"""What a user does about what is missing: set-up in a clone, packages where nodeproof was installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remedy:
    """What gives a user what is missing, in a clone and where nodeproof was installed."""

    set_up: str
    installed: str


BASE = Remedy("make setup", "install it with your package manager")
MACHINES = Remedy(
    "infra/setup.sh libvirt", "`pip install 'nodeproof[libvirt]'`, and install it with your package manager"
)
"""What virtual machines need."""
VAGRANT = Remedy("infra/setup.sh vagrant", "the Vagrantfile needs a clone of the repository")
_TOP = Path(__file__).resolve().parents[2]


def clone() -> Path | None:
    """The repository that this runs from; None where nodeproof was installed."""
    return _TOP if (_TOP / "infra" / "setup.sh").is_file() else None


def remedy(wanted: Remedy, top: Path = _TOP) -> str:
    """How to get something; `top` is where a clone has its set-up."""
    if (top / "infra" / "setup.sh").is_file():
        return f"run `{wanted.set_up}`"
    return wanted.installed
