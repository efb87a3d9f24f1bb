"""The process that takes memory, disk and process IDs, and the window in which the pressure ends again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nodeproof.model.window import WindowContext, compute
from scenarios.conditions import test_pressure as pressure
from tests.fakes import executable
from tests.unit.histories import configuration, reported
from tests.waiting import eventually

TIMEOUT_S = 60.0
SIZE = 4096
"""Size of each allocation (bytes), in place of the scenario's."""
NOTIFY = """
children=$(wc -w <"/proc/$PPID/task/$PPID/children")
echo "$* $children $(stat -Lc %s "/proc/$PPID/fd/3") $(stat -Lc %s "/proc/$PPID/fd/4")" >"$STATE/part"
mv "$STATE/part" "$STATE/report"
"""


def test_pressure_counts_as_injected_once_everything_is_taken(tmp_path: Path) -> None:
    executable(tmp_path / "systemd-notify", NOTIFY)
    script = pressure.HOG.replace(str(pressure.MEMORY), str(SIZE)).replace(str(pressure.DISK), str(SIZE))
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STATE": str(tmp_path)}
    hog = subprocess.Popen(["sh", "-c", script], env=env, start_new_session=True)
    try:
        report = tmp_path / "report"
        assert eventually(report.exists, TIMEOUT_S)
        # The command that reports is a child, too.
        assert report.read_text().split() == ["--ready", str(pressure.PIDS + 1), str(SIZE), str(SIZE)]
    finally:
        os.killpg(hog.pid, signal.SIGKILL)
        hog.wait(TIMEOUT_S)


@pytest.mark.parametrize("freeing_s", [2.0, 9.0])
def test_slow_freeing_extends_the_end_of_pressure_alone(freeing_s: float) -> None:
    settings = {**reported(), "kubelet": {"nodeStatusUpdateFrequency": "10s"}}
    context = WindowContext(configuration(reported=settings), 0.0)
    prompt, slow = (compute(pressure.cleared(took_s), context, {}) for took_s in (0.0, freeing_s))
    assert slow.high_s - prompt.high_s == pytest.approx(freeing_s)
    assert (slow.low_s, slow.nominal_s) == (prompt.low_s, prompt.nominal_s)
