"""Lost and delayed events: gaps of watches, losses of sources, and slack where something was late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nodeproof.checks import (
    checks,
    invariants,
    moments,
    observations,
    repeated,
    timing,
    witnessed,
)
from nodeproof.checks.judge import judge, undecided_s
from nodeproof.checks.settings import default_of
from nodeproof.model import window as windows
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check, Moment, Observation
from nodeproof.model.pod_log import BEAT_S, Lost
from nodeproof.model.slack import LAB, Span, calmest_s, late_anchor_s, slack_s
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import WindowContext
from tests.history_mutations import revised
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    POD,
    RENEW_S,
    TOLERATION_S,
    Story,
    configuration,
    last_renewal_t,
    partition,
)
from tests.unit.sample_checks import (
    CLAIM,
    DELETION,
    DETECTION,
    EVICTION,
    HEALING,
    READY,
    RENEWALS,
    STAYS,
    TAINT,
    TAINTED,
    UNKNOWN,
    recovered,
    renewing,
    run,
)

# Gaps of watches that hide or delay an anchor, or an event before it.


CONFORMS, GAP, TOO_LOADED = "conforms", "unproven: gap", "unproven: host-too-loaded"
BOUND, DELETED = moments.pod_bound(NAMESPACE, POD), moments.pod_deletion(NAMESPACE, POD)
CORDONED, UNCORDONED = moments.cordoned(NODE), moments.uncordoned(NODE)
NEXT = moments.first_after(CORDONED, after=BOUND)
SOON_S = 3.0
SOON, QUIET = windows.up_to(SOON_S), windows.absence(4.0)
BIND_T, FIRST_T, CORDON_T, UNCORDON_T = 10.0, 15.0, 30.0, 35.0


def label(check: Check, story: Story) -> str:
    return judge(CLAIM, check, story.fence(60.0).history(), configuration()).label


def broken(story: Story, resource: str, since_t: float, until_t: float, *, lists: bool = False) -> Story:
    """Interrupt a watch between two sentinels."""
    story.sentinel(since_t).gap(since_t + 0.1, until_t, resource, lists=lists)
    return story.sentinel(until_t + 0.1)


def ended(story: Story) -> Story:
    """Cordon the Node, delete the pod, and uncordon the Node."""
    story.looks(CORDON_T + 0.5, UNCORDON_T - 0.5, "x", 1.0).looks(UNCORDON_T + 0.5, 49.5, "y", 1.0)
    return story.cordon(CORDON_T).evict(CORDON_T + 2.0).cordon(UNCORDON_T, on=False)


ANCHORED: Mapping[str, Check] = {
    "time": DELETED.after(CORDONED, SOON),
    "absence": UNKNOWN.never_after(CORDONED, QUIET),
    "count": repeated.counted(DELETED, 1, 1, after=CORDONED, until=UNCORDONED),
    "state": observations.shown_throughout("locks", NODE, "x", CORDONED, UNCORDONED),
    "observations": observations.listed("locks", NODE, "x", CORDONED, UNCORDONED),
    "time after the next": DELETED.after(NEXT, SOON),
    "time after all": DELETED.after(moments.all_of(CORDONED, BOUND), SOON),
}


@pytest.mark.parametrize("name", ANCHORED)
def test_first_of_two_anchors_counts(name: str) -> None:
    story = Story().pod(1.0).bind(BIND_T).cordon(FIRST_T)
    if "absence" in name:
        story.condition(FIRST_T + 0.5, "Unknown").condition(FIRST_T + 0.7, "True")
    story.look(FIRST_T + 0.6, "y").cordon(FIRST_T + 1.0, on=False)
    assert label(ANCHORED[name], ended(story)) == "deviates"


@pytest.mark.parametrize("name", ANCHORED)
@pytest.mark.parametrize(
    ("since_t", "lists", "expected"),
    [(FIRST_T - 1.0, True, GAP), (FIRST_T - 1.0, False, "conforms"), (50.0, True, "conforms")],
)
def test_gap_that_may_hide_the_first_anchor_proves_nothing(
    name: str, since_t: float, lists: bool, expected: str
) -> None:
    """The Node may have been cordoned and uncordoned in a gap of which the watch delivered nothing."""
    story = Story().pod(1.0).bind(BIND_T)
    if since_t < CORDON_T:
        story = ended(broken(story, "nodes", since_t, since_t + 3.0, lists=lists))
    else:
        story = broken(ended(story), "nodes", since_t, since_t + 3.0, lists=lists)
    assert label(ANCHORED[name], story) == expected


@pytest.mark.parametrize(("since_t", "expected"), [(5.0, "conforms"), (12.0, GAP)])
def test_gap_before_the_searched_time_hides_no_next_anchor(since_t: float, expected: str) -> None:
    """The search begins at an action."""
    start = Moment("action-step", {"id": "begin", "step": "begun"})
    story = Story().pod(1.0).bind(2.0)
    deeds = {BIND_T: lambda: story.say(BIND_T, "action", id="begin", text="", step="begun")}
    deeds[since_t] = lambda: broken(story, "nodes", since_t, since_t + 2.0, lists=True)
    for t in sorted(deeds):
        deeds[t]()
    check = DELETED.after(moments.first_after(CORDONED, after=start), SOON)
    assert label(check, ended(story)) == expected


@pytest.mark.parametrize(("lists", "expected"), [(True, GAP), (False, "conforms")])
def test_gap_that_may_hide_an_early_event_proves_nothing(lists: bool, expected: str) -> None:
    story = broken(Story().pod(1.0), "nodes", CORDON_T - 4.0, CORDON_T - 2.0, lists=lists)
    story.bind(CORDON_T - 1.0)
    assert label(CORDONED.after(BOUND, SOON), ended(story)) == expected


def test_gap_that_may_hide_the_first_end_of_a_state_proves_nothing() -> None:
    story = broken(Story().cordon(20.0), "pods", 23.0, 25.0, lists=True)
    story.looks(20.5, 23.5, "x", 1.0).looks(24.5, 49.5, "y", 1.0).pod(45.0).evict(46.0)
    shown = observations.shown_throughout("locks", NODE, "x", CORDONED, DELETED)
    assert label(shown, story) == GAP


@pytest.mark.parametrize(
    ("gap_t", "expected"), [(2.0, GAP), (SOON_S - 0.5, GAP), (SOON_S + 4.0, "deviates"), (30.0, "deviates")]
)
def test_gap_after_the_window_does_not_hide_that_an_event_is_late(gap_t: float, expected: str) -> None:
    story = broken(Story().pod(1.0).cordon(BIND_T), "pods", BIND_T + gap_t, BIND_T + gap_t + 1.0, lists=True)
    story.evict(BIND_T + 40.0)
    assert label(DELETED.after(CORDONED, SOON), story) == expected


@pytest.mark.parametrize(("gap_t", "expected"), [(0.1, GAP), (3.0, "deviates"), (30.0, "deviates")])
def test_gap_after_an_event_does_not_hide_that_it_refutes_an_absence(gap_t: float, expected: str) -> None:
    story = Story().pod(1.0).cordon(BIND_T)
    event_t = BIND_T + 2.0
    if gap_t < 2.0:
        story = broken(story, "pods", BIND_T + gap_t, event_t - 0.5, lists=True)
    story.evict(event_t)
    if gap_t > 2.0:
        story = broken(story, "pods", BIND_T + gap_t, BIND_T + gap_t + 1.0, lists=True)
    assert label(DELETED.never_after(CORDONED, QUIET), story) == expected


LATE: Mapping[str, Check] = {
    "absence after the next": UNKNOWN.never_after(NEXT, QUIET),
    "time after the next": DELETED.after(NEXT, SOON),
    "absence of the next": moments.first_after(UNKNOWN, after=NEXT).never_after(NEXT, QUIET),
    "count after the next": repeated.counted(UNKNOWN, 0, 0, after=NEXT, until=UNCORDONED),
    "time after the next of the next": DELETED.after(
        moments.first_after(CORDONED, after=moments.first_after(BOUND, after=moments.recording_began())), SOON
    ),
}


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize(
    ("bound_t", "gap", "expected"),
    [
        (BIND_T, None, "deviates"),
        # The watch of pods delivered the binding late.
        (FIRST_T + 5.1, (BIND_T - 1.0, FIRST_T + 5.0), GAP),
        (FIRST_T + 5.1, (BIND_T - 5.0, BIND_T - 1.0), "conforms"),
    ],
)
def test_late_anchor_of_an_anchor_proves_nothing(
    name: str, bound_t: float, gap: tuple[float, float] | None, expected: str
) -> None:
    story = Story().pod(1.0)
    if bound_t < FIRST_T:
        story.bind(bound_t)
    story.cordon(FIRST_T).condition(FIRST_T + 0.5, "Unknown").condition(FIRST_T + 0.7, "True")
    story.cordon(FIRST_T + 1.0, on=False)
    if bound_t > FIRST_T:
        story.bind(bound_t)
    if gap:
        story.sentinel(gap[0]).gap(gap[0] + 0.1, gap[1], "pods").sentinel(gap[1] + 0.2)
    assert label(LATE[name], ended(story)) == expected


def test_one_watch_orders_a_late_anchor_and_the_next() -> None:
    """The first cordon came late, but before the end of the cordon."""
    story = Story().pod(1.0).sentinel(CORDON_T - 3.0).gap(CORDON_T - 2.9, CORDON_T - 0.1, "nodes")
    story.cordon(CORDON_T).sentinel(CORDON_T + 0.1).cordon(UNCORDON_T, on=False).evict(UNCORDON_T + 1.0)
    check = DELETED.after(moments.first_after(UNCORDONED, after=CORDONED), SOON)
    assert label(check, story) == "conforms"


@pytest.mark.parametrize(("cordon_t", "expected"), [(BIND_T - 0.5, "conforms"), (BIND_T - 0.1, TOO_LOADED)])
@pytest.mark.parametrize(
    "check",
    [
        DELETED.after(NEXT, SOON),
        UNKNOWN.never_after(NEXT, QUIET),
        repeated.counted(UNKNOWN, 0, 0, after=BOUND, until=CORDONED),
    ],
)
def test_event_shortly_before_an_anchor_of_another_watch_is_unordered(
    check: Check, cordon_t: float, expected: str
) -> None:
    """The watch of pods may be the slower one, within the slack."""
    story = Story().pod(1.0).cordon(cordon_t).bind(BIND_T).cordon(BIND_T + 1.0, on=False)
    assert label(check, ended(story)) == expected


def test_event_received_before_an_action_occurred_before_it() -> None:
    action = Moment("action-step", {"id": "begin", "step": "begun"})
    story = Story().pod(1.0).bind(2.0).cordon(BIND_T - 0.1)
    story.say(BIND_T, "action", id="begin", text="", step="begun").cordon(BIND_T + 1.0, on=False)
    assert label(DELETED.after(moments.first_after(CORDONED, after=action), SOON), ended(story)) == "conforms"


@pytest.mark.parametrize(("by", "expected"), [("log of one", "conforms"), ("log of other", TOO_LOADED)])
def test_only_lines_of_one_log_are_in_order_whatever_their_times(by: str, expected: str) -> None:
    retry, started = (
        Moment("told", {"by": source, "what": what})
        for source, what in (("log of one", "retry"), (by, "start"))
    )
    story = Story().tell("retry", BIND_T - 0.1, by="log of one").tell("start", BIND_T, by=by)
    story.tell("retry", BIND_T + 1.0, by="log of one")
    for source in {"log of one", by}:
        story.hear(50.0, source, 0.0)
    assert label(moments.first_after(retry, after=started).after(started, SOON), story) == expected


# Losses reported by a recording: they prove nothing, and other losses do not matter.


LOG = "log of kubelet"
ALL = "the log was cut"
SIGTERM = witnessed.sigterm(POD)
COLLECTED_T, ENDS_T = 59.0, 60.0


def message(what: str) -> Moment:
    return Moment("told", {"by": LOG, "what": what})


ANCHOR, END, EVENT, TRY = message("ANCHOR"), message("END"), message("EVENT"), message("TRY")
SPAN: Mapping[str, Any] = {"after": ANCHOR, "until": END}
TWO_S = windows.WindowSpec("toleration", {"toleration_s": 2.0})
APART = windows.WindowSpec("toleration", {"toleration_s": 9.6})
P_2 = moments.written("pods", {"metadata": {"name": "p-2"}})


def telling(*words: tuple[str, float]) -> Story:
    story = Story().sentinel(1.0).renewals(2.0, ENDS_T)
    for what, t in words:
        story.tell(what, t, by=LOG)
    return story


def lines(text: str) -> list[tuple[str, float]]:
    """Read a log such as `ANCHOR 19, TRY 20 22 24, END 40`: messages with their times (s)."""
    messages = (part.split() for part in text.split(", "))
    return [(what, float(t)) for what, *times in messages for t in times]


def verdict_with(story: Story, check: Check, *lost: Lost) -> Verdict:
    history = story.hear(COLLECTED_T, LOG, 0.0, lost).fence(ENDS_T).history()
    return judge(CLAIM, check, history, configuration())


def words(what: str, *times: float) -> list[tuple[str, float]]:
    return [(what, t) for t in times]


def left(log: str) -> Story:
    """Record what is left of a log, and what the other sources tell of a Node, a pod and a lock."""
    story = telling(*lines(log)).condition(15.0, "Unknown").condition(17.0, "True").pod(30.0, "p-2")
    return story.looks(20.0, 24.0, "x", 1.0).looks(25.0, 39.0, "y", 1.0)


IN_TIME, SOON_AFTER = EVENT.after(ANCHOR, windows.toleration(10.0)), EVENT.after(ANCHOR, windows.up_to(3.0))
UNTOUCHED = UNKNOWN.never_after(ANCHOR, windows.absence(5.0))
LOCKED_X = observations.shown_throughout("locks", NODE, "x", ANCHOR, END)
NEXT_SOON = moments.first_after(EVENT, after=ANCHOR).after(ANCHOR, windows.up_to(3.0))
RATED = repeated.spaced(TRY, TWO_S, at_least=5, **SPAN)
SLOWING = repeated.doubled(TRY, 2.0, 8.0, takes_s=0.2, at_least=4, **SPAN)
BURSTING = repeated.in_bursts((TRY, 5), apart=APART, at_least=2, **SPAN)
TWENTIES, FORTIES = "20 20.1 20.2 20.3 20.4", "40 40.1 40.2 40.3 40.4"
LOST: Mapping[str, tuple[Check, str, float, float]] = {
    "a true lateness": (IN_TIME, "ANCHOR 20, EVENT 30", 20.0, 30.0),
    "a false lateness": (SOON_AFTER, "ANCHOR 20, EVENT 30", 20.0, 30.0),
    "an early event": (IN_TIME, "ANCHOR 20, EVENT 30", 17.0, 19.0),
    "the first anchor": (UNTOUCHED, "ANCHOR 30", 0.0, 30.0),
    "one of a rate": (RATED, "ANCHOR 19, TRY 20 22 24 28 30 32 34, END 35", 24.0, 28.0),
    "one of doubled waits": (SLOWING, "ANCHOR 19, TRY 20 22 26 42 50, END 51", 26.0, 42.0),
    "one of a burst": (
        BURSTING,
        f"ANCHOR 19, TRY {TWENTIES} 30 30.1 30.3 30.4 {FORTIES}, END 55",
        30.1,
        30.3,
    ),
    "the first end of a count": (repeated.counted(P_2, 1, 1, **SPAN), "ANCHOR 19, END 40", 19.0, 40.0),
    "the first end of a state": (LOCKED_X, "ANCHOR 19, END 40", 19.0, 40.0),
    "the first of what comes next": (NEXT_SOON, "ANCHOR 20, EVENT 30", 20.0, 30.0),
}
"""A check, a log that suffices for its verdict, and the time in which a line was lost (s)."""


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("has_time", [True, False])
def test_reported_loss_proves_nothing(name: str, has_time: bool) -> None:
    check, log, since_t, until_t = LOST[name]
    story = left(log)
    if has_time:
        story.hear(COLLECTED_T, LOG, 0.0, [Lost(since_t, until_t, ALL)])
    else:
        # As earlier versions recorded it.
        story.say(COLLECTED_T, "heard", by=LOG, error_s=0.0, unsure=ALL)
    verdict = judge(CLAIM, check, story.fence(ENDS_T).history(), configuration())
    assert (verdict.label, ALL in verdict.reason) == (GAP, True)


@pytest.mark.parametrize("name", LOST)
def test_loss_at_another_time_does_not_matter(name: str) -> None:
    check, log, _since_t, _until_t = LOST[name]
    without = verdict_with(left(log), check)
    assert verdict_with(left(log), check, Lost(55.5, 58.0, ALL)) == without
    assert without.outcome in ("conforms", "deviates")


def test_loss_before_an_action_does_not_matter_to_later_events() -> None:
    """A log was truncated at 10 s; a kubelet was restarted at 18 s."""
    action = Moment("action-step", {"id": "again", "step": "begun"})
    check = EVENT.after(moments.first_after(ANCHOR, after=action), windows.up_to(3.0))
    for since_t, expected in ((0.0, CONFORMS), (12.0, GAP)):
        story = telling(*lines("ANCHOR 20, EVENT 22")).say(18.0, "action", id="again", text="", step="begun")
        assert verdict_with(story, check, Lost(since_t, since_t + 7.0, ALL)).label == expected


def test_possibly_lost_anchor_is_a_gap() -> None:
    assert verdict_with(telling(("EVENT", 22)), SOON_AFTER).label == "unproven: no-anchor"
    assert verdict_with(telling(("EVENT", 22)), SOON_AFTER, Lost(10.0, 12.0, ALL)).label == GAP


def test_probe_pod_alive_at_collection_has_no_end() -> None:
    check = witnessed.last_sign(POD).after(SIGTERM, windows.grace_period(10))
    for collected_t, last, expected in (
        (30.1, "beat", GAP),
        (31.0, "beat", CONFORMS),
        (30.1, "exits", CONFORMS),
    ):
        story = Story().tell("SIGTERM", 20.0).beats(20.2, 30.0, period_s=BEAT_S / 2)
        assert label(check, story.tell(last, 30.05).hear(collected_t)) == expected


def test_lifetime_is_not_proven_by_a_source_with_losses() -> None:
    check = observations.stays_alive(POD, moments.recording_began(), HEALING)
    for lost, expected in (((), CONFORMS), ((Lost(20, 21, ALL),), GAP), ((Lost(45, 46, ALL),), CONFORMS)):
        story = Story().fault(1.0, "planned", "injecting", "injected").beats(0.1, 50.0)
        assert label(check, story.fault(40.0, "healing").hear(50.0, lost=lost)) == expected


# Threads that ended


SHOWN = observations.not_listed("locks", NODE, "Unknown", HEALING)


def observed() -> Story:
    return partition().looks(0.3, 39.8, "Running").fault(40.0, "healing", "healed")


@pytest.mark.parametrize(
    ("about", "lost"),
    [
        ({}, [DETECTION, EVICTION, SHOWN]),
        ({"by": "lab"}, [DETECTION, EVICTION, SHOWN]),
        ({"what": "locks", "subject": NODE}, [SHOWN]),
        ({"what": "locks", "subject": "another"}, []),
    ],
)
def test_ended_thread_makes_its_observations_unproven(
    about: Mapping[str, str], lost: Sequence[Check]
) -> None:
    for check in (DETECTION, EVICTION, SHOWN):
        story = observed().say(30.0, "broken", error="KeyError: 'a'", **about)
        verdict = judge(CLAIM, check, story.fence(50.0).history(), configuration())
        assert verdict.label == (GAP if check in lost else "conforms"), verdict.reason


# Every check, with a source that was cut, torn, or read too early


RATE = windows.formula("period", "2", "2 - slack", "2.3 + slack")
PAUSE = windows.formula("period", "4", "4 - slack", "4.2 + slack")
SPACED = repeated.spaced(TRY, RATE, at_least=2, **SPAN)
DOUBLED = repeated.doubled(TRY, 1.0, 4.0, takes_s=0.2, at_least=4, **SPAN)
EXAMPLES = int(os.environ.get("NODEPROOF_EXAMPLES", "300")) // 10
OBSERVATIONS = [Observation(name, "figure", NODE, None) for name in ("one", "other")]
EVERY: Mapping[str, Sequence[Check]] = {
    "after": [
        EVENT.after(ANCHOR, windows.up_to(6.0)),
        EVENT.after(ANCHOR, windows.toleration(8.0)),
        UNKNOWN.after(ANCHOR, windows.up_to(6.0)),
        moments.first_after(EVENT, after=ANCHOR).after(END, windows.up_to(6.0)),
        EVENT.after(moments.all_of(ANCHOR, END), windows.up_to(6.0)),
    ],
    "never": [
        EVENT.never_after(ANCHOR, windows.absence(8.0)),
        UNKNOWN.never_after(ANCHOR, windows.absence(5.0)),
        EVENT.never_after(ANCHOR, windows.absence_including_anchor(5.0)),
    ],
    "counted": [repeated.counted(TRY, 2, 4, **SPAN), repeated.counted(P_2, 1, 1, **SPAN)],
    "spaced": [SPACED],
    "doubled": [repeated.doubled(TRY, 2.0, 8.0, takes_s=0.2, at_least=4, **SPAN)],
    "in-bursts": [
        repeated.in_bursts((TRY, 2), apart=RATE, at_least=1, **SPAN),
        repeated.in_bursts((TRY, 2), apart=RATE, at_least=1, lasting_s=0.2, **SPAN),
    ],
    "outweighs": [
        repeated.writes_more_than(
            moments.changed("pods", POD, "status.phase", NAMESPACE),
            moments.changed("leases", NODE, "spec.renewTime", "kube-node-lease"),
            0.5,
            **SPAN,
        )
    ],
    "shown-throughout": [LOCKED_X],
    "listed": [observations.listed("locks", NODE, "x", ANCHOR, END)],
    "not-listed": [observations.not_listed("locks", NODE, "y", END)],
    "amounts-to": [observations.amounts_to("figures", NODE, 1, 1, ANCHOR, END)],
    "lives-on": [
        observations.stays_alive(LOG, ANCHOR, END),
        observations.stays_alive(LOG, moments.recording_began(), HEALING),
    ],
    "renewals": [RENEWALS],
    "default": [default_of("node-monitor-grace-period")],
    "in-order": [timing.in_order(UNKNOWN, moments.condition_became(NODE, "Ready", "True"))],
    "shows": [observations.shows(OBSERVATIONS[0], 1)],
    "same-as": [observations.same_as(OBSERVATIONS[1], OBSERVATIONS[0])],
    "grew": [observations.grew(OBSERVATIONS[0], OBSERVATIONS[1], 1, 1)],
    "grew-with": [observations.grew_with(OBSERVATIONS[0], OBSERVATIONS[1], TRY)],
    "has-writes": [observations.has_writes(OBSERVATIONS[0])],
    "watched-writes": [observations.watched_writes(NODE)],
    "lasted": [observations.lasted("cut")],
    "known-while-heard": [invariants.known_while_heard()],
    "evicted-when-due": [invariants.evicted_when_due()],
    "bound-to-open-nodes": [invariants.bound_to_open_nodes()],
    "settled": [invariants.settled(windows.up_to(20.0), after=HEALING)],
    "taints-follow-ready": [invariants.taints_follow_ready()],
    "evicted-in-time": [invariants.evicted_in_time()],
    "removed-by-kubelet": [invariants.removed_by_kubelet()],
    "taint-rate-kept": [invariants.taint_rate_kept()],
    "exempt-pods-stay": [invariants.exempt_pods_stay()],
    "lifecycle-advances": [invariants.lifecycle_advances()],
    "budget-kept": [invariants.budget_kept("probe-1", 0)],
    "endpoints-follow-pods": [invariants.endpoints_follow_pods()],
    "replicas-available": [
        invariants.replicas_available(windows.up_to(20.0), after=HEALING, replicas={"probe-1": 0})
    ],
}
Words = Sequence[tuple[str, float]]
TENTHS = st.integers(50, 500).map(lambda tenths: tenths / 10)


WAITS = ((), (2.1,) * 4, (2.1, 4.1, 8.1, 8.1), (0.1, 2.2, 0.1, 2.2, 0.1, 2.2, 0.1))


@st.composite
def logs(draw: st.DrawFn) -> Words:
    """Draw a log: an anchor, an event, tries as a check may want them, and an end.

    It may have more of these at any time, and signs of life.
    """
    anchor_t = draw(st.integers(60, 200)) / 10
    waits = draw(st.sampled_from(WAITS))
    tries = [anchor_t + 1.0 + sum(waits[:number]) for number in range(len(waits) + 1)] if waits else []
    event_t = anchor_t + draw(st.sampled_from((-3.0, 3.0, 8.5, 15.0)))
    end_t = max([*tries, anchor_t + 8.0]) + 1.1
    more = draw(st.lists(st.tuples(st.sampled_from(("ANCHOR", "END", "EVENT", "TRY")), TENTHS), max_size=3))
    lives = [number / 2 for number in range(1, 110)] if draw(st.booleans()) else []
    events = [("ANCHOR", anchor_t), ("EVENT", event_t), ("END", end_t), *more]
    return sorted([*events, *words("TRY", *tries), *words("beat", *lives)], key=lambda word: word[1])


@dataclass(frozen=True)
class Damage:
    """A damaged log: lines from one time to another (s) are gone."""

    how: str
    since_t: float
    until_t: float

    def left(self, log: Words) -> Words:
        return [word for word in log if not self.since_t < word[1] < self.until_t]

    def lost(self, left: Words) -> Sequence[Lost]:
        """Return the loss as a source reports it, from the line before to the line after."""
        if self.how == "early":
            return ()
        before = [t for _what, t in left if t <= self.since_t]
        after = [t for _what, t in left if t >= self.until_t]
        return [Lost(before[-1] if before else 0.0, after[0] if after else COLLECTED_T, ALL)]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Words, Damage]:
    """Draw a log, and how at least one of its lines was lost."""
    log = draw(logs())
    _what, t = draw(st.sampled_from([word for word in log if word[0] != "beat"]))
    how = draw(st.sampled_from(("cut", "torn", "early")))
    more_s = draw(st.sampled_from((0.05, 1.0, 5.0)))
    since_t = -1.0 if how == "cut" else t - more_s
    return log, Damage(how, since_t, COLLECTED_T if how == "early" else t + more_s)


def around() -> Sequence[Entry]:
    """Return the entries of all other sources."""
    story = telling().fault(4.0, "planned", "armed", "injecting", "injected")
    story.look(4.5, "1", moments.WRITE)
    for moment in OBSERVATIONS:
        story.look(5.0, "1", "figure", NODE, id=moment.id)
    story.pod(5.5).condition(20.0, "Unknown").condition(22.0, "True").pod(30.0, "p-2").mark(31.0, "a", "b")
    story.looks(1.0, 34.0, "x", 1.0).looks(35.0, 54.0, "y", 1.0)
    for t in range(1, 55):
        story.look(float(t), "1" if t < 35 else "2", "figures")
    story.fault(50.0, "healing", "healed")
    return tuple(story.fence(ENDS_T).entries)


AROUND = around()


def judged(check: Check, log: Words, collected_t: float, lost: Sequence[Lost]) -> Verdict:
    unsure = [loss.to_json() for loss in lost]
    collection = Entry(collected_t, "heard", {"by": LOG, "error_s": 0.0, "unsure": unsure})
    words = [Entry(t, "told", {"by": LOG, "what": what}) for what, t in log]
    return judge(CLAIM, check, History.of([*AROUND, *words, collection]), configuration())


def test_every_check_has_a_case() -> None:
    assert EVERY.keys() == checks._CHECKS.keys()
    assert {check.name for several in EVERY.values() for check in several} == EVERY.keys()


@pytest.mark.parametrize("name", EVERY)
def test_check_survives_its_json(name: str) -> None:
    for check in EVERY[name]:
        assert Check.from_json(json.loads(json.dumps(check.to_json()))) == check


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=EXAMPLES)
@given(case=damaged())
def test_damaged_source_only_makes_verdicts_unproven(name: str, case: tuple[Words, Damage]) -> None:
    log, damage = case
    left = damage.left(log)
    collected_t = max(damage.since_t, 0.5) if damage.how == "early" else COLLECTED_T
    for check in EVERY[name]:
        truth = judged(check, log, COLLECTED_T, ())
        verdict = judged(check, left, collected_t, damage.lost(left))
        assert truth.code != "check-failed", truth.reason
        assert verdict.outcome in (truth.outcome, "unproven"), (truth.reason, verdict.reason)


@pytest.mark.parametrize("lost", [Lost(30.1, 30.5, ALL), Lost(50.1, 50.5, ALL)])
def test_lines_lost_within_the_slack_of_an_end_are_missed(lost: Lost) -> None:
    """The clock of a witness is up to 0.6 s off: a line stamped outside may belong to the time."""
    story = Story().pod(1.0, node=NODE).cordon(31.0).cordon(50.0, on=False)
    check = repeated.counted(SIGTERM, 0, 0, after=CORDONED, until=UNCORDONED)
    assert label(check, story.hear(58.0, error_s=0.6, lost=[lost])) == GAP


def test_witness_and_watch_have_no_common_order() -> None:
    """The stamp of a message may be late by the error of its clock, also in a moment after another one."""
    story = Story().pod(1.0).beats(5.0, 50.0).condition(30.0, "Unknown").tell("SIGTERM", 30.1)
    check = moments.first_after(SIGTERM, after=UNKNOWN).never_after(UNKNOWN, windows.absence(10.0))
    assert label(check, story.hear(58.0, error_s=0.3)) == GAP


# A stall or late sentinel affects only evidence near it.


PERIOD_S, LATE_S = 2.0, 4.0
UNKNOWN_T, EVICTED_T = 31.4, 41.7
"""Approximate times at which the node of `partition` becomes Unknown and its pod leaves."""
UNKNOWN_ON_TIME_T = last_renewal_t() + GRACE_S + 0.6
IN_BOTH_LABS = pytest.mark.parametrize("lab", ["process", "libvirt"])
LOCKED = observations.listed("locks", NODE, "kubelet", UNKNOWN, moments.pod_deletion("nodeproof", POD))
LIVES = observations.stays_alive(POD, UNKNOWN, moments.pod_deletion("nodeproof", POD))


def measured(story: Story, until_t: float = 89.0) -> Story:
    """Add measurements of an idle host to the whole history."""
    for number in range(1, int(until_t / PERIOD_S)):
        story.sentinel(number * PERIOD_S, 0.01)
        story.say(number * PERIOD_S + 0.02, "stall", late_s=0.005)
    return story


def revised_label(story: Story, check: Check, lab: str = "process", fence_t: float = 90.0) -> str:
    history = revised(story.fence(fence_t).history())
    return judge(CLAIM, check, history, configuration(lab=lab)).label


def waited(story: Story, waits: Mapping[float, float]) -> Story:
    """Record CPU waits of the lab (s) by their ends."""
    for t, waited_s in waits.items():
        story.say(t, "stall", late_s=0.0, waited_s=waited_s, by=LAB)
    return story


def in_a_row(many: int, waited_s: float, until_t: float = 0.0, every_s: float = 0.2) -> dict[float, float]:
    """Return as many CPU waits, of which the last ends at `until_t`."""
    return {until_t - every_s * number: waited_s for number in range(many)}


def stalled(story: Story, until_t: float) -> Story:
    return story.say(until_t, "stall", late_s=LATE_S)


def late_sentinel(story: Story, until_t: float) -> Story:
    return story.sentinel(until_t - LATE_S, LATE_S)


def lab_stalled(story: Story, until_t: float) -> Story:
    return story.say(until_t, "stall", late_s=LATE_S, by=LAB)


@pytest.mark.parametrize("disturb", [stalled, lab_stalled, late_sentinel])
@pytest.mark.parametrize(
    ("check", "until_t", "expected"),
    [
        (DETECTION, last_renewal_t() + 1.0, TOO_LOADED),
        (DETECTION, 27.0, CONFORMS),
        (DETECTION, UNKNOWN_T, TOO_LOADED),
        (DETECTION, UNKNOWN_T + LATE_S - 0.5, TOO_LOADED),
        (DETECTION, UNKNOWN_T + LATE_S + 5.0, CONFORMS),
        (TAINT, 27.0, CONFORMS),
        (TAINT, UNKNOWN_T + 0.3, TOO_LOADED),
        (TAINT, 38.0, CONFORMS),
        (EVICTION, 27.0, CONFORMS),
        (EVICTION, 38.0, CONFORMS),
        (EVICTION, EVICTED_T, TOO_LOADED),
    ],
)
def test_time_is_too_loaded_if_its_anchor_or_event_is_affected(
    disturb: Callable[[Story, float], Story], check: Check, until_t: float, expected: str
) -> None:
    assert revised_label(disturb(measured(partition()), until_t), check) == expected


def looked_at_node() -> Story:
    story = partition().tell("started", 2.0).beats(2.0, 80.0).hear(85.0)
    return story.look(35.0, "kubelet", id="look")


def untainted() -> Story:
    return Story().fault(20.0, "planned", "armed", "injected").condition(UNKNOWN_T, "Unknown")


@pytest.mark.parametrize(
    ("story", "check", "until_t", "expected"),
    [
        *(
            (recovered(), STAYS, t, label)
            for t, label in ((26, CONFORMS), (33, TOO_LOADED), (41.5, CONFORMS))
        ),
        *((renewing(until_t=89.5), RENEWALS, t, TOO_LOADED) for t in (6, 15, 60)),
        *(
            (untainted(), TAINT, t, label)
            for t, label in ((26, "deviates"), (32, TOO_LOADED), (60, "deviates"))
        ),
        *(
            (looked_at_node(), check, t, label)
            for check in (LOCKED, LIVES)
            for t, label in ((26, CONFORMS), (36, TOO_LOADED), (49, CONFORMS))
        ),
    ],
)
def test_verdict_is_too_loaded_if_any_part_of_its_span_is_affected(
    story: Story, check: Check, until_t: float, expected: str
) -> None:
    assert revised_label(stalled(measured(story), until_t), check) == expected


def test_renewals_on_an_idle_host_conform() -> None:
    assert revised_label(measured(renewing(until_t=89.5)), RENEWALS) == CONFORMS


@pytest.mark.parametrize("check", [LOCKED, LIVES])
@pytest.mark.parametrize(("sentinel_t", "expected"), [(41.0, CONFORMS), (34.0, TOO_LOADED)])
def test_disturbances_of_a_state_count_together_only_if_near(
    check: Check, sentinel_t: float, expected: str
) -> None:
    story = measured(looked_at_node()).say(32.5, "stall", late_s=0.6, by=LAB)
    assert revised_label(story.sentinel(sentinel_t - 0.35, 0.35), check) == expected


def test_late_anchor_has_the_watch_latency_of_one_event() -> None:
    story = measured(Story()).sentinel(30.0, 0.12).say(30.0, "stall", late_s=0.3, by=LAB)
    late_s = late_anchor_s(revised(story.history()), configuration(), Span.at(30.0))
    assert late_s == pytest.approx(0.1 + 0.3 + 0.005)


def test_calm_measurement_after_a_stall_does_not_hide_it() -> None:
    """The whole host was suspended from 10.5 to 13.5, and the cluster had to catch up."""
    story = measured(Story()).say(13.5, "stall", late_s=3.0).say(13.6, "stall", late_s=0.0)
    for t, touched in ((8.0, False), (9.0, True), (12.0, True), (13.7, True), (15.0, True), (16.0, False)):
        assert (slack_s(story.history(), configuration(), [Span.at(t)]) > 3.0) is touched, t


OF_LAB: Mapping[str, str] = {"by": LAB}
THREE = {35.5: 0.6, 37.0: 0.6, 38.4: 0.6}


@pytest.mark.parametrize(
    ("eviction_s", "stalls", "by", "expected"),
    [
        (14.0, {38.0: 1.2}, {}, TOO_LOADED),
        (14.0, {38.0: 0.2}, {}, "deviates"),
        # It affects neither the anchor nor the event, and would not explain the time.
        (2.0, {26.0: 1.2}, OF_LAB, "deviates"),
        # They do not add up: anchor and event are each late by the stall at their own time.
        (10.1, THREE, {}, CONFORMS),
        (10.1, THREE, OF_LAB, CONFORMS),
        (13.0, THREE, {}, "deviates"),
        (13.0, THREE, OF_LAB, "deviates"),
        # A lab that stalled for the grace period has lost its nodes.
        (14.0, {15.0: GRACE_S - 2.0}, OF_LAB, TOO_LOADED),
        (14.0, {15.0: GRACE_S - 5.0}, OF_LAB, "deviates"),
        (14.0, {8.0: 5.0, 15.0: 6.0}, OF_LAB, TOO_LOADED),
        (14.0, {8.0: 5.0, 18.0: 6.0}, OF_LAB, "deviates"),
        (14.0, {80.0: GRACE_S}, OF_LAB, "deviates"),
    ],
)
def test_stalls_excuse_only_what_they_may_have_delayed(
    eviction_s: float, stalls: Mapping[float, float], by: Mapping[str, str], expected: str
) -> None:
    story = measured(partition(eviction_s=eviction_s))
    for until_t, late_s in stalls.items():
        story.say(until_t, "stall", late_s=late_s, **by)
    assert revised_label(story, EVICTION) == expected


def test_sentinel_counts_from_its_first_sending() -> None:
    story = Story()
    sent = {"nodes": 4.0, "pods": 9.0}
    story.say(9.5, "sentinel", value="s", sent_t=sent, latency_s={"nodes": 0.1, "pods": 0.5})
    story.say(20.0, "sentinel", value="t", sent_t={"nodes": 19.0}, latency_s={"nodes": 1.0})
    base = slack_s(story.history(), configuration(), [])
    assert slack_s(story.history(), configuration(), [Span.at(3.0)]) - base == pytest.approx(2 * 0.48)
    assert slack_s(story.history(), configuration(), [Span.at(10.0)]) - base == pytest.approx(2 * 0.98)


def test_unmeasured_time_uses_the_slack_of_both_neighbours() -> None:
    story = Story()
    for t, took in ((10.0, 0.1), (20.0, 0.3), (30.0, 0.2)):
        story.say(t, "stall", late_s=took)
    history = story.history()
    base = slack_s(history, configuration(), [])
    for t, took in {5.0: 0.1, 15.0: 0.3, 19.9: 0.3, 25.0: 0.3, 35.0: 0.2}.items():
        assert slack_s(history, configuration(), [Span.at(t)]) - base == pytest.approx(took)
    both = slack_s(history, configuration(), [Span.at(5.0), Span.at(35.0)])
    assert both - base == pytest.approx(0.2)
    assert slack_s(history, configuration()) - base == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("late_s", "waits", "expected"),
    [
        # Unlike slack they add up: no claim conforms because of them.
        (1.0, in_a_row(6, 0.2), TOO_LOADED),
        (1.0, in_a_row(1, 0.2), "deviates"),
        (1.0, in_a_row(6, 0.2, -5.0), "deviates"),
        (4.0, in_a_row(20, 0.2), TOO_LOADED),
        (4.0, in_a_row(20, 0.05), "deviates"),
        # It began less than a second before the event.
        (4.0, {9.5: 10.0}, "deviates"),
        (4.0, {6.0: 10.0}, TOO_LOADED),
    ],
)
@IN_BOTH_LABS
def test_cpu_waits_before_late_event_excuse_it(
    lab: str, late_s: float, waits: Mapping[float, float], expected: str
) -> None:
    """The waits end at times relative to the event."""
    eviction_s = TOLERATION_S + late_s
    event_t = UNKNOWN_ON_TIME_T + 0.15 + eviction_s
    story = waited(
        measured(partition(eviction_s=eviction_s)), {event_t + t: wait for t, wait in waits.items()}
    )
    assert revised_label(story, EVICTION, lab) == expected


BOUND_WAITED, PERIOD_WAITED = (
    (TAINT, UNKNOWN_ON_TIME_T, {"taint_s": 10.0}),
    (EVICTION, UNKNOWN_ON_TIME_T + 0.15, {"eviction_s": 17.0}),
)


@pytest.mark.parametrize(
    ("check", "anchor_t", "late", "lab", "after_s", "expected"),
    [
        (*BOUND_WAITED, "libvirt", 0.2, TOO_LOADED),
        (*PERIOD_WAITED, "libvirt", 0.2, TOO_LOADED),
        # Work within a bound may be under way all the time. A timer runs, and ends on time.
        (*BOUND_WAITED, "libvirt", 2.7, TOO_LOADED),
        (*PERIOD_WAITED, "libvirt", 2.7, "deviates"),
        # The waits came before the anchor.
        (*BOUND_WAITED, "libvirt", -6.0, "deviates"),
        (*PERIOD_WAITED, "libvirt", -6.0, "deviates"),
        (*BOUND_WAITED, "process", 0.2, "deviates"),
        (*PERIOD_WAITED, "process", 0.2, "deviates"),
    ],
)
def test_cpu_waits_after_anchor_excuse_late_event_on_machine(
    check: Check, anchor_t: float, late: Mapping[str, float], lab: str, after_s: float, expected: str
) -> None:
    """The event is 7 s late, by its bound or its period."""
    waits = in_a_row(8, 0.9, anchor_t + after_s + 7.2, every_s=0.9)
    assert revised_label(waited(measured(partition(**late)), waits), check, lab) == expected


CPU_WAITS = st.lists(
    st.tuples(st.floats(0.02, 3.0), st.one_of(st.floats(0.0, 2.0), st.floats(2.0, 12.0))), max_size=10
)
"""CPU waits: the time since the last one, and the length (s)."""
DELAYS_S, BEFORE_S = st.sampled_from([0.0, 0.2]), st.floats(-3.0, 0.0)
AT_WORK_S, LAST_T = 0.1, 80.0
"""How long a controller works at the start and the end of a timer, on an idle machine."""


def waiting(story: Story, since_t: float, waits: Sequence[tuple[float, float]], delay_s: float) -> list[Span]:
    """Record CPU waits from a time on, each at its end or `delay_s` later."""
    spans, t = list[Span](), since_t
    for awake_s, wait_s in waits:
        if t + awake_s + wait_s + delay_s > LAST_T:
            break
        spans.append(Span(t + awake_s, t + awake_s + wait_s))
        t = spans[-1].until_t
        story.say(t + delay_s, "stall", late_s=0.0, waited_s=wait_s, by=LAB)
    return spans


def done_t(since_t: float, work_s: float, waits: Sequence[Span]) -> float:
    """Return when work that begins at `since_t` is done, if it rests during waits."""
    until_t = since_t + work_s
    for wait in waits:
        if wait.until_t > since_t and wait.since_t < until_t:
            until_t += wait.until_t - max(wait.since_t, since_t)
    return until_t


def assert_no_deviation(check: Check, story: Story, lab: str, until_t: float = 90.0) -> None:
    label = revised_label(measured(story, until_t - 1.0), check, lab, until_t)
    assert label in (CONFORMS, TOO_LOADED, GAP)


@IN_BOTH_LABS
@settings(max_examples=EXAMPLES)
@given(CPU_WAITS, st.floats(0.1, 8.0), DELAYS_S, BEFORE_S, st.one_of(st.none(), st.floats(8.3, 50.0)))
def test_work_delayed_by_cpu_waits_never_deviates(
    lab: str,
    waits: list[tuple[float, float]],
    work_s: float,
    delay_s: float,
    before_s: float,
    ends_s: float | None,
) -> None:
    """On a machine it takes all of the time, in a process it begins late. The recording may end before."""
    story = Story().condition(UNKNOWN_T, "Unknown")
    spans = waiting(story, UNKNOWN_T + before_s, waits, delay_s)
    began_t, length_s = (UNKNOWN_T, work_s)
    if lab == "process":
        began_t, length_s = (UNKNOWN_T + work_s - AT_WORK_S, AT_WORK_S)
    done = done_t(began_t, length_s, spans)
    until_t = 90.0 if ends_s is None else UNKNOWN_T + ends_s
    # A wait is recorded only once it is over.
    until_t = max([until_t, *(span.until_t + delay_s for span in spans if span.since_t < until_t)])
    if done < until_t:
        story.taint(done)
    story.entries = [entry for entry in story.entries if entry.t <= until_t]
    assert_no_deviation(TAINTED.after(UNKNOWN, windows.up_to(8.0)), story, lab, until_t + 0.1)


@IN_BOTH_LABS
@settings(max_examples=EXAMPLES)
@given(CPU_WAITS, CPU_WAITS, DELAYS_S, BEFORE_S)
def test_timer_delayed_by_cpu_waits_never_deviates(
    lab: str,
    first: list[tuple[float, float]],
    last: list[tuple[float, float]],
    delay_s: float,
    before_s: float,
) -> None:
    """A machine may also wait while the timer is started."""
    story = Story().pod(1.0, node=NODE).taint(UNKNOWN_T)
    starting = [] if lab == "process" else waiting(story, UNKNOWN_T + before_s, first, delay_s)
    due_t = done_t(UNKNOWN_T, AT_WORK_S, starting) + TOLERATION_S
    since_t = max(due_t + before_s, story.entries[-1].t)
    story.evict(done_t(due_t, AT_WORK_S, waiting(story, since_t, last, delay_s)))
    assert_no_deviation(EVICTION, story, lab, LAST_T + 10.0)


@IN_BOTH_LABS
@settings(max_examples=EXAMPLES)
@given(CPU_WAITS, st.floats(0.0, 0.1), DELAYS_S, BEFORE_S)
def test_forbidden_event_due_before_its_end_never_deviates(
    lab: str, waits: list[tuple[float, float]], ahead_s: float, delay_s: float, before_s: float
) -> None:
    """A pod's eviction was under way when its node became Ready."""
    story = Story().pod(1.0, node=NODE).condition(10.0, "Unknown")
    spans = waiting(story, UNKNOWN_T + before_s, waits, delay_s)
    evicted_t = done_t(UNKNOWN_T - ahead_s, AT_WORK_S, spans)
    if evicted_t < UNKNOWN_T:
        story.evict(evicted_t)
    story.condition(UNKNOWN_T, "True")
    if evicted_t >= UNKNOWN_T:
        story.evict(evicted_t)
    assert_no_deviation(DELETION.never_after(READY, windows.absence(30.0)), story, lab)


