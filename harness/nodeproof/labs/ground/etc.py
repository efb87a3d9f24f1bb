"""The private /etc of a lab and of its nodes, which changes to the host's /etc do not reach.

Bind mounts of single files would not be enough: when the host replaces such a file, as useradd or a package
does with /etc/passwd, the kernel detaches the mount in every namespace.
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
"""The entries of the host's /etc that its programs need to run in a lab."""


def make(folder: Path, own: Mapping[str, str]) -> Path:
    """Copy the host's `TAKEN_OVER` entries to `folder` and write the files of `own`. Raises OSError."""
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
    """Mount a lab's own /etc over the host's, in this mount namespace.

    Names resolve through the lab's hosts file only; the host's name servers are not used.

    Raises:
        CommandFailed: mount(8) failed.
        OSError: the folder cannot be written.
    """
    own = {"hosts": f"127.0.0.1 localhost\n{API_ADDRESS} kubernetes\n", "resolv.conf": ""}
    proc.run(["mount", "--bind", str(make(folder, own)), str(HOST)], timeout_s=_MOUNT_LIMIT_S)
