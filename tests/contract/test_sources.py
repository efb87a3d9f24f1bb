"""Sources of a running lab: their messages with times, and when they prove no absence."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from nodeproof import sources
from nodeproof.actions import create_node, send_request
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import recording_began
from nodeproof.checks.repeated import counted
from nodeproof.cluster.resources import AUDIT_MARK, WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults.providers import Cloud
from nodeproof.labs.base.processes import CHECK_PERIOD_S
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.history import Entry
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import CLOUD
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.safety.guard import Declared
from nodeproof.scenario import kubelet_settings
from nodeproof.scenario.lab import Lab
from nodeproof.sources import Audit, CloudCalls, Log, Source, audit
from tests.unit.sample_checks import CLAIM
from tests.waiting import eventually, pause

COMMAND_TIMEOUT_S = 10.0
LINE_TIMEOUT_S = 15.0
SENTINEL_TIMEOUT_S = 10.0
LOST_S = 3.0
"""The manager has logged everything about a new Node after this time."""
REQUEST_S = 5.0
"""Several periods of the cloud controller manager."""
CLEAR_S = 2.0
"""More than the slack, so that counted events are clear of the ends."""
EARLIER = "audit-2000-01-01T00-00-00.000.jsonl"
"""The API server's name of the rotated audit log."""
MANAGER = "kube-controller-manager"
MAIN_LOOP = "Starting kubelet main sync loop"
"""Logged once on each start of a kubelet."""
NEVER_LOGGED = "Trying to delete pod"
"""About a mirror pod; there is none."""
NEW_ZONE = Log(MANAGER, "Initializing eviction metric for zone")
"""Logged once for each zone with a first node."""


@pytest.fixture
def patches(node: str) -> Audit:
    """Return the audit source of an administrator's node patches."""
    return audit(verb="patch", user="nodeproof-admin", resource="nodes", subresource="", name=node)


@pytest.fixture
def restored_audit_log(lab: LabHandle) -> Iterator[None]:
    yield from _restored(lab, "audit.jsonl", EARLIER)


@pytest.fixture
def restored_log(lab: LabHandle) -> Iterator[None]:
    yield from _restored(lab, f"{MANAGER}.log", f"{MANAGER}.log.1")


def _restored(lab: LabHandle, log: str, earlier: str) -> Iterator[None]:
    """Restore a log afterwards without its last line, which may be incomplete."""
    in_logs(lab, f"head -n -1 {log} >kept")
    yield
    in_logs(lab, f"rm -f {earlier}; cat kept >{log}; rm kept")


def in_logs(lab: LabHandle, script: str) -> None:
    """Run a script as root in the folder of logs; writers in append mode continue at the end."""
    argv = ["sh", "-ec", f"cd {lab.dir / 'mem' / 'logs'}; {script}"]
    output = registry.client(lab.name).spawn_command(argv, COMMAND_TIMEOUT_S)
    assert output["status"] == 0, output["stderr"]


def annotate(lab: LabHandle, node: str) -> float:
    """Patch a node; return the time of the request."""
    sent_t = time.monotonic()
    lab.cluster.api.patch(node_path(node), {"metadata": {"annotations": {"nodeproof.dev/noted": "yes"}}})
    return sent_t


def make_zone(stage: Lab) -> str:
    """Create a manual Node in a new zone."""
    name = uuid.uuid4().hex[:8]
    zone = f"zone-{name}"
    meta = {"name": f"made-{name}", "labels": {"topology.kubernetes.io/zone": zone}}
    assert stage.run(send_request("POST", WATCHED["nodes"], {"metadata": meta})).value["status"] == 201
    return zone


def lines(lab: LabHandle, log: str, text: str) -> list[str]:
    return [line for line in (lab.life.logs / log).read_text().splitlines() if text in line]


def entries_of(stage: Lab, source: Source) -> list[Entry]:
    return [entry for entry in stage.history().of_kind("told") if entry.data["by"] == source.by]


def unsure(stage: Lab, source: Source) -> list[str]:
    """Return why a source proved nothing, once per collection."""
    collections = [entry.data for entry in stage.history().of_kind("heard")]
    return [
        "; ".join(lost["why"] for lost in data["unsure"]) for data in collections if data["by"] == source.by
    ]