TICKS: Mapping[str, tuple[Check, Sequence[float], bool]] = {
    "a ticker": (SPACED, [2.0] * 20, True),
    "a timer": (SPACED, [2.0] * 20, False),
    "doubled": (DOUBLED, [1.0, 2.0] + [4.0] * 10, False),
    "bursts": (repeated.in_bursts((TRY, 2), apart=PAUSE, at_least=1, **SPAN), [0.1, 3.9] * 10, True),
    "renewals": (RENEWALS, [RENEW_S * 1.02] * 40, False),
}
"""A check, the times from one event to the next (s), and whether a delay leaves the next event in place."""


@IN_BOTH_LABS
@pytest.mark.parametrize("name", TICKS)
@settings(max_examples=EXAMPLES)
@given(CPU_WAITS, DELAYS_S)
def test_series_delayed_by_cpu_waits_never_deviates(
    name: str, lab: str, waits: list[tuple[float, float]], delay_s: float
) -> None:
    check, gaps_s, is_ticker = TICKS[name]
    if name == "renewals":
        story = Story().renewals(20.0 - 9 * RENEW_S * 1.02, 18.5)
    else:
        story = telling(("ANCHOR", 19), ("END", 45))
    spans = waiting(story, 19.5, waits, delay_s)
    due_t = came_t = 20.0
    for gap_s in (0.0, *gaps_s):
        due_t = (due_t if is_ticker else came_t) + gap_s
        came_t = done_t(max(due_t, came_t), AT_WORK_S / 2, spans)
        if came_t > 89.9:
            break
        if name == "renewals":
            story.renew(came_t)
        else:
            story.tell("TRY", came_t, by=LOG)
    assert_no_deviation(check, story.hear(88.5, by=LOG), lab)


