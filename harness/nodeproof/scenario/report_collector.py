"""Reports that a scenario collects from its sources for its recording."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.history import History
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import Problem
from nodeproof.recording.node_messages import BootClock, read_clock
from nodeproof.recording.recorder import Recording
from nodeproof.sources.source import Source, SourceContext

_FREEZE_STEPS = ("frozen", "thawed")


@dataclass
class ReportCollector:
    """Collector of reports of one lab, with each node's clock in the boot that its witnesses run in."""

    lab: LabHandle
    _clocks: dict[str, BootClock] = field(default_factory=dict)
    _present: dict[tuple[str, str], BootClock] = field(default_factory=dict)
    _recorded: set[tuple[str, float, str]] = field(default_factory=set)

    def keep_clock(self, node: str) -> None:
        """Measure a node's clock in this boot, by which its witnesses report. Raises MachineError."""
        self._clocks[node] = read_clock(self.lab.fleet.machine(node))

    def collect(self, recording: Recording, source: Source) -> None:
        """Record a source's reports since the recording began, and until when they are complete.

        Reports that were recorded before are skipped.

        Raises:
            ApiError: The API did not answer.
            MachineError: A machine did not answer.
            Problem: The source cannot be read.
            OSError: A file cannot be read or written.
        """
        history = recording.history()
        report = source.read(SourceContext(self.lab, history, self._clock, self._present_clock))
        why_frozen = _why_frozen(history, report.node)
        for message in () if why_frozen else report.messages:
            key = (source.by, round(message.t, 6), message.what)
            if message.t >= history.began_t and key not in self._recorded:
                self._recorded.add(key)
                recording.append("told", message.t, by=source.by, what=message.what)
        lost_spans = [Lost(history.began_t, report.until_t, why_frozen)] if why_frozen else report.losses
        unsure = [span.to_json() for span in lost_spans]
        facts = {"by": source.by, "error_s": round(report.error_s, 6), "unsure": unsure}
        recording.append("heard", report.until_t, **facts, node=report.node, boot_id=report.boot_id)

    def _clock(self, node: str) -> BootClock:
        if node not in self._clocks:
            raise Problem(
                f"the clock of {node} was not measured", "lab.collect(...)", "run a witness on it first"
            )
        return self._clocks[node]

    def _present_clock(self, node: str) -> BootClock:
        """Measure a clock once in each boot, so that a report that is read twice has the same time."""
        fresh = read_clock(self.lab.fleet.machine(node))
        return self._present.setdefault((node, fresh.boot_id), fresh)


def _why_frozen(history: History, node: str) -> str:
    """Return why no report of a node has its true time, or an empty string: its clock was stopped."""
    for entry in history.of_kind("machine"):
        if entry.data["node"] == node and entry.data["step"] in _FREEZE_STEPS:
            return f"{node} stood still: its time since boot did not go on"
    return ""
