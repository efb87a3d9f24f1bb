"""Messages that nodes stored: output of pods and lines of journals, on the harness's clock.

Nodes use the time since boot (/proc/uptime, the journal's monotonic time), which does not change when the
clock is set.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.cluster.workloads import file_of
from nodeproof.machines.machine import MachineError, Shell, checked

Json = Any
_COMMAND_TIMEOUT_S = 30.0
_READINGS = 5
_RESOLUTION_S = 0.01
"""/proc/uptime has two decimals."""
_READ = [
    "sh",
    "-c",
    "read -r up _ </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id; echo $up $boot",
]

_READ_JOURNAL = 'journalctl --sync && exec journalctl "$0" "$@"'
"""`--sync` makes the journal include all messages up to now."""
_WRITTEN = re.compile(r"(?P<up>\d+\.\d\d) (?P<what>[^\0]+)")
"""Line of a witness: /proc/uptime and a message (`nodeproof.cluster.workloads`)."""
_READ_FIRST = 'journalctl "$0" "$@" | head -n 1'


@dataclass(frozen=True)
class BootClock:
    """One boot of a node: the harness's clock minus the time since boot, and its error (both s)."""

    boot_id: str
    offset_s: float
    error_s: float


@dataclass(frozen=True)
class Message:
    """A message of a witness, at `t` (s, monotonic) of the harness."""

    t: float
    what: str


def read_clock(machine: Shell) -> BootClock:
    """Read a node's time since boot; the fastest of several requests is the most exact.

    Raises:
        MachineError: The node does not answer.
    """
    return min((_measure_clock(machine) for _ in range(_READINGS)), key=lambda clock: clock.error_s)


def messages_of(machine: Shell, pod: str, clock: BootClock) -> Sequence[Message | None]:
    """Return the messages of a pod in the boot of `clock`, in order; None for an unreadable line.

    A line without its line feed is cut off, and may be another message or time.

    Raises:
        MachineError: There are no messages.
    """
    text = _run(machine, ["cat", file_of(pod, clock.boot_id)])
    lines = [_WRITTEN.fullmatch(line) for line in lines_of(text)]
    if not text.endswith("\n"):
        lines[-1:] = [None]
    return [line and Message(float(line["up"]) + clock.offset_s, line["what"]) for line in lines]


def journal_of(machine: Shell, unit: str, clock: BootClock) -> Iterator[Message]:
    """Yield the messages of a unit, or of systemd about it, in the boot of `clock`, in order.

    Raises:
        MachineError: The journal cannot be read.
    """
    for entry in _journal(machine, _READ_JOURNAL, clock, f"--unit={unit}"):
        yield Message(_logged_t(entry, clock), _text(machine, entry.get("MESSAGE", "")))


def journal_began(machine: Shell, clock: BootClock) -> float | None:
    """Return the time of the journal's first line (s) in the boot of `clock`; None if it is empty.

    Raises:
        MachineError: The journal cannot be read.
    """
    first_entry = next(iter(_journal(machine, _READ_FIRST, clock)), None)
    return None if first_entry is None else _logged_t(first_entry, clock)


def lines_of(text: str) -> Sequence[str]:
    """Split a text at its line feeds only.

    A line may contain other characters that Unicode treats as line ends.
    """
    return text.removesuffix("\n").split("\n") if text else ()


def _journal(machine: Shell, script: str, clock: BootClock, *filters: str) -> Iterator[Mapping[str, Json]]:
    """Yield entries of the journal, with whole fields of any length (journalctl(1), `--all`)."""
    boot = f"--boot={clock.boot_id.replace('-', '')}"
    fields = "--output-fields=MESSAGE,__MONOTONIC_TIMESTAMP"
    argv = ["sh", "-c", script, boot, *filters, "--all", "--output=json", fields, "--no-pager"]
    for line in lines_of(_run(machine, argv)):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise MachineError(f"{machine.name}: journalctl did not return JSON: {line[:80]!r}") from error


def _logged_t(entry: Mapping[str, Json], clock: BootClock) -> float:
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6 + clock.offset_s


def _text(machine: Shell, value: Json) -> str:
    """Return the text of a field.

    A field is text, a list of byte values if some bytes are not text, or a list of both (systemd's Journal
    Export Formats, "Journal JSON Format").

    Raises:
        MachineError: The field has another form.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, int) and 0 <= part < 256 for part in value):
        return bytes(value).decode(errors="replace")
    if isinstance(value, list):
        return "\n".join(_text(machine, part) for part in value)
    raise MachineError(f"{machine.name}: journalctl returned a line without text")


def _measure_clock(machine: Shell) -> BootClock:
    before = time.monotonic()
    up, boot_id = _run(machine, _READ).split()
    after = time.monotonic()
    return BootClock(boot_id, (before + after) / 2 - float(up), (after - before) / 2 + _RESOLUTION_S)


def _run(machine: Shell, argv: list[str]) -> str:
    completed = machine.run(argv, timeout_s=_COMMAND_TIMEOUT_S)
    return checked(completed, f"{machine.name}: {' '.join(argv)}")