@IN_BOTH_LABS
@settings(max_examples=EXAMPLES)
@given(CPU_WAITS, DELAYS_S, BEFORE_S, st.sampled_from(["late", "never", "forbidden"]))
# Waits that would make the window admit double the bound.
@example([(0.1, 3.0)], 0.0, 0.0, "never")
@example([(0.1, 10.0)], 0.0, 0.0, "never")
def test_cpu_waits_excuse_no_longer_delay(
    lab: str, waits: list[tuple[float, float]], delay_s: float, before_s: float, what: str
) -> None:
    """Two of them may be recorded so late that they seem to overlap the anchor or the event."""
    story = Story().pod(1.0, node=NODE).taint(20.0)
    spans = waiting(story, 20.0 + before_s, waits, delay_s)
    added_s = 1.2 + sum(span.until_t - max(span.since_t, 20.0) for span in spans if span.until_t > 20.0)
    assume(added_s < 40.0)
    check = DELETION.after(TAINTED, windows.up_to(3.0))
    if what == "forbidden":
        check, added_s = DELETION.never_after(TAINTED, windows.absence(60.0)), added_s - 3.0
    if what != "never":
        story.evict(23.0 + added_s)
    assert revised_label(measured(story), check, lab) == "deviates"


@IN_BOTH_LABS
@pytest.mark.parametrize(("fence_t", "expected"), [(UNKNOWN_T + 6.0, TOO_LOADED), (90.0, "deviates")])
def test_cpu_waits_after_window_excuse_longer_absence(fence_t: float, expected: str, lab: str) -> None:
    story = measured(Story().condition(UNKNOWN_T, "Unknown"), fence_t)
    waited(story, {UNKNOWN_T + 2.0: 3.0, UNKNOWN_T + 4.5: 2.0})
    assert revised_label(story, TAINTED.after(UNKNOWN, windows.up_to(2.0)), lab, fence_t) == expected


