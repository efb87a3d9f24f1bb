"""An audit: its claims, settings and connection."""

from __future__ import annotations

import copy
import html
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from nodeproof import audit, catalogue, cli
from nodeproof.checks.judge import judge
from nodeproof.cluster.api import Api, ApiError, server_time_s
from nodeproof.existing import configuration as settings
from nodeproof.existing.configuration import MANAGER, Evidence, Tolerations
from nodeproof.existing.connection import Access, Pace, PacedApi, load_kubeconfig
from nodeproof.model.cluster import flags_of
from nodeproof.model.formula import SYMBOLS, read
from nodeproof.model.history import Entry, History, fence
from nodeproof.model.judgment import Observation
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.recording import recorder
from nodeproof.recording.recorder import ReadOnlyRecording
from nodeproof.report import rundir
from tests.fakes import executable
from tests.unit.histories import NODE, OTHER, Story, configuration

# Claims that an audit judges: each conforms, and each can deviate.


Alter = Callable[[Json], object]
CATALOGUE = catalogue.load()
VERSION = "v1.36.3"
LEASE = {"metadata": {"name": NODE, "uid": "l"}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 8}}
IDS = Counter({"machine": 1})


def node(ready: str = "True", **fields: Json) -> Json:
    """Return a healthy Node, or one whose Ready has another status."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime is down"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[ready]
    pressure = {"status": "Unknown" if ready == "Unknown" else "False", "reason": reason}
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "message": message}]
    conditions += [{"type": f"{kind}Pressure", **pressure} for kind in ("Memory", "Disk", "PID")]
    info = {
        "kernelVersion": "6.1", "osImage": "Debian", "operatingSystem": "linux", "architecture": "amd64",
        "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": VERSION, "kubeProxyVersion": "",
        "machineID": "machine", "systemUUID": "system", "bootID": "boot",
    }  # fmt: skip
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    status = {"conditions": conditions, "nodeInfo": info, "capacity": amounts, "allocatable": amounts}
    return {"metadata": {"name": NODE, "uid": "n"}, "spec": fields, "status": status}


def tainted(*keys: str) -> list[Json]:
    return [{"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"} for key in keys]


def judged(expectations: list[audit.Expectation], claim: str) -> Verdict:
    """Judge the only expectation of a claim."""
    (expectation,) = (entry for entry in expectations if entry.claim == claim)
    observation = expectation.observation
    story = Story().say(5.0, "observed", **observation.to_json(), value=observation.value, asked_t=4.9)
    return judge(CATALOGUE[claim], expectation.check, story.history(), configuration())


def expected_of(state: Json, lease: Json = LEASE) -> list[audit.Expectation]:
    return list(audit.of_node([copy.deepcopy(state), state], lease, IDS))


def set_ready(state: Json, **fields: str) -> None:
    state["status"]["conditions"][0].update(fields)


def set_info(state: Json, **fields: str) -> None:
    state["status"]["nodeInfo"].update(fields)


HEALTHY, LOST = node(), node("Unknown", taints=tainted("unreachable"))
CORDONED = node(unschedulable=True, taints=tainted("unschedulable"))
ALTERATIONS: Mapping[str, tuple[Json, Alter]] = {
    "conditions.types-present": (HEALTHY, lambda state: state["status"]["conditions"].pop()),
    "conditions.ready-true-shape": (HEALTHY, lambda state: set_ready(state, reason="SomebodySaid")),
    "conditions.node-phase": (HEALTHY, lambda state: state["status"].update(phase="Running")),
    "capacity.fields": (HEALTHY, lambda state: state["status"].update(allocatable={"cpu": "2"})),
    "info.kernel-os-runtime": (HEALTHY, lambda state: set_info(state, kernelVersion="")),
    "info.kube-proxy-version": (HEALTHY, lambda state: set_info(state, kubeProxyVersion=VERSION)),
    "info.machine-ids": (HEALTHY, lambda state: set_info(state, machineID="")),
    "conditions.pressure-unknown-when-unreachable": (
        LOST,
        lambda state: state["status"]["conditions"][1].update(status="False"),
    ),
    "monitoring.unknown-reason": (LOST, lambda state: set_ready(state, reason="SomebodySaid")),
    "taints.noschedule-by-condition": (LOST, lambda state: state["spec"].pop("taints")),
    "cordon.taint": (CORDONED, lambda state: state["spec"].pop("taints")),
}


@pytest.mark.parametrize("claim_id", ALTERATIONS)
def test_state_of_a_node_conforms_and_an_altered_one_deviates(claim_id: str) -> None:
    state, alter = ALTERATIONS[claim_id]
    assert judged(expected_of(state), claim_id).outcome == "conforms"
    altered = copy.deepcopy(state)
    alter(altered)
    assert judged(expected_of(altered), claim_id).outcome == "deviates"


@pytest.mark.parametrize("lease", [None, {**LEASE, "spec": {"holderIdentity": OTHER}}])
def test_missing_or_foreign_lease_deviates(lease: Json) -> None:
    assert judged(expected_of(HEALTHY), "heartbeat.lease-per-node").outcome == "conforms"
    assert judged(expected_of(HEALTHY, lease), "heartbeat.lease-per-node").outcome == "deviates"


def test_machine_id_of_two_nodes_deviates() -> None:
    ids = audit.count_machine_ids([HEALTHY, HEALTHY])
    assert judged(list(audit.of_node([HEALTHY], LEASE, ids)), "info.machine-ids").outcome == "deviates"


@pytest.mark.parametrize(
    ("ranges", "outcome"),
    [
        ([["10.0.0.0/24", "fd00::/64"], ["10.0.1.0/24", "fd00:0:0:1::/64"]], "conforms"),
        ([["10.0.0.0/24"], ["10.0.3.0/24"], ["10.0.0.0/22"]], "deviates"),
        ([["10.0.0.0/24", "fd00::/64"], ["10.0.1.0/24", "fd00::/64"]], "deviates"),
    ],
)
def test_ranges_of_nodes_deviate_if_they_overlap(ranges: list[list[str]], outcome: str) -> None:
    nodes = [node(podCIDRs=cidrs) for cidrs in ranges]
    assert judged(list(audit.of_cluster(nodes)), "cidr.unique").outcome == outcome


@pytest.mark.parametrize(("before", "after"), [("True", "Unknown"), ("Unknown", "True"), ("True", "False")])
def test_state_that_changed_in_the_observation_is_not_judged(before: str, after: str) -> None:
    states = (node(before), node(after))
    claims = {entry.claim for entry in audit.of_node(states, LEASE, IDS)}
    assert not claims & {
        "conditions.ready-true-shape", "monitoring.unknown-reason", "taints.noschedule-by-condition",
        "conditions.pressure-unknown-when-unreachable",
    }  # fmt: skip


def test_node_that_recovered_and_was_lost_again_is_not_judged() -> None:
    before, after = node("Unknown"), node("Unknown")
    set_ready(after, lastTransitionTime="2026-01-01T00:00:09Z")
    assert list(audit.of_node([before, after], LEASE, IDS)) == []


def cordoned(*, taint_t: float = 1.1) -> Story:
    """Cordon a Node before the observation, which begins at 2 s."""
    story = Story().cordon(1.0)
    for t in (taint_t,) if taint_t else ():
        story.taint(t, "node.kubernetes.io/unschedulable", "NoSchedule")
    return story


def labels_of_states(story: Story, before: Json, missed_watch: str = "") -> Mapping[str, str]:
    """Judge the claims about the state of a Node at the end of an observation."""
    history = bookmarked(story, 20.0, missed=missed_watch).history()
    cluster = audit.Cluster(VERSION, 0.01, {NODE: before}, {})
    states = audit.states_of(cluster, {NODE: story.object("nodes", "", NODE)}, history)
    expected = list(audit.of_node(states[NODE], None, IDS))
    for entry in expected:
        story.say(20.0, "observed", **entry.observation.to_json(), value=entry.value, asked_t=20.0)
    read = Evidence([], [], Tolerations(None), kubelets={NODE: {}})
    missed = audit.missed_states(history)
    (subject,) = audit.of_nodes(cluster, states, {}, expected, read, missed)
    return {
        claim: verdict.label for claim, verdict in audit.judge_subject(subject, story.history(), CATALOGUE)
    }


@pytest.mark.parametrize(("taint_t", "label"), [(1.1, "conforms"), (0.0, "deviates")])
def test_node_that_stays_cordoned_is_judged(taint_t: float, label: str) -> None:
    story = cordoned(taint_t=taint_t)
    assert labels_of_states(story, story.object("nodes", "", NODE))["cordon.taint"] == label


def test_node_cordoned_again_right_before_the_end_is_not_judged() -> None:
    """Its taint is still to come."""
    story = cordoned()
    before = story.object("nodes", "", NODE)
    story.cordon(10.0, on=False).untaint(10.1).cordon(19.9)
    assert "cordon.taint" not in labels_of_states(story, before)


def test_taint_removed_by_a_user_is_not_judged() -> None:
    story = cordoned()
    before = story.object("nodes", "", NODE)
    assert "cordon.taint" not in labels_of_states(story.untaint(19.9), before)


def test_condition_that_flapped_within_a_second_is_not_judged() -> None:
    story = Story().condition(1.0, "Unknown").taint(1.1, effect="NoSchedule")
    before = story.object("nodes", "", NODE)
    story.condition(19.5, "True").untaint(19.6).condition(19.9, "Unknown")
    claims = {"taints.noschedule-by-condition", "monitoring.unknown-reason"}
    assert not claims & labels_of_states(story, before).keys()


@pytest.mark.parametrize("missed", ["", "nodes"])
def test_missed_states_make_claims_about_persistent_states_unproven(missed: str) -> None:
    story = cordoned(taint_t=0.0)
    before = story.object("nodes", "", NODE)
    if not missed:
        story.list(10.0, "nodes")
    assert labels_of_states(story, before, missed)["cordon.taint"] == "unproven: gap"


def test_node_that_never_reported_is_not_judged_as_lost() -> None:
    state = node("Unknown")
    set_ready(state, reason="NodeStatusNeverUpdated")
    assert {entry.claim for entry in expected_of(state)} == {"taints.noschedule-by-condition"}


@pytest.mark.parametrize(
    ("most", "per_core", "outcome"),
    [(110, 0, "conforms"), (110, 55, "conforms"), (110, 10, "deviates"), (50, 0, "deviates")],
)
def test_pods_of_a_node_follow_the_settings_of_its_kubelet(most: int, per_core: int, outcome: str) -> None:
    kubelet = {"maxPods": most, "podsPerCore": per_core}
    expectations = list(audit.of_node([HEALTHY], LEASE, IDS, kubelet))
    assert judged(expectations, "capacity.max-pods").outcome == outcome


@pytest.mark.parametrize(("unread", "code"), [({NODE: "not reached"}, "settings-unknown"), ({}, None)])
def test_pods_of_a_node_are_unproven_if_its_kubelet_could_not_be_read(
    unread: Mapping[str, str], code: str | None
) -> None:
    """An audit of other claims reads no kubelet."""
    cluster = audit.Cluster(VERSION, 0.01, {NODE: HEALTHY}, {NODE: LEASE})
    read = Evidence([], [], Tolerations(None), unread_kubelets=unread)
    (subject,) = audit.of_nodes(cluster, {NODE: [HEALTHY]}, {NODE: LEASE}, [], read, "")
    verdicts = dict(audit.judge_subject(subject, Story().history(), CATALOGUE))
    assert getattr(verdicts.get("capacity.max-pods"), "code", None) == code


def renewing(story: Story, until_t: float, period_s: float = 2.04, since_t: float = 0.5) -> Story:
    return story.renewals(since_t, until_t, period_s=period_s)


def bookmarked(story: Story, t: float, rv_ahead: int = 0, missed: str = "") -> Story:
    """Add a LIST as a fence at `t`, then a bookmark of each watch; the watch in `missed` has none."""
    # Another resource was written meanwhile: no event of these has the revision of the LIST.
    story.rv += 1
    listed = {kind: {"rv": str(story.rv), "objects": story.objects(kind)} for kind in story.resources}
    story.say(t, "fence", listed=listed)
    for resource in story.resources:
        if resource != missed:
            body = {"metadata": {"resourceVersion": str(story.rv + rv_ahead)}}
            story.say(t + 1.0, "watch", resource=resource, type="BOOKMARK", object=body)
    return story.say(t + 1.1, "ended")


def interval(history: History, before: Json = HEALTHY, after: Json = HEALTHY, lease: Json = LEASE) -> Verdict:
    cluster = audit.Cluster(VERSION, 0.01, {NODE: before}, {NODE: lease})
    read = Evidence([], [], Tolerations(None), kubelets={NODE: {}})
    (subject,) = audit.of_nodes(cluster, {NODE: [before, after]}, {NODE: lease}, [], read, "")
    ((claim, verdict),) = audit.judge_subject(subject, history, CATALOGUE)
    assert claim == audit.LEASE_INTERVAL
    return verdict


def test_unknown_clock_of_the_server_does_not_matter() -> None:
    """An API server without the header `Date` gives an offset of 0."""
    history = bookmarked(renewing(Story(), 9.0), 10.0).history()
    begun, *others = history.entries
    unset = Entry(begun.t, "begun", {**begun.data, "wall_offset_s": 0.0})
    clockless = [entry for entry in others if entry.kind != "clock"]
    assert interval(History.of([unset, *clockless])).outcome == "conforms"


def silent(**fence: Any) -> Story:
    return bookmarked(renewing(Story(), 3.0), 10.0, **fence)


def silent_and_missed() -> Story:
    story = renewing(Story(), 3.0)
    lease = story.object("leases", "kube-node-lease", NODE)
    story.change(6.0, "leases", "kube-node-lease", NODE, lease, is_watched=False)
    return bookmarked(story, 10.0)


INTERVALS: Mapping[str, tuple[Story, str]] = {
    "quarter of the duration": (bookmarked(renewing(Story(), 9.0), 10.0), "conforms"),
    "another interval": (bookmarked(renewing(Story(), 9.0, 3.5), 10.0), "deviates"),
    # Somebody restarted the kubelet at 5.2 s: it renewed its Lease at once.
    "a renewal": (bookmarked(renewing(renewing(Story(), 4.8), 10.0, since_t=5.2), 11.0), "unproven: gap"),
    "silence behind a fence": (silent(), "unproven: component-died"),
    "silence without a bookmark": (silent(missed="leases"), "unproven: gap"),
    "silence before the LIST": (silent(rv_ahead=-1), "unproven: gap"),
    "missed renewal": (silent_and_missed(), "unproven: gap"),
}


@pytest.mark.parametrize(("story", "label"), INTERVALS.values(), ids=INTERVALS)
def test_lease_interval_is_judged_by_renewals_behind_a_fence(story: Story, label: str) -> None:
    assert interval(story.history()).label == label


def test_node_lost_in_the_observation_is_unproven() -> None:
    assert interval(Story().history(), after=LOST).code == "component-died"


def test_lease_without_a_duration_is_unproven() -> None:
    lease = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE}}
    assert interval(Story().history(), lease=lease).code == "settings-unknown"


@pytest.mark.parametrize(
    ("seconds", "flags", "label"),
    [
        ((300, 300), None, "conforms"),
        ((300, 20), None, "unproven: settings-unknown"),
        (None, {}, "unproven: settings-unknown"),
        ((300, 300), {}, "conforms"),
        ((300, 20), {}, "deviates"),
        ((300, None), {}, "deviates"),
        ((300, 20), {"default-unreachable-toleration-seconds": "20"}, "unproven: scaled"),
    ],
)
def test_tolerations_are_judged_by_the_flags(
    seconds: tuple[float, float | None] | None, flags: Mapping[str, str] | None, label: str
) -> None:
    by_taint = dict(zip(("NotReady", "Unreachable"), seconds, strict=True)) if seconds else None
    tolerations = Tolerations(by_taint, "refused")
    known = {} if flags is None else {"kube-apiserver": flags}
    subject = audit.judge_tolerations(tolerations, configuration(flags_set=known))
    story, observation = Story(), tolerations.observation
    if observation is not None:
        story.say(5.0, "observed", **observation.to_json(), value=observation.value, asked_t=4.9)
    verdicts = [verdict for _claim, verdict in audit.judge_subject(subject, story.history(), CATALOGUE)]
    assert min(verdicts, key=lambda verdict: verdict.rank).label == label


def test_every_audit_claim_deviates_in_a_test() -> None:
    own = {audit.LEASE_INTERVAL, audit.TOLERATIONS, audit.MAX_PODS, "heartbeat.lease-per-node", "cidr.unique"}
    assert set(audit.CLAIMS) == ALTERATIONS.keys() | own


def test_kept_audit_has_a_page(tmp_path: Path) -> None:
    """`nodeproof page DIR` shows the verdicts and links the recording of each node."""
    folder, story = rundir.create(tmp_path / "audit-1"), Story()
    expectation = next(entry for entry in expected_of(HEALTHY) if entry.claim == "conditions.node-phase")
    observation = expectation.observation
    story.say(5.0, "observed", **observation.to_json(), value=observation.value, asked_t=4.9)
    history = story.history()
    (folder / "history.jsonl").write_text("".join(f"{entry.to_json()}\n" for entry in history.entries))
    subject = audit.Subject(NODE, configuration(), ((expectation.claim, expectation.check),))
    cluster = audit.Cluster(VERSION, 0.01, {NODE: HEALTHY}, {})
    audit.write_run(folder, datetime.now(UTC), [subject], history, CATALOGUE, cluster)
    assert cli.main(["page", str(folder)]) == 0
    page = (folder / "site" / "page.html").read_text()
    assert CATALOGUE[expectation.claim].statement in html.unescape(page)
    assert "Node-1" in page
    (link,) = set(re.findall(r'href="([^"]*history.jsonl)"', page))
    assert (folder / "site" / link).is_file()


# Settings that the API shows, and dangerous values among them.


PAGES = Path(__file__).parents[2] / "docs" / "findings"
FINDINGS = {page.read_text().partition("\n")[0] for page in PAGES.glob("*.md")}
DEFAULT = Tolerations({"NotReady": 300, "Unreachable": 300})
CRITICAL = 2_000_001_000


def listed_node(name: str = "n-1", image: str = "Talos", swap: int = 0, annotations: Json = None) -> Json:
    info = {"osImage": image, **({"swap": {"capacity": swap}} if swap else {})}
    return {"metadata": {"name": name, "annotations": annotations}, "status": {"nodeInfo": info}}


def static_pod(*flags: str, name: str = "cp-1", priority: int | None = CRITICAL) -> Json:
    meta = {"name": f"{MANAGER}-{name}", "annotations": {"kubernetes.io/config.mirror": "hash"}}
    container = {"name": MANAGER, "command": [MANAGER, *flags]}
    return {"metadata": meta, "spec": {"containers": [container], "priority": priority}}


def evidence(**changed: Json) -> Evidence:
    lease = {"spec": {"leaseDurationSeconds": 40}}
    parts: dict[str, Json] = {"nodes": [listed_node()], "leases": [lease], "tolerations": DEFAULT}
    return Evidence(**{**parts, **changed})


def shown(of: Evidence, version: str = VERSION) -> Mapping[str, tuple[str, str]]:
    return {entry.name: (entry.value, entry.source) for entry in settings.settings_of(of, CATALOGUE, version)}


def warned(of: Evidence) -> list[str]:
    return [entry.claim for entry in audit.dangers(of, CATALOGUE, VERSION)]


def test_flags_of_mirror_pods_are_shown_and_others_have_the_default() -> None:
    of = evidence(static_pods=[static_pod("--node-monitor-period=2s", "--leader-elect=true")])
    assert shown(of)[f"{MANAGER} node-monitor-period"] == ("2s", f"pod {MANAGER}-cp-1")
    assert shown(of)[f"{MANAGER} node-monitor-grace-period"] == ("50s", f"default of {VERSION}")
    assert shown(of, "v1.31.0")[f"{MANAGER} node-monitor-grace-period"][0] == "40s"
    assert shown(of)["nodeLeaseDurationSeconds"] == ("40", "Leases")


def test_different_flags_of_two_controller_managers_are_both_shown() -> None:
    both = [static_pod("--node-eviction-rate=0.5"), static_pod(name="cp-2")]
    assert shown(evidence(static_pods=both))[f"{MANAGER} node-eviction-rate"][0] == "0.5, 0.1"


@pytest.mark.parametrize("key", ["k3s.io/node-args", "rke2.io/node-args"])
def test_arguments_of_k3s_and_rke2_are_read_from_nodes(key: str) -> None:
    arguments = [
        *("server", "--kube-controller-manager-arg", "node-monitor-grace-period=20s", "--disable=traefik"),
        "--kube-apiserver-arg=default-unreachable-toleration-seconds=30",
    ]
    agent = listed_node("agent", annotations={key: '["agent"]'})
    of = evidence(nodes=[listed_node(annotations={key: json.dumps(arguments)}), agent])
    assert shown(of)[f"{MANAGER} node-monitor-grace-period"] == ("20s", f"{key} of n-1")
    assert list(of.flags(settings.API_SERVER).values()) == [{"default-unreachable-toleration-seconds": "30"}]


def test_server_of_k3s_without_arguments_has_the_defaults() -> None:
    of = evidence(nodes=[listed_node(annotations={"k3s.io/node-args": '["server"]'})])
    assert shown(of)[f"{MANAGER} node-eviction-rate"] == ("0.1", f"default of {VERSION}")


def test_unreadable_settings_are_unknown_with_the_reason() -> None:
    kubelets = {"n-1": "self-signed", "n-2": "self-signed", "n-3": "not reached"}
    of = evidence(
        unread="pods are forbidden", tolerations=Tolerations(None, "no dry run"), unread_kubelets=kubelets
    )
    assert shown(of)[f"{MANAGER} node-eviction-rate"] == ("", "pods are forbidden")
    assert shown(of)["default toleration of Unreachable (s)"] == ("", "no dry run")
    assert shown(of)["kubelet shutdownGracePeriod"] == ("", "self-signed (2), not reached (1)")


class Server:
    """An API server that answers these paths, and forbids all others."""

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self.answers, self.paths = answers, list[str]()

    def get(self, path: str, _query: Json = None) -> Json:
        self.paths.append(path)
        if path not in self.answers:
            raise ApiError(403, "forbidden")
        return self.answers[path]


def test_refused_reads_leave_settings_unknown() -> None:
    of = settings.read_evidence(cast("Api", Server({})), [listed_node()], [], DEFAULT)
    assert "403" in shown(of)[f"{MANAGER} node-eviction-rate"][1]


def with_kubelet(image: str = "Talos", swap: int = 0, **configuration: Json) -> Evidence:
    return evidence(nodes=[listed_node(image=image, swap=swap)], kubelets={"n-1": configuration})


def with_flags(*flags: str) -> Evidence:
    return evidence(static_pods=[static_pod(*flags)])


def with_shutdown(period: str, of_critical_pods: str) -> Evidence:
    return with_kubelet(shutdownGracePeriod=period, shutdownGracePeriodCriticalPods=of_critical_pods)


NO_TOLERATION = Tolerations({"NotReady": 0, "Unreachable": 300})
LIMITED: dict[str, Json] = {"memorySwap": {"swapBehavior": "LimitedSwap"}}
PERIODS: dict[str, Json] = {"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "10s"}


@pytest.mark.parametrize(
    ("of", "claim_id"),
    [
        (with_flags("--node-monitor-grace-period=40s"), "monitoring.grace-period-default"),
        (with_flags("--node-eviction-rate", "1.0"), "zones.recovery-resumes"),
        (evidence(static_pods=[static_pod(priority=None)]), "graceful-shutdown.critical-definition"),
        (evidence(tolerations=NO_TOLERATION), "eviction.default-tolerations-injected"),
        (with_kubelet("Ubuntu 24.04", **PERIODS), "graceful-shutdown.inhibit-delay-conflict"),
        (with_shutdown("20s", "20s"), "graceful-shutdown.validation"),
        (with_shutdown("20s", "0s"), "graceful-shutdown.activation"),
        (with_kubelet(swap=1 << 30, **LIMITED), "swap.formula-no-reservation"),
    ],
)
def test_dangerous_value_is_named_with_claim_and_finding(of: Evidence, claim_id: str) -> None:
    (danger,) = audit.dangers(of, CATALOGUE, VERSION)
    assert danger.claim == claim_id
    assert danger.statement == CATALOGUE[claim_id].statement
    assert danger.finding == CATALOGUE[claim_id].drift or f"# {danger.finding}" in FINDINGS


@pytest.mark.parametrize(
    "of",
    [
        with_flags("--node-monitor-grace-period=50s", "--node-eviction-rate=0.1"),
        with_flags("--node-monitor-grace-period=soon"),
        evidence(tolerations=Tolerations({"NotReady": None, "Unreachable": 30})),
        with_kubelet("Fedora", **PERIODS),
        with_shutdown("0s", "0s"),
        with_kubelet(**LIMITED),
        with_kubelet(swap=1 << 30, memorySwap={}),
        with_kubelet(swap=1 << 30, systemReserved={"memory": "1Gi"}, **LIMITED),
    ],
)
def test_other_values_give_no_warning(of: Evidence) -> None:
    assert warned(of) == []


@pytest.mark.parametrize("reads_settings", [False, True])
@pytest.mark.parametrize("reads_kubelets", [False, True])
@pytest.mark.parametrize("uses_nodes_proxy", [False, True])
def test_role_has_rights_on_kubelets_only_on_request(
    reads_settings: bool, reads_kubelets: bool, uses_nodes_proxy: bool
) -> None:
    text = audit.cluster_role(
        reads_settings=reads_settings, reads_kubelets=reads_kubelets, uses_nodes_proxy=uses_nodes_proxy
    )
    role = yaml.safe_load(text)
    verbs = {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert (("nodes/proxy", "get") in verbs) == uses_nodes_proxy
    assert (("nodes/configz", "get") in verbs) == reads_kubelets
    assert (("pods", "create") in verbs) == reads_settings
    assert {verb for _kind, verb in verbs} <= {"get", "list", "watch", "create"}


def test_flag_and_value_may_be_two_arguments() -> None:
    argv = ["program", "--one", "1", "--two=2", "--three", "--four", ""]
    assert flags_of(argv) == {"one": "1", "two": "2", "three": "true", "four": "true"}


# Settings of somebody's own cluster from which windows are computed.


BY_SYMBOL = {"G": 50.0, "P": 5.0, "E": 0.1, "E2": 0.01, "S": 60.0}


def symbols(of: Evidence, version: str = VERSION) -> Mapping[str, float]:
    reported = {MANAGER: settings.manager_settings(of, CATALOGUE, version, "cluster.yaml")}
    return {name: read(SYMBOLS[name], reported) for name in BY_SYMBOL}


def test_flag_that_is_not_set_has_the_default_of_the_version() -> None:
    assert symbols(with_flags()) == BY_SYMBOL
    assert symbols(with_flags(), "v1.31.0")["G"] == 40.0


def test_flags_of_the_running_cluster_count() -> None:
    flags = ("--node-monitor-grace-period=1m30s", "--node-eviction-rate=0.5")
    assert symbols(with_flags(*flags)) == {**BY_SYMBOL, "G": 90.0, "E": 0.5}


def test_flag_may_have_underscores() -> None:
    assert symbols(with_flags("--node_monitor_grace_period=16s"))["G"] == 16.0


TWO_MANAGERS = [static_pod("--node-monitor-period=2s"), static_pod(name="cp-2")]


def in_a_shell() -> Json:
    """Return a static pod whose flags a shell hides."""
    pod = static_pod()
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"exec {MANAGER} --node-monitor-grace-period=16s"]
    return pod


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (evidence(unread="pods are forbidden"), "pods are forbidden"),
        (evidence(static_pods=[in_a_shell()]), "no command line of a controller manager"),
        (evidence(static_pods=TWO_MANAGERS), "controller managers have"),
    ],
)
def test_unknown_setting_is_refused(of: Evidence, reason: str) -> None:
    with pytest.raises(Problem, match=f"is unknown .*{reason}"):
        symbols(of)


# Kubeconfigs that kubectl accepts, and those that give one line.


SERVER = "https://127.0.0.1:1"
CREDENTIAL = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}
PLUGIN = """printf '%s' '{}' | sed "s/TOKEN/$AUDIT_TOKEN/\""""


