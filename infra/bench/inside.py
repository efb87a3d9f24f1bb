"""What only a process inside a lab's namespaces can measure: `inside.py NAME ARGUMENT...` prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

EXIT_TIMEOUT_S = 30.0
_POLL_S = 0.002
_BLOCK_BYTES = 512
_EMULATOR = "qemu-system"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BOOT_OFFSET_S = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
_PAUSE = threading.Event()


def guest_memory(lab: str) -> Mapping[str, Mapping[str, int]]:
    """Return the memory (bytes) of each guest, by its name: its process, and its disks in the lab's folder.

    A lab's disks are on a memory file system.
    """
    return {
        _guest(process.cmdline()): {
            "process": process.memory_full_info().pss,
            "disks": _disk_bytes(process, Path(lab)),
        }
        for process in psutil.process_iter()
        if _EMULATOR in process.name()
    }


def _guest(argv: list[str]) -> str:
    """Return the guest's name from `-name guest=NODE,...`."""
    return argv[argv.index("-name") + 1].removeprefix("guest=").partition(",")[0]


def _disk_bytes(process: psutil.Process, lab: Path) -> int:
    own = {file.path for file in process.open_files() if Path(file.path).is_relative_to(lab)}
    return sum(Path(path).stat().st_blocks * _BLOCK_BYTES for path in own)


def process_starts() -> list[tuple[str, float]]:
    """Return name and start (CLOCK_MONOTONIC) of each process that can be read."""
    return list(_starts())


def _starts() -> Iterator[tuple[str, float]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        yield Path(command.partition("\0")[0]).name, int(fields[19]) * _TICK_S - _BOOT_OFFSET_S


def exit_time(pid: str, *command: str) -> float:
    """Return how long (s) a command takes until a process is gone."""
    process = Path("/proc", pid, "exe")
    began = time.monotonic()
    completed = subprocess.run(command, capture_output=True, timeout=EXIT_TIMEOUT_S, check=True)
    while process.exists():
        if time.monotonic() > began + EXIT_TIMEOUT_S:
            sys.exit(f"process {pid} is still there: {completed.stderr.decode()}")
        _PAUSE.wait(_POLL_S)
    return time.monotonic() - began


if __name__ == "__main__":
    figures = {figure.__name__: figure for figure in (guest_memory, process_starts, exit_time)}
    print(json.dumps(figures[sys.argv[1]](*sys.argv[2:])))