def count(stage: Lab, event: Moment, collected: Moment, times: int) -> Verdict:
    check = counted(event, times, times, after=recording_began(), until=collected)
    return judge(CLAIM, check, stage.history(), stage.configuration)


# The audit log


def test_request_is_collected_with_its_time_and_not_from_before(
    stage: Lab, lab: LabHandle, node: str, patches: Audit
) -> None:
    no_deletes = audit(verb="delete", resource="nodes")
    for _ in range(2):
        annotate(lab, node)
    pause(CLEAR_S)
    with stage.record():
        pause(CLEAR_S)
        sent_t = annotate(lab, node)
        answered_t = time.monotonic()
        pause(CLEAR_S)
        stage.collect(patches, no_deletes)
    (request,) = entries_of(stage, patches)
    assert sent_t - 0.1 < request.t < min(sent_t + 1, answered_t + 0.1)
    assert request.data["what"] == f"patch {node_path(node)} by nodeproof-admin: 200"
    assert (unsure(stage, patches), unsure(stage, no_deletes)) == ([""], [""])
    assert count(stage, patches.request, patches.collected, 1).label == "conforms"
    assert count(stage, patches.request, patches.collected, 0).label == "deviates"
    assert count(stage, patches.request, patches.collected, 2).label == "deviates"
    assert count(stage, no_deletes.request, no_deletes.collected, 0).label == "conforms"


def test_request_collected_twice_is_recorded_once(
    stage: Lab, lab: LabHandle, node: str, patches: Audit
) -> None:
    with stage.record():
        annotate(lab, node)
        stage.collect(patches)
        annotate(lab, node)
        stage.collect(patches)
    assert len(entries_of(stage, patches)) == 2
    assert unsure(stage, patches) == ["", ""]


@pytest.mark.usefixtures("restored_audit_log")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (": >audit.jsonl", "starts after the recording"),
        ("head -n 1 kept >audit.jsonl", "lacks sentinel"),
        ("echo '{\"kind\":' >>audit.jsonl", "torn"),
    ],
    ids=["rotated away", "lines lost", "a line torn"],
)
def test_incomplete_audit_log_proves_no_absence(
    stage: Lab, lab: LabHandle, patches: Audit, harm: str, why: str
) -> None:
    with stage.record():
        assert eventually(lambda: stage.history().of_kind("sentinel"), SENTINEL_TIMEOUT_S)
        pause(CLEAR_S)
        in_logs(lab, harm)
        stage.collect(patches)
    (reason,) = unsure(stage, patches)
    assert why in reason
    verdict = count(stage, patches.request, patches.collected, 0)
    assert (verdict.label, why in verdict.reason) == ("unproven: gap", True)


@pytest.mark.usefixtures("restored_audit_log")
def test_line_torn_before_the_recording_does_not_matter(
    stage: Lab, lab: LabHandle, node: str, patches: Audit
) -> None:
    """As in a lab whose log memory was full an hour ago."""
    in_logs(lab, "echo '{\"kind\":' >>audit.jsonl")
    annotate(lab, node)
    pause(CLEAR_S)
    with stage.record():
        stage.collect(patches)
    assert unsure(stage, patches) == [""]


def test_sentinel_missing_from_the_log_is_not_confused_with_a_later_one(
    stage: Lab, lab: LabHandle, node: str, patches: Audit
) -> None:
    lost = f"{uuid.uuid4().hex[:8]}-1"
    with stage.record() as recording:
        recording.append("sentinel", value=lost, sent_t={}, latency_s={})
        lab.cluster.api.patch(f"{node_path(node)}?{AUDIT_MARK}={lost}0", {})
        stage.collect(patches)
    assert unsure(stage, patches) == [f"the audit log lacks sentinel {lost}"]


@pytest.mark.usefixtures("restored_audit_log")
def test_rotated_audit_log_is_collected(stage: Lab, lab: LabHandle, node: str, patches: Audit) -> None:
    with stage.record():
        annotate(lab, node)
        pause(CLEAR_S)
        in_logs(lab, f"cp audit.jsonl {EARLIER}; : >audit.jsonl; chmod a+r {EARLIER}")
        annotate(lab, node)
        stage.collect(patches)
    assert len(entries_of(stage, patches)) == 2
    assert unsure(stage, patches) == [""]


