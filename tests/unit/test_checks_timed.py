"""Timed checks, judgments by them, and the road from a measurement to a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeproof.checks import checks, moments, repeated
from nodeproof.checks.judge import judge
from nodeproof.checks.observations import lasted
from nodeproof.checks.settings import default_of
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant, ReportedBug
from nodeproof.model.cluster import UNREACHABLE, Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s
from nodeproof.model.window import WindowContext
from tests.unit.histories import (
    CUT_T,
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    TOLERATION_S,
    Story,
    configuration,
    last_renewal_t,
    partition,
    reported,
)
from tests.unit.sample_checks import (
    CLAIM,
    DELETION,
    DETECTION,
    EVICTION,
    FROM_FAULT,
    GROUND,
    HEALING,
    READY,
    RENEWALS,
    SHOWN,
    STAYS,
    TAINT,
    TAINTED,
    UNKNOWN,
    assert_verdict,
    recovered,
    renewing,
    run,
    silent,
)

# Events within, outside and absent from their windows, and checks as data.


GAP = "unproven: gap"
QUIET, LONG = windows.absence(5.0), windows.absence(30.0)


def tainted() -> Story:
    """Return a pod whose node gets the NoExecute taint at 10 s."""
    return Story().pod(1.0, node=NODE).taint(10.0)


@pytest.mark.parametrize(
    ("story", "label", "words"),
    [
        (tainted().fence(40.0), "deviates", ["did not occur"]),
        (tainted(), GAP, ["no fence"]),
        (tainted().fence(40.0, blind=["pods"]), GAP, ["pods", "sentinel"]),
        (tainted().fence(20.2), GAP, ["too early"]),
        (
            tainted().evict(20.0, is_watched=False).fence(40.0),
            GAP,
            ["differ between LIST and watch"],
        ),
        # The pod was leaving before the taint; its removal fits the window by chance.
        (
            Story().pod(1.0).evict(2.0).taint(20.0).remove(30.0, "pods", NAMESPACE, POD).fence(60.0),
            "deviates",
            ["did not occur"],
        ),
        (
            Story().pod(1.0).evict(28.0).gap(28.5, 29.0, "nodes", lists=True).taint(30.0).fence(60.0),
            GAP,
            ["had a gap"],
        ),
    ],
)
def test_eviction_is_missing_only_behind_a_fence(story: Story, label: str, words: list[str]) -> None:
    assert_verdict(run(EVICTION, story), label, *words)


SEEN = moments.event_reported("Evicted", "Pod", POD, "")
SPAN: Mapping[str, Any] = {"after": moments.recording_began(), "until": TAINTED}


@pytest.mark.parametrize(
    ("check", "resource"),
    [
        (EVICTION, "pods"),
        (SEEN.never_after(TAINTED, QUIET), "events"),
        (repeated.counted(SEEN, 0, 0, **SPAN), "events"),
        (repeated.in_bursts((SEEN, 5), apart=windows.spacing(), at_least=3, **SPAN), "events"),
    ],
)
def test_unwatched_resource_is_refused(check: Check, resource: str) -> None:
    story = Story(resources=("nodes", "leases")).taint(10.0).fence(40.0)
    with pytest.raises(LookupError, match=f"not recorded: {resource}"):
        run(check, story)


@pytest.mark.parametrize("resource", ["nodes", "pods"])
@pytest.mark.parametrize(
    ("since_t", "until_t", "lists", "label"),
    [
        (29.0, 31.0, False, GAP),
        (33.0, 35.0, True, GAP),
        # A resumed watch lost nothing, and neither end is in its gap.
        (33.0, 35.0, False, "conforms"),
        (39.0, 41.0, False, GAP),
    ],
)
def test_gap_counts_if_it_lost_events_or_delayed_an_end(
    resource: str, since_t: float, until_t: float, lists: bool, label: str
) -> None:
    story = Story().pod(1.0, node=NODE).taint(30.0)
    story.gap(since_t, until_t, resource, lists=lists).sentinel(until_t + 0.1).evict(30.0 + TOLERATION_S)
    assert_verdict(run(EVICTION, story.fence(60.0)), label)


@pytest.mark.parametrize(("sentinel", "label"), [(True, "conforms"), (False, GAP)])
def test_gap_ends_at_the_next_sign_of_the_watch(sentinel: bool, label: str) -> None:
    """The first event after a gap may have been delayed by it."""
    story = Story().pod(1.0, node=NODE).gap(25.0, 28.0, "nodes")
    if sentinel:
        story.sentinel(28.5)
    story.taint(30.0)
    story.evict(30.0 + TOLERATION_S)
    assert_verdict(run(EVICTION, story.fence(60.0)), label)


def test_listed_anchor_has_no_exact_time() -> None:
    """The taint occurred at an unknown time in the gap, and was listed just before or after its end."""
    for lists in (True, False):
        story = Story().pod(1.0, node=NODE).taint(31.0, is_watched=False)
        story.gap(30.5, 35.0, "nodes", lists=lists)
        if not lists:
            story.list(35.01, "nodes")
        story.evict(35.0 + TOLERATION_S)
        assert_verdict(run(EVICTION, story.fence(60.0)), GAP, "had a gap")


def test_window_without_limits_due_to_slack_is_a_loaded_host() -> None:
    for check in (DETECTION, FROM_FAULT, TAINT, EVICTION):
        verdict = run(check, partition().fence(60.0), WindowContext(configuration(), 60.0))
        assert_verdict(verdict, "unproven: host-too-loaded", "half or double")


def test_window_that_admits_double_by_configuration_is_scaled() -> None:
    coarse = configuration(reported=reported(period_s=10.0))
    verdict = run(DETECTION, partition().fence(60.0), WindowContext(coarse, 0.1))
    assert_verdict(verdict, "unproven: scaled", "half or double")


# The last heartbeat


def test_detection_requires_proof_of_no_missed_heartbeat() -> None:
    """With a dead lease watch, any later heartbeat would be overlooked."""
    assert_verdict(run(DETECTION, partition()), GAP, "heartbeat")
    assert_verdict(run(DETECTION, partition().fence(60.0, blind=["leases"])), GAP, "leases")
    assert_verdict(run(TAINT, partition()), "conforms")


def test_detection_after_a_status_allows_one_more_period() -> None:
    story = Story().status(20.0).condition(20.0 + GRACE_S + 3.2, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "conforms")
    story = Story().renew(20.0).condition(20.0 + GRACE_S + 3.2, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "deviates", "too late")


@pytest.mark.parametrize("check", [DETECTION, FROM_FAULT])
def test_silence_until_the_end_deviates(check: Check) -> None:
    for back in (False, True):
        assert_verdict(run(check, silent(60.0, back=back)), "deviates", "did not occur")
    assert_verdict(run(check, silent(31.0)), GAP, "too early")


def test_node_that_was_never_silent_proves_nothing() -> None:
    story = Story().fault(1.0, "planned", "armed", "injected").renewals(2.0, 60.0)
    assert_verdict(run(DETECTION, story.fence(61.0)), GAP)


def test_unknown_without_an_earlier_heartbeat_proves_nothing() -> None:
    story = Story((OTHER,))
    story.change(1.0, "nodes", "", NODE, {"spec": {}, "status": {"conditions": []}})
    story.condition(30.0, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), GAP, "heartbeat before it was not recorded")


@pytest.mark.parametrize(("unknown_t", "code"), [(11.5, "gap"), (None, "no-anchor")])
def test_status_from_before_the_recording_may_be_the_last_heartbeat(
    unknown_t: float | None, code: str
) -> None:
    """Cut a kubelet off again once it has reported its status, before it renews its Lease.

    It had been cut off for a minute.
    """
    story = Story(renewed_t=-53.0, status_t=-2.0)
    if unknown_t is not None:
        story.condition(unknown_t, "Unknown")
    story.renewals(0.5, 50.0, OTHER)
    assert_verdict(run(DETECTION, story.fence(60.0)), f"unproven: {code}")


# A missing anchor


def test_unproven_fault_is_no_anchor() -> None:
    story = Story().fault(5.0, "planned", "armed", "unproven")
    assert_verdict(run(FROM_FAULT, story.fence(60.0)), "unproven: not-injected")


def test_state_without_its_anchor_is_unproven() -> None:
    """Whether the anchor should occur is another claim's judgment."""
    for until_t in (25.0, 60.0):
        assert_verdict(run(SHOWN, silent(until_t)), "unproven: no-anchor", "did not occur")


