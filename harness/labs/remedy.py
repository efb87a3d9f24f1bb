"""What a user does about what is missing: set-up in a clone, packages where nodeproof was installed."""

from __future__ import annotations

from pathlib import Path

_SET_UP = {
    "process": "make setup",
    "libvirt": "infra/setup.sh libvirt",
    "vagrant": "infra/setup.sh vagrant",
}
_INSTALLED = {
    "process": "install it with your package manager",
    "libvirt": "`pip install 'nodeproof[libvirt]'`, and install it with your package manager",
    "vagrant": "the Vagrantfile needs a clone of the repository",
}


_TOP = Path(__file__).resolve().parents[2]


def remedy(what: str, top: Path = _TOP) -> str:
    """How to get what a lab of a kind, or `vagrant`, needs; `top` is where a clone has its set-up."""
    if (top / "infra" / "setup.sh").is_file():
        return f"run `{_SET_UP[what]}`"
    return _INSTALLED[what]