TENS = windows.formula("period", "10", "10 - slack", "10 + 0.6 + slack")
SINGLE, PAIRS = (repeated.in_bursts((TRY, times), apart=PAUSE, at_least=1, **SPAN) for times in (1, 2))
SPLIT = (20, 20.1, 24, 24.1, 28, 31.0, 35, 35.1, 39, 39.1)


@IN_BOTH_LABS
@pytest.mark.parametrize(
    ("check", "times", "waits", "expected"),
    [
        # The third was due at 40: it is late, and too near the fourth.
        (
            repeated.spaced(TRY, TENS, at_least=2, **SPAN),
            (20, 30, 46, 50, 60),
            {43.4: 3.4, 43.5: 3.0},
            TOO_LOADED,
        ),
        # The fourth waited, and comes too soon before the next.
        (SPACED, (20, 22, 24, 26.44, 28, 30), {26.34: 0.7}, TOO_LOADED),
        (SPACED, (20, 22, 24, 26.44, 28, 30), {21.9: 0.7}, "deviates"),
        (DOUBLED, (20, 21, 23, 27.44, 31), {27.34: 0.7}, TOO_LOADED),
        (DOUBLED, (20, 21, 23, 27.44, 31), {20.9: 0.7}, "deviates"),
        # Waits explain one late event, and not the other.
        (SPACED, (20, 23, 25, 27, 30, 32), {22.9: 0.9}, "deviates"),
        (SPACED, (20, 23, 25, 27, 30, 32), {29.9: 0.9}, "deviates"),
        (SPACED, (20, 23, 25, 27, 30, 32), {22.9: 0.9, 29.9: 0.9}, TOO_LOADED),
        (DOUBLED, (20, 22.4, 24.4, 28.4, 43.4, 47.4), {22.3: 1.3}, "deviates"),
        (DOUBLED, (20, 22.4, 24.4, 28.4, 43.4, 47.4), {22.3: 1.3, 43.3: 10.9}, TOO_LOADED),
        (SINGLE, (20, 30, 34, 44, 48), {29.9: 6.0}, "deviates"),
        (SINGLE, (20, 30, 34, 44, 48), {29.9: 6.0, 43.9: 6.0}, TOO_LOADED),
        # A try that waited left the burst, or joined the next, or made two bursts one.
        (PAIRS, SPLIT, {}, "deviates"),
        (PAIRS, SPLIT, {30.95: 2.9}, TOO_LOADED),
        (PAIRS, SPLIT, {30.95: 0.3}, "deviates"),
        (PAIRS, SPLIT, {39.9: 2.9}, "deviates"),
        (PAIRS, (20, 20.1, 24, 27.9, 28, 28.1, 32, 32.1), {27.9: 3.8}, TOO_LOADED),
        (PAIRS, (20, 20.1, 24, 27.9, 28, 28.1, 32, 32.1), {24.0: 3.8}, "deviates"),
        (PAIRS, (20, 20.1, 27.0, 27.1, 28, 28.1, 32, 32.1), {27.0: 3.0}, TOO_LOADED),
    ],
)
def test_each_event_in_series_has_own_cpu_waits(
    check: Check, times: Sequence[float], waits: Mapping[float, float], expected: str, lab: str
) -> None:
    assert series_label(check, times, waits, lab) == expected


