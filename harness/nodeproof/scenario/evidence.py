"""What a scenario hears from its nodes, for its recording: words of witnesses, journals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.recording.recorder import Recording
from nodeproof.recording.testimony import BootClock, Word, journal_of, read_clock, words_of


@dataclass(frozen=True)
class Journal:
    """What a unit logged on a node since the recording began, in the boot whose clock was kept."""

    node: str
    unit: str


@dataclass
class Evidence:
    """Hears on one lab's nodes; remembers each node's clock in the boot that its witnesses live in."""

    lab: Lab
    _clocks: dict[str, BootClock] = field(default_factory=dict)

    def keep_clock(self, node: str) -> None:
        """Measure a node's clock in this boot: its witnesses write by it. Raises MachineError."""
        self._clocks[node] = read_clock(self.lab.fleet.machine(node))

    def hear(self, recording: Recording, source: Pod | Journal) -> None:
        """Write down what a witness, or a unit, told since the recording began. Raises MachineError."""
        clock, machine = self._clocks[source.node], self.lab.fleet.machine(source.node)
        if isinstance(source, Journal):
            by, read = (
                journal_name(source.node, source.unit),
                partial(journal_of, machine, source.unit, clock),
            )
        else:
            by, read = source.name, partial(words_of, machine, source.name, clock)
        self._write(recording, source.node, by, read)

    def _write(self, recording: Recording, node: str, by: str, read: Callable[[], Iterator[Word]]) -> None:
        until_t, since_t = time.monotonic(), recording.history().began_t
        for word in list(read()):
            if word.t >= since_t:
                recording.append("told", word.t, by=by, what=word.what)
        clock = self._clocks[node]
        facts = {"by": by, "node": node, "boot_id": clock.boot_id, "error_s": round(clock.error_s, 6)}
        recording.append("heard", until_t, **facts)
