"""How long scenarios took, and labs to start, as pytest reports it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import pytest

START = "start"
"""What the start of a lab is called among them."""


class Times:
    """A plugin of the process that gets all reports."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}
        self._starts_s: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase up. A worker's first scenario waits for the lab: that is the lab's time."""
        worker = str(getattr(report, "worker_id", ""))
        if report.when == "setup" and not report.skipped and worker not in self._starts_s:
            self._starts_s[worker] = report.duration
            return
        self._took_s[report.nodeid] = self._took_s.get(report.nodeid, 0.0) + report.duration

    def taken(self) -> Mapping[str, float]:
        """All times (s), by scenario; the start of a lab is their median."""
        starts = {START: statistics.median(self._starts_s.values())} if self._starts_s else {}
        return {**self._took_s, **starts}


TIMES = pytest.StashKey[Times]()