@IN_BOTH_LABS
@pytest.mark.parametrize(("waited_s", "expected"), [(1.2, TOO_LOADED), (0.6, "deviates")])
def test_cpu_wait_may_have_delayed_a_renewal(waited_s: float, expected: str, lab: str) -> None:
    story = Story().renewals(0.9, 10.0).renewals(0.9 + 5 * RENEW_S * 1.02 + 1.2, 89.5)
    assert revised_label(measured(waited(story, {12.3: waited_s})), RENEWALS, lab) == expected


@IN_BOTH_LABS
@pytest.mark.parametrize(
    ("waits", "event_t", "expected"),
    [
        ({32.2: 2.1}, 32.3, TOO_LOADED),
        ({31.2: 1.1, 32.3: 1.1}, 32.3, TOO_LOADED),
        # They came before the anchor, after the event, or just before the time was over.
        ({30.1: 5.0}, 32.3, "deviates"),
        ({60.1: 3.0}, 32.3, "deviates"),
        ({61.2: 3.0}, 58.0, "deviates"),
    ],
)
def test_cpu_waits_excuse_a_forbidden_event_that_was_due_before(
    waits: Mapping[float, float], event_t: float, expected: str, lab: str
) -> None:
    story = Story().pod(1.0, node=NODE).condition(20.0, "Unknown").condition(30.0, "True").evict(event_t)
    check = DELETION.never_after(READY, windows.absence(30.0))
    assert revised_label(measured(waited(story, waits)), check, lab) == expected


