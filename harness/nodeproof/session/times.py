"""How long scenarios took, and labs to start, as pytest reports it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

import pytest

START = "start"
"""What the start of a lab is called among them."""
_PHASES = ("setup", "call", "teardown")


class Times:
    """A plugin of the process that gets all reports."""

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, float]] = {}
        self._first: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase. What was skipped or broke off before its end tells nothing."""
        if report.when not in _PHASES or report.skipped:
            return
        self._phases.setdefault(report.nodeid, {})[report.when] = report.duration
        if report.when == "setup" and report.passed:
            self._first.setdefault(str(getattr(report, "worker_id", "")), report.nodeid)

    def taken(self, scenarios: Collection[str], starts_labs: bool) -> Mapping[str, float]:
        """The times (s) of scenarios that came to their end; a worker's first one waits for the lab, whose
        start is the median of that.
        """
        first = set(self._first.values()) & set(scenarios)
        whole = {
            name: phases for name, phases in self._phases.items() if name in scenarios and len(phases) == 3
        }
        starts = [whole[name]["setup"] for name in first & whole.keys()] if starts_labs else []
        told = {START: statistics.median(starts)} if starts else {}
        for name, phases in whole.items():
            told[name] = sum(phases.values()) - (phases["setup"] if name in first else 0.0)
        return told


TIMES = pytest.StashKey[Times]()
