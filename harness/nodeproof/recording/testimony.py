"""What a node kept of what happened on it: words of its pods, lines of its journal, on the harness's clock.

A node tells its time since boot (/proc/uptime, the journal's monotonic time): no setting of its clock moves
that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.cluster.witness import file_of
from nodeproof.machines.machine import MachineError, Shell

Json = Any
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
_READ_FIRST = 'journalctl "$0" "$@" | head -n 1'


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
    for line in lines_of(_output(machine, ["cat", file_of(pod, clock.boot_id)])):
        up, _, what = line.partition(" ")
        yield Word(float(up) + clock.offset_s, what)


def journal_of(machine: Shell, unit: str, clock: BootClock) -> Iterator[Word]:
    """What a unit, or systemd about it, logged in the boot of `clock`, in order. Raises MachineError."""
    for entry in _journal(machine, _READ_JOURNAL, clock, f"--unit={unit}"):
        yield Word(_told_t(entry, clock), _text(machine, entry.get("MESSAGE", "")))


def journal_began(machine: Shell, clock: BootClock) -> float | None:
    """When the first line was logged (s) that the journal holds of the boot of `clock`, by whatever unit;
    None where it holds none. Raises MachineError.
    """
    first = next(iter(_journal(machine, _READ_FIRST, clock)), None)
    return None if first is None else _told_t(first, clock)


def lines_of(text: str) -> Sequence[str]:
    """The lines of a text, which end with line feeds: what else Unicode takes for the end of a line may stand
    in one.
    """
    return text.removesuffix("\n").split("\n") if text else ()


def _journal(machine: Shell, script: str, clock: BootClock, *which: str) -> Iterator[Mapping[str, Json]]:
    """Entries of the journal; each field whole, however long it is (journalctl(1), `--all`)."""
    boot = f"--boot={clock.boot_id.replace('-', '')}"
    fields = "--output-fields=MESSAGE,__MONOTONIC_TIMESTAMP"
    argv = ["sh", "-c", script, boot, *which, "--all", "--output=json", fields, "--no-pager"]
    for line in lines_of(_output(machine, argv)):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise MachineError(f"{machine.name}: journalctl gave no JSON: {line[:80]!r}") from error


def _told_t(entry: Mapping[str, Json], clock: BootClock) -> float:
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6 + clock.offset_s


def _text(machine: Shell, value: Json) -> str:
    """A field of an entry: text, its bytes as numbers where some of them are no text, or several of either
    (systemd's Journal Export Formats, "Journal JSON Format"). Raises MachineError on what is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, int) and 0 <= part < 256 for part in value):
        return bytes(value).decode(errors="replace")
    if isinstance(value, list):
        return "\n".join(_text(machine, part) for part in value)
    raise MachineError(f"{machine.name}: journalctl gave no text of a line")


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
