"""How long scenarios took, and labs to start, as pytest reports it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

import pytest

START = "start"
"""What the start of a lab is called among them."""
ENDED = "nodeproof_ended"
"""The property of a report whose scenario came to its end, whatever its verdict."""
LABEL = "nodeproof_label"
"""The property of a report with the worst verdict of its scenario."""
WAITED = "nodeproof_waited"
"""The property of a report with how long (s) its scenario waited for its turn."""
_PHASES = ("setup", "call", "teardown")


class Times:
    """A plugin of the process that gets all reports."""

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, float]] = {}
        self._worker: dict[str, str] = {}
        self._ended: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase, whatever its outcome: a scenario that came to its end took its time."""
        if report.when in _PHASES:
            phases = self._phases.setdefault(report.nodeid, {})
            # Of a scenario that runs again the first set-up may have started a lab, and the last call tells.
            if report.when == "setup":
                waits = (value for name, value in report.user_properties if name == WAITED)
                waited_s = sum(float(str(value)) for value in waits)
                phases.setdefault("setup", report.duration - waited_s)
            else:
                phases[report.when] = report.duration
            self._worker.setdefault(report.nodeid, str(getattr(report, "worker_id", "")))
        if (ENDED, True) in report.user_properties:
            self._ended.add(report.nodeid)

    def taken(self, scenarios: Collection[str], starts_labs: bool) -> Mapping[str, float]:
        """The times (s) of scenarios that came to their end; a worker's first one waits for the lab, whose
        start is the median of that. What broke off before tells nothing.
        """
        whole = {
            name: phases
            for name, phases in self._phases.items()
            if name in scenarios and name in self._ended and len(phases) == len(_PHASES)
        }
        first: dict[str, str] = {}
        for name in self._phases:
            if name in scenarios and "call" in self._phases[name]:
                first.setdefault(self._worker[name], name)
        waited = set(first.values()) & whole.keys()
        starts = [whole[name]["setup"] for name in waited] if starts_labs else []
        told = {START: statistics.median(starts)} if starts else {}
        for name, phases in whole.items():
            told[name] = sum(phases.values()) - (phases["setup"] if name in waited else 0.0)
        return told


TIMES = pytest.StashKey[Times]()
