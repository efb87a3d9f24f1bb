"""The folder of a run: its rows and exit codes, a run of an early version, and its recovery table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from nodeproof.model.claim import Constant
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import History
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Measured, Verdict, conforms, unproven
from nodeproof.report import allure, digest, recovery, rundir
from nodeproof.report.digest import exit_code, named_claims, worst_by_claim
from nodeproof.report.recheck import differences, recheck
from nodeproof.report.recovery import Cell, Recovery
from tests.golden_runs import thawed_run
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, RESOURCES, TOLERATION_S, Story
from tests.unit.histories import configuration as story_configuration
from tests.unit.in_process import Call
from tests.unit.sample_checks import GRACE
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    DEVIATES,
    FACTS,
    FIXED,
    GAP,
    KNOWN,
    claim,
    configuration,
    row,
    tell,
)

# Rows, exit codes and the run folder.


SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())
SCALED = unproven("scaled", "--node-monitor-grace-period=12s was given")


@pytest.mark.parametrize(
    "verdict",
    [CONFORMS, DEVIATES, KNOWN, FIXED, conforms("9 looks", None, Measured("up"))]
    + [unproven(code, "a reason") for code in get_args(Code) if code],
)
def test_rows_match_the_published_schema(verdict: Verdict) -> None:
    shown = row("a.b", verdict, "s.py::test_it", GRACE)
    jsonschema.validate(json.loads(json.dumps([shown])), SCHEMA)
    assert shown.keys() - {"reported"} == rundir.ROW_FIELDS
    assert digest.verdict_of(shown).label == verdict.label


def test_row_of_mixed_versions_matches_the_published_schema() -> None:
    mixed = replace(configuration(), node_versions={"node-1": "v1.35.0"}, upgraded_to="v1.37.2")
    shown = rundir.row(claim("a.b"), "s.py::test_it", replace(CONFORMS, kubelet_version="v1.35.0"), mixed)
    jsonschema.validate([shown], SCHEMA)


def test_row_shows_known_drift_beside_a_conforming_verdict() -> None:
    shown = row("a.b", CONFORMS, "s.py::test_it", GRACE)
    assert shown["verdict"] == "conforms"
    assert shown["page"] == {"agreement": "differs", "says": "40 s", "cluster": "50 s", "drift": ""}


def test_constant_missing_in_the_catalogue_is_a_problem() -> None:
    unknown = Constant("grace", "c", "r", "f", "s", ((">=1.40", 50.0),), 40.0, "pkg/x.go")
    with pytest.raises(Problem, match=r"a\.b"):
        row("a.b", CONFORMS, "s.py::test_it", unknown)


@pytest.mark.parametrize(
    ("verdicts", "options", "expected"),
    [
        ([CONFORMS], {}, 0),
        ([SCALED], {}, 0),
        ([SCALED], {"named": ["a.b"]}, 3),
        ([GAP], {}, 3),
        ([CONFORMS, GAP], {}, 3),
        ([GAP, DEVIATES, CONFORMS], {}, 1),
        ([], {}, 3),
        ([CONFORMS], {"is_whole": False}, 3),
        ([DEVIATES], {"is_whole": False}, 1),
        ([CONFORMS], {"is_whole": False, "abort_reason": "killed"}, 2),
        ([CONFORMS], {"abort_reason": "no root"}, 2),
        ([], {"abort_reason": "no root"}, 2),
        ([GAP], {"abort_reason": "no root"}, 3),
        ([GAP, DEVIATES], {"abort_reason": "no root"}, 1),
        ([DEVIATES], {"selected": []}, 1),
        ([KNOWN, CONFORMS], {"named": ["a.b"]}, 0),
        ([KNOWN, DEVIATES], {}, 1),
        ([KNOWN, GAP], {}, 3),
        ([GAP], {"selected": []}, 0),
    ],
)
def test_exit_code_follows_verdicts_and_end(verdicts: list[Verdict], options: Json, expected: int) -> None:
    rows = [row("a.b", verdict) for verdict in verdicts]
    assert exit_code(rows, **{"named": [], "selected": ["a.b"], **options}) == expected


@pytest.mark.parametrize("arguments", ["-n 3 --claim a.b --claim=c.d", "--claim=c.d --claim a.b -x"])
def test_selected_claims_are_read_from_the_command_line(arguments: str) -> None:
    assert sorted(named_claims(FACTS, arguments.split())) == ["a.b", "c.d"]
    shard = replace(FACTS, shard={"number": 1}, selected=("c.d",))
    assert named_claims(shard, arguments.split()) == ["c.d"]
    assert named_claims(replace(FACTS, command="pytest --claim a.b; pytest -x")) == ["a.b"]


def test_worst_row_decides_a_claim() -> None:
    rows = [row("a.b", verdict) for verdict in (CONFORMS, SCALED, GAP, DEVIATES, CONFORMS)]
    for count, expected in enumerate(("conforms", "unproven", "unproven", "deviates", "deviates"), 1):
        assert worst_by_claim(rows[:count])["a.b"]["verdict"] == expected
    assert worst_by_claim(rows[:3])["a.b"]["code"] == "gap"


def test_runs_started_in_one_second_get_separate_folders(tmp_path: Path) -> None:
    runs = [rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process")) for _ in range(5)]
    assert len(set(runs)) == 5
    assert all((run / "scenarios").is_dir() for run in runs)


def test_slugs_are_readable_and_unique_per_node_id() -> None:
    one, other = rundir.slug("a/b/test_x.py::test_y[1 2]"), rundir.slug("a/b/test_x.py::test_y[1-2]")
    assert one.startswith("test-x-test-y-1-2-")
    assert one != other
    assert len(rundir.slug("x.py::" + "y" * 500)) < 120


def test_latest_is_a_relative_link_to_the_newest_run(tmp_path: Path) -> None:
    for _ in range(2):
        run = rundir.create(rundir.new_folder(tmp_path, "fast", "process"))
        rundir.point_latest(tmp_path, run)
        assert (tmp_path / "latest").readlink() == Path(run.name)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_facts_survive_their_file_and_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    facts = replace(FACTS, quarantined=("node-9",), selected=("a.b",))
    rundir.write_json(tmp_path / "run.json", {**asdict(facts), "surprise": 1})
    rundir.write_json(tmp_path / "verdicts.json", [{**row("a.b", CONFORMS), "surprise": 1}])
    assert rundir.read_facts(tmp_path) == facts
    assert facts.duration_s == 362.0
    assert len(rundir.read_verdicts(tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("profile", 1, "profile is no text"),
        ("ended", None, "ended is no text"),
        ("selected", ["a.b", 1], "an entry of selected is no text"),
    ],
)
def test_field_of_another_type_is_named(tmp_path: Path, name: str, value: Json, message: str) -> None:
    rundir.write_json(tmp_path / "run.json", {**asdict(FACTS), name: value})
    with pytest.raises(Problem, match=message):
        rundir.read_facts(tmp_path)


def test_run_whose_clock_was_set_back_has_duration_zero() -> None:
    assert replace(FACTS, ended="2026-11-20T14:10:00+00:00").duration_s == 0.0


@pytest.mark.parametrize(("scenarios", "expected"), [(("a", "b"), "conforms"), (("a", "a"), "unproven")])
def test_skip_hides_only_verdicts_of_its_own_scenario(scenarios: tuple[str, str], expected: str) -> None:
    pairs = zip(scenarios, (SCALED, CONFORMS), strict=True)
    rows = [row("a.b", verdict, scenario) for scenario, verdict in pairs]
    assert worst_by_claim(rows)["a.b"]["verdict"] == expected


# A run of an early version: every reader accepts it and reports its verdicts.


LEASE, TAINT = "heartbeat.lease-interval", "taints.unreachable-noexecute"
JUDGED_OTHERWISE = {(LEASE, "conforms", "unproven: gap")}
"""Judged differently since a rule changed: a renewal from before the recording does not count."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with two conforming scenarios, a deviating and an unproven one."""
    return thawed_run("format-1", tmp_path / "before")


