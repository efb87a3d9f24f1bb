"""Storms: schedules, their coverage, invariants, and the smallest schedule that violates one."""

from __future__ import annotations

import ast
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import proc
from nodeproof.checks import invariants
from nodeproof.checks.judge import judge
from nodeproof.checks.storm_coverage import coverage
from nodeproof.model import schedule as schedules
from nodeproof.model import window as windows
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import FIRST, POSSIBLE, Combination, Schedule, Step, Steps, Trial
from nodeproof.model.verdict import Outcome, Verdict
from nodeproof.report.rundir import write_json
from nodeproof.session import storm as storms
from nodeproof.session.storm import guesses
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RESOURCES,
    TOLERATION_S,
    Story,
    configuration,
    partition,
)
from tests.unit.sample_checks import CLAIM, HEALING, assert_verdict, run
from tests.unit.synthetic_runs import CONFORMS, CUT, TAINT, tell

# Schedules of a storm: generated from a seed, stored, read and refused.


FEW = {"seed": 3, "steps": [{"fault": "partition", "target": 1, "duration_s": 2.0}]}


HALF = frozenset(sorted(POSSIBLE)[::2])


def covering(
    seed: int, met: set[Combination] | frozenset[Combination] = frozenset(), duration_s: float = 600.0
) -> Schedule:
    return schedules.generate(seed, duration_s, nodes=4, grace_s=GRACE_S, toleration_s=6, coverage=met)


def test_seeds_differ_in_their_schedules() -> None:
    assert covering(7) != covering(8)


@pytest.mark.parametrize("met", [frozenset[Combination](), HALF], ids=["no coverage", "half"])
def test_hours_of_storm_have_every_kind_of_fault_and_none_too_often(met: frozenset[Combination]) -> None:
    steps = covering(1, met, 4 * 3600.0).steps
    kinds = [step.kind for step in steps]
    assert all(0 < kinds.count(kind) < len(kinds) / 5 for kind in schedules.KINDS)
    assert {step.change for step in steps} == {*schedules.CHANGES}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fault": "earthquake"}, "no fault 'earthquake'"),
        ({"target": "etcd"}, "no fault|target is 'etcd'"),
        ({"target": -1}, "target is -1"),
        ({"delay_s": "soon"}, "delay_s is 'soon'"),
        ({"duration_s": -1}, "duration_s is -1"),
        ({"change": "rename"}, "change is 'rename'"),
        ({"anchor": "dawn"}, "anchor is 'dawn'"),
        ({"anchor": "healed", "of": 0}, "of is 0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_step_is_refused_with_its_place(changed: Json, message: str) -> None:
    steps = [{**FEW["steps"][0], **changed}]  # type: ignore[index]
    with pytest.raises(Problem, match=message) as refusal:
        Schedule.from_json({"seed": 3, "steps": steps}, "file")
    assert "file: step 0" in str(refusal.value)


@pytest.mark.parametrize(
    "data", [[], {}, {"steps": 3}, {"steps": [], "seed": "x"}, {"steps": [], "faults": ["x"]}]
)
def test_what_is_no_schedule_is_refused(data: Json) -> None:
    with pytest.raises(Problem, match=r"list of steps|whole number|no kind of fault: 'x'"):
        Schedule.from_json(data, "file")


def test_missing_node_is_refused() -> None:
    with pytest.raises(Problem, match="target 1: there are 1 nodes"):
        Schedule.from_json(FEW, "file").check_targets(1, "file")


@given(st.integers(0, 10_000), st.permutations([kind.name for kind in schedules.KINDS]), st.integers(1, 9))
def test_seed_and_faults_give_one_schedule_of_these_kinds(seed: int, names: list[str], count: int) -> None:
    chosen = names[:count]
    one, other = (
        schedules.generate(
            seed,
            600.0,
            nodes=4,
            grace_s=GRACE_S,
            toleration_s=6,
            faults=schedules.choose_faults(order, "--faults"),
        )
        for order in (chosen, chosen[::-1])
    )
    assert one == other
    assert {step.kind.name for step in one.steps if step.kind} <= {*chosen} == {*one.faults}
    assert Schedule.from_json(json.loads(json.dumps(one.to_json())), "file") == one


def test_unknown_kind_of_fault_is_refused_in_a_line_that_lists_all() -> None:
    argv = [sys.executable, "-m", "nodeproof.cli", "storm", "--faults", "freeze,earthquake"]
    refusal = proc.run(argv, timeout_s=120, check=False).stderr
    (line,) = [line for line in refusal.splitlines() if "earthquake" in line]
    assert all(kind.name in line for kind in schedules.KINDS)


# Coverage of a storm: what its faults met, and schedules that prefer what earlier storms did not meet.


TAINT_STEP = Step("taint", 0, arguments={"key": schedules.TAINT_KEY, "effect": "NoExecute"})
combinations = st.sets(st.sampled_from(sorted(POSSIBLE)))


def expected(schedule: Schedule) -> set[Combination]:
    """Return what a schedule is expected to meet."""
    expectation, met = schedules.Expected(GRACE_S), set[Combination]()
    for step in schedule.steps:
        met |= expectation.combinations(step)
        expectation.add(step)
    return met


@given(st.integers(0, 10_000), combinations)
def test_seed_and_coverage_give_one_schedule_which_stores_it(seed: int, met: set[Combination]) -> None:
    schedule = covering(seed, met)
    assert schedule == covering(seed, met)
    assert set(schedule.coverage) == met
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json())), "file") == schedule
    schedule.check_targets(4, "file")