def test_possibly_missed_anchor_proves_nothing() -> None:
    story = silent(60.0)
    assert_verdict(run(TAINT, History.of(story.entries[:-2])), GAP, "no fence")
    story.gap(30.0, 32.0, "nodes")
    assert_verdict(run(TAINT, story), GAP, "had a gap")


# never


@pytest.mark.parametrize(
    ("healed_t", "ready_t", "label"),
    [
        (50.0, 49.0, "conforms"),
        (50.0, 109.0, "conforms"),
        (50.0, 115.0, "deviates"),
        (21.0, 109.0, "deviates"),
    ],
)
def test_recovery_before_the_observed_healing_counts_from_it(
    healed_t: float, ready_t: float, label: str
) -> None:
    story = Story().fault(2.0, "planned", "armed", "injected").condition(18.0, "Unknown")
    story.fault(20.0, "healing").fault(healed_t, "healed").condition(ready_t, "True")
    assert_verdict(run(READY.after(HEALING, windows.recovery()), story.fence(130.0)), label)


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        (recovered().fence(40.0), "conforms", "did not occur for 5.00 s"),
        (recovered(35.5).fence(40.0), "conforms", ""),
        (recovered(32.0), "deviates", "must not"),
        *((recovered(t).fence(40.0), "deviates", "must not") for t in (30.5, 32.0, 34.5)),
        # The order of two watches and their delays are unknown.
        *((recovered(t).fence(40.0), GAP, "within the slack") for t in (30.0, 30.2, 34.9, 35.1)),
        (recovered(), GAP, "no fence"),
        (recovered().fence(34.0), GAP, "too early"),
        (recovered().fence(40.0, blind=["pods"]), GAP, "sentinel"),
        (recovered(33.0, is_watched=False).fence(40.0), GAP, "differ"),
        (Story().condition(20.0, "Unknown").condition(30.0, "True").fence(40.0), GAP, "did not exist yet"),
        (recovered(25.0).fence(40.0), GAP, "had already occurred"),
        (
            Story()
            .pod(1.0)
            .condition(20.0, "Unknown")
            .remove(25.0, "pods", NAMESPACE, POD)
            .condition(30.0, "True")
            .fence(40.0),
            GAP,
            "was already removed",
        ),
    ],
)
def test_absence_is_proven_by_an_object_that_stays(story: Story, label: str, word: str) -> None:
    assert_verdict(run(STAYS, story), label, word)


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        *((recovered(t), "deviates", "must not") for t in (29.8, 30.0, 30.2, 32.0)),
        (recovered(29.6), GAP, "within the slack"),
        (recovered(25.0), GAP, "had already occurred"),
        (recovered(), "conforms", "did not occur"),
        # It is younger than the lookback.
        (
            Story().condition(20.0, "Unknown").pod(29.8, node=NODE).condition(30.0, "True"),
            "conforms",
            "did not occur",
        ),
    ],
)
def test_absence_from_before_its_anchor_looks_back(story: Story, label: str, word: str) -> None:
    check = DELETION.never_after(READY, windows.absence_including_anchor(5.0))
    assert_verdict(run(check, story.fence(40.0)), label, word)


