"""Renewals, defaults and observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeproof.checks.checks import run_check
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import find
from nodeproof.checks.observations import between, grew, same_as, shows
from nodeproof.checks.settings import default_of
from nodeproof.checks.timing import renewals_of
from nodeproof.cluster.published import counting_since_s, total
from nodeproof.model import window as windows
from nodeproof.model.claim import Constant
from nodeproof.model.cluster import Configuration
from nodeproof.model.judgment import Check, Observation
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import WindowContext
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, RENEW_S, WALL_OFFSET_S, Story, configuration
from tests.unit.sample_checks import CLAIM, DEFAULT, RENEWALS, SHOWN, assert_verdict, renewing, run

ANSWER = {"status": 403, "body": {"message": "nodes is forbidden: no"}}
FIRST, SECOND = (Observation(name, "value", "node-1", None) for name in ("first", "second"))


def judged(check: Check, **values: object) -> Verdict:
    story = Story()
    for at, (name, value) in enumerate(values.items()):
        observation = {"id": name, "what": "value", "subject": "node-1"}
        story.say(10.0 + at, "observed", **observation, value=value, asked_t=9.9 + at)
    return run_check(check, story.history(), WindowContext(configuration(), 0.5), CLAIM)


@pytest.mark.parametrize(
    ("pattern", "outcome"),
    [
        ({"status": 403}, "conforms"),
        ({"status": 200}, "deviates"),
        ({"body": {"message": {"$contains": "forbidden"}}}, "conforms"),
        ({"body": {"message": {"$not": {"$contains": "forbidden"}}}}, "deviates"),
    ],
)
def test_answer_is_judged_by_a_pattern(pattern: object, outcome: str) -> None:
    assert judged(shows(FIRST, pattern), first=ANSWER).outcome == outcome


@pytest.mark.parametrize(
    ("pattern", "value", "label"),
    [
        ({"status": None}, "no answer", "unproven: gap"),
        ({"status": None}, {"status": None}, "conforms"),
        ({"$not": [{"type": "NetworkUnavailable"}]}, None, "unproven: gap"),
        ({"$not": [{"type": "NetworkUnavailable"}]}, [], "conforms"),
        ({"x": {"$present": False}}, None, "unproven: gap"),
        ({"x": {"$present": False}}, {}, "conforms"),
        ({"$not": {"$contains": "z"}}, None, "unproven: gap"),
        ({"$not": {"$contains": "z"}}, "", "conforms"),
        ({"body": {"message": {"$contains": "forbidden"}}}, {"status": 404, "body": {}}, "deviates"),
        # The reason for a missing field does not matter.
        ({"x": 1}, None, "deviates"),
        ({"x": 1}, "no answer", "deviates"),
        ([1], None, "deviates"),
        (["a"], "abc", "deviates"),
        ({"exitCode": {"$present": True}}, {"exitCode": 0}, "conforms"),
        (1, True, "deviates"),
        # No kind of pattern may be empty.
        (None, None, "conforms"),
        ({"$in": [None]}, None, "conforms"),
        ({"$present": False}, None, "conforms"),
        ({"$not": None}, None, "deviates"),
    ],
)
def test_only_existing_parents_can_lack_a_field(pattern: object, value: object, label: str) -> None:
    assert judged(shows(FIRST, pattern), first=value).label == label


NOT_FOUND = {"status": 404, "body": {"kind": "Status", "message": "not found"}}
EMPTY_NODE = {"status": 200, "body": {"kind": "Node", "spec": {}, "metadata": {"labels": {"a": "b"}}}}
NO_CORDON = {"unschedulable": {"$present": False}}


@pytest.mark.parametrize(
    "pattern",
    [
        {"body": {"spec": NO_CORDON}},
        {"body": {"spec": {"unschedulable": None}}},
        {"body": {"spec": {"unschedulable": {"$in": [None, False]}}}},
        {"body": {"spec": {"taints": {"$not": [{"key": "a"}]}}}},
        {"body": {"$not": {"spec": {"unschedulable": True}}}},
        {"$not": {"body": {"spec": {"taints": [{"key": "a"}]}}}},
        {"body": {"metadata": {"labels": {"c": {"$not": "d"}}}}},
    ],
)
def test_missing_object_lacks_no_field(pattern: object) -> None:
    assert judged(shows(FIRST, pattern), first=EMPTY_NODE).label == "conforms"
    assert judged(shows(FIRST, pattern), first=NOT_FOUND).label == "unproven: gap"
    assert judged(shows(FIRST, pattern), first={"status": 200, "body": {"kind": "Node"}}).code == "gap"


@pytest.mark.parametrize(
    ("pattern", "value", "label"),
    [
        ({"body": {"spec": {"x": 1}}}, NOT_FOUND, "deviates"),
        ({"status": 200, "body": {"spec": NO_CORDON}}, NOT_FOUND, "deviates"),
        ({"status": {"$not": 200}}, NOT_FOUND, "conforms"),
        ({"$not": {"status": 200, "body": {"spec": NO_CORDON}}}, NOT_FOUND, "conforms"),
        ({"body": {"kind": "Status", "details": {"$present": False}}}, NOT_FOUND, "conforms"),
        ([{"spec": NO_CORDON}], [{"kind": "Status"}], "unproven: gap"),
        ([{"spec": NO_CORDON}], [{"kind": "Status"}, {"spec": {}}], "conforms"),
        ({"$contains": "0"}, 0, "conforms"),
        ({"$not": {"$contains": "y"}}, ["x"], "unproven: gap"),
    ],
)
def test_value_decides_without_a_missing_parent(pattern: object, value: object, label: str) -> None:
    assert judged(shows(FIRST, pattern), first=value).label == label


def test_invalid_pattern_is_refused() -> None:
    with pytest.raises(LookupError, match="matches everything"):
        judged(shows(FIRST, {}), first=ANSWER)


@pytest.mark.parametrize(
    ("value", "label"), [(29, "deviates"), (30, "conforms"), (40.0, "conforms"), (None, "unproven: gap")]
)
def test_number_is_between_its_bounds(value: object, label: str) -> None:
    assert judged(between(FIRST, 30, 40), first=value).label == label


@pytest.mark.parametrize("check", [shows(FIRST, 1), same_as(FIRST, SECOND), grew(SECOND, FIRST, 1, 1)])
def test_missing_observation_is_a_gap(check: Check) -> None:
    assert judged(check, another=1, second=1).code == "gap"


@pytest.mark.parametrize(("second", "outcome"), [("a", "conforms"), ("b", "deviates"), (None, "deviates")])
def test_two_observations_are_compared(second: object, outcome: str) -> None:
    assert judged(same_as(SECOND, FIRST), first="a", second=second).outcome == outcome


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ("1Gi", "1073741824", "conforms"),
        ("950m", "0.95", "conforms"),
        ("1Gi", "1G", "deviates"),
        ("1.10", "1.1", "deviates"),
        ("v1.10", "v1.1", "deviates"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", "conforms"),
        ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "conforms"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "deviates"),
        ("2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "deviates"),
        ({"memory": "1Gi", "cpus": [1, 2]}, {"cpus": [1, 2], "memory": "1048576Ki"}, "conforms"),
        ({"memory": "1Gi"}, {"memory": "1Gi", "cpu": "1"}, "deviates"),
        ([1, 2], [2, 1], "deviates"),
        ([1], [1, 2], "deviates"),
        (1, True, "deviates"),
        (1, 1.0, "conforms"),
        ("", "1Gi", "deviates"),
    ],
)
def test_equal_quantities_in_other_notation_are_the_same(first: object, second: object, outcome: str) -> None:
    assert judged(same_as(SECOND, FIRST), first=first, second=second).outcome == outcome


@pytest.mark.parametrize(
    ("first", "second", "later_s", "label"),
    [
        (5.0, 1.0, 60.0, "unproven: gap"),
        (1.0, 4.0, 60.0, "deviates"),
        (None, 2.0, 60.0, "unproven: gap"),
        (1.0, 2.0, 0.0, "conforms"),
        (1.0, 2.0, 1.0, "conforms"),
        (1.0, 6.0, 0.0, "deviates"),
        (1.0, 2.0, None, "conforms"),
    ],
)
def test_counter_is_reset_with_its_process(
    first: float | None, second: float, later_s: float | None, label: str
) -> None:
    story = Story()
    for at, (name, value) in enumerate((("first", first), ("second", second))):
        observation = {"id": name, "what": "value", "subject": "node-1"}
        started = {} if later_s is None else {"process_s": WALL_OFFSET_S - 100.0 + later_s * at}
        story.say(10.0 + at, "observed", **observation, value=value, asked_t=9.9 + at, **started)
    check = grew(FIRST, SECOND, 0, 3)
    assert run_check(check, story.history(), WindowContext(configuration(), 0.5), CLAIM).label == label


def test_clock_step_is_no_process_start() -> None:
    """A kernel computes the start of a process by the wall clock."""
    story = Story()
    for t, value, moved_s in ((10.0, 1.0, 0.0), (30.0, 2.0, 500.0)):
        observation = {"id": "first" if t == 10.0 else "second", "what": "value", "subject": "node-1"}
        started_s = WALL_OFFSET_S - 100.0 + moved_s
        story.say(t, "observed", **observation, value=value, asked_t=t - 0.1, process_s=started_s)
    story.say(20.0, "wall", offset_s=WALL_OFFSET_S + 500.0, since=19.95)
    check = grew(FIRST, SECOND, 1, 1)
    assert run_check(check, story.history(), WindowContext(configuration(), 0.5), CLAIM).label == "conforms"


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(2.0, 3.0, "conforms"), (None, 1.0, "conforms"), (2.0, 2.0, "deviates"), (2.0, 4.0, "deviates")],
)
def test_counter_growth_is_judged(first: float | None, second: float, outcome: str) -> None:
    assert judged(grew(FIRST, SECOND, 1, 1), first=first, second=second).outcome == outcome


def test_unexported_counter_proves_nothing() -> None:
    assert judged(grew(FIRST, SECOND, 0, 0), first=None, second=None).code == "gap"


@pytest.mark.parametrize("check", [shows(FIRST, 1), same_as(SECOND, FIRST), grew(FIRST, SECOND, 0, 0)])
def test_judgment_of_observations_is_a_verdict(check: Check) -> None:
    story = Story()
    for at, name in enumerate(("first", "second")):
        observation = {"id": name, "what": "value", "subject": "node-1"}
        story.say(10.0 + at, "observed", **observation, value=1, asked_t=9.9 + at)
    assert judge(CLAIM, check, story.history(), configuration()).outcome == "conforms"


def test_observation_is_a_moment() -> None:
    story = Story().say(10.0, "observed", **FIRST.to_json(), value=1)
    came = find(story.history(), FIRST.completed)
    assert came is not None
    assert find(story.history(), SECOND.completed) is None


METRICS = """# HELP zone_size [ALPHA] nodes
# TYPE zone_size gauge
zone_size{zone=":\x00:a"} 2
zone_size{zone=":\x00:b"} 3
# TYPE evictions_total counter
evictions_total 7
# TYPE took_seconds histogram
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 4
took_seconds_count 3
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79531600433e+09
"""


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("zone_size", {"zone": ":\x00:a"}, 2.0),
        ("zone_size", {}, 5.0),
        ("zone_size", {"zone": "c"}, None),
        ("evictions_total", {}, 7.0),
        ("nothing", {}, None),
    ],
)
def test_metric_is_the_sum_of_its_samples(name: str, labels: dict[str, str], value: float | None) -> None:
    assert total(METRICS, name, labels) == value


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("evictions_total", True),
        ("took_seconds_count", True),
        ("took_seconds_sum", True),
        ("not_exported_yet_total", True),
        ("zone_size", False),
    ],
)
def test_counter_is_reported_with_its_process_start(name: str, counts: bool) -> None:
    assert counting_since_s(METRICS, name) == (1795316004.33 if counts else None)


def test_metric_without_process_start_has_none() -> None:
    assert counting_since_s("# TYPE evictions_total counter\nevictions_total 7\n", "evictions_total") is None


def test_renewals_conform() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5))
    assert_verdict(verdict, "conforms", "renewals of node-1")
    assert verdict.measured is not None
    assert verdict.measured.value == pytest.approx(2.03, abs=0.05)


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        *((renewing(RENEW_S * factor).fence(20.5), "deviates", "are outside") for factor in (0.5, 1.5, 2.0)),
        # One renewal is missing.
        (renewing(until_t=9.5).renewals(13.14, 20.0).fence(20.5), "deviates", "1 of"),
        (renewing(RENEW_S * 1.15).fence(20.5), "unproven: host-too-loaded", "too uncertain"),
        # The silence at the end counts, too.
        (renewing(until_t=16.0).fence(40.0), "deviates", "no renewal for"),
        (Story().fence(40.0), "deviates", "no renewal for"),
        (Story((OTHER,)).fence(40.0), "deviates", "no renewal for"),
        # A recently healed node whose renewals backed off before the recording.
        (Story(renewed_t=-2.1).renewals(0.9, 20.0).fence(20.5), "conforms", "renewals of node-1"),
        (Story().renewals(8.0, 30.0).fence(30.5), "unproven: gap", "sent no renewal in the first 8"),
        (Story().gap(0.5, 4.0, "leases", lists=True).fence(40.0), "unproven: gap", "had a gap"),
        (renewing(until_t=4.0).fence(5.0), "unproven: gap", "need "),
        (renewing(until_t=4.0), "unproven: gap", "need "),
        (Story((OTHER,)).fence(1.0), "unproven: gap", "need "),
        (renewing().gap(5.0, 6.0, "leases").fence(20.5), "unproven: gap", "had a gap"),
    ],
)
def test_renewals_are_judged(story: Story, label: str, word: str) -> None:
    assert_verdict(run(RENEWALS, story), label, word)


def test_renewals_on_a_loaded_host_prove_nothing() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5), WindowContext(configuration(), 2.0))
    assert_verdict(verdict, "unproven: host-too-loaded")


def test_zero_renewals_are_never_enough() -> None:
    none = renewals_of(NODE, windows.renewals(), at_least=0)
    assert_verdict(run(none, Story((OTHER,)).fence(1.0)), "unproven: gap")


# default

KCM = "kube-controller-manager"


def reporting(value: object, **changed: object) -> Configuration:
    settings: dict[str, object] = {
        "reported": {KCM: {"NodeLifecycleController": {"NodeMonitorGracePeriod": value}}},
        "flags_set": {KCM: {}},
        **changed,
    }
    return configuration(**settings)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (reporting("50s"), "conforms"),
        (reporting("50s", kubernetes_version="v1.31.9"), "deviates"),
        (reporting("40s", kubernetes_version="v1.31.9"), "conforms"),
        (reporting("40s"), "deviates"),
        (reporting("12s", flags_set={KCM: {"node-monitor-grace-period": "12s"}}), "unproven: scaled"),
        (reporting("50s", flags_set={KCM: {"node-monitor-grace-period": "50s"}}), "unproven: scaled"),
        (reporting("50s", flags_set={KCM: {"node-monitor-period": "1s"}}), "conforms"),
        (reporting("50s", flags_set={}), "unproven: lab-lacks"),
        (reporting("50s", reported={}), "unproven: gap"),
        (reporting("50s", reported={KCM: {"NodeLifecycleController": {}}}), "unproven: gap"),
        (reporting("50s", reported={KCM: {"NodeLifecycleController": "x"}}), "unproven: gap"),
    ],
)
def test_defaults_are_judged(settings: Configuration, label: str) -> None:
    assert_verdict(run(DEFAULT, Story(), WindowContext(settings, 0.3)), label)


@pytest.mark.parametrize("group", ["KubeCloudShared", "NodeLifecycleController"])
def test_default_is_read_at_its_old_and_new_path(group: str) -> None:
    """Kubernetes 1.37 has moved the period of the node controller."""
    path, reported = "KubeCloudShared.NodeMonitorPeriod", {group: {"NodeMonitorPeriod": "5s"}}
    settings = configuration(reported={KCM: {"KubeCloudShared": {}, **reported}}, flags_set={KCM: {}})
    assert settings["P"] == 5.0
    period = Constant("period", KCM, path, "node-monitor-period", "s", ((">=1.18", 5.0),), 5.0, "f.go")
    claim, context = replace(CLAIM, constants=(period,)), WindowContext(settings, 0.3)
    assert_verdict(run_check(default_of("period"), Story().history(), context, claim), "conforms")


@pytest.mark.parametrize(
    ("value", "label", "shown"),
    [(True, "conforms", "true"), (False, "deviates", "false"), (None, "deviates", "nothing")],
)
def test_boolean_default_is_judged(value: bool | None, label: str, shown: str) -> None:
    verdict = of_swap(value, {})
    assert_verdict(verdict, label)
    assert str(verdict.measured) == shown


def of_swap(value: bool | None, flags: Mapping[str, str]) -> Verdict:
    swap = Constant(
        "swap", "kubelet", "failSwapOn", "failSwapOn", "boolean", ((">=1.18", 1.0),), None, "f.go"
    )
    claim = replace(CLAIM, constants=(swap,))
    settings = configuration(reported={"kubelet": {"failSwapOn": value}}, flags_set={"kubelet": flags})
    return run_check(default_of("swap"), Story().history(), WindowContext(settings, 0.3), claim)


@pytest.mark.parametrize("flag", ["fail-swap-on", "failSwapOn"])
def test_flag_sets_the_field_of_the_same_name(flag: str) -> None:
    assert_verdict(of_swap(True, {flag: "true"}), "unproven: scaled")


@pytest.mark.parametrize(("value", "label"), [(True, "conforms"), (False, "unproven: scaled")])
def test_other_default_is_no_deviation_if_the_user_set_feature_gates(value: bool, label: str) -> None:
    assert_verdict(of_swap(value, {"featureGates": '{"A": true}'}), label)


def test_unknown_constant_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        run(default_of("no-such"), Story())


# shown-throughout


def leaving(*looks: tuple[float, str], removed: bool = True) -> Story:
    story = Story().pod(1.0, node=NODE)
    story.say(5.0, "observed", what="status", subject=POD, value="Running", asked_t=4.9)
    story.evict(10.0)
    for t, value in looks:
        story.say(t, "observed", what="status", subject=POD, value=value, asked_t=t - 0.1)
        story.say(t, "observed", what="status", subject="other", value="Running", asked_t=t - 0.1)
    if removed:
        story.remove(20.0, "pods", NAMESPACE, POD)
    return story.fence(40.0)


GOOD = [(t + 0.2, "Terminating") for t in range(10, 20)]


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        (leaving(*GOOD), "conforms", "10 observations"),
        (leaving(*GOOD[:5], (15.5, "Unknown"), *GOOD[6:]), "deviates", "'Unknown'"),
        # One was requested before the deletion, one was answered after the removal.
        (leaving((10.05, "Running"), *GOOD, (20.1, "gone")), "conforms", ""),
        (leaving(), "unproven: gap", "0 observations"),
        (leaving((15.0, "Terminating")), "unproven: gap", "1 observations"),
        (leaving(*GOOD[:3]), "unproven: gap", "no observation of"),
        (leaving(*GOOD[-3:]), "unproven: gap", "no observation of"),
        (leaving(*GOOD, removed=False), "unproven: no-anchor", "pod-gone"),
        (Story().fence(4.0), "unproven: no-anchor", ""),
        (Story(), "unproven: gap", "no fence"),
    ],
)
def test_state_is_shown_from_deletion_to_removal(story: Story, label: str, word: str) -> None:
    assert_verdict(run(SHOWN, story), label, word)