@pytest.mark.parametrize(("calm_s", "expected"), [(1.9, TOO_LOADED), (2.6, "deviates")])
def test_machine_timer_starts_after_calm_period(calm_s: float, expected: str) -> None:
    """Many waits, of several processes at once, take no longer than one of them."""
    story = measured(partition(eviction_s=20.0))
    for until_s in (1.1, 2.4 + calm_s):
        waited(story, in_a_row(8, 0.9, UNKNOWN_ON_TIME_T + 0.15 + until_s + 0.35, every_s=0.05))
    assert revised_label(story, EVICTION, "libvirt") == expected


def waiting_all_the_time(until_t: float) -> Story:
    story = Story().condition(UNKNOWN_T, "Unknown")
    waiting(story, UNKNOWN_T - 2.0, [(0.0, 0.2)] * round((until_t - UNKNOWN_T + 2.0) / 0.2), 0.0)
    return story


@IN_BOTH_LABS
@pytest.mark.parametrize("event_s", [6.5, 60.0])
@pytest.mark.parametrize(("waited_s", "expected"), [(8.0, TOO_LOADED), (4.0, "deviates")])
def test_cpu_waits_excuse_late_and_missing_events_alike(
    event_s: float, waited_s: float, expected: str, lab: str
) -> None:
    story = waiting_all_the_time(UNKNOWN_T + waited_s)
    if event_s < 8.0:
        story.taint(UNKNOWN_T + event_s)
    check = TAINTED.after(UNKNOWN, windows.up_to(2.0))
    assert revised_label(measured(story, UNKNOWN_T + 7.0), check, lab, UNKNOWN_T + 8.0) == expected