@given(st.integers(0, 10_000), combinations)
def test_longer_storm_with_coverage_begins_like_a_shorter_one(seed: int, met: set[Combination]) -> None:
    short, long = covering(seed, met, 120.0).steps, covering(seed, met, 600.0).steps
    assert long[: len(short)] == short


def test_every_combination_is_met_in_hours_of_storm() -> None:
    assert expected(covering(5, duration_s=10 * 3600.0)) == POSSIBLE


def test_storms_with_coverage_are_expected_to_meet_more_that_is_new() -> None:
    plain, preferred = (
        sum(len(expected(covering(seed, met)) - HALF) for seed in range(30))
        for met in (frozenset[Combination](), HALF)
    )
    assert preferred > 1.25 * plain


def test_coverage_leaves_as_many_pauses() -> None:
    plain, preferred = (
        sum(step.anchor == "healed" for seed in range(30) for step in covering(seed, met).steps)
        for met in (frozenset[Combination](), HALF)
    )
    assert 0.9 * plain < preferred < 1.1 * plain


def inject(story: Story, t: float, name: str, node: str, to_t: float | None = None, **fields: Json) -> Story:
    """Record the injection of a fault, and its healing at `to_t`; otherwise it stays."""
    steps = [(t, "injecting"), (t + 0.1, "injected")]
    steps += [] if to_t is None else [(to_t, "healing"), (to_t, "healed")]
    for step_t, step in steps:
        fault = {"fault": name, **fields}
        story.say(step_t, "fault", id=f"{name}-{t}", fault=fault, node=node, step=step)
    return story


def test_first_fault_meets_a_quiet_cluster() -> None:
    story = inject(inject(Story(), 5.0, "kubelet-settings", NODE), 10.0, "partition", NODE)
    assert coverage([Step("partition", 0)], story.history()) == {("partition", "quiet")}


@pytest.mark.parametrize(("ready", "state"), [("True", "lost"), ("Unknown", "unknown")])
@pytest.mark.parametrize(("node", "role"), [(NODE, "target"), (OTHER, "other node")])
def test_taint_meets_the_state_of_a_lost_node(ready: str, state: str, node: str, role: str) -> None:
    story = inject(Story(), 10.0, "freeze", node).condition(20.0, ready, node=node)
    inject(story, 30.0, "taint", "control-plane", on=NODE)
    met = coverage([Step("freeze", 0), TAINT_STEP], story.history())
    assert met == {("freeze", "quiet"), ("taint NoExecute", f"{role} {state}")}


def test_fault_meets_a_taint_of_its_node_and_a_stopped_component() -> None:
    story = inject(Story(), 10.0, "power-off", "kube-scheduler").taint(11.0, key=schedules.TAINT_KEY)
    inject(story, 12.0, "link-down", NODE)
    assert coverage([Step("power_off", "kube-scheduler"), Step("link_down", 0)], story.history()) == {
        ("power_off component", "quiet"),
        ("link_down", "target tainted"),
        ("link_down", "kube-scheduler stopped"),
    }


def stored(run: Path, met: list[Combination], earlier: tuple[Combination, ...] = ()) -> Path:
    """Return the folder of a storm's run with this coverage."""
    folder = run / "scenarios" / "storm"
    folder.mkdir(parents=True)
    write_json(folder / storms.FILE, Schedule(3, (TAINT_STEP,), earlier).to_json())
    write_json(folder / storms.COVERAGE, met)
    return run


def test_coverage_of_runs_is_the_union(tmp_path: Path) -> None:
    first, second, third = sorted(POSSIBLE)[:3]
    runs = [stored(tmp_path / "a", [first, second]), stored(tmp_path / "b", [second, third])]
    assert storms.read_coverage(runs) == {first, second, third}


def test_summary_counts_what_earlier_storms_did_not_meet(tmp_path: Path) -> None:
    first, second, third = sorted(POSSIBLE)[:3]
    run = stored(tmp_path, [first, second], (second, third))
    assert f"2 of {len(POSSIBLE)} combinations" in storms.coverage_summary(run)
    assert "1 of them new" in storms.coverage_summary(run)


def test_run_without_coverage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no coverage of a storm"):
        storms.read_coverage([tmp_path])


@pytest.mark.parametrize("content", [{}, ["freeze"], [["freeze"]], [["freeze", 3]]])
def test_malformed_coverage_is_refused_with_its_file(tmp_path: Path, content: Json) -> None:
    run = stored(tmp_path, content)
    with pytest.raises(Problem, match="list of pairs") as refusal:
        storms.read_coverage([run])
    assert storms.COVERAGE in str(refusal.value)


# Invariants of a storm, judged on short stories.


MANAGER = "kube-controller-manager"
MARK = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


def tolerating(story: Story, toleration_s: float | None) -> Json:
    """Return the pod with a toleration of the taint unreachable for so long (s), or for ever."""
    pod = story.object("pods", NAMESPACE, POD)
    seconds = {} if toleration_s is None else {"tolerationSeconds": toleration_s}
    pod["spec"]["tolerations"] = [{"key": UNREACHABLE, "operator": "Exists", **seconds}]
    return pod


def evicted(story: Story, t: float, toleration_s: float | None = TOLERATION_S) -> Story:
    """Let the taint manager delete the pod, which tolerates the taint for so long."""
    pod = tolerating(story, toleration_s)
    pod["status"]["conditions"] = [MARK]
    return story.change(t - 0.01, "pods", NAMESPACE, POD, pod).evict(t)