def write(path: Path, name: str, user: Json, **cluster: Json) -> Path:
    content = {
        "clusters": [{"name": name, "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": f"user-of-{name}", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"user-of-{name}"}}],
        "current-context": name,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def bearer(access: Access) -> str:
    headers: dict[str, str] = {}
    access.client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    return headers.get("authorization", "")


def plugin(folder: Path, script: str) -> Json:
    path = executable(folder / "plugin", script)
    of_exec = {"command": str(path), "apiVersion": CREDENTIAL["apiVersion"], "interactiveMode": "Never"}
    return {"exec": of_exec}


def test_exec_plugin_has_the_environment_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_TOKEN", "of-the-user")
    script = PLUGIN.format(json.dumps({**CREDENTIAL, "status": {"token": "TOKEN"}}))
    access = load_kubeconfig(str(write(tmp_path / "config", "prod", plugin(tmp_path, script))), "")
    assert (access.context, access.server, access.user) == ("prod", SERVER, "user-of-prod")
    assert bearer(access) == "Bearer of-the-user"


def test_failing_exec_plugin_is_named_in_one_line(tmp_path: Path) -> None:
    user = plugin(tmp_path, "echo 'log in first' >&2; exit 1")
    with pytest.raises(Problem, match="log in first") as caught:
        load_kubeconfig(str(write(tmp_path / "config", "prod", user)), "")
    assert "\n" not in str(caught.value)


