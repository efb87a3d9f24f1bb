"""Measure the durations of scenarios and lab starts from pytest's reports."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

import pytest

START = "start"
"""The key of a lab start among the durations of scenarios."""
ENDED = "nodeproof_ended"
"""Report property: the scenario ran to its end, whatever its verdict."""
LABEL = "nodeproof_label"
"""Report property: the worst verdict of the scenario."""
WAITED = "nodeproof_waited"
"""Report property: how long (s) the scenario waited for its turn."""
_PHASES = ("setup", "call", "teardown")


class Times:
    """A pytest plugin of the process that receives all reports."""

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, float]] = {}
        self._worker: dict[str, str] = {}
        self._ended: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a phase's duration, whatever its outcome."""
        if report.when in _PHASES:
            phases = self._phases.setdefault(report.nodeid, {})
            # Of a retried scenario, keep the first setup, which may include a lab start, and the last call.
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
        """Return the durations (s) of completed scenarios, and of a lab start.

        The setup of a worker's first scenario includes a lab start: the median of these setups is the
        duration of a start.
        """
        complete = {
            name: phases
            for name, phases in self._phases.items()
            if name in scenarios and name in self._ended and len(phases) == len(_PHASES)
        }
        first: dict[str, str] = {}
        for name in self._phases:
            if name in scenarios and "call" in self._phases[name]:
                first.setdefault(self._worker[name], name)
        with_start = set(first.values()) & complete.keys()
        starts = [complete[name]["setup"] for name in with_start] if starts_labs else []
        durations_s = {START: statistics.median(starts)} if starts else {}
        for name, phases in complete.items():
            durations_s[name] = sum(phases.values()) - (phases["setup"] if name in with_start else 0.0)
        return durations_s


TIMES = pytest.StashKey[Times]()
