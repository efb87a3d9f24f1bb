"""Checks: what conforms, what deviates, and everything that proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks import checks, moments
from harness.checks.checks import duration_s, run_check
from harness.model import window as windows
from harness.model.claim import Claim, Constant
from harness.model.cluster import UNREACHABLE, Configuration
from harness.model.history import History
from harness.model.judgment import Check
from harness.model.verdict import Verdict
from harness.model.window import Ground
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
)

GRACE = Constant(
    "node-monitor-grace-period",
    "kube-controller-manager",
    "NodeLifecycleController.NodeMonitorGracePeriod",
    "node-monitor-grace-period",
    "s",
    (("<1.32", 40.0), (">=1.32", 50.0)),
    40.0,
    "defaults.go",
)
CLAIM = Claim(
    "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (GRACE,), ("source",)
)
GROUND = Ground(configuration(), 0.3)
UNKNOWN = moments.condition_became(NODE, "Ready", "Unknown")
READY = moments.condition_became(NODE, "Ready", "True")
TAINTED = moments.taint_added(NODE, UNREACHABLE, "NoExecute")
DELETION = moments.pod_deletion(NAMESPACE, POD)
CUT = moments.fault_step("cut", "injected")
HEALED = moments.fault_step("cut", "healed")
DETECTION = UNKNOWN.after(moments.last_heartbeat(NODE, UNKNOWN), windows.detection())
FROM_FAULT = UNKNOWN.after(CUT, windows.detection_from_fault())
TAINT = TAINTED.after(UNKNOWN, windows.taint_pass())
EVICTION = DELETION.after(TAINTED, windows.toleration(TOLERATION_S))
STAYS = DELETION.never_after(READY, windows.absence(5.0))


def run(check: Check, story: Story | History, ground: Ground = GROUND) -> Verdict:
    history = story.history() if isinstance(story, Story) else story
    return run_check(check, history, ground, CLAIM)


def assert_verdict(verdict: Verdict, label: str, *words: str) -> None:
    assert verdict.label == label, verdict
    for word in words:
        assert word in verdict.reason


# after


@pytest.mark.parametrize("check", [DETECTION, FROM_FAULT, TAINT, EVICTION], ids=["D", "F", "T", "E"])
def test_a_documented_partition_conforms(check: Check) -> None:
    verdict = run(check, partition().fence(60.0))
    assert_verdict(verdict, "conforms")
    assert verdict.measured is not None
    assert verdict.window is not None


@pytest.mark.parametrize(
    ("check", "story", "side"),
    [
        (DETECTION, partition(unknown_s=GRACE_S / 2), "too early"),
        (DETECTION, partition(unknown_s=GRACE_S * 2), "too late"),
        (DETECTION, partition(unknown_s=GRACE_S - 0.1), "too early"),
        (FROM_FAULT, partition(unknown_s=GRACE_S * 2), "too late"),
        (TAINT, partition(taint_s=2.0), "too late"),
        (EVICTION, partition(eviction_s=TOLERATION_S / 2), "too early"),
        (EVICTION, partition(eviction_s=TOLERATION_S * 2), "too late"),
        (EVICTION, partition(eviction_s=0.1), "too early"),
        (EVICTION, partition(taint_s=6.0, eviction_s=-4.0), "too early"),
    ],
)
def test_another_figure_deviates(check: Check, story: Story, side: str) -> None:
    verdict = run(check, story.fence(80.0))
    assert_verdict(verdict, "deviates", side)
    assert verdict.last_state


def test_what_does_not_come_deviates_behind_a_fence() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(10.0)
    assert_verdict(run(EVICTION, story.fence(40.0)), "deviates", "did not come")


def test_what_does_not_come_proves_nothing_without_a_fence() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(10.0)
    assert_verdict(run(EVICTION, story), "unproven: gap", "no fence")
    assert_verdict(run(EVICTION, story.fence(40.0, blind=["pods"])), "unproven: gap", "pods", "sentinel")


def test_a_fence_before_the_end_of_the_window_proves_nothing() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(10.0)
    assert_verdict(run(EVICTION, story.fence(20.2)), "unproven: gap", "too early")


def test_an_event_that_the_watch_lost_is_no_deviation() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(10.0)
    story.evict(20.0, seen=False)
    assert_verdict(run(EVICTION, story.fence(40.0)), "unproven: gap", "differ between LIST and watch")


def test_a_resource_that_nobody_watched_proves_nothing() -> None:
    story = Story(resources=("nodes", "leases"))
    story.taint(10.0)
    assert_verdict(run(EVICTION, story.fence(40.0)), "unproven: gap", "pods")


def test_an_earlier_removal_of_the_pod_is_not_its_eviction() -> None:
    """The pod was leaving before the taint; its last state change fits the window by chance."""
    story = Story()
    story.pod(1.0, node=NODE)
    story.evict(2.0)
    story.taint(20.0)
    story.remove(20.0 + TOLERATION_S, "pods", NAMESPACE, POD)
    assert_verdict(run(EVICTION, story.fence(60.0)), "deviates", "did not come")


@pytest.mark.parametrize("resource", ["nodes", "pods"])
@pytest.mark.parametrize(("since_t", "until_t"), [(29.0, 31.0), (33.0, 35.0), (39.0, 41.0)])
def test_a_gap_between_anchor_and_event_proves_nothing(resource: str, since_t: float, until_t: float) -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(30.0)
    story.gap(since_t, until_t, resource)
    story.evict(30.0 + TOLERATION_S)
    assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "blind")


@pytest.mark.parametrize(("sentinel", "label"), [(True, "conforms"), (False, "unproven: gap")])
def test_a_gap_ends_where_the_watch_is_seen_to_live(sentinel: bool, label: str) -> None:
    """What is seen first after a gap may have waited for its end."""
    story = Story()
    story.pod(1.0, node=NODE)
    story.gap(25.0, 28.0, "nodes")
    if sentinel:
        story.sentinel(28.5)
    story.taint(30.0)
    story.evict(30.0 + TOLERATION_S)
    assert_verdict(run(EVICTION, story.fence(60.0)), label)


def test_an_anchor_that_a_list_told_is_not_on_time() -> None:
    """The taint came at an unknown time of the gap, and was listed just before or after its end was noted."""
    for lists in (True, False):
        story = Story()
        story.pod(1.0, node=NODE)
        story.taint(31.0, seen=False)
        story.gap(30.5, 35.0, "nodes", lists=lists)
        if not lists:
            story.list(35.01, "nodes")
        story.evict(35.0 + TOLERATION_S)
        assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "blind")


def test_a_gap_between_an_early_event_and_its_anchor_proves_nothing() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.evict(28.0)
    story.gap(28.5, 29.0, "nodes")
    story.sentinel(29.1)
    story.taint(30.0)
    assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "blind")


@pytest.mark.parametrize(("since_t", "until_t"), [(3.0, 5.0), (50.0, 55.0)])
def test_a_gap_elsewhere_does_not_matter(since_t: float, until_t: float) -> None:
    story = partition()
    story.gap(since_t, until_t, "nodes")
    story.say(until_t + 0.1, "stall", late_s=0.0)
    assert_verdict(run(TAINT, story.fence(60.0)), "conforms")


def test_a_window_that_slack_lets_admit_anything_is_a_loaded_host() -> None:
    for check in (DETECTION, FROM_FAULT, TAINT, EVICTION):
        verdict = run(check, partition().fence(60.0), Ground(configuration(), 60.0))
        assert_verdict(verdict, "unproven: host-too-loaded", "half or double")


def test_a_window_that_admits_double_by_its_configuration_is_scaled() -> None:
    coarse = configuration(node_monitor_period_s=10.0)
    verdict = run(DETECTION, partition().fence(60.0), Ground(coarse, 0.1))
    assert_verdict(verdict, "unproven: scaled", "half or double")


# The last heartbeat


def test_detection_needs_proof_that_no_heartbeat_was_missed() -> None:
    """With a dead lease watch, any later heartbeat would be overlooked."""
    assert_verdict(run(DETECTION, partition()), "unproven: gap", "heartbeat")
    assert_verdict(run(DETECTION, partition().fence(60.0, blind=["leases"])), "unproven: gap", "leases")
    assert_verdict(run(TAINT, partition()), "conforms")


def test_detection_after_a_status_has_one_more_period() -> None:
    story = Story()
    story.status(20.0)
    story.condition(20.0 + GRACE_S + 3.2, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "conforms")
    story = Story()
    story.renew(20.0)
    story.condition(20.0 + GRACE_S + 3.2, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "deviates", "too late")


def silent(until_t: float, *, back: bool = False) -> Story:
    """A cut that nobody detects."""
    story = Story()
    story.renewals(2.5, CUT_T)
    story.fault(CUT_T, "planned", "armed", "injected")
    if back:
        story.renewals(until_t - 10, until_t)
    return story.fence(until_t + 1)


@pytest.mark.parametrize("back", [False, True])
def test_a_silence_that_nobody_detects_deviates(back: bool) -> None:
    assert_verdict(run(DETECTION, silent(60.0, back=back)), "deviates", "did not come")
    assert_verdict(run(FROM_FAULT, silent(60.0, back=back)), "deviates", "did not come")


def test_a_silence_that_was_too_short_owes_nothing() -> None:
    assert_verdict(run(DETECTION, silent(31.0)), "unproven: gap", "too early")
    assert_verdict(run(FROM_FAULT, silent(31.0)), "unproven: gap", "too early")


def test_a_node_that_was_never_silent_owes_nothing() -> None:
    story = Story()
    story.fault(1.0, "planned", "armed", "injected")
    story.renewals(2.0, 60.0)
    assert_verdict(run(DETECTION, story.fence(61.0)), "unproven: gap")


def test_unknown_without_any_heartbeat_before_it_proves_nothing() -> None:
    story = Story((OTHER,))
    story.change(1.0, "nodes", "", NODE, story.object("nodes", "", OTHER))
    story.condition(30.0, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "unproven: gap", "no heartbeat")


# A missing anchor


def test_a_fault_that_was_not_proven() -> None:
    story = Story()
    story.fault(5.0, "planned", "armed", "unproven")
    assert_verdict(run(FROM_FAULT, story.fence(60.0)), "unproven: not-injected")


def test_an_anchor_that_does_not_come_deviates_behind_a_fence() -> None:
    verdict = run(TAINT, silent(60.0))
    assert_verdict(verdict, "deviates", "condition-became(node-1, Ready, Unknown) did not come")
    assert "Ready=True" in verdict.last_state


def test_a_premise_that_no_claim_of_the_check_promises_proves_nothing_when_it_is_missing() -> None:
    assert_verdict(run(STAYS, silent(60.0)), "unproven: gap", "the claim starts from it")
    assert_verdict(run(SHOWN, Story().fence(40.0)), "unproven: gap", "the claim starts from it")


def test_an_anchor_that_had_no_time_to_come_proves_nothing() -> None:
    for check in (TAINT, EVICTION):
        assert_verdict(run(check, silent(25.0)), "unproven: gap", "too early")
    assert_verdict(run(EVICTION, Story().fence(5.0)), "unproven: gap", "too early")


def test_an_anchor_that_may_have_been_missed_proves_nothing() -> None:
    story = silent(60.0)
    assert_verdict(run(TAINT, History.of(story.entries[:-2])), "unproven: gap", "no fence")
    story.gap(30.0, 32.0, "nodes")
    assert_verdict(run(TAINT, story), "unproven: gap", "blind")


# never


def recovered(evicted_t: float | None = None, seen: bool = True) -> Story:
    """A node that is back at 30 s, with its pod."""
    story = Story()
    story.pod(1.0, node=NODE)
    story.fault(2.0, "planned", "armed", "injected")
    story.condition(20.0, "Unknown")
    story.taint(20.1)
    if evicted_t is not None and evicted_t < 30.0:
        story.evict(evicted_t)
    story.condition(30.0, "True")
    story.untaint(30.5)
    if evicted_t is not None and evicted_t >= 30.0:
        story.evict(evicted_t, seen=seen)
    return story


def test_absence_conforms_behind_a_fence() -> None:
    assert_verdict(run(STAYS, recovered().fence(40.0)), "conforms", "did not come for 5.00 s")


@pytest.mark.parametrize("evicted_t", [30.0, 30.2, 35.0])
def test_what_should_not_come_deviates(evicted_t: float) -> None:
    assert_verdict(run(STAYS, recovered(evicted_t).fence(40.0)), "deviates", "should not have")


def test_a_deviation_needs_no_fence() -> None:
    assert_verdict(run(STAYS, recovered(32.0)), "deviates")


def test_what_comes_after_the_wait_does_not_matter() -> None:
    assert_verdict(run(STAYS, recovered(35.1).fence(40.0)), "conforms")


@pytest.mark.parametrize(
    ("story", "word"),
    [
        (recovered(), "no fence"),
        (recovered().fence(34.0), "too early"),
        (recovered().fence(40.0, blind=["pods"]), "sentinel"),
        (recovered(33.0, seen=False).fence(40.0), "differ"),
    ],
)
def test_absence_is_not_proven(story: Story, word: str) -> None:
    assert_verdict(run(STAYS, story), "unproven: gap", word)


def test_absence_in_a_watch_that_nobody_had_is_not_proven() -> None:
    story = Story(resources=("nodes", "leases"))
    story.condition(20.0, "Unknown")
    story.condition(30.0, "True")
    event = moments.event_reported("Evicted", "Pod", POD, "")
    check = event.never_after(READY, windows.absence(5.0))
    assert_verdict(run(check, story.fence(40.0)), "unproven: gap", "does not hold events")


@pytest.mark.parametrize(("since_t", "until_t"), [(29.0, 31.0), (32.0, 33.0), (34.0, 38.0)])
def test_absence_in_a_gap_is_not_proven(since_t: float, until_t: float) -> None:
    story = recovered()
    story.gap(since_t, until_t, "pods")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "blind")


def test_what_was_never_there_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "was not there yet")


def test_what_was_already_leaving_cannot_prove_that_it_stays() -> None:
    assert_verdict(run(STAYS, recovered(25.0).fence(40.0)), "unproven: gap", "had come already")


def test_what_was_already_gone_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.condition(20.0, "Unknown")
    story.remove(25.0, "pods", NAMESPACE, POD)
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "was gone already")


def test_a_wait_of_no_time_proves_nothing() -> None:
    check = DELETION.never_after(READY, windows.absence(0.0))
    assert_verdict(run(check, recovered().fence(40.0)), "unproven: scaled", "waits for nothing")


def test_cordon() -> None:
    blocked = moments.pod_bound(NAMESPACE, POD).never_after(
        moments.pod_created(NAMESPACE, POD), windows.absence(5.0)
    )
    unchanged = moments.conditions_changed(NODE).never_after(moments.cordoned(NODE), windows.absence(5.0))
    story = Story()
    story.cordon(1.0)
    story.pod(2.0)
    story.unfit(2.1)
    for check in (blocked, unchanged):
        assert_verdict(run(check, story), "unproven: gap")
    story.condition(5.0, "True", type_="Cordoned")
    story.bind(6.0)
    story.fence(20.0)
    assert_verdict(run(blocked, story), "deviates")
    assert_verdict(run(unchanged, story), "deviates")


def test_cordon_conforms() -> None:
    story = Story()
    story.cordon(1.0)
    story.pod(2.0)
    story.unfit(2.1)
    story.cordon(10.0, on=False)
    story.bind(10.4)
    story.fence(20.0)
    pod = (NAMESPACE, POD)
    blocked = moments.pod_bound(*pod).never_after(moments.pod_created(*pod), windows.absence(5.0))
    freed = moments.pod_bound(*pod).after(moments.uncordoned(NODE), windows.prompt(windows.BIND_S))
    for check in (blocked, freed):
        assert_verdict(run(check, story), "conforms")


# renewals

RENEWALS = checks.renewals_of(NODE, windows.renewals(), at_least=5)


def renewing(period_s: float = RENEW_S * 1.02, until_t: float = 20.0) -> Story:
    story = Story()
    story.renewals(0.9, until_t, period_s=period_s)
    return story


def test_renewals_conform() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5))
    assert_verdict(verdict, "conforms", "renewals of node-1")
    assert verdict.measured is not None
    assert verdict.measured.value == pytest.approx(2.03, abs=0.05)


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_another_period_deviates(factor: float) -> None:
    assert_verdict(run(RENEWALS, renewing(RENEW_S * factor).fence(20.5)), "deviates", "lie outside")


def test_one_missing_renewal_deviates() -> None:
    story = renewing(until_t=9.5)
    story.renewals(13.14, 20.0)
    assert_verdict(run(RENEWALS, story.fence(20.5)), "deviates", "1 of")


def test_renewals_that_stop_deviate() -> None:
    """Enough good ones and then none: the silence at the end counts as well."""
    assert_verdict(run(RENEWALS, renewing(until_t=16.0).fence(40.0)), "deviates", "no renewal for")
    assert_verdict(run(RENEWALS, Story().fence(40.0)), "deviates", "no renewal for")
    assert_verdict(run(RENEWALS, Story((OTHER,)).fence(40.0)), "deviates", "no renewal for")


def test_too_few_renewals_in_too_short_a_time() -> None:
    assert_verdict(run(RENEWALS, renewing(until_t=4.0).fence(5.0)), "unproven: gap", "are needed")
    assert_verdict(run(RENEWALS, renewing(until_t=4.0)), "unproven: gap", "are needed")
    assert_verdict(run(RENEWALS, Story((OTHER,)).fence(1.0)), "unproven: gap", "are needed")


def test_renewals_in_a_gap() -> None:
    story = renewing()
    story.gap(5.0, 6.0, "leases")
    assert_verdict(run(RENEWALS, story.fence(20.5)), "unproven: gap", "blind")


def test_renewals_on_a_loaded_host() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5), Ground(configuration(), 2.0))
    assert_verdict(verdict, "unproven: host-too-loaded")


def test_no_renewals_are_never_enough() -> None:
    none = checks.renewals_of(NODE, windows.renewals(), at_least=0)
    assert_verdict(run(none, Story((OTHER,)).fence(1.0)), "unproven: gap")


# default

DEFAULT = checks.default_of("node-monitor-grace-period")
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
def test_defaults(settings: Configuration, label: str) -> None:
    assert_verdict(run(DEFAULT, Story(), Ground(settings, 0.3)), label)


@pytest.mark.parametrize(
    ("told", "label", "shown"),
    [(True, "conforms", "true"), (False, "deviates", "false"), (None, "deviates", "nothing")],
)
def test_a_default_that_is_on_or_off(told: bool | None, label: str, shown: str) -> None:
    swap = Constant(
        "swap", "kubelet", "failSwapOn", "failSwapOn", "boolean", ((">=1.18", 1.0),), None, "f.go"
    )
    claim = replace(CLAIM, constants=(swap,))
    settings = configuration(reported={"kubelet": {"failSwapOn": told}}, flags_set={"kubelet": {}})
    verdict = run_check(checks.default_of("swap"), Story().history(), Ground(settings, 0.3), claim)
    assert_verdict(verdict, label)
    assert str(verdict.measured) == shown


def test_a_constant_that_the_claim_does_not_have_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        run(checks.default_of("no-such"), Story())


# shown-throughout

SHOWN = checks.shown_throughout("status", POD, "Terminating", DELETION, moments.pod_gone(NAMESPACE, POD))


def leaving(*looks: tuple[float, str], gone: bool = True) -> Story:
    story = Story()
    story.pod(1.0, node=NODE)
    story.say(5.0, "observed", what="status", subject=POD, value="Running", asked_t=4.9)
    story.evict(10.0)
    for t, value in looks:
        story.say(t, "observed", what="status", subject=POD, value=value, asked_t=t - 0.1)
        story.say(t, "observed", what="status", subject="other", value="Running", asked_t=t - 0.1)
    if gone:
        story.remove(20.0, "pods", NAMESPACE, POD)
    return story.fence(40.0)


GOOD = [(t + 0.2, "Terminating") for t in range(10, 20)]


def test_shown_throughout_conforms() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD)), "conforms", "10 looks")


def test_one_other_look_deviates() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD[:5], (15.5, "Unknown"), *GOOD[6:])), "deviates", "'Unknown'")


def test_looks_across_the_borders_do_not_count() -> None:
    """One was asked before the deletion, one was answered after the removal."""
    assert_verdict(run(SHOWN, leaving((10.05, "Running"), *GOOD, (20.1, "gone"))), "conforms")


@pytest.mark.parametrize(
    ("looks", "word"),
    [
        ([], "0 looks"),
        ([(15.0, "Terminating")], "1 looks"),
        (GOOD[:3], "nobody looked"),
        (GOOD[-3:], "nobody"),
    ],
)
def test_too_few_looks_prove_nothing(looks: list[tuple[float, str]], word: str) -> None:
    assert_verdict(run(SHOWN, leaving(*looks)), "unproven: gap", word)


def test_without_an_end_nothing_is_shown_throughout() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD, gone=False)), "unproven: gap", "was not seen")


def test_without_a_beginning_nothing_is_shown_throughout() -> None:
    assert_verdict(run(SHOWN, Story().fence(4.0)), "unproven: gap")


# How long to record, and Go's durations


@pytest.mark.parametrize(
    ("check", "story", "left"),
    [
        (EVICTION, partition(), 0.0),
        (DEFAULT, Story(), 0.0),
        (FROM_FAULT, silent(25.0), CUT_T + 0.02 + GRACE_S + 3.3 - 26.0),
        (STAYS, recovered(), 30.0 + 5.0 - 26.0),
        (RENEWALS, renewing(), 0.0),
        (RENEWALS, Story(), 6 * (RENEW_S * 1.04 + 0.3) - 26.0),
    ],
)
def test_how_long_a_recording_must_go_on(check: Check, story: Story, left: float) -> None:
    assert checks.remaining_s(check, story.history(), GROUND, 26.0) == pytest.approx(left)


def test_nobody_knows_how_long_to_record_before_the_anchor_came() -> None:
    assert checks.remaining_s(EVICTION, Story().history(), GROUND, 26.0) is None


@pytest.mark.parametrize("check", [DETECTION, TAINT, EVICTION, STAYS, RENEWALS, DEFAULT, SHOWN])
def test_a_check_survives_its_json(check: Check) -> None:
    assert Check.from_json(check.to_json()) == check


def test_an_unknown_check_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        run(Check("no-such", {}), Story())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50s", 50.0),
        ("5m0s", 300.0),
        ("1m40s", 100.0),
        ("1h0m0.5s", 3600.5),
        ("100ms", 0.1),
        ("1.5µs", 1.5e-6),
        ("20ns", 2e-8),
        ("-1m30s", -90.0),
        ("0", 0.0),
        ("0s", 0.0),
        (40, 40.0),
        (0.25, 0.25),
    ],
)
def test_go_durations(text: str | float, value: float) -> None:
    assert duration_s(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "50", "s", "5 s", "5d", "1s2", "--1s", "1..2s", "x", None, True, {}])
def test_what_is_no_duration_is_a_value_error(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_s(text)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59_999))
def test_durations_as_go_writes_them(hours: int, minutes: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{milliseconds / 1000:g}s"
    assert duration_s(text) == pytest.approx(hours * 3600 + minutes * 60 + milliseconds / 1000, abs=1e-2)


# Nothing passes whatever the cluster does


@given(
    check=st.sampled_from([DETECTION, FROM_FAULT, TAINT, EVICTION]),
    unknown_s=st.floats(0.5, 40),
    taint_s=st.floats(0.01, 20),
    eviction_s=st.floats(0.1, 40),
)
def test_only_the_right_figures_conform(
    check: Check, unknown_s: float, taint_s: float, eviction_s: float
) -> None:
    story = partition(unknown_s, taint_s, eviction_s).fence(200.0)
    verdict = run(check, story)
    true_s = {
        DETECTION.to_json()["args"]["window"]["name"]: unknown_s,
        "detection_from_fault": last_renewal_t() + unknown_s - (CUT_T + 0.02),
        "taint_pass": taint_s,
        "toleration": eviction_s,
    }[check.args["window"]["name"]]
    assert verdict.window is not None
    low, high = verdict.window.low_s, verdict.window.high_s
    if min(abs(true_s - low), abs(true_s - high)) > 1e-3:
        assert verdict.label == ("conforms" if low < true_s < high else "deviates")


@given(st.data())
def test_a_recording_with_a_part_missing_never_conforms_by_absence(data: st.DataObject) -> None:
    """Drop any watch event of pods: that the pod stays is then unproven, or was covered by a later state."""
    entries = recovered().fence(40.0).history().entries
    pods = [entry for entry in entries if entry.kind == "watch" and entry.data["resource"] == "pods"]
    dropped = data.draw(st.sampled_from(pods))
    left = History.of(entry for entry in entries if entry is not dropped)
    assert_verdict(run(STAYS, left), "unproven: gap")


def test_a_claim_is_not_needed_by_timed_checks() -> None:
    bare = replace(CLAIM, constants=())
    assert run_check(TAINT, partition().history(), GROUND, bare).outcome == "conforms"