def tainted(taint_t: float = 30.0) -> Story:
    return Story().pod(1.0).bind(1.1).taint(taint_t)


@pytest.mark.parametrize(
    ("unknown_s", "label"), [(GRACE_S + 0.5, "conforms"), (GRACE_S - 2.0, "deviates"), (2.0, "deviates")]
)
def test_node_must_be_silent_for_the_grace_period(unknown_s: float, label: str) -> None:
    story = partition(unknown_s=unknown_s).fence(80.0)
    assert_verdict(run(invariants.known_while_heard(), story), label, NODE)


def test_heartbeat_during_the_write_does_not_count() -> None:
    story = partition()
    unknown_t = next(entry.t for entry in story.entries if "Unknown" in str(entry.data))
    story.renew(unknown_t - 0.05, received_t=unknown_t - 0.04)
    assert_verdict(run(invariants.known_while_heard(), story.fence(80.0)), "conforms")


def test_storm_without_a_lost_node_proves_nothing_about_silence() -> None:
    assert_verdict(run(invariants.known_while_heard(), Story().fence(9.0)), "unproven: not-met")


@pytest.mark.parametrize(
    ("evicted_t", "toleration_s", "label"),
    [
        (30.0 + TOLERATION_S, TOLERATION_S, "conforms"),
        (30.0 + TOLERATION_S - 3.0, TOLERATION_S, "deviates"),
        (31.0, 0, "conforms"),
        (45.0, None, "deviates"),
    ],
)
def test_pod_is_evicted_when_it_is_due(evicted_t: float, toleration_s: float | None, label: str) -> None:
    story = evicted(tainted(), evicted_t, toleration_s).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), label, POD)


@pytest.mark.parametrize(("removed_s", "label"), [(0.1, "conforms"), (2.0, "deviates")])
def test_pod_is_not_evicted_after_the_taint_was_removed(removed_s: float, label: str) -> None:
    due_t = 30.0 + TOLERATION_S
    story = evicted(tainted().untaint(due_t - removed_s), due_t).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), label)


def test_deletion_may_be_received_before_its_taint() -> None:
    story = evicted(Story().pod(1.0).bind(1.1), 30.0, toleration_s=0).taint(30.02).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "conforms")


def test_taint_that_replaces_another_does_not_restart_the_toleration() -> None:
    story = tainted().taint(35.0, key="node.kubernetes.io/not-ready")
    node = story.object("nodes", "", NODE)
    node["spec"]["taints"] = node["spec"]["taints"][1:]
    story.change(35.1, "nodes", "", NODE, node)
    story = evicted(story, 30.0 + TOLERATION_S).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "conforms")


def test_deletion_by_others_is_no_taint_eviction() -> None:
    story = Story().pod(1.0).bind(1.1).evict(5.0).fence(9.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "unproven: not-met")


@pytest.mark.parametrize(("bound_t", "label"), [(30.5, "conforms"), (35.0, "deviates")])
@pytest.mark.parametrize("is_cordoned", [True, False])
def test_pod_is_not_bound_to_a_closed_node(bound_t: float, label: str, is_cordoned: bool) -> None:
    story = Story().pod(1.0)
    story = story.cordon(30.0) if is_cordoned else story.taint(30.0, effect="NoSchedule")
    assert_verdict(run(invariants.bound_to_open_nodes(), story.bind(bound_t).fence(60.0)), label, NODE)


def bindings_under_load(*stall_times: int, taint_t: float | None = None) -> Verdict:
    """Judge bindings at 10, 40 and 70 s, with stalls at these times."""
    story = Story().pod(1.0, "first").pod(1.0, "second").pod(1.0, "third").bind(10.0, "first")
    if taint_t is not None:
        story.taint(taint_t, effect="NoSchedule")
    story.bind(40.0, "second").bind(70.0, "third")
    for t in range(1, 90):
        story.say(float(t), "stall", late_s=1.2 if t in stall_times else 0.0)
    return judge(CLAIM, invariants.bound_to_open_nodes(), story.fence(90.0).history(), configuration())


@pytest.mark.parametrize(("stall_t", "pod"), [(10, "pod second"), (40, "pod third"), (70, "pod second")])
def test_certain_violation_does_not_depend_on_load_at_other_times(stall_t: int, pod: str) -> None:
    assert_verdict(bindings_under_load(stall_t, taint_t=20.0), "deviates", pod)


@pytest.mark.parametrize(
    ("stalls", "label", "words"),
    [
        ((40,), "conforms", ("held on 2 occasions", "left out because of load: 1")),
        ((40, 70), "unproven: host-too-loaded", ("held on 3 occasions",)),
    ],
)
def test_occasions_under_load_prove_nothing(stalls: Sequence[int], label: str, words: Sequence[str]) -> None:
    assert_verdict(bindings_under_load(*stalls), label, *words)


def test_violation_under_load_is_uncertain() -> None:
    story = Story().pod(1.0).taint(20.0, effect="NoSchedule").bind(40.0).say(40.0, "stall", late_s=1.2)
    verdict = judge(CLAIM, invariants.bound_to_open_nodes(), story.fence(90.0).history(), configuration())
    assert_verdict(verdict, "unproven: host-too-loaded")