def test_audit_log_without_our_own_request_is_a_problem(
    stage: Lab, lab: LabHandle, patches: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MARK_TIMEOUT_S", 0.5)
    with stage.record():
        in_logs(lab, "mv audit.jsonl elsewhere; : >audit.jsonl; chmod a+r audit.jsonl")
        try:
            with pytest.raises(Problem, match=r"no line for the marker request within 0\.5 s"):
                stage.collect(patches)
        finally:
            in_logs(lab, "mv elsewhere audit.jsonl")
    assert unsure(stage, patches) == []
    assert count(stage, patches.request, recording_began(), 0).label == "unproven: gap"


@pytest.mark.parametrize("pattern", [{"colour": "red"}, {"verb": {"$like": "patch"}}])
def test_invalid_audit_pattern_is_refused(pattern: dict[str, object]) -> None:
    with pytest.raises(Problem, match="invalid audit pattern"):
        audit(**pattern)


# A component's log


def test_line_is_collected_with_its_time_and_not_from_before(stage: Lab, lab: LabHandle, node: str) -> None:
    quiet = Log(MANAGER, "Entering master disruption mode")
    kubelet = Log(f"kubelet-{node}", "Node became not ready")
    earlier = make_zone(stage)
    assert eventually(lambda: lines(lab, f"{MANAGER}.log", earlier), LINE_TIMEOUT_S)
    with stage.record():
        pause(CLEAR_S)
        sent_t = time.monotonic()
        zone = make_zone(stage)
        assert eventually(lambda: lines(lab, f"{MANAGER}.log", zone), LINE_TIMEOUT_S)
        received_t = time.monotonic()
        pause(CLEAR_S)
        stage.collect(NEW_ZONE, quiet, kubelet, NEW_ZONE)
    lab.tidy()
    (line,) = entries_of(stage, NEW_ZONE)
    assert sent_t < line.t < received_t
    assert line.data["what"] in lines(lab, f"{MANAGER}.log", zone)
    assert unsure(stage, NEW_ZONE) == ["", ""]
    assert count(stage, NEW_ZONE.line, NEW_ZONE.collected, 1).label == "conforms"
    assert count(stage, NEW_ZONE.line, NEW_ZONE.collected, 0).label == "deviates"
    assert count(stage, quiet.line, quiet.collected, 0).label == "conforms"
    assert (entries_of(stage, kubelet), len(unsure(stage, kubelet))) == ([], 1)


@pytest.mark.usefixtures("restored_log")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (f"cp {MANAGER}.log {MANAGER}.log.1", "was truncated during the recording"),
        (f": >{MANAGER}.log", "starts after the recording"),
    ],
    ids=["cut", "lost"],
)
def test_incomplete_log_proves_no_absence(stage: Lab, lab: LabHandle, harm: str, why: str) -> None:
    with stage.record():
        in_logs(lab, harm)
        stage.collect(NEW_ZONE)
    (reason,) = unsure(stage, NEW_ZONE)
    assert why in reason
    verdict = count(stage, NEW_ZONE.line, NEW_ZONE.collected, 0)
    assert (verdict.label, why in verdict.reason) == ("unproven: gap", True)


@pytest.mark.usefixtures("restored_log")
def test_temporarily_unwritable_log_proves_no_absence(stage: Lab, lab: LabHandle) -> None:
    log = f"{MANAGER}.log"
    with stage.record():
        in_logs(lab, f"! cat /dev/zero >filler 2>&1; ! head -c 5000 {log} >>{log} 2>&1")
        try:
            make_zone(stage)
            pause(LOST_S)
        finally:
            in_logs(lab, "rm filler")
        stage.collect(NEW_ZONE)
    lab.tidy()
    pause(2 * CHECK_PERIOD_S)
    assert entries_of(stage, NEW_ZONE) == []
    verdict = count(stage, NEW_ZONE.line, NEW_ZONE.collected, 0)
    assert verdict.label == "unproven: gap", verdict