def test_facts_verdicts_and_results_of_an_early_run_are_read(run: Path) -> None:
    facts = rundir.read_facts(run)
    assert (facts.lab, facts.profile, facts.shard, facts.merged) == ("process", "fast", None, ())
    rows = rundir.read_verdicts(run)
    jsonschema.validate(list(rows), SCHEMA)
    assert rundir.merge_verdicts(run) == rows
    assert digest.read(run, CLAIMS).is_whole
    # They have no label of their scenario.
    assert allure.last_results(run / allure.RESULTS).keys() == {row["scenario"] for row in rows}


def test_page_and_summary_of_an_early_run_deviate(run: Path, call: Call) -> None:
    page = Path(call("page", str(run)).out.strip()).read_text()
    assert "1 of 20 renewals of node-1 lie outside" in page
    assert "kube-controller-manager killed by SIGKILL" in page
    output = call("summary", str(run)).out
    assert "## Kubernetes `v1.36.3, process, fast`: 1 deviate" in output
    for counted in ("| ✗ deviate | 1 |", "| ? should have been proven | 2 |", "| ✓ conform | 2 |"):
        assert counted in output
    assert "slack was not written down" in output


def test_early_and_current_run_compare(run: Path, tmp_path: Path, call: Call) -> None:
    today = tell(tmp_path / "today", [("a.py::test_a", LEASE, CONFORMS), ("b.py::test_b", TAINT, CONFORMS)])
    worse = call("compare", str(today), str(run))
    assert worse.status == 1
    assert LEASE in worse.out.partition("other verdicts")[0]
    assert call("compare", str(run), str(run)).status == 0
    assert "deviates 5.270 s" in call("matrix", str(run), str(today)).out


def test_early_run_is_rechecked_from_its_recordings(run: Path) -> None:
    before = rundir.read_verdicts(run)
    again = recheck(run, CLAIMS).digest.rows
    changed = differences(before, again)
    assert {(change.claim, change.before, change.after) for change in changed} == JUDGED_OTHERWISE
    assert [row["claim"] for row in again] == [row["claim"] for row in before]


# The recovery table: which times it has for a node, a pod and a volume, and what it leaves out.


