"""Output of `nodeproof run` without a terminal, with scenarios that fail or skip without a lab."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import tables

TIMEOUT_S = 300.0
HELPER = """
def fetch():
    raise ValueError("no answer from the helper")
"""
SCENARIOS = """
import helper
import pytest

from nodeproof.cache import ProgressLine, Detail
from nodeproof.plugin import Judge
from nodeproof.scenario import claims, needs
from nodeproof.session.run import session_of


@claims("cordon.taint")
def test_raises(judge: Judge) -> None:
    helper.fetch()


@claims("cordon.display")
def test_uses_the_judge_wrongly(judge: Judge) -> None:
    judge.window("monitoring.detection-time")


@claims("heartbeat.lease-interval")
def test_records_nothing(judge: Judge, request: pytest.FixtureRequest) -> None:
    say = session_of(request.config).say
    say("a notice")
    say(Detail("a detail"))
    say(ProgressLine.of("some progress", 1, 2, is_milestone=False))


@claims("swap.fail-on-default")
@needs(features=("systemd",))
def test_needs_a_machine(judge: Judge) -> None:
    pass


@claims("swap.opt-out")
@needs(features=("systemd",))
def test_needs_a_machine_too(judge: Judge) -> None:
    pass
"""


@dataclass(frozen=True)
class Output:
    """The output of a run, and its folder."""

    text: str
    run: Path

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def output(folder: Path, *arguments: str) -> Output:
    """Run the scenarios."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "test_it.py").write_text(SCENARIOS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra\npythonpath = .\n")
    argv = (
        sys.executable,
        "-m",
        "nodeproof.cli",
        *arguments[:-1],
        "run",
        "--no-site",
        *arguments[-1].split(),
    )
    process = proc.run((*argv, "test_it.py"), timeout_s=TIMEOUT_S, cwd=folder, check=False)
    assert process.status == 3, process
    return Output(process.stderr + process.stdout, (folder / "reports" / "out" / "latest").resolve())


@pytest.fixture(scope="module", params=["-n 0", "-n 2"])
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """Return the output of a run in one process, and of one with workers."""
    return output(tmp_path_factory.mktemp("run"), request.param)


def test_each_finished_scenario_has_one_line_and_skips_are_counted(printed: Output) -> None:
    finished = [line.split() for line in printed.lines if line.startswith(("unproven: gap  ", "failed  "))]
    assert sorted((" ".join(words[:2]), words[-1]) for words in finished) == [
        ("unproven: gap", f"test_it.py::{name}")
        for name in ("test_raises", "test_records_nothing", "test_uses_the_judge_wrongly")
    ]
    assert "skipped: 2 scenarios that cannot prove anything here (lab-lacks: 2)" in printed.lines


def test_failure_shows_frames_of_the_scenario_and_not_of_nodeproof(printed: Output) -> None:
    failures = printed.text[printed.text.index(" FAILURES ") : printed.text.index(" claims ")]
    shown = [line.split(maxsplit=1)[1] for line in failures.splitlines() if line.startswith(("> ", "E "))]
    assert sorted(shown) == [
        "ValueError: no answer from the helper",
        "helper.fetch()",
        'judge.window("monitoring.detection-time")',
        "nodeproof.model.problem.Problem: claim monitoring.detection-time has no window "
        "(test_it.py::test_uses_the_judge_wrongly); add `window` to its YAML",
        'raise ValueError("no answer from the helper")',
    ]
    assert "judging.py" not in failures
    assert "finish.py" not in failures


def test_unproven_scenario_is_only_in_the_summary(printed: Output) -> None:
    assert printed.text.count("request the fixtures") == 1
    assert "short test summary info" not in printed.text
    assert re.search(r"2 failed, 2 skipped, \d+ warnings, 1 unproven", printed.lines[-1])


def test_marker_claims_and_fixture_judge_are_deprecated(printed: Output) -> None:
    summary = printed.text[printed.text.index(" warnings summary ") :]
    assert 'DeprecationWarning: @claims is deprecated: claim("page.sentence").expect(...)' in summary
    assert 'DeprecationWarning: the fixture `judge` is deprecated: use claim("page.sentence")' in summary


def test_details_and_intermediate_progress_are_not_in_a_log(printed: Output) -> None:
    notices = [line for line in printed.lines if line.startswith("nodeproof: ")]
    assert "nodeproof: a notice" in notices
    assert not {"nodeproof: a detail", "nodeproof: some progress"} & set(notices)


def test_table_of_all_claims_is_in_the_run(printed: Output) -> None:
    assert "swap.opt-out " in (printed.run / tables.FILE).read_text()
    assert "swap.opt-out " not in printed.text
    assert f"run folder: {printed.run}" in printed.lines


def test_lists_details_table_and_tracebacks_are_printed_on_request(tmp_path: Path) -> None:
    printed = output(tmp_path, "--debug", "-n 0 -v -rs --table")
    assert "nodeproof: a detail" in printed.lines
    assert "SKIPPED [2] " in printed.text
    assert (printed.run / tables.FILE).read_text() in printed.text
    assert "judging.py" in printed.text
