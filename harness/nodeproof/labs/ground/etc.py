"""The /etc of a lab and of its nodes: a folder of their own, so that nothing which happens to the host's
reaches them.

A file bound over one in the host's /etc would not do: when the host replaces that file, as useradd or a
package does with /etc/passwd, the kernel detaches the binding in every namespace.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.ground.spec import API_ADDRESS

HOST = Path("/etc")
_MOUNT_LIMIT_S = 10.0
TAKEN_OVER = (
    "alternatives",
    "bash.bashrc",
    "group",
    "host.conf",
    "iproute2",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "profile",
    "protocols",
    "services",
    "terminfo",
)
"""What programs of the host need of its /etc to run in a lab."""


def make(folder: Path, own: Mapping[str, str]) -> Path:
    """Fill `folder` from the host's /etc and with `own` files. Raises OSError."""
    folder.mkdir(parents=True)
    for name in TAKEN_OVER:
        source = HOST / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, folder / name)
    for name, text in own.items():
        (folder / name).write_text(text)
    return folder


def mount(folder: Path) -> None:
    """Make a lab's /etc, where names come from its own hosts file alone: the host's name servers are no part
    of it. Raises CommandFailed, OSError.
    """
    own = {"hosts": f"127.0.0.1 localhost\n{API_ADDRESS} kubernetes\n", "resolv.conf": ""}
    proc.run(["mount", "--bind", str(make(folder, own)), str(HOST)], timeout_s=_MOUNT_LIMIT_S)