FAULT_T, LOST_T, EVICTED_T, READY_T, HEALED_T, BACK_T = 20.0, 32.5, 39.0, 41.0, 60.0, 62.0
OWNER = {"uid": "set", "kind": "ReplicaSet", "controller": True}
VOLUMES = "volumeattachments"


def pod(node: str, status: str = "True", owner: Json = OWNER, **condition: str) -> Json:
    toleration = {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": TOLERATION_S}
    conditions = [{"type": "Ready", "status": status}, *([condition] if condition else ())]
    return {
        "metadata": {"ownerReferences": [owner]},
        "spec": {"nodeName": node, "tolerations": [toleration]},
        "status": {"conditions": conditions},
    }


def attachment(node: str) -> Json:
    spec = {"nodeName": node, "source": {"persistentVolumeName": "data"}}
    return {"spec": spec, "status": {"attached": True}}


def lost_node(
    *, ends_heartbeats: bool = True, owner: Json = OWNER, evicted_by: str = "DeletionByTaintManager"
) -> History:
    """Return a recording of a partition: a pod and a volume move from the lost node to the other."""
    story = Story(resources=(*RESOURCES, VOLUMES))
    story.change(1.0, "pods", NAMESPACE, POD, pod(NODE, owner=owner))
    story.change(1.0, VOLUMES, "", "old", attachment(NODE))
    story.renewals(1.0, FAULT_T if ends_heartbeats else FAULT_T + 4.0)
    fault = {"id": "cut", "fault": {"fault": "partition"}, "node": NODE}
    story.say(FAULT_T, "fault", **fault, step="injected").condition(LOST_T, "Unknown")
    gone = pod(NODE, owner=owner, type="DisruptionTarget", status="True", reason=evicted_by)
    story.change(EVICTED_T, "pods", NAMESPACE, POD, gone).evict(EVICTED_T)
    story.change(EVICTED_T + 0.5, "pods", NAMESPACE, "new", pod(OTHER, "False", owner))
    story.change(READY_T, "pods", NAMESPACE, "new", pod(OTHER, owner=owner))
    story.change(READY_T + 1.0, VOLUMES, "", "new", attachment(OTHER))
    story.say(HEALED_T, "fault", **fault, step="healing").condition(BACK_T, "True")
    return story.history()


def test_recovery_has_the_time_of_each_step_and_what_the_settings_promise() -> None:
    (measured,) = recovery.measure(lost_node(), story_configuration())
    assert (measured.fault, measured.node) == ("partition", NODE)
    times = [getattr(measured, name) for name in recovery.MEASURES]
    expected = [t - FAULT_T for t in (LOST_T, EVICTED_T, READY_T, READY_T + 1.0)]
    assert times == pytest.approx([*expected, BACK_T - HEALED_T])
    settings = story_configuration()
    earliest_s, latest_s = measured.documented_s["detected_s"]
    assert earliest_s < settings["G"] < latest_s
    assert measured.documented_s["evicted_s"][0] == pytest.approx(earliest_s + TOLERATION_S)


@pytest.mark.parametrize(
    ("history", "measure"),
    [
        (lost_node(evicted_by="EvictionByEvictionAPI"), "evicted_s"),
        (lost_node(owner={**OWNER, "kind": "DaemonSet"}), "replaced_s"),
        (lost_node(owner={**OWNER, "controller": False}), "replaced_s"),
    ],
)
def test_deletion_by_others_and_pods_of_no_deployment_do_not_count(history: History, measure: str) -> None:
    (measured,) = recovery.measure(history, story_configuration())
    assert getattr(measured, measure) is None


def test_node_that_still_sent_heartbeats_was_not_lost_by_the_fault() -> None:
    assert not list(recovery.measure(lost_node(ends_heartbeats=False), story_configuration()))


def test_table_has_medians_of_nodes_and_of_earlier_runs() -> None:
    own = [
        Recovery("partition", f"node-{n}", detected_s=t, documented_s={"detected_s": (t, t + 5)})
        for n, t in enumerate((10.0, 12.0, 17.0))
    ]
    earlier = [[Recovery(*other)] for other in (("partition", NODE, 9.0), ("partition", NODE, 11.0))]
    earlier.append([Recovery("freeze", NODE, 50.0)])
    cells = recovery.table(own, earlier)["partition"]
    assert cells["detected_s"].measured == "12.0 s (10.0 to 17.0, 3 nodes)"
    assert cells["detected_s"].documented == "10.0 to 22.0 s"
    assert cells["detected_s"].earlier == "10.0 s"
    assert cells["back_s"] == Cell([], None, [])


def test_stored_recoveries_are_read_and_a_broken_file_is_left_out(tmp_path: Path) -> None:
    recovery.write(rundir.scenario_dir(tmp_path, "a.py::test_a"), lost_node(), story_configuration())
    (rundir.scenario_dir(tmp_path, "b.py::test_b") / recovery.FILE).write_text("[{]")
    (stored,) = recovery.read(tmp_path)
    (measured,) = recovery.measure(lost_node(), story_configuration())
    assert replace(stored, documented_s={}) == replace(measured, documented_s={})
