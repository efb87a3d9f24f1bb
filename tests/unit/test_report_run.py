"""A stored run: merged, judged again from edited evidence, drawn, and read without the live half."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodeproof import catalogue, cli, proc
from nodeproof.checks import moments
from nodeproof.checks.checks import renewals_of
from nodeproof.checks.judge import judge
from nodeproof.model import window
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import LEASE_NAMESPACE, UNREACHABLE, Calibration, Configuration
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History, parse_time
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import recheck, rundir, timeline
from nodeproof.report.rundir import Row

Json = Any
WALL = 1_790_000_000.0
NODES = ("node-1", "node-2", "node-3")
SCENARIO = "scenarios/eviction/test_partition.py::test_pods_leave_a_partitioned_node"
CUT, UNKNOWN, TAINTED, EVICTED, HEALED, BACK, ENDED = 10.0, 22.1, 22.3, 32.4, 42.0, 44.0, 50.0


def claim(claim_id: str, area: str) -> Claim:
    return Claim(
        claim_id, area, "As the page says.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (), ()
    )


CLAIMS = {
    entry.id: entry
    for entry in (
        claim("monitoring.detection-time", "monitoring"),
        claim("taints.unreachable-noexecute", "taints"),
        claim("eviction.toleration-seconds-override", "eviction"),
        claim("heartbeat.lease-interval", "heartbeat"),
        claim("partition.others-stay", "partition"),
    )
}
REPORTED = {
    "kube-controller-manager": {
        "NodeLifecycleController": {"NodeMonitorGracePeriod": "12s", "NodeEvictionRate": 0.9},
        "KubeCloudShared": {"NodeMonitorPeriod": "1s"},
    },
    "kubelet": {"nodeLeaseDurationSeconds": 8},
    "kube-apiserver": {"DefaultTolerationSeconds": {"Unreachable": 10.0}},
}
CONFIGURATION = Configuration(
    kubernetes_version="v1.36.3",
    lab="process",
    profile="fast",
    slack_limit_s=1.0,
    reported=REPORTED,
    negative_wait_s=20.0,
    calibration=Calibration(0.03, {"node-1": 0.002}, 0.0),
)
FACTS = rundir.RunFacts(
    run="run-1",
    began="2026-11-20T10:00:00+00:00",
    ended="2026-11-20T10:01:00+00:00",
    lab="process",
    profile="fast",
    kubernetes_version="v1.36.3",
    command="pytest",
    components={},
    settings=(),
    quarantined=(),
    selected=(),
    exit_reason="",
)
UNKNOWN_CONDITION = moments.condition_became("node-1", "Ready", "Unknown")
TAINT = moments.taint_added("node-1", UNREACHABLE, "NoExecute")
JUDGMENTS = (
    Judgment(
        "monitoring.detection-time",
        UNKNOWN_CONDITION.after(moments.last_heartbeat("node-1", UNKNOWN_CONDITION), window.detection()),
    ),
    Judgment("taints.unreachable-noexecute", TAINT.after(UNKNOWN_CONDITION, window.taint_pass())),
    Judgment(
        "eviction.toleration-seconds-override",
        moments.pod_deletion("default", "web-1").after(TAINT, window.toleration(10)),
    ),
    Judgment("heartbeat.lease-interval", renewals_of("node-2", window.renewals(), 10)),
    Judgment(
        "partition.others-stay",
        moments.condition_became("node-2", "Ready", "Unknown").never_after(
            moments.fault_step("partition-1", "injected"), window.absence(20)
        ),
    ),
)


def entry(t: float, kind: str, **data: Json) -> Entry:
    return Entry(1000.0 + t, kind, data)


class Objects:
    """Makes objects as the API server would: each state with the next resourceVersion."""

    def __init__(self) -> None:
        self.rv = 100
        self.latest: dict[str, dict[str, str]] = {"nodes": {}, "leases": {}, "pods": {}}

    def seen(self, t: float, resource: str, name: str, type_: str = "MODIFIED", **parts: Json) -> Entry:
        self.rv += 1
        namespace = {"nodes": "", "leases": LEASE_NAMESPACE, "pods": "default"}[resource]
        uid = f"uid-{resource}-{name}"
        meta = {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(self.rv),
            **parts.pop("metadata", {}),
        }
        if type_ == "DELETED":
            self.latest[resource].pop(uid, None)
        else:
            self.latest[resource][uid] = str(self.rv)
        return entry(t, "watch", resource=resource, type=type_, object={"metadata": meta, **parts})

    def fence(self, t: float, value: str) -> Entry:
        listed = {
            resource: {"rv": str(self.rv), "objects": dict(held)} for resource, held in self.latest.items()
        }
        return entry(t, "fence", sentinels=dict.fromkeys(self.latest, value), listed=listed)


def node(status: str, beat: str, *, tainted: bool = False) -> dict[str, Json]:
    taints = [{"key": UNREACHABLE, "effect": "NoExecute"}] if tainted else []
    ready = {"type": "Ready", "status": status, "lastHeartbeatTime": beat}
    return {"spec": {"taints": taints}, "status": {"conditions": [ready]}}


def wall(t: float) -> str:
    return datetime.fromtimestamp(WALL + 1000.0 + t, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pod(**metadata: str) -> dict[str, Json]:
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}


def sentinels(objects: Objects, t: float, value: str) -> Iterator[Entry]:
    """The sentinel's annotation on one unfaulted object of each resource."""
    mark = {"annotations": {SENTINEL_ANNOTATION: value}}
    healthy = node("True", "a")
    yield objects.seen(t, "nodes", "node-3", **{**healthy, "metadata": mark})
    yield objects.seen(
        t + 0.01, "leases", "node-3", metadata=mark, spec={"renewTime": wall(t // 2 * 2 + 0.2)}
    )
    yield objects.seen(
        t + 0.02, "pods", "sentinel", **{**pod(), "metadata": mark, "spec": {"nodeName": "node-3"}}
    )


def lease_entries(objects: Objects) -> Iterator[Entry]:
    for tick in range(25):
        for index, name in enumerate(NODES):
            t = 2.0 * tick + 0.1 * index
            if name == "node-1" and CUT < t < BACK:
                continue
            yield objects.seen(t + 0.02, "leases", name, spec={"renewTime": wall(t)})


def partition() -> list[Entry]:
    """A node of three is cut from the control plane at 10 s: Unknown, tainted, its pod evicted, healed."""
    objects = Objects()
    lines = [
        entry(-0.5, "begun", wall_offset_s=WALL, nodes=list(NODES), sentinel_node="node-3"),
        *(objects.seen(-0.3, "nodes", name, "ADDED", **node("True", "a")) for name in NODES),
        objects.seen(-0.2, "pods", "web-1", "ADDED", **pod()),
        *lease_entries(objects),
        entry(9.6, "fault", id="partition-1", fault={}, node="node-1", step="armed"),
        entry(CUT, "fault", id="partition-1", fault={}, node="node-1", step="injected"),
        objects.seen(UNKNOWN, "nodes", "node-1", **node("Unknown", "a")),
        objects.seen(TAINTED, "nodes", "node-1", **node("Unknown", "a", tainted=True)),
        objects.seen(EVICTED, "pods", "web-1", **pod(deletionTimestamp=wall(EVICTED))),
        entry(HEALED, "fault", id="partition-1", fault={}, node="node-1", step="healed"),
        objects.seen(BACK, "nodes", "node-1", **node("True", "b", tainted=True)),
        objects.seen(BACK + 0.3, "nodes", "node-1", **node("True", "b")),
        objects.seen(BACK + 1, "pods", "web-1", "DELETED", **pod(deletionTimestamp=wall(EVICTED))),
        *sentinels(objects, ENDED - 0.8, "s9"),
        entry(ENDED - 0.7, "sentinel", value="s9", latency_s={"nodes": 0.02, "pods": 0.03, "leases": 0.02}),
        objects.fence(ENDED - 0.5, "s9"),
        entry(ENDED, "ended"),
    ]
    return sorted(lines, key=lambda line: line.t)


def judged(history: History) -> list[tuple[Judgment, Verdict]]:
    return [(asked, judge(CLAIMS[asked.claim], asked.check, history, CONFIGURATION)) for asked in JUDGMENTS]


def store(run: Path, nodeid: str = SCENARIO) -> Path:
    """What the recorder and the plugin leave of one scenario."""
    history = History.of(partition())
    folder = rundir.scenario_dir(run, nodeid)
    lines = [line.to_json() for line in history.entries]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    rows = [
        rundir.row(CLAIMS[asked.claim], nodeid, verdict, CONFIGURATION) for asked, verdict in judged(history)
    ]
    return rundir.write_scenario(run, nodeid, JUDGMENTS, CONFIGURATION, rows)


def edit(folder: Path, change: Callable[[dict[str, Json]], dict[str, Json] | None]) -> None:
    """Rewrite a stored history line by line; a line that becomes None is dropped."""
    path = folder / "history.jsonl"
    changed = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps(line) for line in changed if line is not None) + "\n")


