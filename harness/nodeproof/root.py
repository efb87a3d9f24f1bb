"""How the harness becomes root, for the supervisor and for set-up alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from nodeproof import proc
from nodeproof.model.problem import Problem
from nodeproof.remedy import BASE, remedy

TOOLS = ("bash", "ip", "mount", "nft", "nsenter", "unshare")
"""What every lab runs on its host."""


def root_prefix() -> list[str]:
    """How to become root here: nothing, or sudo. Raises Problem when neither works, or a tool is missing."""
    check_tools(TOOLS, "process lab", f"{remedy(BASE)}, or see `nodeproof doctor`")
    return become_root()


def become_root() -> list[str]:
    """The same, whatever tools there are. Raises Problem when neither works."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise Problem("a lab needs root and there is no sudo", "process lab", "run as root, or install sudo")
    try:
        proc.run(["sudo", "-n", "true"], timeout_s=10)
    except proc.CommandFailed as error:
        raise Problem(
            "a lab needs root and sudo asks for a password",
            "process lab",
            "run `sudo -v` first; if it refuses, as root: `usermod -aG sudo YOU`, and log in anew",
        ) from error
    return ["sudo", "-n", "--"]


def check_tools(tools: Sequence[str], where: str, remedy: str) -> None:
    """Refuse to go on where programs are missing. Raises Problem."""
    missing = missing_tools(tools)
    if missing:
        raise Problem(f"missing tools: {', '.join(missing)}", where, remedy)


def missing_tools(tools: Sequence[str]) -> list[str]:
    """Those that neither the caller nor root would find."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [tool for tool in tools if shutil.which(tool, path=path) is None]