def test_events_of_one_watch_are_ordered() -> None:
    assert_verdict(run(BLOCKED, Story().pod(2.0).bind(2.01).fence(20.0)), "deviates", "must not")


@pytest.mark.parametrize(
    ("since_t", "until_t", "lists", "label"),
    [
        (29.0, 31.0, False, GAP),
        (32.0, 33.0, True, GAP),
        (32.0, 33.0, False, "conforms"),
        (34.0, 38.0, False, GAP),
    ],
)
def test_absence_is_proven_if_a_watch_lost_nothing(
    since_t: float, until_t: float, lists: bool, label: str
) -> None:
    story = recovered().gap(since_t, until_t, "pods", lists=lists).sentinel(until_t + 0.1)
    assert_verdict(run(STAYS, story.fence(40.0)), label)


def test_empty_wait_proves_nothing() -> None:
    check = DELETION.never_after(READY, windows.absence(0.0))
    assert_verdict(run(check, recovered().fence(40.0)), "unproven: scaled", "is empty")


BOUND = moments.pod_bound(NAMESPACE, POD)
BLOCKED = BOUND.never_after(moments.pod_created(NAMESPACE, POD), windows.absence(5.0))


CALM = moments.conditions_changed(NODE).never_after(moments.cordoned(NODE), windows.absence(5.0))


def cordoned() -> Story:
    return Story().cordon(1.0).pod(2.0).unfit(2.1)


def test_bound_pod_and_new_condition_on_a_cordoned_node_deviate() -> None:
    changed = cordoned().condition(5.0, "True", type_="Cordoned").bind(6.0).fence(20.0)
    freed = cordoned().cordon(10.0, on=False).bind(10.4).fence(20.0)
    for check in (BLOCKED, CALM):
        assert_verdict(run(check, cordoned()), GAP)
        assert_verdict(run(check, changed), "deviates")
    for check in (BLOCKED, BOUND.after(moments.uncordoned(NODE), windows.up_to(windows.BIND_S))):
        assert_verdict(run(check, freed), "conforms")


