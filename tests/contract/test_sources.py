"""Sources of a running lab: what they hear, with its time, and when they vouch for no absence."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeproof.actions.ask import ask
from nodeproof.actions.nodes import make_node
from nodeproof.checks.counting import counted
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import recording_began
from nodeproof.cluster.resources import AUDIT_MARK, WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import Cloud
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.logs import LOOKED_EACH_S
from nodeproof.machines.machine import MachineError
from nodeproof.model.history import Entry
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import CLOUD, Needs
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.safety.guard import Declared
from nodeproof.scenario import kubelet_settings
from nodeproof.scenario.stage import Stage
from nodeproof.sources import audit as audit_log
from nodeproof.sources.audit import Audit, audit
from nodeproof.sources.cloud import CloudCalls
from nodeproof.sources.log import Log
from nodeproof.sources.source import Source
from tests.unit.given import CLAIM
from tests.waiting import eventually, pause

COMMAND_LIMIT_S = 10.0
LINE_LIMIT_S = 15.0
SENTINEL_LIMIT_S = 10.0
LOST_S = 3.0
"""After so long the manager has said what it had to say of a new Node."""
ASKED_S = 5.0
"""Several periods of the cloud controller manager."""
CLEAR_S = 2.0
"""More than the slack: what is counted lies clear of an end."""
EARLIER = "audit-2000-01-01T00-00-00.000.jsonl"
"""How the API server names the earlier part of its audit log."""
MANAGER = "kube-controller-manager"
MAIN_LOOP = "Starting kubelet main sync loop"
"""Once each time that a kubelet starts."""
QUIET = "Trying to delete pod"
"""Of a mirror pod: there is none."""
NEW_ZONE = Log(MANAGER, "Initializing eviction metric for zone")
"""Once for each zone that a first node appears in."""


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return Stage(lab, tmp_path, Needs(faulted=1), nullcontext)


@pytest.fixture
def patches(node: str) -> Audit:
    """What a lab's administrator patches of a node."""
    return audit(verb="patch", user="nodeproof-admin", resource="nodes", subresource="", name=node)


@pytest.fixture
def kept_audit(lab: Lab) -> Iterator[None]:
    yield from _kept(lab, "audit.jsonl", EARLIER)


@pytest.fixture
def kept_log(lab: Lab) -> Iterator[None]:
    yield from _kept(lab, f"{MANAGER}.log", f"{MANAGER}.log.1")


def _kept(lab: Lab, log: str, earlier: str) -> Iterator[None]:
    """A log that holds afterwards what it held before but its last line, which may be half written."""
    in_logs(lab, f"head -n -1 {log} >kept")
    yield
    in_logs(lab, f"rm -f {earlier}; cat kept >{log}; rm kept")


def in_logs(lab: Lab, script: str) -> None:
    """Run a script in the folder of the lab's logs, as root: who appends to one goes on at its end."""
    argv = ["sh", "-ec", f"cd {lab.dir / 'mem' / 'logs'}; {script}"]
    done = registry.client(lab.name).spawn_command(argv, COMMAND_LIMIT_S)
    assert done["status"] == 0, done["stderr"]


def annotate(lab: Lab, node: str) -> float:
    """Patch a node; gives when that was asked for."""
    asked_t = time.monotonic()
    lab.cluster.api.patch(node_path(node), {"metadata": {"annotations": {"nodeproof.dev/noted": "yes"}}})
    return asked_t


def make_zone(stage: Stage) -> str:
    """Make a Node by hand in a zone that there was none of."""
    name = uuid.uuid4().hex[:8]
    zone = f"zone-{name}"
    meta = {"name": f"made-{name}", "labels": {"topology.kubernetes.io/zone": zone}}
    assert stage.do(ask("POST", WATCHED["nodes"], {"metadata": meta})).value["status"] == 201
    return zone


def lines(lab: Lab, log: str, text: str) -> list[str]:
    return [line for line in (lab.life.logs / log).read_text().splitlines() if text in line]


def told(stage: Stage, source: Source) -> list[Entry]:
    return [entry for entry in stage.history().of_kind("told") if entry.data["by"] == source.by]


def unsure(stage: Stage, source: Source) -> list[str]:
    """Why a source vouched for nothing, each time that it was heard."""
    heard = [entry.data for entry in stage.history().of_kind("heard")]
    return ["; ".join(lost["why"] for lost in data["unsure"]) for data in heard if data["by"] == source.by]


