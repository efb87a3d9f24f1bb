"""What a node kept of what happened on it: words of its pods, lines of its journal, on the harness's clock.

A node tells its time since boot (/proc/uptime, the journal's monotonic time): no setting of its clock moves
that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from nodeproof.cluster.witness import file_of
from nodeproof.machines.machine import MachineError, Shell

_COMMAND_LIMIT_S = 30.0
_READINGS = 5
_RESOLUTION_S = 0.01
"""/proc/uptime has two decimals."""
_READ = [
    "sh",
    "-c",
    "read -r up _ </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id; echo $up $boot",
]

_READ_JOURNAL = 'journalctl --sync && exec journalctl "$0" "$@"'
"""What was said before it is asked for is in it then."""


@dataclass(frozen=True)
class BootClock:
    """One boot of a node: what to add to its time since boot to get the harness's clock, and how wrong that
    may be (both s).
    """

    boot_id: str
    offset_s: float
    error_s: float


@dataclass(frozen=True)
class Word:
    """Something that a witness told, at `t` (s, monotonic) of the harness."""

    t: float
    what: str


def read_clock(machine: Shell) -> BootClock:
    """Ask a node for its time since boot; the quickest answer is the most exact. Raises MachineError."""
    return min((_reading(machine) for _ in range(_READINGS)), key=lambda clock: clock.error_s)


def words_of(machine: Shell, pod: str, clock: BootClock) -> Iterator[Word]:
    """What a pod wrote in the boot of `clock`, in order. Raises MachineError when there is nothing."""
    for line in _output(machine, ["cat", file_of(pod, clock.boot_id)]).splitlines():
        up, _, what = line.partition(" ")
        yield Word(float(up) + clock.offset_s, what)


def journal_of(machine: Shell, unit: str, clock: BootClock) -> Iterator[Word]:
    """What a unit, or systemd about it, logged in the boot of `clock`, in order. Raises MachineError."""
    boot = clock.boot_id.replace("-", "")
    fields = "--output-fields=MESSAGE,__MONOTONIC_TIMESTAMP"
    argv = [
        "sh",
        "-c",
        _READ_JOURNAL,
        f"--boot={boot}",
        f"--unit={unit}",
        "--output=json",
        fields,
        "--no-pager",
    ]
    for line in _output(machine, argv).splitlines():
        entry = json.loads(line)
        up = int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6
        yield Word(up + clock.offset_s, str(entry.get("MESSAGE")))


def _reading(machine: Shell) -> BootClock:
    before = time.monotonic()
    up, boot_id = _output(machine, _READ).split()
    after = time.monotonic()
    return BootClock(boot_id, (before + after) / 2 - float(up), (after - before) / 2 + _RESOLUTION_S)


def _output(machine: Shell, argv: list[str]) -> str:
    done = machine.run(argv, deadline_s=_COMMAND_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{machine.name}: {' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