# objects


def ready_again() -> Story:
    """Return a node that is Ready from 20.5 s on."""
    return Story().condition(20.0, "False").condition(20.5, "True")


def recreate_node(story: Story, t: float, *, ready: str = "True", taints: Json = None) -> Story:
    """Remove the Node, and create it again 0.2 s later with this state."""
    body = story.object("nodes", "", OTHER)
    body["metadata"] = {}
    body["spec"] = {} if taints is None else {"taints": taints}
    for condition in body["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = ready
    story.remove(t, "nodes", "", NODE)
    story.change(t + 0.2, "nodes", "", NODE, body)
    return story


BORN_TAINTED = [{"key": UNREACHABLE, "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("event", "ready", "taints", "expected", "word"),
    [
        (TAINTED, "True", BORN_TAINTED, "deviates", "must not"),
        (UNKNOWN, "Unknown", None, "deviates", "must not"),
        (TAINTED, "True", None, GAP, "was removed 0.50 s later"),
        (UNKNOWN, "False", BORN_TAINTED, GAP, "was removed"),
        (moments.conditions_changed(NODE), "True", None, GAP, "was removed"),
        (moments.no_execute_written(NODE, OTHER), "True", None, GAP, "was removed"),
        (moments.no_execute_written(NODE, OTHER), "True", BORN_TAINTED, GAP, "was removed"),
        (moments.removed("nodes", NODE), "True", None, "deviates", "must not"),
        (moments.no_execute_written(OTHER), "True", BORN_TAINTED, "conforms", "did not occur"),
    ],
)
def test_recreated_object_has_its_initial_state(
    event: Moment, ready: str, taints: Json, expected: str, word: str
) -> None:
    story = recreate_node(ready_again(), 21.0, ready=ready, taints=taints).fence(60.0)
    assert_verdict(run(event.never_after(READY, QUIET), story), expected, word)


def test_recreated_object_with_unchanged_state_is_no_change() -> None:
    story = Story().taint(5.0).condition(20.0, "False").condition(20.5, "True")
    recreate_node(story, 21.0, taints=BORN_TAINTED).fence(60.0)
    assert_verdict(run(TAINTED.never_after(READY, QUIET), story), GAP, "had already occurred")


@pytest.mark.parametrize(("removed_t", "expected"), [(20.6, GAP), (50.4, GAP), (50.6, "conforms")])
def test_absent_object_does_not_prove_absence_of_an_event(removed_t: float, expected: str) -> None:
    story = ready_again().remove(removed_t, "nodes", "", NODE)
    assert_verdict(run(TAINTED.never_after(READY, LONG), story.fence(60.0)), expected)


def next_taint(node: str) -> Moment:
    return moments.first_after(moments.taint_added(node, UNREACHABLE, "NoExecute"), after=READY)


@pytest.mark.parametrize(
    ("event", "tainted_t", "expected", "word"),
    [
        (next_taint("node-9"), None, GAP, "node-9 did not exist yet"),
        (next_taint(NODE), 5.0, GAP, "had already occurred"),
        (next_taint(NODE), None, "conforms", ""),
        (next_taint(NODE), 22.0, "deviates", ""),
        (moments.first_after(TAINTED, after=UNKNOWN), None, GAP, "had not occurred yet"),
        (moments.first_after(next_taint(NODE), after=READY), 5.0, GAP, "had already occurred"),
        (moments.all_of(TAINTED, UNKNOWN), 5.0, GAP, "had already occurred"),
        (moments.all_of(UNKNOWN, next_taint("node-9")), None, GAP, "did not exist yet"),
        (moments.all_of(TAINTED, UNKNOWN), None, "conforms", ""),
    ],
)
def test_combined_moment_is_absent_if_every_part_could_have_occurred(
    event: Moment, tainted_t: float | None, expected: str, word: str
) -> None:
    story = Story().taint(5.0) if tainted_t == 5.0 else Story()
    story.condition(20.0, "False").condition(20.5, "True")
    if tainted_t == 22.0:
        story.taint(22.0)
    assert_verdict(run(event.never_after(READY, QUIET), story.fence(60.0)), expected, word)


def test_count_of_zero_requires_that_the_object_existed() -> None:
    story = ready_again().fence(60.0)
    span = {"after": moments.condition_became(NODE, "Ready", "False"), "until": READY}
    for node, expected in (("node-9", GAP), (OTHER, "conforms")):
        never = repeated.counted(moments.taint_added(node, UNREACHABLE, "NoExecute"), 0, 0, **span)
        assert_verdict(run(never, story), expected)


@pytest.mark.parametrize(
    ("check", "story", "left"),
    [
        (EVICTION, partition(), 0.0),
        (FROM_FAULT, silent(25.0), CUT_T + 0.02 + GRACE_S + 3.3 - 26.0),
        (STAYS, recovered(), 30.0 + 5.0 - 26.0),
        (RENEWALS, renewing(), 0.0),
        (RENEWALS, Story(), 7 * (RENEW_S * 1.04 + 0.3) - 26.0),
    ],
)
def test_remaining_recording_time_is_computed(check: Check, story: Story, left: float) -> None:
    assert checks.remaining_s(check, story.history(), GROUND, 26.0) == pytest.approx(left)


def test_recording_time_is_unknown_before_the_anchor() -> None:
    assert checks.remaining_s(EVICTION, Story().history(), GROUND, 26.0) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50s", 50.0), ("5m0s", 300.0), ("1m40s", 100.0), ("1h0m0.5s", 3600.5), ("100ms", 0.1),
        ("1.5µs", 1.5e-6), ("20ns", 2e-8), ("-1m30s", -90.0), ("0", 0.0), ("0s", 0.0),
        (40, 40.0), (0.25, 0.25),
    ],
)  # fmt: skip
def test_go_durations_are_parsed(text: str | float, value: float) -> None:
    assert duration_s(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "50", "s", "5 s", "5d", "1s2", "--1s", "1..2s", "x", None, True, {}])
