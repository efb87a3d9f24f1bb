"""`.ci/run` with a fake `make`: parallel parts, signals, and the table at its end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeproof import proc
from tests.fakes import executable
from tests.waiting import eventually

TOP = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0
MAKE = """
trap 'echo "$1 was ended" >>"$CALLS"; exit 1' TERM INT
echo "$1 began" >>"$CALLS"
while [ ! -e "$GO_ON/$1" ] && [ ! -e "$GO_ON/all" ]; do sleep 0.1; done
echo "$1 is done" >>"$CALLS"
[ ! -e "$FAILS/$1" ]
"""


@dataclass(frozen=True)
class Ci:
    """A running `.ci/run`, and the folders that control its `make`."""

    top: Path
    process: proc.Process

    def calls(self) -> list[str]:
        """Return the calls of each part so far."""
        path = self.top / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, *calls: str) -> None:
        """Wait until parts have made these calls."""
        assert eventually(lambda: set(calls) <= set(self.calls()), TIMEOUT_S), self.calls()

    def go_on(self, *parts: str) -> None:
        """Let parts end, or all of them."""
        for part in parts:
            (self.top / "go_on" / part).touch()

    def ended(self) -> tuple[int, str]:
        """Return the exit status and the output."""
        return self.process.wait(timeout=TIMEOUT_S), (self.top / "log").read_text()


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[Ci]:
    for name in (".ci/run", "tests/table.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(TOP / name, tmp_path / name)
    for folder in ("go_on", "fails"):
        (tmp_path / folder).mkdir()
    make = executable(tmp_path / "bin" / "make", MAKE)
    environment = {
        **os.environ,
        "PATH": f"{make.parent}:{os.environ['PATH']}",
        **{name: str(tmp_path / name.lower()) for name in ("CALLS", "GO_ON", "FAILS")},
    }
    argv = ["env", "--default-signal=INT", str(tmp_path / ".ci" / "run")]
    process = proc.start(argv, log=tmp_path / "log", cwd=tmp_path, env=environment, own_session=True)
    try:
        yield Ci(tmp_path, process)
    finally:
        process.terminate()
        process.wait(timeout=TIMEOUT_S)


def test_remaining_ci_parts_run_in_parallel_after_make_test_passed(ci: Ci) -> None:
    ci.wait_for("test began")
    assert ci.calls() == ["test began"]
    ci.go_on("test")
    ci.wait_for("rest-contract began", "documented began")
    ci.go_on("all")

    status, output = ci.ended()
    assert status == 0, output
    assert output.count("passed") == sum(call.endswith("began") for call in ci.calls())


def test_nothing_runs_in_parallel_with_virtual_machines(ci: Ci) -> None:
    ci.go_on("test", "documented", "rest-contract")
    ci.wait_for("test-vm began")
    assert [call for call in ci.calls() if call.endswith("began")][-1] == "test-vm began"
    ci.go_on("test-vm")
    ci.wait_for("sensitivity-ten began")
    ci.go_on("all")

    assert ci.ended()[0] == 0


def test_failed_parallel_part_fails_ci_after_the_other_parts(ci: Ci) -> None:
    (ci.top / "fails" / "documented").touch()
    ci.go_on("all")

    status, output = ci.ended()
    assert status == 1
    assert "rest-contract is done" in ci.calls()
    assert "test-vm began" not in ci.calls()
    assert "failed (1)" in output


def test_failed_make_test_ends_ci(ci: Ci) -> None:
    (ci.top / "fails" / "test").touch()
    ci.go_on("all")

    assert ci.ended()[0] == 1
    assert ci.calls() == ["test began", "test is done"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_running_parts_and_starts_no_other(ci: Ci, number: signal.Signals) -> None:
    ci.go_on("test")
    ci.wait_for("rest-contract began", "documented began")
    ci.process.send_signal(number)

    status, output = ci.ended()
    assert status == 128 + number
    assert {"rest-contract was ended", "documented was ended"} <= set(ci.calls())
    assert sum(call.endswith("began") for call in ci.calls()) == 3
    assert "all of CI took" in output


TABLE = Path(__file__).resolve().parents[1] / "table.py"


def test_part_that_failed_before_any_test_is_reported(tmp_path: Path) -> None:
    (tmp_path / "parts").write_text("test\t3\t1320\t2\n")
    argv = [sys.executable, "-I", str(TABLE), str(tmp_path / "parts"), str(tmp_path / "*.xml")]
    assert "failed (2)" in proc.run(argv, timeout_s=120, cwd=tmp_path).stdout
