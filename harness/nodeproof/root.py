"""Root privileges, for the supervisor and for setup only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from nodeproof import proc
from nodeproof.hints import BASE, hint_for
from nodeproof.model.problem import Problem

TOOLS = ("bash", "ip", "mount", "nft", "nsenter", "unshare")
"""Programs that every lab runs on its host."""


def root_prefix() -> list[str]:
    """Return the command prefix that becomes root: empty, or sudo.

    Raises:
        Problem: This user cannot become root, or a tool of `TOOLS` is missing.
    """
    check_tools(TOOLS, "process lab", f"{hint_for(BASE)}, or see `nodeproof doctor`")
    return become_root()


def become_root() -> list[str]:
    """Return the command prefix that becomes root, like `root_prefix`, without a check of `TOOLS`.

    Raises:
        Problem: This user cannot become root.
    """
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
            "run `sudo -v` first; if it refuses, as root: `usermod -aG sudo YOU`, and log in again",
        ) from error
    return ["sudo", "-n", "--"]


def check_tools(tools: Sequence[str], where: str, remedy: str) -> None:
    """Check that all programs are installed. Raises Problem."""
    missing = missing_tools(tools)
    if missing:
        raise Problem(f"missing tools: {', '.join(missing)}", where, remedy)


def missing_tools(tools: Sequence[str]) -> list[str]:
    """Return the programs that are neither on the caller's nor on root's PATH."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [tool for tool in tools if shutil.which(tool, path=path) is None]
