"""What a scenario hears from its sources, for its recording."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeproof.labs.client.lab import Lab
from nodeproof.model.history import History
from nodeproof.model.problem import Problem
from nodeproof.model.testimony import Lost
from nodeproof.recording.recorder import Recording
from nodeproof.recording.testimony import BootClock, read_clock
from nodeproof.sources.source import Hearing, Source

_STANDS_STILL = ("frozen", "thawed")


@dataclass
class Evidence:
    """Hears for one lab; remembers each node's clock in the boot that its witnesses live in."""

    lab: Lab
    _clocks: dict[str, BootClock] = field(default_factory=dict)
    _present: dict[tuple[str, str], BootClock] = field(default_factory=dict)
    _told: set[tuple[str, float, str]] = field(default_factory=set)

    def keep_clock(self, node: str) -> None:
        """Measure a node's clock in this boot: its witnesses write by it. Raises MachineError."""
        self._clocks[node] = read_clock(self.lab.fleet.machine(node))

    def hear(self, recording: Recording, source: Source) -> None:
        """Write down what a source told since the recording began, and up to when it vouches for that; what
        was heard before is not written again.

        Raises ApiError, MachineError, Problem, OSError.
        """
        history = recording.history()
        told = source.read(Hearing(self.lab, history, self._clock, self._present_clock))
        stood_still = _stood_still(history, told.node)
        for word in () if stood_still else told.words:
            known = (source.by, round(word.t, 6), word.what)
            if word.t >= history.began_t and known not in self._told:
                self._told.add(known)
                recording.append("told", word.t, by=source.by, what=word.what)
        lost = [Lost(history.began_t, told.until_t, stood_still)] if stood_still else told.unsure
        unsure = [each.to_json() for each in lost]
        facts = {"by": source.by, "error_s": round(told.error_s, 6), "unsure": unsure}
        recording.append("heard", told.until_t, **facts, node=told.node, boot_id=told.boot_id)

    def _clock(self, node: str) -> BootClock:
        if node not in self._clocks:
            raise Problem(f"nobody kept the clock of {node}", "scenario", "run a witness there first")
        return self._clocks[node]

    def _present_clock(self, node: str) -> BootClock:
        """Measured once in each boot: what is heard twice has the same time."""
        fresh = read_clock(self.lab.fleet.machine(node))
        return self._present.setdefault((node, fresh.boot_id), fresh)


def _stood_still(history: History, node: str) -> str:
    """Why nothing that was told on a node has its time, or nothing: its clock did not go on meanwhile."""
    for entry in history.of_kind("machine"):
        if entry.data["node"] == node and entry.data["step"] in _STANDS_STILL:
            return f"{node} stood still: its time since boot did not go on"
    return ""
