"""Losses reported by a recording: they prove nothing, and other losses do not matter."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeproof.checks import (
    checks,
    endpoint_invariants,
    invariants,
    moments,
    observations,
    pod_invariants,
    recovery,
    repeated,
    timing,
    witnessed,
)
from nodeproof.checks.judge import judge
from nodeproof.checks.settings import default_of
from nodeproof.model import window as windows
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check, Moment, Observation
from nodeproof.model.pod_log import BEAT_S, Lost
from nodeproof.model.verdict import Verdict
from tests.unit.histories import NAMESPACE, NODE, POD, Story, configuration, partition
from tests.unit.sample_checks import CLAIM, DETECTION, EVICTION, HEALING, RENEWALS, UNKNOWN

LOG = "log of kubelet"
ALL = "the log was cut"
SIGTERM = witnessed.sigterm(POD)
COLLECTED_T, ENDS_T = 59.0, 60.0


def message(what: str) -> Moment:
    return Moment("told", {"by": LOG, "what": what})


ANCHOR, END, EVENT, TRY = message("ANCHOR"), message("END"), message("EVENT"), message("TRY")
SPAN = {"after": ANCHOR, "until": END}
TWO_S = windows.WindowSpec("toleration", {"toleration_s": 2.0})
APART = windows.WindowSpec("toleration", {"toleration_s": 9.6})
P_2 = moments.written("pods", {"metadata": {"name": "p-2"}})


def telling(*words: tuple[str, float]) -> Story:
    story = Story().sentinel(1.0).renewals(2.0, ENDS_T)
    for what, t in words:
        story.tell(what, t, by=LOG)
    return story


def verdict_with(story: Story, check: Check, *lost: Lost, collected_t: float = COLLECTED_T) -> Verdict:
    story.hear(collected_t, LOG, 0.0, lost)
    return judge(CLAIM, check, story.fence(ENDS_T).history(), configuration())


def words(what: str, *times: float) -> list[tuple[str, float]]:
    return [(what, t) for t in times]


@dataclass(frozen=True)
class LossCase:
    """A check, a log that suffices for its verdict, and the time in which a line was lost."""

    check: Check
    left: Sequence[tuple[str, float]]
    since_t: float
    until_t: float
    more: Callable[[Story], None] = lambda _story: None


def unknown_for_a_while(story: Story) -> None:
    story.condition(15.0, "Unknown")
    story.condition(17.0, "True")


def a_pod(story: Story) -> None:
    story.pod(30.0, "p-2")


def looked_at(story: Story) -> None:
    for t in range(20, 40):
        story.look(float(t), "x" if t < 25 else "y")


BURSTS = [t + number / 10 for t in (20, 30, 40) for number in range(5) if (t, number) != (30, 2)]
LOST: Mapping[str, LossCase] = {
    "a true lateness": LossCase(
        EVENT.after(ANCHOR, windows.toleration(10.0)), [("ANCHOR", 20), ("EVENT", 30)], 20.0, 30.0
    ),
    "a false lateness": LossCase(
        EVENT.after(ANCHOR, windows.up_to(3.0)), [("ANCHOR", 20), ("EVENT", 30)], 20.0, 30.0
    ),
    "an early event": LossCase(
        EVENT.after(ANCHOR, windows.toleration(10.0)), [("ANCHOR", 20), ("EVENT", 30)], 17.0, 19.0
    ),
    "the first anchor": LossCase(
        UNKNOWN.never_after(ANCHOR, windows.absence(5.0)), [("ANCHOR", 30)], 0.0, 30.0, unknown_for_a_while
    ),
    "one of a rate": LossCase(
        repeated.spaced(TRY, TWO_S, at_least=5, **SPAN),
        [("ANCHOR", 19), *words("TRY", 20, 22, 24, 28, 30, 32, 34), ("END", 35)],
        24.0,
        28.0,
    ),
    "one of doubled waits": LossCase(
        repeated.doubled(TRY, 2.0, 8.0, takes_s=0.2, at_least=4, **SPAN),
        [("ANCHOR", 19), *words("TRY", 20, 22, 26, 42, 50), ("END", 51)],
        26.0,
        42.0,
    ),
    "one of a burst": LossCase(
        repeated.in_bursts((TRY, 5), apart=APART, at_least=2, **SPAN),
        [("ANCHOR", 19), *words("TRY", *BURSTS), ("END", 55)],
        30.1,
        30.3,
    ),
    "the first end of a count": LossCase(
        repeated.counted(P_2, 1, 1, **SPAN), [("ANCHOR", 19), ("END", 40)], 19.0, 40.0, a_pod
    ),
    "the first end of a state": LossCase(
        observations.shown_throughout("locks", NODE, "x", ANCHOR, END),
        [("ANCHOR", 19), ("END", 40)],
        19.0,
        40.0,
        looked_at,
    ),
    "the first of what comes next": LossCase(
        moments.first_after(EVENT, after=ANCHOR).after(ANCHOR, windows.up_to(3.0)),
        [("ANCHOR", 20), ("EVENT", 30)],
        20.0,
        30.0,
    ),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("has_time", [True, False])
def test_reported_loss_proves_nothing(name: str, has_time: bool) -> None:
    case = LOST[name]
    story = telling(*case.left)
    case.more(story)
    if has_time:
        verdict = verdict_with(story, case.check, Lost(case.since_t, case.until_t, ALL))
    else:
        # As earlier versions recorded it.
        story.say(COLLECTED_T, "heard", by=LOG, error_s=0.0, unsure=ALL)
        verdict = judge(CLAIM, case.check, story.fence(ENDS_T).history(), configuration())
    assert (verdict.label, ALL in verdict.reason) == ("unproven: gap", True)


@pytest.mark.parametrize("name", LOST)
def test_loss_at_another_time_does_not_matter(name: str) -> None:
    case = LOST[name]
    verdicts = []
    for lost in ((), (Lost(55.5, 58.0, ALL),)):
        story = telling(*case.left)
        case.more(story)
        verdicts.append(verdict_with(story, case.check, *lost))
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].outcome in ("conforms", "deviates")


def test_loss_before_an_action_does_not_matter_to_later_events() -> None:
    """A log was truncated at 10 s; a kubelet was restarted at 18 s."""
    action = Moment("action-step", {"id": "again", "step": "begun"})
    check = EVENT.after(moments.first_after(ANCHOR, after=action), windows.up_to(3.0))
    for since_t, expected in ((0.0, "conforms"), (12.0, "unproven: gap")):
        story = telling(("ANCHOR", 20), ("EVENT", 22))
        story.say(18.0, "action", id="again", text="", step="begun")
        assert verdict_with(story, check, Lost(since_t, since_t + 7.0, ALL)).label == expected


def test_possibly_lost_anchor_is_a_gap() -> None:
    check = EVENT.after(ANCHOR, windows.up_to(3.0))
    assert verdict_with(telling(("EVENT", 22)), check).label == "unproven: no-anchor"
    assert verdict_with(telling(("EVENT", 22)), check, Lost(10.0, 12.0, ALL)).label == "unproven: gap"


def test_probe_pod_alive_at_collection_has_no_end() -> None:
    check = witnessed.last_sign(POD).after(witnessed.sigterm(POD), windows.grace_period(10))
    for collected_t, last, expected in (
        (30.1, "beat", "unproven: gap"),
        (31.0, "beat", "conforms"),
        (30.1, "exits", "conforms"),
    ):
        story = Story().tell("SIGTERM", 20.0).beats(20.2, 30.0, period_s=BEAT_S / 2)
        story.tell(last, 30.05)
        story.hear(collected_t)
        assert judge(CLAIM, check, story.fence(ENDS_T).history(), configuration()).label == expected


def test_lifetime_is_not_proven_by_a_source_with_losses() -> None:
    check = observations.stays_alive(POD, moments.recording_began(), HEALING)
    for lost, expected in (
        ((), "conforms"),
        ((Lost(20.0, 21.0, ALL),), "unproven: gap"),
        ((Lost(45.0, 46.0, ALL),), "conforms"),
    ):
        story = Story().fault(1.0, "planned", "injecting", "injected").beats(0.1, 50.0)
        story.fault(40.0, "healing")
        story.hear(50.0, lost=lost)
        assert judge(CLAIM, check, story.fence(ENDS_T).history(), configuration()).label == expected


# Threads that ended


SHOWN = observations.not_listed("locks", NODE, "Unknown", HEALING)


def observed() -> Story:
    story = partition()
    for number in range(80):
        story.look(number / 2 + 0.3, "Running")
    story.fault(40.0, "healing", "healed")
    return story


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
        assert verdict.label == ("unproven: gap" if check in lost else "conforms"), verdict.reason


# Every check, with a source that was cut, torn, or read too early


RATE = windows.formula("period", "2", "2 - slack", "2.3 + slack")
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
    "spaced": [repeated.spaced(TRY, RATE, at_least=2, **SPAN)],
    "doubled": [repeated.doubled(TRY, 2.0, 8.0, takes_s=0.2, at_least=4, **SPAN)],
    "in-bursts": [repeated.in_bursts((TRY, 2), apart=RATE, at_least=1, **SPAN)],
    "outweighs": [
        repeated.writes_more_than(
            moments.changed("pods", POD, "status.phase", NAMESPACE),
            moments.changed("leases", NODE, "spec.renewTime", "kube-node-lease"),
            0.5,
            **SPAN,
        )
    ],
    "shown-throughout": [observations.shown_throughout("locks", NODE, "x", ANCHOR, END)],
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
    "between": [observations.between(OBSERVATIONS[0], 1, 1)],
    "grew": [observations.grew(OBSERVATIONS[0], OBSERVATIONS[1], 1, 1)],
    "lasted": [observations.lasted("cut")],
    "known-while-heard": [invariants.known_while_heard()],
    "evicted-when-due": [invariants.evicted_when_due()],
    "bound-to-open-nodes": [invariants.bound_to_open_nodes()],
    "settled": [recovery.settled(windows.up_to(20.0), after=HEALING)],
    "taints-follow-ready": [invariants.taints_follow_ready()],
    "evicted-in-time": [pod_invariants.evicted_in_time()],
    "removed-by-kubelet": [pod_invariants.removed_by_kubelet()],
    "endpoints-follow-pods": [endpoint_invariants.endpoints_follow_pods()],
    "replicas-available": [
        recovery.replicas_available(windows.up_to(20.0), after=HEALING, replicas={"probe-1": 0})
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
    for moment in OBSERVATIONS:
        story.look(5.0, "1", "figure", NODE, id=moment.id)
    story.pod(5.5)
    story.condition(20.0, "Unknown")
    story.condition(22.0, "True")
    story.pod(30.0, "p-2")
    story.mark(31.0, "a", "b")
    for t in range(1, 55):
        story.look(float(t), "x" if t < 35 else "y")
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


@pytest.mark.parametrize("lost", [Lost(30.1, 30.5, ALL), Lost(60.1, 60.5, ALL)])
def test_lines_lost_within_the_slack_of_an_end_are_missed(lost: Lost) -> None:
    """The clock of a witness is up to 0.6 s off: a line stamped outside may belong to the time."""
    story = (
        Story().pod(1.0, node=NODE).cordon(31.0).cordon(60.0, on=False).hear(70.0, error_s=0.6, lost=[lost])
    )
    check = repeated.counted(SIGTERM, 0, 0, after=moments.cordoned(NODE), until=moments.uncordoned(NODE))
    assert judge(CLAIM, check, story.fence(71.0).history(), configuration()).label == "unproven: gap"


def test_witness_and_watch_have_no_common_order() -> None:
    """The stamp of a message may be late by the error of its clock, also in a moment after another one."""
    story = Story().pod(1.0).beats(5.0, 60.0).condition(30.0, "Unknown").tell("SIGTERM", 30.1)
    check = moments.first_after(SIGTERM, after=UNKNOWN).never_after(UNKNOWN, windows.absence(10.0))
    history = story.hear(70.0, error_s=0.3).fence(71.0).history()
    assert judge(CLAIM, check, history, configuration()).label == "unproven: gap"