def test_token_file_may_end_with_a_line_break_and_be_rotated(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    path = write(tmp_path / "config", "prod", {"tokenFile": "token", "token": "old"})
    access = load_kubeconfig(str(path), "")
    assert bearer(access) == "Bearer secret"
    (tmp_path / "token").write_text("next\n")
    assert bearer(access) == "Bearer next"


def test_first_of_two_files_has_the_current_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / name, name, {"token": name}) for name in ("one", "two")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert load_kubeconfig("", "").context == "one"
    assert bearer(load_kubeconfig("", "two")) == "Bearer two"


def test_file_without_a_current_context_needs_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "prod", {"token": "t"})
    path.write_text(path.read_text().replace("current-context: prod\n", ""))
    assert load_kubeconfig(str(path), "prod").context == "prod"
    with pytest.raises(Problem, match="no current-context"):
        load_kubeconfig(str(path), "")


@pytest.mark.parametrize(
    ("content", "context", "word"),
    [
        (None, "", "no such file"),
        ("", "", "empty"),
        ("{", "", "kubeconfig cannot be used"),
        ("clusters: 7", "", "kubeconfig cannot be used"),
        ("[]", "", "kubeconfig cannot be used"),
        ("contexts: []", "", "current-context"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]", "", "kubeconfig cannot be used"),
        ("prod", "staging", "no context 'staging'"),
        ("impersonating", "", "impersonates"),
    ],
)
def test_bad_kubeconfig_gives_one_line(content: str | None, context: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if content in ("prod", "impersonating"):
        write(path, "prod", {"token": "t", **({"as": "somebody"} if content != "prod" else {})})
    elif content is not None:
        path.write_text(content)
    with pytest.raises(Problem, match=word) as caught:
        load_kubeconfig(str(path), context)
    assert "\n" not in str(caught.value)


def test_server_whose_certificate_is_not_verified_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "prod", {"token": "t"}, **{"insecure-skip-tls-verify": True})
    with pytest.raises(Problem, match="insecure-skip-tls-verify"):
        PacedApi(load_kubeconfig(str(path), ""))