def test_invalid_duration_is_a_value_error(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_s(text)


# No check passes for arbitrary behaviour


@given(
    check=st.sampled_from([DETECTION, FROM_FAULT, TAINT, EVICTION]),
    unknown_s=st.floats(0.5, 40),
    taint_s=st.floats(0.01, 20),
    eviction_s=st.floats(0.1, 40),
)
# As documented.
@example(DETECTION, GRACE_S + 0.6, 0.15, TOLERATION_S + 0.1)
@example(FROM_FAULT, GRACE_S + 0.6, 0.15, TOLERATION_S + 0.1)
@example(TAINT, GRACE_S + 0.6, 0.15, TOLERATION_S + 0.1)
@example(EVICTION, GRACE_S + 0.6, 0.15, TOLERATION_S + 0.1)
# Half and double, nearly in time, and before the anchor.
@example(DETECTION, GRACE_S / 2, 0.15, TOLERATION_S + 0.1)
@example(FROM_FAULT, GRACE_S * 2, 0.15, TOLERATION_S + 0.1)
@example(DETECTION, GRACE_S - 0.1, 0.15, TOLERATION_S + 0.1)
@example(EVICTION, GRACE_S + 0.6, 6.0, -4.0)
def test_times_conform_only_inside_their_window(
    check: Check, unknown_s: float, taint_s: float, eviction_s: float
) -> None:
    verdict = run(check, partition(unknown_s, taint_s, eviction_s).fence(200.0))
    true_s = {
        "detection": unknown_s,
        "detection_from_fault": last_renewal_t() + unknown_s - (CUT_T + 0.02),
        "taint_pass": taint_s,
        "toleration": eviction_s,
    }[check.args["window"]["name"]]
    assert verdict.measured is not None
    assert verdict.window is not None
    low, high = verdict.window.low_s, verdict.window.high_s
    if min(abs(true_s - low), abs(true_s - high)) > 1e-3:
        assert verdict.label == ("conforms" if low < true_s < high else "deviates")
    if verdict.label == "deviates":
        assert ("too early" if true_s < low else "too late") in verdict.reason
        assert verdict.last_state


@given(st.data())
def test_recording_with_a_lost_event_never_conforms_by_absence(data: st.DataObject) -> None:
    """Without a watch event of pods, that the pod stays is unproven, unless a later state covers it."""
    entries = recovered().fence(40.0).history().entries
    pods = [entry for entry in entries if entry.kind == "watch" and entry.data["resource"] == "pods"]
    dropped = data.draw(st.sampled_from(pods))
    left = History.of(entry for entry in entries if entry is not dropped)
    assert_verdict(run(STAYS, left), GAP)


# From a check's result to a verdict: obstacles and their precedence, changed settings, faults that end.


GRACE_FLAG = Constant(
    "grace", "kcm", "Grace", "node-monitor-grace-period", "s", ((">=1.18", 50.0),), 40.0, "defaults.go"
)
TIMING_CLAIM = Claim(
    "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (GRACE_FLAG,), ("source",)
)
DEFAULT = default_of("grace")
CONFIGURATION = configuration()


def label(
    story: Story, check: Check = TAINT, claim: Claim = TIMING_CLAIM, settings: Configuration = CONFIGURATION
) -> str:
    return judge(claim, check, story.fence(90.0).history(), settings).label


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"kcm": {"node-monitor-grace-period": "9s"}}, "unproven: scaled"),
        ({"kcm": {"node-monitor-period": "9s"}}, "conforms"),
        ({"kubelet": {"node-monitor-grace-period": "9s"}}, "conforms"),
    ],
)
def test_claim_that_assumes_a_default_is_unproven_without_it(
    flags: dict[str, dict[str, str]], expected: str
) -> None:
    claim, settings = replace(CLAIM, defaults=("kcm.nodeMonitorGracePeriod",)), configuration(flags_set=flags)
    assert label(partition(), claim=claim, settings=settings) == expected
    assert label(partition(), settings=settings) == "conforms"