def is_leaving(line: dict[str, Json]) -> bool:
    return line.get("resource") == "pods" and "deletionTimestamp" in line["object"]["metadata"]


def later(line: dict[str, Json]) -> dict[str, Json]:
    """The pod is asked to leave, and is gone, 4 s later."""
    if not is_leaving(line):
        return line
    moved = copy.deepcopy(line)
    asked_s = parse_time(moved["object"]["metadata"]["deletionTimestamp"])
    moved["object"]["metadata"]["deletionTimestamp"] = wall(asked_s - WALL + 4.0)
    return {**moved, "t": line["t"] + 4.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process"))


def of(rows: list[Row], claim_id: str) -> Row:
    return next(row for row in rows if row["claim"] == claim_id)


def test_recheck_of_an_untouched_run_gives_its_stored_verdicts(run: Path) -> None:
    store(run)
    stored = rundir.merge_verdicts(run)
    again = recheck.recheck(run, CLAIMS)
    assert [row["verdict"] for row in stored] == ["conforms"] * len(JUDGMENTS)
    assert recheck.differences(stored, again) == []
    assert again == list(stored)
    assert json.loads((run / recheck.FILE).read_text()) == again


def test_recheck_writes_the_page_of_its_own_rows_or_says_why_not(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "load", lambda _paths: CLAIMS)
    folder, again = store(run), run / "recheck"
    rundir.write_facts(run, FACTS)
    rundir.merge_verdicts(run)
    edit(folder, later)
    assert cli.main(["recheck", str(run), "--no-site"]) == 1
    page = (again / "site" / "page.html").read_text()
    assert "too late" in page
    assert "again, from the recordings, by <code>nodeproof recheck</code>" in page
    assert f"the page, judged again: {again / 'site' / 'page.html'}" in capsys.readouterr().err
    shutil.rmtree(again)
    again.write_text("in the way")
    assert cli.main(["recheck", str(run), "--no-site"]) == 2
    (line,) = capsys.readouterr().err.splitlines()[:1]
    assert line.startswith(f"nodeproof: the run that was judged again cannot be written ({again})")


def test_dropped_events_are_a_gap_on_recheck(run: Path) -> None:
    folder = store(run)
    stored = rundir.merge_verdicts(run)
    edit(folder, lambda line: None if is_leaving(line) else line)
    again = recheck.recheck(run, CLAIMS)
    row = of(again, "eviction.toleration-seconds-override")
    assert (row["verdict"], row["code"]) == ("unproven", "gap")
    assert "differ between LIST and watch" in row["reason"]
    changed = {change.claim: (change.before, change.after) for change in recheck.differences(stored, again)}
    assert changed["eviction.toleration-seconds-override"] == ("conforms", "unproven: gap")


def test_a_recording_that_missed_anything_proves_no_absence(run: Path) -> None:
    folder = store(run)
    edit(folder, lambda line: None if line.get("type") == "DELETED" else line)
    row = of(recheck.recheck(run, CLAIMS), "partition.others-stay")
    assert (row["verdict"], row["code"]) == ("unproven", "gap")


def test_an_event_moved_in_time_deviates_on_recheck(run: Path) -> None:
    folder = store(run)
    edit(folder, later)
    row = of(recheck.recheck(run, CLAIMS), "eviction.toleration-seconds-override")
    assert row["verdict"] == "deviates"
    assert "too late" in row["reason"]
    assert row["measured"]["value"] == pytest.approx(14.1, abs=0.01)


def test_recheck_judges_by_the_stored_configuration(run: Path) -> None:
    folder = store(run)
    slower = replace(CONFIGURATION, reported=json.loads(json.dumps(REPORTED).replace('"12s"', '"20s"')))
    rundir.write_json(folder / "configuration.json", slower.to_json())
    row = of(recheck.recheck(run, CLAIMS), "monitoring.detection-time")
    assert row["verdict"] == "deviates"
    assert "too early" in row["reason"]


def test_rows_without_a_recording_are_carried_over(run: Path) -> None:
    skipped = Verdict("unproven", "lab-lacks", "no swap")
    row = rundir.row(CLAIMS["heartbeat.lease-interval"], "s.py::test_swap", skipped, CONFIGURATION)
    rundir.write_scenario(run, "s.py::test_swap", (), CONFIGURATION, [row])
    assert recheck.recheck(run, CLAIMS) == [row]


def test_a_row_that_only_one_side_has_is_a_difference(run: Path) -> None:
    store(run)
    rows = rundir.merge_verdicts(run)
    gone = recheck.differences(rows, rows[1:])
    assert [(change.claim, change.after) for change in gone] == [(rows[0]["claim"], recheck.ABSENT)]


def _replace_first(folder: Path, asked: Judgment) -> None:
    stored = json.loads((folder / "judgments.json").read_text())
    stored["judgments"][0] = {"claim": asked.claim, "check": asked.check.to_json()}
    stored["verdicts"][0]["claim"] = asked.claim
    rundir.write_json(folder / "judgments.json", stored)


def test_a_claim_that_this_version_does_not_know_is_a_problem(run: Path) -> None:
    _replace_first(store(run), Judgment("no.such-claim", JUDGMENTS[0].check))
    with pytest.raises(Problem, match=r"no\.such-claim"):
        recheck.recheck(run, CLAIMS)


def test_a_check_that_cannot_be_evaluated_costs_its_own_row_only(run: Path) -> None:
    _replace_first(store(run), Judgment("monitoring.detection-time", Check("tea-leaves", {})))
    before = rundir.merge_verdicts(run)
    first, *others = recheck.recheck(run, CLAIMS)
    assert (first["verdict"], first["code"]) == ("unproven", "check-failed")
    assert "KeyError: 'tea-leaves'" in first["reason"]
    assert [row["verdict"] for row in others] == [row["verdict"] for row in before[1:]]


def test_a_run_of_a_newer_format_is_refused_in_one_line(run: Path) -> None:
    rundir.write_facts(run, replace(FACTS, format=rundir.FORMAT + 1))
    with pytest.raises(Problem, match="written by a newer nodeproof") as refused:
        rundir.read_facts(run)
    assert "\n" not in str(refused.value)


def test_what_a_later_version_added_is_passed_over(run: Path) -> None:
    store(run)
    rundir.write_facts(run, FACTS)
    facts = json.loads((run / "run.json").read_text())
    rundir.write_json(run / "run.json", {**facts, "surprise": 1})
    rows = rundir.merge_verdicts(run)
    rundir.write_json(run / "verdicts.json", [{**row, "surprise": 1} for row in rows])
    assert rundir.read_facts(run) == FACTS
    assert len(rundir.read_verdicts(run)) == len(rows)


@pytest.mark.parametrize("name", ["history.jsonl", "configuration.json", "judgments.json"])
@pytest.mark.parametrize("content", ["{ not json", '{"t": 1}', "[]"])
def test_a_malformed_file_is_named(run: Path, name: str, content: str) -> None:
    folder = store(run)
    (folder / name).write_text(content)
    with pytest.raises(Problem) as caught:
        recheck.recheck(run, CLAIMS)
    assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize("name", ["history.jsonl", "configuration.json"])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    folder = store(run)
    (folder / name).unlink()
    with pytest.raises(Problem) as caught:
        recheck.recheck(run, CLAIMS)
    assert str(folder / name) in str(caught.value)


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_report_run as sample
for number in range(10):
    sample.store(Path(sys.argv[2]), f"s.py::test_{sys.argv[3]}_{number}")
"""


def test_two_workers_write_and_one_controller_merges(run: Path, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
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
from nodeproof.report import junit, outcome, rebuild, recheck, rundir, site, table, timeline
import test_report_run as sample
rows = recheck.recheck(Path(sys.argv[2]), sample.CLAIMS)
print(table.render(rows, 12.0, "here"))
live = "artifacts cluster doctor faults labs machines plugin recording safety scenario".split()
loaded = [name for name in live if f"nodeproof.{name}" in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else outcome.exit_code(rows, (), ()))
"""


def test_a_run_is_judged_again_without_the_live_halfs_packages(run: Path) -> None:
    store(run)
    here = str(Path(__file__).parent)
    result = proc.run((sys.executable, "-c", _BLOCKED, here, str(run)), timeout_s=240)
    assert "conforms 5" in result.stdout


def test_the_timeline_is_a_picture_that_says_what_happened(run: Path) -> None:
    history = History.of(partition())
    picture = timeline.compose(history, judged(history), "a partition")
    words = {bar.word for lane in picture.lanes for bar in lane.bars}
    assert {"Ready", "Unknown", "unreachable:NoExecute", "deletion asked for"} <= words
    assert picture.zero == pytest.approx(1000.0 + CUT)
    assert [bracket.observed for bracket in picture.brackets[:1]] == [pytest.approx(1000.0 + UNKNOWN)]
    path = timeline.render(history, judged(history), run / "timeline.svg", "a partition")
    assert "<text" in path.read_text()


def test_a_timeline_can_be_drawn_of_an_empty_recording(run: Path) -> None:
    path = timeline.render(History.of(()), (), run / "timeline.svg")
    assert path.read_text().startswith("<svg ")
