"""A broken result for Allure, of a scenario that nobody was left to write one of."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from allure_commons.logger import AllureFileLogger
from allure_commons.model2 import Status, StatusDetails, TestResult

DIED = " (its worker died)"
"""Ends the name of a scenario whose worker died in it."""


def report(run: Path, nodeid: str, reason: str) -> None:
    """Let the run's site show the scenario as broken."""
    result = TestResult(
        uuid=str(uuid.uuid4()),
        name=nodeid.rpartition("::")[2],
        fullName=nodeid,
        status=Status.BROKEN,
        statusDetails=StatusDetails(message=reason),
    )
    result.start = result.stop = int(time.time() * 1000)
    AllureFileLogger(str(run / "allure-results")).report_result(result)