@IN_BOTH_LABS
def test_recording_ends_despite_permanent_cpu_waits(lab: str) -> None:
    """Within double the bound, and reading the waits takes no long time."""
    check, settings = TAINTED.after(UNKNOWN, windows.up_to(8.0)), configuration(lab=lab)
    left_s = []
    for passed_s in (10.0, 16.0, 17.0, 1200.0):
        history = waiting_all_the_time(UNKNOWN_T + passed_s).history()
        before_s = time.process_time()
        left_s.append(undecided_s(check, history, settings, UNKNOWN_T + passed_s))
        assert time.process_time() - before_s < 1.0
    assert [left is not None and left > 0.0 for left in left_s] == [True, True, False, False]


def test_end_of_a_window_is_computed_alike_everywhere() -> None:
    """5.7 - 1.1 s is not later than the window's end, which is too wide; 1.1 s + the end is before 5.7."""
    story = Story().condition(1.1, "Unknown").taint(5.7).fence(90.0)
    verdict = run(TAINTED.after(UNKNOWN, windows.up_to(2.0)), story, WindowContext(configuration(), 2.6))
    assert verdict.label == TOO_LOADED


def series_label(
    check: Check, times: Sequence[float], waits: Mapping[float, float], lab: str = "process"
) -> str:
    """Return the label of tries at these times; `waits` are CPU waits (s) by their ends."""
    end_t = max(times[-1] + 0.9, 35.0)
    story = measured(telling(("ANCHOR", 19), *words("TRY", *times), ("END", end_t)))
    return revised_label(waited(story, waits).hear(88.0, by=LOG), check, lab)


