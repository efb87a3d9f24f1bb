"""A stored run: merged, rechecked from edited evidence, drawn, and read without the live half."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.checks import moments
from nodeproof.checks.judge import judge
from nodeproof.model import window
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import recheck, rundir, timeline
from tests.unit import histories, sample_checks
from tests.unit.histories import NAMESPACE, OTHER, POD
from tests.unit.synthetic_runs import CLAIMS, FACTS

Json = Any
SCENARIO = "scenarios/eviction/test_partition.py::test_pods_leave_a_partitioned_node"
CONFIGURATION = histories.configuration()
OTHER_STAYS = moments.condition_became(OTHER, "Ready", "Unknown").never_after(
    moments.fault_step("cut", "injected"), window.absence(10.0)
)
JUDGMENTS = (
    Judgment("monitoring.detection-time", sample_checks.DETECTION),
    Judgment("taints.unreachable-noexecute", sample_checks.TAINT),
    Judgment("eviction.toleration-seconds-override", sample_checks.EVICTION),
    Judgment("partition.unknown-state", OTHER_STAYS),
)


def partition() -> History:
    """Return the recording of a node cut off until its pod was deleted, and healed."""
    story = histories.partition()
    story.fault(46.0, "healing", "healed")
    story.condition(47.0, "True")
    story.untaint(47.3)
    story.remove(48.0, "pods", NAMESPACE, POD)
    return story.fence(49.0).history()


def judged(history: History) -> list[tuple[Judgment, Verdict]]:
    return [
        (judgment, judge(CLAIMS[judgment.claim], judgment.check, history, CONFIGURATION))
        for judgment in JUDGMENTS
    ]


def store(run: Path, nodeid: str = SCENARIO) -> Path:
    """Store what the recorder and the plugin write for one scenario."""
    history = partition()
    folder = rundir.scenario_dir(run, nodeid)
    lines = [line.to_json() for line in history.entries]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    rows = [
        rundir.row(CLAIMS[judgment.claim], nodeid, verdict, CONFIGURATION)
        for judgment, verdict in judged(history)
    ]
    return rundir.write_scenario(run, nodeid, JUDGMENTS, CONFIGURATION, rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process"))


def test_recheck_of_an_untouched_run_gives_its_stored_verdicts(run: Path) -> None:
    store(run)
    stored = rundir.merge_verdicts(run)
    again = recheck.recheck(run, CLAIMS).digest.rows
    assert [row["verdict"] for row in stored] == ["conforms"] * len(JUDGMENTS)
    assert recheck.differences(stored, again) == []
    assert again == stored
    assert json.loads((run / recheck.FILE).read_text()) == list(again)


def _replace_first(folder: Path, judgment: Judgment) -> None:
    stored = json.loads((folder / "judgments.json").read_text())
    stored["judgments"][0] = {"claim": judgment.claim, "check": judgment.check.to_json()}
    stored["verdicts"][0]["claim"] = judgment.claim
    rundir.write_json(folder / "judgments.json", stored)


def test_failing_check_costs_only_its_own_row(run: Path) -> None:
    _replace_first(store(run), Judgment("monitoring.detection-time", Check("tea-leaves", {})))
    before = rundir.merge_verdicts(run)
    first, *others = recheck.recheck(run, CLAIMS).digest.rows
    assert (first["verdict"], first["code"]) == ("unproven", "check-failed")
    assert "KeyError: 'tea-leaves'" in first["reason"]
    assert [row["verdict"] for row in others] == [row["verdict"] for row in before[1:]]


def test_fields_of_a_later_version_are_ignored(run: Path) -> None:
    store(run)
    rundir.write_facts(run, FACTS)
    facts = json.loads((run / "run.json").read_text())
    rundir.write_json(run / "run.json", {**facts, "surprise": 1})
    rows = rundir.merge_verdicts(run)
    rundir.write_json(run / "verdicts.json", [{**row, "surprise": 1} for row in rows])
    assert rundir.read_facts(run) == FACTS
    assert len(rundir.read_verdicts(run)) == len(rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *product(("history.jsonl", "configuration.json", "judgments.json"), ("{ not json", '{"t": 1}', "[]")),
        *product(("history.jsonl", "configuration.json"), (None,)),
    ],
)
def test_malformed_or_missing_file_is_named(run: Path, name: str, content: str | None) -> None:
    path = store(run) / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(Problem) as caught:
        [recheck.rejudge(scenario, CLAIMS) for scenario in rundir.read_scenarios(run)]
    assert str(path) in str(caught.value)


_BLOCKED = """
import sys
BLOCKED = {"kubernetes", "paramiko", "libvirt", "pyroute2", "cryptography"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from nodeproof.report import digest, junit, recheck, rundir, site, tables, timeline
from tests.unit import test_report_run as sample
rows = recheck.recheck(Path(sys.argv[2]), sample.CLAIMS).digest.rows
print(tables.render(rows, 12.0, "here"))
live = "artifacts cluster doctor faults labs machines plugin recording safety scenario".split()
loaded = [name for name in live if f"nodeproof.{name}" in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else digest.exit_code(rows, (), ()))
"""


def test_recheck_runs_without_packages_of_the_live_half(run: Path) -> None:
    store(run)
    here = str(Path(__file__).parents[2])
    result = proc.run((sys.executable, "-c", _BLOCKED, here, str(run)), timeout_s=240)
    assert "conforms 4" in result.stdout


def test_timeline_of_an_empty_recording_is_drawn(run: Path) -> None:
    path = timeline.render(History.of(()), (), run / "timeline.svg")
    assert path.read_text().startswith("<svg ")
