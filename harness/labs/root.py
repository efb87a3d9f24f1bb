"""How the harness becomes root, for the supervisor and for set-up alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from harness import proc
from harness.model.problem import Problem

_TOOLS = ("unshare", "nsenter", "ip", "nft", "mount", "bash")


def root_prefix() -> list[str]:
    """How to become root here: nothing, or sudo. Raises Problem when neither works, or a tool is missing."""
    check_tools(_TOOLS, "process lab", "run `make setup`")
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise Problem("a lab needs root and there is no sudo", "process lab", "run as root, or install sudo")
    try:
        proc.run(["sudo", "-n", "true"], timeout_s=10)
    except proc.CommandFailed as error:
        raise Problem(
            "a lab needs root and sudo asks for a password", "process lab", "run `sudo -v` first"
        ) from error
    return ["sudo", "-n", "--"]


def check_tools(tools: Sequence[str], where: str, remedy: str) -> None:
    """Refuse to go on where programs are missing. Raises Problem."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing:
        raise Problem(f"missing tools: {', '.join(missing)}", where, remedy)