@pytest.mark.parametrize(
    ("by", "before_s", "expected"),
    [
        # Each process of the lab through which a change passes may meet another stall.
        ({"by": LAB}, 2.6, TOO_LOADED),
        # A timer that runs meanwhile does not: it ends on time.
        ({"by": LAB}, 8.0, "deviates"),
        # The harness received the event at the end of the stall in which it came.
        ({}, 2.6, "deviates"),
        ({}, 8.0, "deviates"),
    ],
)
def test_stalls_in_a_row_add_up_only_for_a_change_in_the_lab(
    by: dict[str, str], before_s: float, expected: str
) -> None:
    """The event is 2.2 s late: more than the longest stall and slack allow, less than the sum."""
    story, first_t = measured(partition(eviction_s=12.2)), UNKNOWN_ON_TIME_T + 0.15 + 12.2 - before_s
    for number in range(4):
        # It is awake for 0.1 s in between: each stall is below the limit, all together take 2.4 s.
        story.say(first_t + 0.6 + 0.7 * number, "stall", late_s=0.6, **by)
    assert revised_label(story, EVICTION) == expected


@pytest.mark.parametrize(("lab", "added_s"), [("process", 1.2), ("libvirt", 1.8)])
def test_wait_is_extended_by_recorded_cpu_wait(lab: str, added_s: float) -> None:
    """By its window plus the waits: on machines, also by the first."""
    story, settings, now_t = Story().fault(10.0, "injected"), configuration(lab=lab), 16.0
    check = UNKNOWN.after(moments.fault_step("cut", "injected"), windows.up_to(5.0))
    idle_s = undecided_s(check, measured(story, now_t).history(), settings, now_t)
    assert idle_s is not None and idle_s < 0.0
    waited(story, in_a_row(3, 0.2, 10.6) | in_a_row(6, 0.2, now_t + idle_s))
    loaded_s = undecided_s(check, story.history(), settings, now_t)
    assert loaded_s is not None and loaded_s - idle_s == pytest.approx(added_s)


@pytest.mark.parametrize("by", [{"by": LAB}, {}])
@pytest.mark.parametrize(
    ("until_t", "late_s", "expected"), [(31.0, 12.0, TOO_LOADED), (12.0, 4.0, "deviates")]
)
def test_stall_may_have_delayed_the_last_heartbeats(
    by: dict[str, str], until_t: float, late_s: float, expected: str
) -> None:
    """Detection was possible from 12 s before on."""
    story = Story().renewals(0.0, 18.0).renew(31.1).condition(31.4, "Unknown")
    story.say(until_t, "stall", late_s=late_s, **by)
    assert revised_label(measured(story), DETECTION) == expected


@pytest.mark.parametrize(
    ("latencies_s", "calmest"),
    [
        ((0.01, 0.02), 9.0),
        ((0.01, 0.02, 0.03), 0.03),
        ((0.5, 0.01, 0.02, 0.03), 0.03),
        ((0.01, 0.5, 0.02, 0.4, 0.3), 0.4),
    ],
)
def test_calibration_is_the_worst_of_the_calmest_latencies(
    latencies_s: tuple[float, ...], calmest: float
) -> None:
    assert calmest_s(latencies_s, 3, none_s=9.0) == calmest
