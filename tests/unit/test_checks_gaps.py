"""Gaps of watches that hide or delay an anchor, or an event before it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeproof.checks import moments, observations, repeated
from nodeproof.checks.judge import judge
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check, Moment
from tests.unit.histories import NAMESPACE, NODE, POD, Story, configuration
from tests.unit.sample_checks import CLAIM, UNKNOWN

GAP = "unproven: gap"
UNORDERED = "unproven: host-too-loaded"
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
    story.cordon(CORDON_T)
    for tenth in range(int(CORDON_T) * 10, 500, 10):
        story.look(tenth / 10 + 0.5, "x" if tenth < UNCORDON_T * 10 else "y")
    return story.evict(CORDON_T + 2.0).cordon(UNCORDON_T, on=False)


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
    for t in range(20, 50):
        story.look(t + 0.5, "x" if t < 24 else "y")
    story.pod(45.0).evict(46.0)
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


@pytest.mark.parametrize(("cordon_t", "expected"), [(BIND_T - 0.5, "conforms"), (BIND_T - 0.1, UNORDERED)])
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


@pytest.mark.parametrize(("by", "expected"), [("log of one", "conforms"), ("log of other", UNORDERED)])
def test_only_lines_of_one_log_are_in_order_whatever_their_times(by: str, expected: str) -> None:
    retry, started = (
        Moment("told", {"by": source, "what": what})
        for source, what in (("log of one", "retry"), (by, "start"))
    )
    story = Story().tell("retry", BIND_T - 0.1, by="log of one").tell("start", BIND_T, by=by)
    story.tell("retry", BIND_T + 1.0, by="log of one")
    for source in {"log of one", by}:
        story.say(50.0, "heard", by=source, error_s=0.0, unsure="", node="", boot_id="")
    assert label(moments.first_after(retry, after=started).after(started, SOON), story) == expected
