"""The /etc of a lab and of its nodes: a folder of their own, so that nothing which happens to the host's
reaches them.

A file bound over one in the host's /etc would not do: when the host replaces that file, as useradd or a
package does with /etc/passwd, the kernel detaches the binding in every namespace.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

HOST = Path("/etc")
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
