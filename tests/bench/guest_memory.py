"""What each virtual machine costs its host in memory (bytes), as JSON: run inside a lab.

Its process, and the disks it writes to: a lab's disks are on a memory file system. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_BLOCK_BYTES = 512
_EMULATOR = "qemu-system"


def main() -> None:
    """Print process and disks of each guest, by its name; the argument is the lab's folder."""
    lab = Path(sys.argv[1])
    figures = {}
    for folder in Path("/proc").glob("[0-9]*"):
        argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if _EMULATOR in Path(argv[0]).name:
            figures[_guest(argv)] = {"process": _proportional(folder), "disks": _disks(folder, lab)}
    print(json.dumps(figures))


def _guest(argv: list[str]) -> str:
    """Return the guest's name from `-name guest=NODE,...`."""
    return argv[argv.index("-name") + 1].removeprefix("guest=").partition(",")[0]


def _proportional(folder: Path) -> int:
    lines = (folder / "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _disks(folder: Path, lab: Path) -> int:
    """Return the bytes that open files in the lab's own folder take."""
    paths = {descriptor.readlink() for descriptor in (folder / "fd").iterdir()}
    own = [path for path in paths if path.is_relative_to(lab) and path.is_file()]
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in own)


if __name__ == "__main__":
    main()