LATE_TAINT = ReportedBug("a/b#1", ">=1.30", windows.formula("period", "5", "4", "6 + slack"))
NO_TAINT = replace(LATE_TAINT, window=windows.formula("negative", "8", "0", "8"))
OF_NEWER = replace(LATE_TAINT, versions=">=1.99")


@pytest.mark.parametrize(
    ("taint_s", "bug", "expected"),
    [
        (0.15, LATE_TAINT, "conforms: fixed?"),
        (0.15, OF_NEWER, "conforms"),
        (5.0, LATE_TAINT, "deviates: reported"),
        (5.0, OF_NEWER, "deviates"),
        (5.0, NO_TAINT, "deviates"),
        (9.0, LATE_TAINT, "deviates"),
        (9.0, NO_TAINT, "deviates: reported"),
    ],
)
def test_deviation_is_known_if_it_is_the_reported_one(
    taint_s: float, bug: ReportedBug, expected: str
) -> None:
    assert label(partition(taint_s=taint_s), claim=replace(CLAIM, reported=bug)) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [(">=1.36", "conforms"), (">=1.37", "not-applicable"), ("<1.37", "not-applicable")],
)
def test_claim_must_hold_for_both_versions_of_an_upgrade(versions: str, expected: str) -> None:
    claim, upgraded = replace(CLAIM, versions=versions), configuration(upgraded_to="v1.37.2")
    verdict = judge(claim, TAINT, partition().fence(90.0).history(), upgraded)
    assert expected in verdict.label
    if expected == "not-applicable":
        assert verdict.reason == f"the claim holds for {versions}, the cluster runs v1.36.3, then v1.37.2"


def test_deviation_that_may_be_the_reported_one_is_a_loaded_host() -> None:
    story = loaded(partition(taint_s=5.9), late_s=0.6)
    assert label(story, claim=CLAIM) == "deviates"
    assert label(story, claim=replace(CLAIM, reported=LATE_TAINT)) == TOO_LOADED


@pytest.mark.parametrize(
    ("taint_s", "expected"),
    [(3.0, "deviates"), (5.0, "deviates: reported"), (7.0, "deviates"), (30.0, "conforms: fixed?")],
)
def test_event_that_must_not_come_is_known_if_it_comes_as_reported(taint_s: float, expected: str) -> None:
    check = TAINTED.never_after(UNKNOWN, windows.absence(20.0))
    assert label(partition(taint_s=taint_s), check, replace(CLAIM, reported=LATE_TAINT)) == expected


def test_check_without_a_window_matches_no_report() -> None:
    assert LATE_TAINT.deviation(DEFAULT) is None


def died(story: Story, *, expected: bool = False) -> Story:
    return story.say(30.0, "component", name="kubelet", node=NODE, status="exited with 1", expected=expected)


def loaded(story: Story, late_s: float = 1.2) -> Story:
    return story.say(31.0, "stall", late_s=late_s)


def deadman(story: Story) -> Story:
    return story.say(29.0, "deadman", id="cut", node=NODE)


def aborted(story: Story) -> Story:
    return story.fault(25.0, "aborted", reason="HTTP 503")


def unproven(story: Story) -> Story:
    return story.fault(3.0, "planned", "armed", "unproven", id_="other")


