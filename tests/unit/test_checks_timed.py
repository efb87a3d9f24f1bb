"""Timed checks: what conforms, what deviates, and everything that proves nothing."""

from __future__ import annotations

import pytest

from nodeproof.model import window as windows
from nodeproof.model.history import History
from nodeproof.model.judgment import Check
from nodeproof.model.window import Ground
from tests.unit.given import (
    DETECTION,
    EVICTION,
    FROM_FAULT,
    HEALING,
    READY,
    SHOWN,
    STAYS,
    TAINT,
    assert_verdict,
    run,
    silent,
)
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    TOLERATION_S,
    Story,
    configuration,
    partition,
    reported,
)


def tainted() -> Story:
    """A pod whose node gets the NoExecute taint at 10 s."""
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(10.0)
    return story


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
        (TAINT, partition(taint_s=5.0), "too late"),
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
    story = tainted()
    assert_verdict(run(EVICTION, story.fence(40.0)), "deviates", "did not occur")


def test_what_does_not_come_proves_nothing_without_a_fence() -> None:
    story = tainted()
    assert_verdict(run(EVICTION, story), "unproven: gap", "no fence")
    assert_verdict(run(EVICTION, story.fence(40.0, blind=["pods"])), "unproven: gap", "pods", "sentinel")


def test_a_fence_before_the_end_of_the_window_proves_nothing() -> None:
    story = tainted()
    assert_verdict(run(EVICTION, story.fence(20.2)), "unproven: gap", "too early")


def test_an_event_that_the_watch_lost_is_no_deviation() -> None:
    story = tainted()
    story.evict(20.0, seen=False)
    assert_verdict(run(EVICTION, story.fence(40.0)), "unproven: gap", "differ between LIST and watch")


def test_a_resource_that_nobody_watched_is_refused() -> None:
    story = Story(resources=("nodes", "leases"))
    story.taint(10.0)
    with pytest.raises(LookupError, match="not recorded: pods"):
        run(EVICTION, story.fence(40.0))


def test_an_earlier_removal_of_the_pod_is_not_its_eviction() -> None:
    """The pod was leaving before the taint; its last state change fits the window by chance."""
    story = Story()
    story.pod(1.0, node=NODE)
    story.evict(2.0)
    story.taint(20.0)
    story.remove(20.0 + TOLERATION_S, "pods", NAMESPACE, POD)
    assert_verdict(run(EVICTION, story.fence(60.0)), "deviates", "did not occur")


@pytest.mark.parametrize("resource", ["nodes", "pods"])
@pytest.mark.parametrize(("since_t", "until_t"), [(29.0, 31.0), (33.0, 35.0), (39.0, 41.0)])
def test_a_gap_between_anchor_and_event_proves_nothing(resource: str, since_t: float, until_t: float) -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.taint(30.0)
    story.gap(since_t, until_t, resource)
    story.evict(30.0 + TOLERATION_S)
    assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "had a gap")


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
        assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "had a gap")


def test_a_gap_between_an_early_event_and_its_anchor_proves_nothing() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.evict(28.0)
    story.gap(28.5, 29.0, "nodes")
    story.sentinel(29.1)
    story.taint(30.0)
    assert_verdict(run(EVICTION, story.fence(60.0)), "unproven: gap", "had a gap")


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
    coarse = configuration(reported=reported(period_s=10.0))
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


@pytest.mark.parametrize("back", [False, True])
def test_a_silence_that_nobody_detects_deviates(back: bool) -> None:
    assert_verdict(run(DETECTION, silent(60.0, back=back)), "deviates", "did not occur")
    assert_verdict(run(FROM_FAULT, silent(60.0, back=back)), "deviates", "did not occur")


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
    story.change(1.0, "nodes", "", NODE, {"spec": {}, "status": {"conditions": []}})
    story.condition(30.0, "Unknown")
    assert_verdict(run(DETECTION, story.fence(60.0)), "unproven: gap", "heartbeat before it was not recorded")


@pytest.mark.parametrize(("unknown_t", "code"), [(11.5, "gap"), (None, "no-anchor")])
def test_a_status_from_before_the_recording_may_be_the_last_heartbeat(
    unknown_t: float | None, code: str
) -> None:
    """A kubelet that was cut off for a minute reports its status before it renews its Lease; it is cut off
    again at once.
    """
    story = Story(renewed_t=-53.0, status_t=-2.0)
    if unknown_t is not None:
        story.condition(unknown_t, "Unknown")
    story.renewals(0.5, 50.0, OTHER)
    assert_verdict(run(DETECTION, story.fence(60.0)), f"unproven: {code}")


# A missing anchor


def test_a_fault_that_was_not_proven() -> None:
    story = Story()
    story.fault(5.0, "planned", "armed", "unproven")
    assert_verdict(run(FROM_FAULT, story.fence(60.0)), "unproven: not-injected")


@pytest.mark.parametrize("check", [TAINT, EVICTION, STAYS, SHOWN])
@pytest.mark.parametrize("until_t", [25.0, 60.0])
def test_a_claim_whose_anchor_does_not_come_is_not_known(check: Check, until_t: float) -> None:
    """Whether it should have come is the judgment of whoever promises it."""
    assert_verdict(run(check, silent(until_t)), "unproven: no-anchor", "did not occur")


def test_an_anchor_that_may_have_been_missed_proves_nothing() -> None:
    story = silent(60.0)
    assert_verdict(run(TAINT, History.of(story.entries[:-2])), "unproven: gap", "no fence")
    story.gap(30.0, 32.0, "nodes")
    assert_verdict(run(TAINT, story), "unproven: gap", "had a gap")


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
def test_a_recovery_may_come_before_its_healing_is_seen_and_counts_from_there(
    healed_t: float, ready_t: float, label: str
) -> None:
    story = Story()
    story.fault(2.0, "planned", "armed", "injected")
    story.condition(18.0, "Unknown")
    story.fault(20.0, "healing")
    for t, tell in sorted({healed_t: "healed", ready_t: "ready"}.items()):
        story.fault(t, "healed") if tell == "healed" else story.condition(t, "True")
    verdict = run(READY.after(HEALING, windows.recovery()), story.fence(130.0))
    assert_verdict(verdict, label)