def count(stage: Stage, event: Moment, heard: Moment, times: int) -> Verdict:
    check = counted(event, times, times, after=recording_began(), until=heard)
    return judge(CLAIM, check, stage.history(), stage.configuration)


# The audit log


def test_a_request_is_heard_with_its_time_and_none_from_before(
    stage: Stage, lab: Lab, node: str, patches: Audit
) -> None:
    nobody = audit(verb="delete", resource="nodes")
    for _ in range(2):
        annotate(lab, node)
    pause(CLEAR_S)
    with stage.record():
        pause(CLEAR_S)
        asked_t = annotate(lab, node)
        answered_t = time.monotonic()
        pause(CLEAR_S)
        stage.hear(patches, nobody)
    (request,) = told(stage, patches)
    assert asked_t - 0.1 < request.t < min(asked_t + 1, answered_t + 0.1)
    assert request.data["what"] == f"patch {node_path(node)} by nodeproof-admin: 200"
    assert (unsure(stage, patches), unsure(stage, nobody)) == ([""], [""])
    assert count(stage, patches.request, patches.heard, 1).label == "conforms"
    assert count(stage, patches.request, patches.heard, 0).label == "deviates"
    assert count(stage, patches.request, patches.heard, 2).label == "deviates"
    assert count(stage, nobody.request, nobody.heard, 0).label == "conforms"


def test_what_is_heard_twice_is_written_once(stage: Stage, lab: Lab, node: str, patches: Audit) -> None:
    with stage.record():
        annotate(lab, node)
        stage.hear(patches)
        annotate(lab, node)
        stage.hear(patches)
    assert len(told(stage, patches)) == 2
    assert unsure(stage, patches) == ["", ""]


@pytest.mark.usefixtures("kept_audit")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (": >audit.jsonl", "starts after the recording"),
        ("head -n 1 kept >audit.jsonl", "lacks sentinel"),
        ("echo '{\"kind\":' >>audit.jsonl", "torn"),
    ],
    ids=["rotated away", "lines lost", "a line torn"],
)
def test_an_audit_log_that_may_lack_a_request_vouches_for_none(
    stage: Stage, lab: Lab, patches: Audit, harm: str, why: str
) -> None:
    with stage.record():
        assert eventually(lambda: stage.history().of_kind("sentinel"), SENTINEL_LIMIT_S)
        pause(CLEAR_S)
        in_logs(lab, harm)
        stage.hear(patches)
    (said,) = unsure(stage, patches)
    assert why in said
    verdict = count(stage, patches.request, patches.heard, 0)
    assert (verdict.label, why in verdict.reason) == ("unproven: gap", True)


@pytest.mark.usefixtures("kept_audit")
def test_a_line_that_was_torn_before_the_recording_does_not_matter_to_it(
    stage: Stage, lab: Lab, node: str, patches: Audit
) -> None:
    """As in a lab whose memory for logs was full an hour ago."""
    in_logs(lab, "echo '{\"kind\":' >>audit.jsonl")
    annotate(lab, node)
    pause(CLEAR_S)
    with stage.record():
        stage.hear(patches)
    assert unsure(stage, patches) == [""]


def test_a_sentinel_that_the_log_lacks_is_not_taken_for_a_later_one(
    stage: Stage, lab: Lab, node: str, patches: Audit
) -> None:
    lost = f"{uuid.uuid4().hex[:8]}-1"
    with stage.record() as recording:
        recording.append("sentinel", value=lost, sent_t={}, latency_s={})
        lab.cluster.api.patch(f"{node_path(node)}?{AUDIT_MARK}={lost}0", {})
        stage.hear(patches)
    assert unsure(stage, patches) == [f"the audit log lacks sentinel {lost}"]


@pytest.mark.usefixtures("kept_audit")
def test_the_earlier_part_of_the_audit_log_is_heard_too(
    stage: Stage, lab: Lab, node: str, patches: Audit
) -> None:
    with stage.record():
        annotate(lab, node)
        pause(CLEAR_S)
        in_logs(lab, f"cp audit.jsonl {EARLIER}; : >audit.jsonl; chmod a+r {EARLIER}")
        annotate(lab, node)
        stage.hear(patches)
    assert len(told(stage, patches)) == 2
    assert unsure(stage, patches) == [""]


