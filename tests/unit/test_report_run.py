"""A stored run: merged, rechecked from edited evidence, drawn, and read without the live half."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.checks import moments
from nodeproof.checks.judge import judge
from nodeproof.model import window
from nodeproof.model.history import History, parse_time
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import recheck, rundir, timeline
from nodeproof.report.rundir import Row
from tests.unit import histories, sample_checks
from tests.unit.histories import NAMESPACE, OTHER, POD, wall
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


def edit(folder: Path, change: Callable[[dict[str, Json]], dict[str, Json] | None]) -> None:
    """Rewrite a stored history line by line; None drops a line."""
    path = folder / "history.jsonl"
    changed = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps(line) for line in changed if line is not None) + "\n")


def is_leaving(line: dict[str, Json]) -> bool:
    is_pod = line["kind"] == "watch" and line["resource"] == "pods"
    return is_pod and "deletionTimestamp" in line["object"]["metadata"]


def delay_deletion(line: dict[str, Json]) -> dict[str, Json]:
    """Move the pod's deletion and removal 4 s later."""
    if not is_leaving(line):
        return line
    meta = line["object"]["metadata"]
    meta["deletionTimestamp"] = wall(parse_time(meta["deletionTimestamp"]) - histories.WALL_OFFSET_S + 4.0)
    return {**line, "t": line["t"] + 4.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process"))


def of(rows: Iterable[Row], claim_id: str) -> Row:
    return next(row for row in rows if row["claim"] == claim_id)


def test_recheck_of_an_untouched_run_gives_its_stored_verdicts(run: Path) -> None:
    store(run)
    stored = rundir.merge_verdicts(run)
    again = recheck.recheck(run, CLAIMS).digest.rows
    assert [row["verdict"] for row in stored] == ["conforms"] * len(JUDGMENTS)
    assert recheck.differences(stored, again) == []
    assert again == stored
    assert json.loads((run / recheck.FILE).read_text()) == list(again)


def test_dropped_events_are_a_gap_on_recheck(run: Path) -> None:
    folder = store(run)
    stored = rundir.merge_verdicts(run)
    edit(folder, lambda line: None if is_leaving(line) else line)
    again = recheck.recheck(run, CLAIMS).digest.rows
    row = of(again, "eviction.toleration-seconds-override")
    assert (row["verdict"], row["code"]) == ("unproven", "gap")
    assert "differ between LIST and watch" in row["reason"]
    changed = {change.claim: (change.before, change.after) for change in recheck.differences(stored, again)}
    assert changed["eviction.toleration-seconds-override"] == ("conforms", "unproven: gap")


def test_recording_with_any_gap_proves_no_absence(run: Path) -> None:
    folder = store(run)
    edit(folder, lambda line: None if line.get("type") == "DELETED" else line)
    row = of(recheck.recheck(run, CLAIMS).digest.rows, "partition.unknown-state")
    assert (row["verdict"], row["code"]) == ("unproven", "gap")


def test_event_moved_in_time_deviates_on_recheck(run: Path) -> None:
    folder = store(run)
    edit(folder, delay_deletion)
    row = of(recheck.recheck(run, CLAIMS).digest.rows, "eviction.toleration-seconds-override")
    assert row["verdict"] == "deviates"
    assert "too late" in row["reason"]
    assert row["measured"]["value"] == pytest.approx(14.1, abs=0.01)


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


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.unit import test_report_run as sample
for number in range(10):
    sample.store(Path(sys.argv[2]), f"s.py::test_{sys.argv[3]}_{number}")
"""


def test_two_workers_write_and_one_controller_merges(run: Path, tmp_path: Path) -> None:
    here = str(Path(__file__).parents[2])
    workers = [
        proc.start((sys.executable, "-c", _WRITER, here, str(run), name), log=tmp_path / f"{name}.log")
        for name in ("gw0", "gw1")
    ]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0]
    rows = rundir.merge_verdicts(run)
    assert rundir.read_verdicts(run) == rows
    assert len({row["scenario"] for row in rows}) == 20
    assert len(rows) == 20 * len(JUDGMENTS)
    assert list(rows) == sorted(rows, key=lambda row: str(row["scenario"]))


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
