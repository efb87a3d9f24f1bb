"""Whoever measures comes before its labs, and those before other programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.ground import autogroup

LIMIT_S = 120.0
SHOWN = """
import os
from nodeproof.labs.client.starting import come_first
from nodeproof.labs.ground.autogroup import nice_of

come_first()
print(os.getsid(0) == os.getpid(), nice_of(), nice_of(os.getppid()))
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(),
    reason="needs root and a kernel with autogroups",
)


def test_a_worker_has_a_session_of_its_own_that_comes_first_and_changes_no_other() -> None:
    nice = autogroup.nice_of()
    shown = proc.run([sys.executable, "-c", SHOWN], timeout_s=LIMIT_S).stdout.split()
    assert shown == ["True", str(autogroup.HARNESS), str(nice)]


def test_a_lab_comes_after_its_harness_and_before_its_machines() -> None:
    assert 0 < autogroup.LAB < autogroup.STARTING <= autogroup.MACHINE
    assert autogroup.HARNESS + autogroup.LAB < 0