NOT_INJECTED, TOO_LOADED = "unproven: not-injected", "unproven: host-too-loaded"
COMPONENT_DIED = "unproven: component-died"
LATE_S = 5.0


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (partition(), "conforms"),
        (partition(taint_s=LATE_S), "deviates"),
        *((unproven(partition(taint_s=taint_s)), NOT_INJECTED) for taint_s in (0.15, LATE_S)),
        *((deadman(partition(taint_s=taint_s)), NOT_INJECTED) for taint_s in (0.15, LATE_S)),
        *((died(partition(taint_s=taint_s)), COMPONENT_DIED) for taint_s in (0.15, LATE_S)),
        *((loaded(partition(taint_s=taint_s), 0.79), TOO_LOADED) for taint_s in (0.15, LATE_S)),
        (partition().say(29.0, "deadman", id="of-an-earlier-one", node="node-2"), "conforms"),
        (died(partition(), expected=True), "conforms"),
        (loaded(partition(), 0.7), "conforms"),
        # Slack far above the limit makes every window undiscerning; that must not end as a green skip.
        (loaded(partition(), 60.0), TOO_LOADED),
        *((aborted(partition(taint_s=taint_s)), "unproven: aborted") for taint_s in (0.15, LATE_S)),
        # The order of precedence.
        (loaded(died(deadman(aborted(partition())))), "unproven: aborted"),
        (loaded(died(deadman(partition()))), NOT_INJECTED),
        (loaded(died(unproven(partition()))), NOT_INJECTED),
        (loaded(died(partition())), COMPONENT_DIED),
        # An unhealed fault excuses only a deviation.
        (partition(taint_s=LATE_S).fault(70.0, "unhealed"), NOT_INJECTED),
        (partition().fault(70.0, "unhealed"), "conforms"),
    ],
)
def test_obstacle_makes_a_verdict_unproven(story: Story, expected: str) -> None:
    assert label(story) == expected


def test_fault_missing_in_a_later_probe_is_not_injected() -> None:
    story = partition().fault(25.0, "unproven")
    assert label(story) == NOT_INJECTED
    assert label(story.fault(26.0, "injected")) == "conforms"


@pytest.mark.parametrize(
    ("ends_components", "healed_t", "expected"),
    [
        (True, 40.0, "conforms"),
        (True, 29.0, "unproven: component-died"),
        (False, 40.0, "unproven: component-died"),
    ],
)
def test_component_may_end_only_during_a_fault_that_ends_components(
    ends_components: bool, healed_t: float, expected: str
) -> None:
    story = died(partition())
    story.fault(10.0, "injecting", "injected", id_="down", ends_components=ends_components)
    story.fault(healed_t, "healed", "closed", id_="down", ends_components=ends_components)

    assert label(story) == expected


@pytest.mark.parametrize(
    ("story", "limit_s", "expected"),
    [
        # Slack that is allowed makes the window undiscerning.
        (loaded(partition(), 4.0), 5.0, TOO_LOADED),
        (loaded(died(partition()), 4.0), 5.0, COMPONENT_DIED),
        (loaded(partition().gap(20.0, 25.0, "nodes"), 0.5), 0.5, GAP),
    ],
)
def test_obstacles_of_a_loaded_host_depend_on_its_limit(story: Story, limit_s: float, expected: str) -> None:
    assert label(story, settings=configuration(slack_limit_s=limit_s)) == expected


def test_missing_injection_stays_not_injected_on_a_loaded_host() -> None:
    assert label(loaded(Story()), FROM_FAULT) == "unproven: not-injected"


def test_permanent_obstacle_takes_precedence() -> None:
    broken = loaded(died(deadman(partition())))
    old = replace(TIMING_CLAIM, versions="<1.20")
    assert label(broken, claim=old) == "unproven: not-applicable"
    kubelet = replace(TIMING_CLAIM, subject="kubelet")
    foreign = configuration(tested_kubelet=False)
    assert label(broken, claim=kubelet, settings=foreign) == "unproven: lab-lacks"
    assert label(partition(), claim=kubelet) == "conforms"
    assert label(partition(), settings=foreign) == "conforms"


@pytest.mark.parametrize(
    ("files", "outcome"),
    [({}, "unproven: lab-lacks"), ({CLOUD: "a"}, "conforms"), ({CLOUD: "b"}, "unproven: lab-lacks")],
)
def test_cloud_controller_manager_is_judged_if_built_from_the_tree(
    files: dict[str, str], outcome: str
) -> None:
    components = {
        role: {"sha256": sha256} for role, sha256 in {"kube-controller-manager": "a", **files}.items()
    }
    cloud = replace(TIMING_CLAIM, subject=CLOUD)
    assert label(partition(), claim=cloud, settings=configuration(components=components)) == outcome