def test_full_log_memory_is_recorded(stage: Lab, lab: LabHandle) -> None:
    """No trace is left, and no line was torn."""
    with stage.record():
        before_t = time.monotonic()
        in_logs(lab, "! cat /dev/zero >filler 2>&1")
        pause(2 * CHECK_PERIOD_S)
        in_logs(lab, "rm filler")
        after_t = time.monotonic()
        stage.collect(NEW_ZONE)
    assert lab.life.full_parts() == []
    assert lab.life.full_parts(since_t=after_t) == []
    (line,) = lab.life.full_parts(since_t=before_t)
    assert "its memory for logs was full" in line
    (reason,) = unsure(stage, NEW_ZONE)
    assert "was full" in reason or "torn" in reason
    assert count(stage, NEW_ZONE.line, NEW_ZONE.collected, 0).label == "unproven: gap"
    # Keep it apart from the next recording in this lab.
    pause(2 * CHECK_PERIOD_S)


@pytest.mark.vm
def test_kubelet_log_is_collected_in_every_kind_of_lab(stage: Lab, lab: LabHandle, node: str) -> None:
    """A guest's journal begins at its boot."""
    begins = Log(f"kubelet-{node}", MAIN_LOOP)
    quiet = Log(f"kubelet-{node}", NEVER_LOGGED)
    with stage.record():
        pause(CLEAR_S)
        with stage.inject(kubelet_settings(node, registryBurst=11)):
            pass
        pause(2 * CLEAR_S)
        stage.collect(begins, quiet, begins)
    assert len(entries_of(stage, begins)) == 2
    assert {MAIN_LOOP in entry.data["what"] for entry in entries_of(stage, begins)} == {True}
    assert set(unsure(stage, begins)) | set(unsure(stage, quiet)) == {""}
    twice = count(stage, begins.line, begins.collected, 2)
    assert twice.label == "conforms", (twice, entries_of(stage, begins))
    assert count(stage, begins.line, begins.collected, 1).label == "deviates"
    assert count(stage, quiet.line, quiet.collected, 0).label == "conforms"


@pytest.mark.vm
def test_restarted_kubelet_proves_nothing_from_before_its_boot(stage: Lab, lab: LabHandle, node: str) -> None:
    """The journal of an earlier boot is not read; a process node's log continues."""
    if "systemd" not in lab.features:
        pytest.skip("its kubelet's log outlives a boot")
    source = Log(f"kubelet-{node}", NEVER_LOGGED)
    with stage.record():
        machine = lab.fleet.machine(node)
        machine.power("off")
        machine.power("on")
        lab.wait_nodes_ready([node])
        stage.collect(source)
    assert unsure(stage, source) == [f"the journal of {node} starts after the recording"]
    assert count(stage, source.line, source.collected, 0).label == "unproven: gap"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Log(MANAGER, "what no component ever says"), "has no text"),
        (Log("kube-nothing", NEW_ZONE.text), "no component 'kube-nothing'"),
        (Log("kubelet-nobody", "Node became not ready"), "no component 'kubelet-nobody'"),
    ],
    ids=["text", "component", "kubelet of no node"],
)
def test_unsupported_log_source_is_refused(stage: Lab, source: Log, why: str) -> None:
    with stage.record(), pytest.raises(Problem, match=why):
        stage.collect(source)


# The cloud


def test_cloud_calls_and_their_absence_are_collected(stage: Lab, lab: LabHandle, node: str) -> None:
    name, cloud = f"made-{uuid.uuid4().hex[:8]}", Cloud({}, {})
    calls, unasked = CloudCalls(name, "InstanceExists"), CloudCalls(node)
    with (
        stage.record(),
        lab.safety.injector.inject(cloud, Declared((), (CLOUD,)), lambda *_args, **_data: None),
    ):
        stage.run(create_node(name))
        pause(REQUEST_S)
        stage.collect(calls, unasked)
        argv = ["sh", "-c", f"printf '{{' >>{CLOUD}/cloud-{cloud.id}.calls"]
        assert lab.fleet.machine(CLOUD).run(argv, timeout_s=COMMAND_TIMEOUT_S).status == 0
        stage.collect(unasked)
    entries = entries_of(stage, calls)
    assert 2 <= len(entries) <= REQUEST_S + 2
    assert {entry.data["what"] for entry in entries} == {f"InstanceExists {name}"}
    assert unsure(stage, calls) == [""]
    assert ["" if not why else "torn" for why in unsure(stage, unasked)] == ["", "torn"]


def test_collection_without_a_cloud_is_an_error(stage: Lab, node: str) -> None:
    with stage.record(), pytest.raises(MachineError, match="expected one cloud, found 0"):
        stage.collect(CloudCalls(node))
