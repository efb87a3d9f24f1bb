"""When the processes of this PID namespace started (CLOCK_MONOTONIC), as JSON: run inside a lab.

Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BOOT_OFFSET_S = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def main() -> None:
    """Print name and start of each process that can be read."""
    starts = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            starts.append(_start(folder))
        except OSError:
            continue
    print(json.dumps(starts))


def _start(folder: Path) -> tuple[str, float]:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    command = (folder / "cmdline").read_bytes().decode(errors="replace")
    return Path(command.partition("\0")[0]).name, int(fields[19]) * _TICK_S - _BOOT_OFFSET_S


if __name__ == "__main__":
    main()