@pytest.mark.parametrize(("lab", "outcome"), [("process", "unproven: lab-lacks"), ("libvirt", "conforms")])
def test_kubelet_field_of_earlier_versions_keeps_its_meaning(lab: str, outcome: str) -> None:
    stored = {**configuration().to_json(), "lab": lab, "hollow_from_tree": False}
    del stored["tested_kubelet"]
    kubelet = replace(TIMING_CLAIM, subject="kubelet")
    assert label(partition(), claim=kubelet, settings=Configuration.from_json(stored)) == outcome


@pytest.mark.parametrize(
    ("reported", "flags", "expected"),
    [("50s", {}, "conforms"), ("40s", {}, "deviates"), ("12s", {GRACE_FLAG.flag: "12s"}, "unproven: scaled")],
)
def test_default_does_not_depend_on_the_recording(
    reported: str, flags: dict[str, str], expected: str
) -> None:
    settings = configuration(reported={"kcm": {"Grace": reported}}, flags_set={"kcm": flags})
    broken = loaded(died(deadman(partition())))
    assert label(broken, DEFAULT, settings=settings) == expected


MANAGER, GRACE_DEFAULT = "kube-controller-manager", default_of("node-monitor-grace-period")


def flags(component: str, *names: str) -> Json:
    return {"fault": "settings", "node": component, "flags": dict.fromkeys(names, "1")}


def fields(*names: str) -> Json:
    return {"fault": "kubelet-settings", "node": NODE, "settings": dict.fromkeys(names, 40)}


@pytest.mark.parametrize(
    ("check", "fault", "expected"),
    [
        (DETECTION, flags(MANAGER, "node-monitor-grace-period"), "unproven: scaled"),
        (DETECTION, flags(MANAGER, "node-monitor-period"), "unproven: scaled"),
        (TAINT, flags(MANAGER, "node-eviction-rate"), "unproven: scaled"),
        (GRACE_DEFAULT, flags(MANAGER, "node-monitor-grace-period"), "unproven: scaled"),
        (FROM_FAULT, fields("nodeLeaseDurationSeconds"), "unproven: scaled"),
        # Their windows do not depend on it.
        (DETECTION, flags(MANAGER, "node-eviction-rate"), "conforms"),
        (DETECTION, flags("kube-scheduler", "node-monitor-period"), "conforms"),
        (EVICTION, flags(MANAGER, "node-monitor-period"), "conforms"),
        (FROM_FAULT, fields("maxPods"), "conforms"),
    ],
)
def test_window_of_a_figure_that_a_fault_set_is_scaled(check: Check, fault: Json, expected: str) -> None:
    steps = ("injecting", "injected", "healed")
    story = partition().fault(CUT_T - 1, *steps, id_="set", fault={"id": "set", **fault}, node=fault["node"])
    verdict = judge(CLAIM, check, story.fence(60.0).history(), configuration())
    assert verdict.label == expected, verdict
    assert expected == "conforms" or "was set by fault set" in verdict.reason


IN = ("planned", "armed", "injecting", "injected")
OVER = ("healing", "healed", "closed")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((*IN, *OVER), "conforms"),
        ((*IN, "unproven", *OVER), "deviates"),
        ((*IN[:-1], "unproven", *OVER), NOT_INJECTED),
        ((*IN, "unanswered", *OVER), GAP),
        (IN, GAP),
        ((), NOT_INJECTED),
    ],
)
def test_fault_lasts_until_it_is_healed(steps: tuple[str, ...], expected: str) -> None:
    assert label(Story().fault(10.0, *steps), lasted("cut")) == expected


def test_fault_healed_by_its_switch_proves_nothing() -> None:
    story = Story().fault(10.0, *IN, *OVER).fault(20.0, *IN, "unproven", *OVER, id_="other")
    assert label(story, lasted("cut")) == "conforms"
    assert label(story, lasted("other")) == "deviates"
    story.fault(25.0, *IN[:-1], "unproven", *OVER, id_="never")
    assert label(story, lasted("other")) == NOT_INJECTED
    switched = Story().fault(10.0, *IN, "unproven", *OVER).say(10.5, "deadman", id="cut")
    assert label(switched, lasted("cut")) == NOT_INJECTED


@pytest.mark.parametrize("step", ["unanswered", "unproven"])
def test_fault_that_was_not_seen_all_the_time_proves_nothing_else(step: str) -> None:
    story = Story().fault(10.0, *IN, step, *OVER).condition(12.0, "Unknown")
    assert label(story, UNKNOWN.after(UNKNOWN, windows.up_to(5.0))) == NOT_INJECTED