def test_offset_of_the_servers_clock_is_read_from_its_answers() -> None:
    assert server_time_s("Sat, 28 Nov 2026 00:00:00 GMT") == 1795824000
    assert server_time_s("") == server_time_s("soon") == 0.0


def test_requests_come_at_most_at_the_rate() -> None:
    pace, began_t = Pace(100.0), time.monotonic()
    for _request in range(11):
        pace.wait()
    assert time.monotonic() - began_t >= 0.1


# A recording that writes nothing: it is fenced by bookmarks.


RESOURCES = ("nodes", "leases")


def item(rv: int) -> Json:
    return {"metadata": {"name": "node-1", "uid": "u", "resourceVersion": str(rv)}}


class WatchServer:
    """An API server with one object of each resource, written at 7 and, for the last LIST, at `latest`."""

    def __init__(self, events: Sequence[Json], latest: int = 7) -> None:
        self._events, self._latest = events, latest
        self._listed: set[str] = set()
        self.done = threading.Event()

    def get(self, path: str, _query: object = None) -> Json:
        rv = self._latest if path in self._listed else 7
        self._listed.add(path)
        return {"metadata": {"resourceVersion": str(rv + 1)}, "items": [item(rv)]}

    @contextmanager
    def watch(self, _path: str, _rv: str, _silence_timeout_s: float) -> Iterator[Iterator[bytes]]:
        yield self._lines()

    def _lines(self) -> Iterator[bytes]:
        yield from (json.dumps(event).encode() for event in self._events)
        self.done.wait(10)


BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
CHANGE = {"type": "MODIFIED", "object": item(8)}


def recorded(server: WatchServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Record an observation of no time, with one value."""
    monkeypatch.setattr(recorder, "_LATEST_BOOKMARK_S", 0.5)
    path = folder / "history.jsonl"
    with ReadOnlyRecording(cast("Api", server), path, ["node-1"], RESOURCES, 0.0, 1e9) as recording:
        objects, asked_t = recording.fence()
        recording.observe(Observation("id", "what", "node-1", objects["nodes"][0]), asked_t)
    server.done.set()
    assert History.parse(path.read_text().splitlines()).of_kind("observed")
    return recording.history()


@pytest.mark.parametrize(
    ("events", "latest", "passed"),
    [
        ([BOOKMARK], 7, True),
        ([CHANGE, BOOKMARK], 8, True),
        ([], 7, False),
        ([CHANGE], 8, False),
        # The watch lacks the change that the LIST has.
        ([BOOKMARK], 8, False),
    ],
)
def test_fence_needs_a_bookmark_and_the_state_of_the_list(
    events: Sequence[Json], latest: int, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fence(recorded(WatchServer(events, latest), tmp_path, monkeypatch))
    assert result.passed == passed, result


class Refusing(WatchServer):
    """An API server that refuses to list."""

    def get(self, path: str, _query: object = None) -> Json:
        raise ApiError(403, f"{path} is forbidden")


def test_watch_that_never_opens_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "READ_ONLY_START_TIMEOUT_S", 0.3)
    api = cast("Api", Refusing([]))
    with (
        pytest.raises(Problem, match="not all watches of nodes, leases"),
        ReadOnlyRecording(api, tmp_path / "history.jsonl", [], RESOURCES, 0.0, 1e9),
    ):
        pass