def test_an_audit_log_that_does_not_tell_of_our_own_request_is_a_problem(
    stage: Stage, lab: Lab, patches: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "_MARK_LIMIT_S", 0.5)
    with stage.record():
        in_logs(lab, "mv audit.jsonl elsewhere; : >audit.jsonl; chmod a+r audit.jsonl")
        try:
            with pytest.raises(Problem, match=r"no line for the marker request within 0\.5 s"):
                stage.hear(patches)
        finally:
            in_logs(lab, "mv elsewhere audit.jsonl")
    assert unsure(stage, patches) == []
    assert count(stage, patches.request, recording_began(), 0).label == "unproven: gap"


@pytest.mark.parametrize("pattern", [{"colour": "red"}, {"verb": {"$like": "patch"}}])
def test_what_no_audit_line_tells_is_refused(pattern: dict[str, object]) -> None:
    with pytest.raises(Problem, match="invalid audit pattern"):
        audit(**pattern)


# A component's log


def test_a_line_is_heard_with_its_time_and_none_from_before(stage: Stage, lab: Lab, node: str) -> None:
    quiet = Log(MANAGER, "Entering master disruption mode")
    kubelet = Log(f"kubelet-{node}", "Node became not ready")
    earlier = make_zone(stage)
    assert eventually(lambda: lines(lab, f"{MANAGER}.log", earlier), LINE_LIMIT_S)
    with stage.record():
        pause(CLEAR_S)
        asked_t = time.monotonic()
        zone = make_zone(stage)
        assert eventually(lambda: lines(lab, f"{MANAGER}.log", zone), LINE_LIMIT_S)
        seen_t = time.monotonic()
        pause(CLEAR_S)
        stage.hear(NEW_ZONE, quiet, kubelet, NEW_ZONE)
    lab.tidy()
    (line,) = told(stage, NEW_ZONE)
    assert asked_t < line.t < seen_t
    assert line.data["what"] in lines(lab, f"{MANAGER}.log", zone)
    assert unsure(stage, NEW_ZONE) == ["", ""]
    assert count(stage, NEW_ZONE.line, NEW_ZONE.heard, 1).label == "conforms"
    assert count(stage, NEW_ZONE.line, NEW_ZONE.heard, 0).label == "deviates"
    assert count(stage, quiet.line, quiet.heard, 0).label == "conforms"
    assert (told(stage, kubelet), len(unsure(stage, kubelet))) == ([], 1)


@pytest.mark.usefixtures("kept_log")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (f"cp {MANAGER}.log {MANAGER}.log.1", "was truncated during the recording"),
        (f": >{MANAGER}.log", "starts after the recording"),
    ],
    ids=["cut", "lost"],
)
def test_a_log_that_may_lack_a_line_vouches_for_none(stage: Stage, lab: Lab, harm: str, why: str) -> None:
    with stage.record():
        in_logs(lab, harm)
        stage.hear(NEW_ZONE)
    (said,) = unsure(stage, NEW_ZONE)
    assert why in said
    verdict = count(stage, NEW_ZONE.line, NEW_ZONE.heard, 0)
    assert (verdict.label, why in verdict.reason) == ("unproven: gap", True)


@pytest.mark.usefixtures("kept_log")
def test_a_log_that_could_not_be_written_for_a_while_vouches_for_none(stage: Stage, lab: Lab) -> None:
    log = f"{MANAGER}.log"
    with stage.record():
        in_logs(lab, f"! cat /dev/zero >filler 2>&1; ! head -c 5000 {log} >>{log} 2>&1")
        try:
            make_zone(stage)
            pause(LOST_S)
        finally:
            in_logs(lab, "rm filler")
        stage.hear(NEW_ZONE)
    lab.tidy()
    pause(2 * LOOKED_EACH_S)
    assert told(stage, NEW_ZONE) == []
    verdict = count(stage, NEW_ZONE.line, NEW_ZONE.heard, 0)
    assert verdict.label == "unproven: gap", verdict