def test_binding_may_be_received_before_its_node_opens() -> None:
    story = Story().pod(1.0).taint(5.0, effect="NoSchedule").bind(30.0).untaint(30.01)
    assert_verdict(run(invariants.bound_to_open_nodes(), story.fence(60.0)), "conforms")


def test_pod_may_be_bound_to_a_node_whose_taint_it_tolerates() -> None:
    story = Story().pod(1.0).taint(2.0, effect="NoSchedule")
    pod = story.object("pods", NAMESPACE, POD)
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    story.change(3.0, "pods", NAMESPACE, POD, pod)
    assert_verdict(run(invariants.bound_to_open_nodes(), story.bind(9.0).fence(60.0)), "conforms")


@pytest.mark.parametrize(
    ("ready_t", "untainted_t", "label"),
    [(50.0, 51.0, "conforms"), (50.0, 75.0, "deviates"), (75.0, 51.0, "deviates")],
)
def test_nodes_are_ready_and_open_in_time(ready_t: float, untainted_t: float, label: str) -> None:
    story = partition().fault(45.0, "healing")
    for t, change in sorted(((ready_t, "ready"), (untainted_t, "untainted"))):
        story = story.condition(t, "True") if change == "ready" else story.untaint(t)
    story.remove(52.0, "pods", NAMESPACE, POD)
    check = invariants.settled(windows.up_to(20.0), after=HEALING)
    assert_verdict(run(check, story.fence(90.0)), label)


def test_node_that_stays_tainted_has_not_recovered() -> None:
    story = partition().fault(45.0, "healing").condition(50.0, "True").remove(52.0, "pods", NAMESPACE, POD)
    check = invariants.settled(windows.up_to(20.0), after=HEALING)
    assert_verdict(run(check, story.fence(90.0)), "deviates", "had the taint", UNREACHABLE)


def test_recording_that_ends_too_early_proves_no_recovery() -> None:
    story = partition().fault(45.0, "healing")
    check = invariants.settled(windows.up_to(60.0), after=HEALING)
    assert_verdict(run(check, story.fence(50.0)), "unproven: gap", "when the recording ended")


@pytest.mark.parametrize(("agreed_s", "label"), [(0.5, "conforms"), (9.0, "deviates"), (None, "deviates")])
def test_taints_follow_a_lasting_change_of_ready(agreed_s: float | None, label: str) -> None:
    story = Story().condition(30.0, "Unknown")
    if agreed_s is not None:
        story.taint(30.0 + agreed_s, effect="NoSchedule")
    assert_verdict(run(invariants.taints_follow_ready(), story.fence(60.0)), label, NODE)


def test_taint_that_a_ready_node_keeps_deviates() -> None:
    story = Story().condition(30.0, "Unknown").taint(30.2, effect="NoSchedule").condition(45.0, "True")
    assert_verdict(run(invariants.taints_follow_ready(), story.fence(60.0)), "deviates", "Ready=True")


def test_stopped_controller_manager_need_not_taint() -> None:
    story = inject(Story(), 29.0, "power-off", MANAGER, 31.0).condition(30.0, "Unknown").fence(60.0)
    assert_verdict(run(invariants.taints_follow_ready(), story), "unproven: not-met")


def tolerant(toleration_s: float | None) -> Story:
    """Return a story of a pod that tolerates the taint for so long."""
    story = Story().pod(1.0)
    return story.change(1.05, "pods", NAMESPACE, POD, tolerating(story, toleration_s)).bind(1.1)


@pytest.mark.parametrize(
    ("toleration_s", "evicted_s", "label"),
    [
        (6.0, 6.2, "conforms"),
        (6.0, 12.0, "deviates"),
        (6.0, None, "deviates"),
        (0.0, None, "deviates"),
        (None, None, "unproven: not-met"),
    ],
)
def test_pod_is_evicted_in_time(toleration_s: float | None, evicted_s: float | None, label: str) -> None:
    story = tolerant(toleration_s).taint(30.0)
    if evicted_s is not None:
        story.evict(30.0 + evicted_s)
    assert_verdict(run(invariants.evicted_in_time(), story.fence(60.0)), label)


@pytest.mark.parametrize(("evicted_t", "label"), [(46.2, "conforms"), (55.0, "deviates")])
def test_restarted_controller_manager_measures_the_toleration_again(evicted_t: float, label: str) -> None:
    story = inject(tolerant(6.0).taint(30.0), 33.0, "power-off", MANAGER, 35.0)
    assert_verdict(run(invariants.evicted_in_time(), story.evict(evicted_t).fence(60.0)), label)


def test_taint_removed_before_toleration_ends_is_no_occasion() -> None:
    story = tolerant(6.0).taint(30.0).untaint(35.0)
    assert_verdict(run(invariants.evicted_in_time(), story.fence(60.0)), "unproven: not-met")


@pytest.mark.parametrize(
    ("removed_t", "label"),
    [(30.5, "conforms"), (40.0, "deviates"), (55.0, "conforms"), (29.0, "unproven: not-met")],
)
def test_pod_of_a_lost_node_is_not_removed(removed_t: float, label: str) -> None:
    story = inject(Story().pod(1.0).bind(1.1).evict(25.0), 29.9, "partition", NODE, 50.0)
    story.remove(removed_t, "pods", NAMESPACE, POD)
    assert_verdict(run(invariants.removed_by_kubelet(), story.fence(60.0)), label)


THIRD = "node-3"


