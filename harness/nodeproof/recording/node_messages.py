"""The clocks of a recording, and messages that nodes stored: output of pods and lines of journals.

Nodes use the time since boot (/proc/uptime, the journal's monotonic time), which does not change when the
clock is set.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Protocol

from nodeproof.cluster.workloads import file_of
from nodeproof.machines.machine import MachineError, Shell, checked
from nodeproof.model.clocks import Reading
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.model.slack import LEAST_STEP_S

TICK_S, NOTABLE_S = 0.05, 0.05
"""Period of the measurement of stalls, and the delay that is written down at once (s)."""
_PERIOD_S = 0.5
_LOOKS = 5


class NodeClocks:
    """Reads the clocks of nodes, and records the offsets."""

    def __init__(
        self,
        nodes: Sequence[str],
        read: Callable[[str], Reading],
        append: Callable[..., None],
        stopping: threading.Event,
    ) -> None:
        self._read = read
        self._append = append
        self._stopping = stopping
        self._locks = {node: threading.Lock() for node in nodes}

    def read_all(self) -> None:
        """Read all nodes' clocks at once; a node that does not answer is read again after its next boot."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.read, self._locks))

    def read(self, node: str) -> bool:
        """Read and record a node's clock, one request at a time, and return whether it answered."""
        with self._locks[node]:
            try:
                reading = self._read(node)
            except (OutsideError, Problem):
                return False
        self._append("clock", **asdict(reading))
        return True

    def retry_read(self, node: str) -> None:
        """Read a node's clock that was set, until the node answers or the recording ends."""
        while not self.read(node):
            if self._stopping.wait(_PERIOD_S):
                return


def wall_offset_s() -> float:
    """Return the host's wall clock minus its monotonic one (s).

    A process that is preempted between the two readings would see a step, so the fastest of several attempts
    counts.
    """
    return min(_compare() for _ in range(_LOOKS))[1]


def _compare() -> tuple[float, float]:
    """Return the duration of reading both clocks, and their difference (both s)."""
    before_t, wall_s, after_t = time.monotonic(), time.time(), time.monotonic()
    return after_t - before_t, wall_s - (before_t + after_t) / 2


class WallClock:
    """Records each step of the wall clock; `offset_s` is the wall clock minus the monotonic one (s).

    A gradual adjustment (adjtime) changes the speed of both clocks, so any change of their difference is a
    step.
    """

    def __init__(self, append: Callable[..., None], read: Callable[[], float] = wall_offset_s) -> None:
        self._append = append
        self._read = read
        self._looked_t = time.monotonic()
        self.offset_s = read()

    def look(self) -> None:
        """Compare both clocks, and record a step.

        Raises:
            OSError: The step cannot be written.
        """
        since_t, self._looked_t = self._looked_t, time.monotonic()
        offset_s = self._read()
        if abs(offset_s - self.offset_s) > LEAST_STEP_S:
            self._append("wall", offset_s=offset_s, since=round(since_t, 6))
            self.offset_s = offset_s


class Append(Protocol):
    """Writes an entry of a history."""

    def __call__(self, kind: str, *, late_s: float) -> None: ...


def measure_stalls(
    append: Append, stopping: threading.Event, period_s: float, woken: Callable[[], object]
) -> None:
    """Write down how late this process is woken: the worst of each period, and long delays at once.

    Run this in a thread of its own, without other work: any delay is then a stall of the process. The lab
    measures itself as well, in its own session: the harness may be woken in time while the lab is not.

    Args:
        append: Writes an entry; after an OSError the value is kept for the next time.
        stopping: Ends the measurement.
        period_s: Longest time between two entries (s).
        woken: Called at each wake-up; an OSError is ignored.
    """
    worst_s, written_t = 0.0, time.monotonic()
    woken_t = written_t
    while not stopping.wait(TICK_S):
        # Measured from the last wake-up, so that a stall while writing counts as well.
        now = time.monotonic()
        late_s, woken_t = max(0.0, now - woken_t - TICK_S), now
        worst_s = max(worst_s, late_s)
        if late_s > NOTABLE_S or now - written_t >= period_s:
            with contextlib.suppress(OSError):
                append("stall", late_s=round(worst_s, 4))
                worst_s, written_t = 0.0, now
        with contextlib.suppress(OSError):
            woken()


_COMMAND_TIMEOUT_S = 30.0
_READINGS = 5
_RESOLUTION_S = 0.01
"""/proc/uptime has two decimals."""
_READ = "read -r up _ </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id; echo $up $boot"
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
    up, boot_id = _run(machine, ["sh", "-c", _READ]).split()
    after = time.monotonic()
    return BootClock(boot_id, (before + after) / 2 - float(up), (after - before) / 2 + _RESOLUTION_S)


def _run(machine: Shell, argv: list[str]) -> str:
    completed = machine.run(argv, timeout_s=_COMMAND_TIMEOUT_S)
    return checked(completed, f"{machine.name}: {' '.join(argv)}")