def test_a_lab_tells_that_its_memory_for_logs_was_full(stage: Stage, lab: Lab) -> None:
    """Nothing shows it any more, and no line was torn."""
    with stage.record():
        before_t = time.monotonic()
        in_logs(lab, "! cat /dev/zero >filler 2>&1")
        pause(2 * LOOKED_EACH_S)
        in_logs(lab, "rm filler")
        after_t = time.monotonic()
        stage.hear(NEW_ZONE)
    assert lab.life.full() == []
    assert lab.life.full(since_t=after_t) == []
    (line,) = lab.life.full(since_t=before_t)
    assert "its memory for logs was full" in line
    (said,) = unsure(stage, NEW_ZONE)
    assert "was full" in said or "torn" in said
    assert count(stage, NEW_ZONE.line, NEW_ZONE.heard, 0).label == "unproven: gap"
    # The next recording in this lab does not begin near it.
    pause(2 * LOOKED_EACH_S)


@pytest.mark.vm
def test_what_a_kubelet_says_is_heard_wherever_it_runs(stage: Stage, lab: Lab, node: str) -> None:
    """Of a guest from its journal, which begins at its boot."""
    begins = Log(f"kubelet-{node}", MAIN_LOOP)
    quiet = Log(f"kubelet-{node}", QUIET)
    with stage.record():
        pause(CLEAR_S)
        with stage.inject(kubelet_settings(node, registryBurst=11)):
            pass
        pause(2 * CLEAR_S)
        stage.hear(begins, quiet, begins)
    assert len(told(stage, begins)) == 2
    assert {MAIN_LOOP in entry.data["what"] for entry in told(stage, begins)} == {True}
    assert set(unsure(stage, begins)) | set(unsure(stage, quiet)) == {""}
    twice = count(stage, begins.line, begins.heard, 2)
    assert twice.label == "conforms", (twice, told(stage, begins))
    assert count(stage, begins.line, begins.heard, 1).label == "deviates"
    assert count(stage, quiet.line, quiet.heard, 0).label == "conforms"


@pytest.mark.vm
def test_a_kubelet_that_began_anew_after_its_node_booted_vouches_for_nothing_before(
    stage: Stage, lab: Lab, node: str
) -> None:
    """A guest's journal of an earlier boot is not read; a process node's log goes on."""
    if "systemd" not in lab.features:
        pytest.skip("its kubelet's log outlives a boot")
    source = Log(f"kubelet-{node}", QUIET)
    with stage.record():
        machine = lab.fleet.machine(node)
        machine.power("off")
        machine.power("on")
        lab.wait_nodes_ready([node])
        stage.hear(source)
    assert unsure(stage, source) == [f"the journal of {node} starts after the recording"]
    assert count(stage, source.line, source.heard, 0).label == "unproven: gap"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Log(MANAGER, "what no component ever says"), "has no text"),
        (Log("kube-nothing", NEW_ZONE.text), "no component 'kube-nothing'"),
        (Log("kubelet-nobody", "Node became not ready"), "no component 'kubelet-nobody'"),
    ],
    ids=["text", "component", "kubelet of no node"],
)
def test_what_no_log_can_tell_is_refused(stage: Stage, source: Log, why: str) -> None:
    with stage.record(), pytest.raises(Problem, match=why):
        stage.hear(source)


# The cloud


def test_what_a_cloud_is_asked_is_heard_and_what_it_is_not_is_vouched_for(
    stage: Stage, lab: Lab, node: str
) -> None:
    name, cloud = f"made-{uuid.uuid4().hex[:8]}", Cloud(uuid.uuid4().hex[:8])
    asked, unasked = CloudCalls(name, "InstanceExists"), CloudCalls(node)
    with (
        stage.record(),
        lab.safety.injector.inject(cloud, Declared((), (CLOUD,)), lambda *_args, **_data: None),
    ):
        stage.do(make_node(name))
        pause(ASKED_S)
        stage.hear(asked, unasked)
        argv = ["sh", "-c", f"printf '{{' >>{CLOUD}/cloud-{cloud.id}.calls"]
        assert lab.fleet.machine(CLOUD).run(argv, deadline_s=COMMAND_LIMIT_S).status == 0
        stage.hear(unasked)
    heard = told(stage, asked)
    assert 2 <= len(heard) <= ASKED_S + 2
    assert {entry.data["what"] for entry in heard} == {f"InstanceExists {name}"}
    assert unsure(stage, asked) == [""]
    assert ["" if not why else "torn" for why in unsure(stage, unasked)] == ["", "torn"]


def test_where_there_is_no_cloud_nobody_hears_it(stage: Stage, node: str) -> None:
    with stage.record(), pytest.raises(MachineError, match="expected one cloud, found 0"):
        stage.hear(CloudCalls(node))