def lost(story: Story, t: float, tainted_t: float, node: str = NODE, key: str = UNREACHABLE) -> Story:
    return story.condition(t, "Unknown", node).taint(tainted_t, key, node=node)


@pytest.mark.parametrize(
    ("due_t", "tainted_t", "label"),
    [
        (30.0, 32.3, "conforms"),
        (30.0, 30.4, "deviates"),
        (31.0, 31.1, "deviates"),
        (35.0, 35.1, "unproven: not-met"),
    ],
)
def test_nodes_lost_at_once_are_tainted_at_the_rate(due_t: float, tainted_t: float, label: str) -> None:
    story = lost(lost(Story(), 30.0, 30.2), due_t, tainted_t, OTHER)
    assert_verdict(run(invariants.taint_rate_kept(), story.fence(60.0)), label)


def in_zone(story: Story, zone: str, node: str) -> Story:
    labels = {"topology.kubernetes.io/zone": zone}
    return story.alter_node(1.0, lambda obj: obj["metadata"].update(labels=labels), node)


def test_rate_is_of_a_zone_and_of_one_controller_manager() -> None:
    story = in_zone(Story((NODE, OTHER, THIRD)), "zone-1", THIRD)
    in_zone(in_zone(story, "zone-0", NODE), "zone-1", OTHER)
    lost(lost(story, 30.0, 30.2), 30.1, 30.3, OTHER)
    inject(story, 30.5, "power-off", MANAGER, 30.8)
    story = lost(story, 31.0, 31.2, THIRD)
    assert_verdict(run(invariants.taint_rate_kept(), story.fence(60.0)), "unproven: not-met")


def test_exchange_of_taints_is_not_limited() -> None:
    story = lost(lost(Story(), 30.0, 30.2, key="node.kubernetes.io/not-ready"), 30.0, 32.3, OTHER)
    story.taint(33.0)
    assert_verdict(run(invariants.taint_rate_kept(), story.fence(60.0)), "conforms", "1 occasions")


def exempt_pod(is_static: bool) -> Story:
    """Return a story of a bound pod that is static, or of a DaemonSet."""
    meta = (
        {"annotations": {"kubernetes.io/config.mirror": "hash"}}
        if is_static
        else {"ownerReferences": [{"kind": "DaemonSet"}]}
    )
    body = {"metadata": meta, "spec": {"nodeName": NODE}, "status": {"phase": "Pending"}}
    return Story().change(1.0, "pods", NAMESPACE, POD, body)


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize(
    ("evicted_t", "label"), [(None, "conforms"), (42.0, "deviates"), (None, "unproven: not-met")]
)
def test_exempt_pod_of_a_lost_node_stays(is_static: bool, evicted_t: float | None, label: str) -> None:
    story = exempt_pod(is_static)
    if label != "unproven: not-met":
        story.taint(30.0)
    if evicted_t:
        evicted(story, evicted_t)
    assert_verdict(run(invariants.exempt_pods_stay(), story.fence(60.0)), label)


@pytest.mark.parametrize(
    ("is_static", "removed_t", "label"),
    [
        (True, None, "deviates"),
        (False, None, "unproven: not-met"),
        (False, 42.0, "unproven: not-met"),
        (False, 35.0, "deviates"),
    ],
)
def test_users_evict_pods_of_daemonsets_only(is_static: bool, removed_t: float | None, label: str) -> None:
    story = exempt_pod(is_static).taint(30.0, key=schedules.TAINT_KEY)
    if removed_t:
        story.untaint(removed_t)
    story = evicted(story, 42.5).fence(60.0)
    assert_verdict(run(invariants.exempt_pods_stay(), story), label)


def through(*phases: str, is_mirror: bool = False) -> Story:
    """Return a story of a pod that goes through these phases."""
    story = exempt_pod(is_static=True) if is_mirror else Story().pod(1.0)
    for t, phase in enumerate(phases, 2):
        story.mark(float(t), "", "", phase)
    return story.fence(60.0)


@pytest.mark.parametrize(
    ("phases", "label"),
    [
        (("Running", "Failed"), "conforms"),
        (("Running", "Pending"), "deviates"),
        (("Failed", "Running"), "deviates"),
        (("Succeeded", "Failed"), "deviates"),
        (("Pending", "Pending"), "unproven: not-met"),
    ],
)
def test_phase_does_not_go_back(phases: tuple[str, ...], label: str) -> None:
    assert_verdict(run(invariants.lifecycle_advances(), through(*phases)), label)


def test_static_pod_may_start_again() -> None:
    story = through("Failed", "Running", is_mirror=True)
    assert_verdict(run(invariants.lifecycle_advances(), story), "unproven: not-met")


@pytest.mark.parametrize(
    ("second", "grace_s", "label"),
    [
        ("00:00:10Z", 30, "unproven: not-met"),
        ("00:00:05Z", 25, "conforms"),
        ("00:00:20Z", 0, "conforms"),
        ("00:00:20Z", 30, "deviates"),
        (None, None, "deviates"),
    ],
)
def test_deletion_is_not_put_off(second: str | None, grace_s: int | None, label: str) -> None:
    story = Story().pod(1.0)
    for t, stamp, period_s in ((2.0, "00:00:10Z", 30), (3.0, second, grace_s)):
        deletion = {
            "deletionTimestamp": stamp and f"2026-01-01T{stamp}",
            "deletionGracePeriodSeconds": period_s,
        }
        change = {key: value for key, value in deletion.items() if value is not None}
        pod = story.object("pods", NAMESPACE, POD)
        pod["metadata"] = {**pod["metadata"], **dict.fromkeys(deletion), **change}
        story.change(t, "pods", NAMESPACE, POD, pod)
    assert_verdict(run(invariants.lifecycle_advances(), story.fence(60.0)), label)


