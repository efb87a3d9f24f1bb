"""What the processes of this PID namespace use, as JSON: run inside a lab or a floor."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BOOT_OFFSET_S = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def main() -> None:
    """Print one record per process that can be read."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append(_record(folder))
        except OSError:
            continue
    print(json.dumps(found))


def _record(folder: Path) -> dict[str, object]:
    head, _, tail = (folder / "stat").read_text().rpartition(")")
    fields = tail.split()
    return {
        "pid": int(folder.name),
        "ppid": int(fields[1]),
        "comm": head.partition("(")[2],
        "name": Path((folder / "cmdline").read_bytes().decode(errors="replace").partition("\0")[0]).name,
        "cpu_s": (int(fields[11]) + int(fields[12])) * _TICK_S,
        "started": int(fields[19]) * _TICK_S - _BOOT_OFFSET_S,
        **_memory(folder),
    }


def _memory(folder: Path) -> dict[str, int]:
    """Resident, proportional and private memory (bytes)."""
    sizes = {}
    for line in (folder / "smaps_rollup").read_text().splitlines()[1:]:
        key, _, rest = line.partition(":")
        sizes[key] = int(rest.split()[0]) * 1024
    return {
        "rss": sizes.get("Rss", 0),
        "pss": sizes.get("Pss", 0),
        "private": sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0),
    }


if __name__ == "__main__":
    main()