WORKLOAD = "probe-set"


def member(story: Story, t: float, name: str, ready: str = "True", *marks: Json, **meta: Json) -> Story:
    """Write a pod of the workload."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}, *marks]}
    body = {"metadata": {"labels": {"workload": WORKLOAD}, **meta}, "spec": {}, "status": status}
    return story.change(t, "pods", NAMESPACE, name, body)


@pytest.mark.parametrize(
    ("unready_t", "stopped_t", "label"),
    [
        (None, None, "conforms"),
        (19.5, None, "conforms"),
        (12.0, None, "deviates"),
        (12.0, 11.0, "conforms"),
    ],
)
def test_eviction_leaves_as_many_pods_as_the_budget_requires(
    unready_t: float | None, stopped_t: float | None, label: str
) -> None:
    story = Story()
    for name in ("a", "b", "c"):
        member(story, 2.0, name)
    if stopped_t is not None:
        inject(story, stopped_t, "power-off", MANAGER, 21.0)
    if unready_t is not None:
        member(story, unready_t, "b", "False")
    by_api = {**MARK, "reason": "EvictionByEvictionAPI"}
    member(story, 20.0, "a", "True", by_api, deletionTimestamp="2026-01-01T00:00:00Z")
    assert_verdict(run(invariants.budget_kept(WORKLOAD, 2), story.fence(60.0)), label)


def test_deletion_that_is_no_eviction_has_no_budget() -> None:
    story = member(member(Story(), 2.0, "a"), 20.0, "a", deletionTimestamp="2026-01-01T00:00:00Z")
    verdict = run(invariants.budget_kept(WORKLOAD, 2), story.fence(60.0))
    assert_verdict(verdict, "unproven: not-met")


def replicas() -> Check:
    return invariants.replicas_available(windows.up_to(20.0), after=HEALING, replicas={WORKLOAD: 2})


@pytest.mark.parametrize(("ready_t", "label"), [(55.0, "conforms"), (85.0, "deviates"), (None, "deviates")])
def test_all_replicas_are_available_in_time(ready_t: float | None, label: str) -> None:
    story = partition().fault(45.0, "healing")
    member(member(story, 46.0, "a"), 46.5, "b", "False")
    if ready_t is not None:
        member(story, ready_t, "b")
    assert_verdict(run(replicas(), story.fence(90.0)), label)


def with_service() -> Story:
    """Return a cluster with a Ready pod of a Service, and its endpoint."""
    story = Story(resources=(*RESOURCES, "endpointslices"))
    story.change(0.5, "endpointslices", NAMESPACE, "sentinel", {})
    return endpoint(member(story, 5.0, "a"), 6.0, ready=True)


def endpoint(story: Story, t: float, *, ready: bool) -> Story:
    """Write the endpoint of the pod."""
    uid = story.object("pods", NAMESPACE, "a")["metadata"]["uid"]
    entry = {"targetRef": {"uid": uid}, "conditions": {"ready": ready}}
    body = {"metadata": {"labels": {"kubernetes.io/service-name": WORKLOAD}}, "endpoints": [entry]}
    return story.change(t, "endpointslices", NAMESPACE, "slice", body)


@pytest.mark.parametrize(("changed_t", "label"), [(31.0, "conforms"), (45.0, "deviates"), (None, "deviates")])
@pytest.mark.parametrize("is_terminating", [True, False])
def test_idle_pod_has_no_ready_endpoint(changed_t: float | None, label: str, is_terminating: bool) -> None:
    story = with_service()
    story = story.evict(30.0, "a") if is_terminating else member(story, 30.0, "a", "False")
    if changed_t is not None:
        endpoint(story, changed_t, ready=False)
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(60.0)), label)


@pytest.mark.parametrize(("ready_t", "label"), [(41.0, "conforms"), (55.0, "deviates")])
def test_endpoint_of_a_pod_that_recovers_is_ready(ready_t: float, label: str) -> None:
    story = endpoint(member(with_service(), 25.0, "a", "False"), 26.0, ready=False)
    story = endpoint(member(story, 40.0, "a"), ready_t, ready=True)
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(80.0)), label)


def test_endpoint_removed_with_its_pod_is_not_ready() -> None:
    story = with_service().remove(30.0, "pods", NAMESPACE, "a")
    story.remove(30.1, "endpointslices", NAMESPACE, "slice")
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(60.0)), "conforms", "2 occasions")


def test_short_change_is_no_occasion() -> None:
    story = member(member(with_service(), 9.0, "a", "False"), 12.0, "a")
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(15.0)), "unproven: not-met")


def test_stopped_controller_manager_need_not_update_endpoints() -> None:
    story = inject(member(with_service(), 30.0, "a", "False"), 31.0, "power-off", MANAGER, 55.0)
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(60.0)), "conforms", "1 occasions")


def test_endpoint_of_a_pod_that_serves_stays_ready() -> None:
    story = endpoint(endpoint(with_service(), 20.0, ready=False), 45.0, ready=True)
    assert_verdict(run(invariants.endpoints_follow_pods(), story.fence(60.0)), "deviates", "25.0 s")


def late_endpoint(took_s: float, stall: tuple[int, float], sentinel: tuple[int, float]) -> Verdict:
    """Judge a late endpoint on a busy host; `stall` and `sentinel` say in which second, and how long (s)."""
    story = with_service()
    for second in range(9, 50):
        if second == 30:
            member(story, 30.0, "a", "False")
        story.say(second + 0.2, "stall", late_s=stall[1] if second == stall[0] else 0.0)
        story.sentinel(second + 0.4, sentinel[1] if second == sentinel[0] else 0.02)
        if second == int(30.9 + took_s) - 1:
            endpoint(story, 30.0 + took_s, ready=False)
    return judge(CLAIM, invariants.endpoints_follow_pods(), story.fence(60.0).history(), configuration())


AT_ITS_TIME, BEFORE = ((30, 0.6), (34, 0.35)), ((9, 0.7), (9, 0.02))


@pytest.mark.parametrize(
    ("took_s", "load", "label"),
    [
        (4.9, AT_ITS_TIME, "unproven: host-too-loaded"),
        (6.4, AT_ITS_TIME, "unproven: host-too-loaded"),
        (7.9, AT_ITS_TIME, "deviates"),
        (4.9, BEFORE, "conforms"),
        (5.9, BEFORE, "deviates"),
    ],
)
def test_only_load_at_the_time_of_a_violation_makes_it_uncertain(
    took_s: float, load: tuple[tuple[int, float], tuple[int, float]], label: str
) -> None:
    assert_verdict(late_endpoint(took_s, *load), label)


# Shrinking a schedule: what is left deviates, is minimal, and cost no more than allowed.


BESIDE_S = 30.0
AMPLE_S = 1e9
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def numbered(count: int) -> Steps:
    """Return steps that are told apart by their toleration."""
    return tuple(
        Step("partition", 0, "healed" if number else FIRST, max(0, number - 1), 1.0, 2.0, number)
        for number in range(count)
    )


def numbers(steps: Steps) -> set[int]:
    return {step.toleration_s for step in steps}


def took_s(steps: Steps) -> float:
    """Return how long a storm takes (s)."""
    return BESIDE_S + schedules.expected_end_s(steps, GRACE_S)


def judge_by(
    deviates: Callable[[Set[int]], bool], tried: list[frozenset[int]] | None = None
) -> schedules.Judge:
    """Return a judge of a deterministic bug; `tried` gets the steps of each storm."""

    def judge(steps: Steps) -> Trial:
        if tried is not None:
            tried.append(frozenset(numbers(steps)))
        return Trial("deviates" if deviates(numbers(steps)) else "conforms", took_s(steps))

    return judge


def shrunk(
    count: int, judge: schedules.Judge, budget_s: float = AMPLE_S, guesses: tuple[range, ...] = ()
) -> schedules.Shrunk:
    steps = numbered(count)
    return schedules.shrink(steps, guesses, took_s(steps), budget_s, GRACE_S, judge)


@given(st.data(), st.integers(1, 30))
def test_steps_that_cause_the_deviation_remain(data: st.DataObject, count: int) -> None:
    causes = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    result = shrunk(count, judge_by(lambda present: causes <= present))
    assert numbers(result.steps) == causes
    assert result.is_minimal
    assert (result.deviating, result.judged) == (5, 5)


@given(st.data(), st.integers(1, 12))
def test_no_step_can_be_removed_whatever_deviates(data: st.DataObject, count: int) -> None:
    alternatives = data.draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), max_size=4))

    def deviates(present: Set[int]) -> bool:
        # Not monotonic: an odd number of further steps hides one of the causes.
        return len(present) == count or any(
            cause <= present and len(present - cause) % 2 == 0 for cause in alternatives
        )

    left = numbers(shrunk(count, judge_by(deviates)).steps)
    assert deviates(left)
    assert len(left) == 1 or not any(deviates(left - {number}) for number in left)


@given(st.integers(1, 20), st.floats(0.0, 3000.0), st.integers(0, 1000))
def test_budget_is_kept_and_result_was_seen_to_deviate(count: int, budget_s: float, seed: int) -> None:
    chance, seen = random.Random(seed), [set(range(count))]  # noqa: S311

    def judge(steps: Steps) -> Trial:
        outcome: Outcome = chance.choice(OUTCOMES)
        if outcome == "deviates":
            seen.append(numbers(steps))
        return Trial(outcome, took_s(steps))

    result = shrunk(count, judge, budget_s)
    assert result.spent_s <= budget_s
    assert numbers(result.steps) in seen
    assert 0 <= result.deviating <= result.judged <= 5


def test_storms_that_prove_nothing_do_not_count() -> None:
    result = shrunk(4, lambda _steps: Trial("unproven", 1.0))
    assert numbers(result.steps) == {0, 1, 2, 3}
    assert not result.is_minimal
    assert (result.deviating, result.judged) == (0, 0)


def test_storm_that_proves_nothing_is_repeated() -> None:
    trials: Counter[frozenset[int]] = Counter()

    def judge(steps: Steps) -> Trial:
        present = frozenset(numbers(steps))
        trials[present] += 1
        is_cause = present >= {1}
        return Trial("unproven" if trials[present] == 1 else "deviates" if is_cause else "conforms", 1.0)

    assert numbers(shrunk(4, judge).steps) == {1}


def test_guess_that_deviates_saves_storms() -> None:
    tried: list[frozenset[int]] = []
    shrunk(40, judge_by(lambda present: 2 in present, tried), guesses=(range(10), range(2, 3)))
    assert list(map(len, tried[:2])) == [10, 1]


def test_no_steps_are_tried_more_often_than_allowed() -> None:
    tried: list[frozenset[int]] = []
    judge = judge_by(lambda present: present >= {0, 5}, tried)
    left = numbers(shrunk(8, judge, guesses=(range(1), range(5, 6), range(4))).steps)
    assert max(tried.count(steps) for steps in tried if steps != left) <= schedules.ATTEMPTS


@given(st.integers(0, 1000), st.data())
def test_subset_is_a_valid_schedule_that_begins_at_once(seed: int, data: st.DataObject) -> None:
    steps = schedules.generate(seed, 300.0, nodes=4, grace_s=GRACE_S, toleration_s=6).steps
    kept = sorted(data.draw(st.sets(st.integers(0, len(steps) - 1), min_size=1)))
    schedule = Schedule(seed, schedules.subset(steps, kept, GRACE_S))
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json())), "file") == schedule
    assert [step.fault for step in schedule.steps] == [steps[number].fault for number in kept]
    assert schedule.steps[0].anchor == FIRST
    assert schedule.steps[0].delay_s == 0.0


def test_step_whose_anchor_is_removed_begins_when_it_did() -> None:
    first = Step("partition", 0, duration_s=20.0)
    second = Step("freeze", 1, "injected", 0, 3.0, 5.0)
    third = Step("power_off", 2, "healed", 1, 2.0, 1.0)
    left = schedules.subset((first, second, third), (0, 2), GRACE_S)[1]
    assert left == Step("power_off", 2, "injected", 0, 14.0, 1.0)


# `nodeproof shrink`: what it reads of a run, what it refuses, and the scenario that it writes.


STEPS = (
    Step("partition", 0, duration_s=9.0),
    Step("freeze", 1, "injected", 0, 1.0, 5.0),
    Step("power_off", "kube-scheduler", "injected", 1, 1.0, 2.0),
    Step("partition", 0, "healed", 2, 1.0, 2.0),
)
SCHEDULE = Schedule(3, STEPS)


def injected(t: float, fault: str, node: str) -> Entry:
    return Entry(t, "fault", {"step": "injected", "node": node, "fault": {"fault": fault, "node": node}})


HISTORY = History.of(
    [
        Entry(100.0, "begun", {}),
        injected(101.0, "kubelet-settings", "node-1"),
        injected(102.0, "partition", "node-1"),
        injected(103.0, "freeze", "node-2"),
        injected(104.0, "power-off", "kube-scheduler"),
        injected(120.0, "partition", "node-1"),
    ]
)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("10.0 s after the recording began, node-2 is Unknown", ([1], [0, 1, 2], [1, 2], [0, 1, 2])),
        ("30.0 s after the recording began, node-1 lost a", ([0, 3], [1, 2, 3], [0, 2, 3], [0, 1, 2, 3])),
        ("a DaemonSet had 5 of 6 pods", ([], [1, 2, 3], [2], [0, 1, 2, 3])),
    ],
)
def test_last_steps_on_nodes_of_the_deviation_are_first(reason: str, expected: tuple[list[int], ...]) -> None:
    deviation = storms.Deviation("storm.recovers", reason, SCHEDULE, HISTORY, 12.0, 60.0)
    assert guesses(deviation) == expected


def test_search_reports_how_much_of_its_budget_is_left() -> None:
    lines: list[str] = []
    deviation = storms.Deviation("storm.recovers", "", SCHEDULE, HISTORY, 12.0, 60.0)
    storms.shrink_deviation(deviation, 20.0, lambda _steps: Trial("conforms", 60.0), lines.append)
    assert lines[0].endswith("of 20 min for all storms, about 20 min left")
    assert len(lines) > 1


def test_storm_is_planned_by_its_budget() -> None:
    argv = [sys.executable, "-m", "nodeproof.cli", "plan", "--storm"]
    plans = [proc.run([*argv, minutes], timeout_s=120).stdout for minutes in ("2", "20")]
    short_s, long_s = (float(plan.splitlines()[1].split()[0]) for plan in plans)
    assert long_s - short_s == 18 * 60


def test_run_without_a_storm_that_deviates_is_refused(tmp_path: Path) -> None:
    run = tell(tmp_path, [(CUT, TAINT, CONFORMS)])
    with pytest.raises(Problem, match="the run had no storm"):
        storms.read_deviation(run)
    (next((run / "scenarios").iterdir()) / storms.FILE).write_text("{}")
    with pytest.raises(Problem, match="no invariant deviated"):
        storms.read_deviation(run)


def test_scenario_has_the_schedule_and_needs_no_option() -> None:
    tree = ast.parse(storms.scenario_text(SCHEDULE))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [argument.arg for argument in function.args.args] == ["lab", "claim"]
    (constant,) = [node for node in tree.body if isinstance(node, ast.Assign)]
    names: dict[str, Any] = {"Schedule": Schedule, "Step": Step}
    assert eval(ast.unparse(constant.value), names) == SCHEDULE  # noqa: S307
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert "SCHEDULE" in used
    assert "schedule" not in used


def test_repetitions_that_prove_nothing_do_not_count() -> None:
    outcomes: Iterator[Outcome] = iter(("deviates", "unproven", "conforms", "deviates", "conforms"))
    assert storms.repeat(STEPS, lambda _steps: Trial(next(outcomes), 1.0)) == "2 of 4 storms"
