"""Moments, observations and probe pods: what conforms, what deviates, and what proves nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeproof.checks import checks, heartbeats, moments, observations, repeated, witnessed
from nodeproof.checks.checks import run_check
from nodeproof.checks.moments import find
from nodeproof.checks.observations import grew, grew_with, has_writes, same_as, shows, watched_writes
from nodeproof.checks.settings import default_of
from nodeproof.checks.shapes import Occurrence
from nodeproof.cluster.published import counting_since_s, total
from nodeproof.model import window as windows
from nodeproof.model.claim import Constant
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, Configuration
from nodeproof.model.judgment import Check, Moment, Observation
from nodeproof.model.pod_log import BEAT, HOOK_BEGAN, HOOK_ENDED, SIGTERM, STARTED
from nodeproof.model.slack import Span, slack_s
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import WindowContext
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    RESOURCES,
    WALL_OFFSET_S,
    Story,
    configuration,
    last_renewal_t,
    partition,
)
from tests.unit.sample_checks import CLAIM, DEFAULT, RENEWALS, SHOWN, assert_verdict, renewing, run

# Moments: each is found at its time, and nothing else.


UNKNOWN = moments.condition_became(NODE, "Ready", "Unknown")
TAINTED = moments.taint_added(NODE, UNREACHABLE, "NoExecute")
UNTAINTED = moments.taint_removed(NODE, UNREACHABLE, "NoExecute")
DELETION = moments.pod_deletion(NAMESPACE, POD)
BOUND = moments.pod_bound(NAMESPACE, POD)
MARKED = moments.pod_failed(NAMESPACE, POD, "Terminated", "gone")
REPORTED = moments.condition_reported(NODE, "Ready", "False", "R", "says it")
EVERY = [
    UNKNOWN,
    TAINTED,
    UNTAINTED,
    moments.last_heartbeat(NODE, UNKNOWN),
    moments.cordoned(NODE),
    moments.uncordoned(NODE),
    moments.conditions_changed(NODE),
    DELETION,
    moments.pod_removed(NAMESPACE, POD),
    moments.pod_created(NAMESPACE, POD),
    moments.pod_bound(NAMESPACE, POD),
    moments.pod_unschedulable(NAMESPACE, POD),
    moments.event_reported("TaintManagerEviction", "Pod", POD, "Marking"),
    moments.fault_step("cut", "injected"),
    moments.condition_reported(NODE, "Ready", "False", "KubeletNotReady", "node is shutting down"),
    moments.pod_failed(NAMESPACE, POD, "Terminated", "Pod was terminated."),
    witnessed.sigterm(POD),
    witnessed.pre_stop_began(POD),
    witnessed.pre_stop_ended(POD),
    witnessed.last_sign(POD),
    witnessed.logged(NODE, "kubelet.service", "running with swap on"),
    witnessed.machine_ended(NODE),
    witnessed.kubelet_restarted(NODE),
]


def time_of(story: Story, moment: Moment, after_t: float = -math.inf) -> float | None:
    event = find(story.history(), moment, after_t)
    return event.t if event else None


def whole_life() -> Story:
    """Record every event once."""
    story = Story().status(1.0).pod(2.0).unfit(3.0).bind(4.0)
    story.fault(5.0, "planned", "armed", "injected")
    story.condition(6.0, "Unknown")
    story.taint(7.0)
    story.cordon(8.0)
    story.event(9.0, "TaintManagerEviction", POD, "Marking for deletion")
    story.mark(9.5, "Terminated", "Pod was terminated.")
    story.evict(10.0)
    story.remove(11.0, "pods", NAMESPACE, POD)
    story.untaint(12.0)
    story.cordon(13.0, on=False)
    story.condition(14.0, "True", type_="DiskPressure")
    story.condition(15.0, "False", reason="KubeletNotReady", message="[..., node is shutting down]")
    for t, what in ((15.1, HOOK_BEGAN), (15.2, HOOK_ENDED), (15.3, SIGTERM), (15.4, BEAT)):
        story.tell(what, t)
    story.tell("err: running with swap on is not supported", 15.5, by=f"{NODE}/kubelet.service")
    story.hear(15.6)
    story.say(15.7, "component", name=f"node-{NODE}", node=NODE, status="ended by itself", expected=False)
    story.say(15.8, "machine", node=NODE, step="kubelet-restarted")
    return story


WHEN = [6.0, 7.0, 12.0, 1.0, 8.0, 13.0, 14.0, 10.0, 11.0, 2.0, 4.0, 3.0, 9.0, 5.02]
WHEN += [15.0, 9.5, 15.3, 15.1, 15.2, 15.4, 15.5, 15.7, 15.8]


@pytest.mark.parametrize(("moment", "t"), list(zip(EVERY, WHEN, strict=True)), ids=str)
def test_every_moment_is_found_once(moment: Moment, t: float) -> None:
    history = whole_life().history()
    event = find(history, moment)
    assert event is not None
    assert event.t == pytest.approx(t)
    if moment.name != "last-heartbeat":
        assert find(history, moment, event.t) == event
        assert find(history, moment, event.t + 0.001) is None


@pytest.mark.parametrize("moment", EVERY, ids=str)
def test_listed_state_is_not_an_occurrence(moment: Moment) -> None:
    """Objects found at the start of a recording changed before it."""
    story = whole_life()
    late = Story()
    late.entries = late.entries[:1]
    for resource in story.resources:
        story.list(20.0, resource)
        late.entries.append(story.entries[-1])
    assert find(late.history(), moment) is None


def test_other_objects_do_not_count() -> None:
    story = Story().pod(1.0, "pod-2").evict(2.0, "pod-2").condition(3.0, "Unknown", OTHER)
    story.taint(4.0, node=OTHER)
    story.event(5.0, "TaintManagerEviction", "pod-2", "Marking")
    for moment in EVERY:
        assert find(story.history(), moment) is None


def recreated_untainted() -> Story:
    """Remove a tainted Node, and create another of its name."""
    story = Story().taint(1.0)
    status = story.object("nodes", "", NODE)["status"]
    return story.remove(2.0, "nodes", "", NODE).change(3.0, "nodes", "", NODE, {"spec": {}, "status": status})


@pytest.mark.parametrize(
    ("story", "moment", "after_t"),
    [
        (Story().taint(1.0, NOT_READY).taint(2.0, effect="NoSchedule"), TAINTED, 0.0),
        (recreated_untainted(), UNTAINTED, 0.0),
        # The deletion was at 2 s, not at the kubelet's last status or the removal.
        (Story().pod(1.0).evict(2.0).bind(9.0).remove(10.0, "pods", NAMESPACE, POD), DELETION, 3.0),
        (Story().pod(1.0).bind(2.0).unfit(8.0), BOUND, 3.0),
        *(
            (Story().pod(1.0).mark(2.0, *of_pod), MARKED, 0.0)
            for of_pod in (
                ("Shutdown", "gone", "Failed"),
                ("Terminated", "other", "Failed"),
                ("Terminated", "gone", "Succeeded"),
            )
        ),
        *(
            (Story().condition(1.0, status, reason=reason, message=message), REPORTED, 0.0)
            for status, reason, message in (
                ("True", "R", "says it"),
                ("False", "other", "says it"),
                ("False", "R", "says something else"),
            )
        ),
        (Story().tell(SIGTERM, 1.0, by="pod-2"), witnessed.sigterm(POD), 0.0),
        (Story().tell(SIGTERM, 1.0, by="pod-2"), witnessed.last_sign(POD), 0.0),
    ],
)
def test_similar_event_is_not_the_moment(story: Story, moment: Moment, after_t: float) -> None:
    assert find(story.history(), moment, after_t) is None


def recreated_pod() -> Story:
    return Story().pod(1.0, node=NODE).remove(2.0, "pods", NAMESPACE, POD).pod(3.0, node=OTHER)


def booted() -> Story:
    """Report boot ids; the last by a Node that was removed and created again."""
    story = Story().boot(1.0, "one").boot(2.0, "one").boot(3.0, "").boot(4.0, "two")
    again = story.object("nodes", "", NODE)
    again["metadata"].pop("uid")
    again["status"]["nodeInfo"]["bootID"] = "three"
    return story.remove(5.0, "nodes", "", NODE).change(6.0, "nodes", "", NODE, again)


def readdressed() -> Story:
    """Set and remove a field of a Node."""
    story = Story()
    for t, value in ((1.0, "a"), (2.0, None), (3.0, None), (4.0, "b")):
        spec = {"podCIDR": value} if value else {}
        story.change(t, "nodes", "", NODE, {**story.object("nodes", "", NODE), "spec": spec})
    return story


def powered_off() -> Story:
    steps = ((OTHER, "powered-off"), (NODE, "booted"), (NODE, "powered-off"))
    story = Story()
    for t, (node, step) in enumerate(steps, 1):
        story.say(float(t), "machine", node=node, step=step)
    return story


BOOTED, ADDRESS = moments.boot_id_changed(NODE), moments.changed("nodes", NODE, "spec.podCIDR")


@pytest.mark.parametrize(
    ("story", "moment", "after_t", "t"),
    [
        # A pod that is removed at once was deleted.
        (Story().pod(1.0).remove(2.0, "pods", NAMESPACE, POD), DELETION, 0.0, 2.0),
        (recreated_pod(), moments.pod_created(NAMESPACE, POD), 2.5, 3.0),
        (recreated_pod(), BOUND, 2.5, 3.0),
        (powered_off(), witnessed.machine_ended(NODE), 0.0, 3.0),
        # A partition delays a request; after the healing an old renewTime arrives.
        (
            Story().renew(10.0).condition(22.5, "Unknown").renew(12.0, received_t=40.0),
            moments.last_heartbeat(NODE, UNKNOWN),
            0.0,
            10.0,
        ),
        *((booted(), BOOTED, after_t, t) for after_t, t in ((0.0, 4.0), (4.5, 6.0), (6.5, None))),
        *(
            (readdressed(), ADDRESS, after_t, t)
            for after_t, t in ((0.5, 1.0), (1.5, 2.0), (2.5, 4.0), (4.5, None))
        ),
    ],
)
def test_moment_is_found_at_its_time(story: Story, moment: Moment, after_t: float, t: float | None) -> None:
    assert time_of(story, moment, after_t) == (None if t is None else pytest.approx(t))


def test_increased_event_count_is_another_occurrence() -> None:
    story = Story().event(1.0, "Evicted", POD, "Marking")
    name = next(entry for entry in story.entries if entry.kind == "watch").data["object"]["metadata"]["name"]
    story.change(5.0, "events", NAMESPACE, name, story.object("events", NAMESPACE, name))
    assert time_of(story, moments.event_reported("Evicted", "Pod", POD, "Mark"), 2.0) == 5.0
    assert find(story.history(), moments.event_reported("Evicted", "Pod", POD, "Cancelling")) is None


@pytest.mark.parametrize(
    ("story", "t", "heartbeat"),
    [
        (partition(), last_renewal_t(), "lease"),
        (Story().renew(10.0).status(12.0).condition(25.0, "Unknown"), 12.0, "status"),
    ],
)
def test_last_heartbeat_is_the_last_renewal_or_status(story: Story, t: float, heartbeat: str) -> None:
    event = find(story.history(), moments.last_heartbeat(NODE, UNKNOWN))
    assert event is not None
    assert event.t == pytest.approx(t)
    assert event.detail["heartbeat"] == heartbeat


def test_node_change_without_heartbeat_does_not_count() -> None:
    story = Story().renew(10.0).cordon(12.0).condition(25.0, "Unknown")
    story.condition(30.0, "True", type_="DiskPressure")
    beats = [(beat.t, beat.detail["heartbeat"]) for beat in heartbeats.heartbeats(story.history(), NODE)]
    assert [beat[1] for beat in beats] == ["lease", "lease"]
    assert beats[1][0] == pytest.approx(10.0)


def test_leases_are_read_by_the_clock_of_their_node() -> None:
    story = Story()
    story.entries = [entry for entry in story.entries if entry.kind != "clock"]
    story.say(0.5, "clock", node=NODE, offset_s=0.5, error_s=0.01)
    story.renew(10.0)
    story.renew(12.0)
    story.say(13.0, "clock", node=NODE, offset_s=0.7, error_s=0.3)
    times = [beat.t for beat in heartbeats.lease_renewals(story.history(), NODE)]
    assert times == [pytest.approx(-1.5), pytest.approx(9.5), pytest.approx(11.5)], (
        "no step between two readings"
    )


def test_rebooted_node_has_another_clock() -> None:
    story = Story().renew(10.0).say(12.0, "machine", node=NODE, step="booted").renew(20.0)
    story.say(21.0, "clock", node=NODE, offset_s=-3.0, error_s=0.01)
    story.say(21.0, "machine", node=OTHER, step="booted")
    story.renew(30.0)
    times = [beat.t for beat in heartbeats.lease_renewals(story.history(), NODE)]
    assert times[1:] == [pytest.approx(10.0), pytest.approx(23.0), pytest.approx(33.0)]


def test_unread_clock_is_estimated_from_the_fastest_renewal() -> None:
    """Thawed after 20 s with a clock that far behind: a reading before the correction proves nothing."""
    story = Story().renew(10.0).say(30.0, "machine", node=NODE, step="thawed")
    story.renew(11.0, received_t=31.02)
    story.renew(13.0, received_t=33.5)
    story.say(34.0, "machine", node=NODE, step="clock-setting")
    story.say(34.2, "clock", node=NODE, offset_s=-9.0, error_s=0.3)
    story.say(34.5, "machine", node=NODE, step="clock-set")
    story.say(36.0, "clock", node=NODE, offset_s=0.0, error_s=0.01)
    story.renew(35.0, received_t=35.02)
    times = [beat.t for beat in heartbeats.lease_renewals(story.history(), NODE)]
    assert times[1:] == [pytest.approx(10.0), pytest.approx(31.02), pytest.approx(33.02), pytest.approx(35.0)]


def test_other_change_of_a_lease_is_no_renewal() -> None:
    story = Story().renew(10.0)
    lease = story.object("leases", "kube-node-lease", NODE)
    story.change(11.0, "leases", "kube-node-lease", NODE, lease)
    assert len(list(heartbeats.lease_renewals(story.history(), NODE))) == 2


@pytest.mark.parametrize(
    ("moment", "t", "why"),
    [
        (DELETION, 0.5, "did not exist yet"),
        (DELETION, 9.0, ""),
        (DELETION, 10.0, "had already occurred"),
        (DELETION, 11.0, "was already removed"),
        (moments.pod_bound(NAMESPACE, POD), 3.5, ""),
        (moments.pod_bound(NAMESPACE, POD), 4.5, "had already occurred"),
        (TAINTED, 6.5, ""),
        (TAINTED, 7.5, "had already occurred"),
        (UNTAINTED, 7.5, ""),
        (moments.cordoned(NODE), 8.5, "had already occurred"),
        (UNKNOWN, 6.5, "had already occurred"),
        (moments.conditions_changed(NODE), 6.5, ""),
        (moments.conditions_changed("node-9"), 6.5, "did not exist yet"),
        (moments.pod_created(NAMESPACE, "pod-9"), 6.5, ""),
    ],
)
def test_impossible_moment_is_recognised(moment: Moment, t: float, why: str) -> None:
    assert moments.unable(whole_life().history(), moment, Span.at(t)).endswith(why)
    assert bool(moments.unable(whole_life().history(), moment, Span.at(t))) is bool(why)


def test_long_silence_is_a_moment() -> None:
    anchor = moments.last_heartbeat(NODE, UNKNOWN)

    def silent_t(story: Story, for_s: float = GRACE_S) -> float | None:
        event = moments.long_silence(story.history(), anchor, for_s)
        return event.t if event else None

    story = Story().renewals(2.0, 10.0).renewals(40.0, 50.0)
    assert silent_t(story) == pytest.approx(8.12)
    assert (silent_t(story, 60.0) or 0.0) > 40.0
    assert silent_t(partition()) is silent_t(Story((OTHER,))) is None


@pytest.mark.parametrize(
    ("story", "moment", "text"),
    [
        (
            partition(),
            UNKNOWN,
            "node node-1: Ready=Unknown, taints node.kubernetes.io/unreachable:NoExecute, unschedulable",
        ),
        (partition(), DELETION, "pod pod-1: phase Pending, node node-1, deletion 2023"),
        (whole_life(), DELETION, "removed"),
        (partition(), moments.pod_removed(NAMESPACE, "pod-9"), "pod pod-9: never seen"),
        (partition(), moments.fault_step("cut", "injected"), ""),
    ],
)
def test_last_state_is_readable_as_text(story: Story, moment: Moment, text: str) -> None:
    assert text in moments.last_state(story.history(), moment)


def test_last_message_of_a_probe_pod_is_reported() -> None:
    story = Story()
    assert moments.last_state(story.history(), witnessed.sigterm(POD)) == "pod-1: no messages"
    story.tell(BEAT, 1.0, 2.5)
    text = moments.last_state(story.history(), witnessed.sigterm(POD))
    assert text == "pod-1: 2 messages, last 'beat', 1.5 s after the first"


# Any field of any resource that was recorded


def test_any_field_can_be_a_moment() -> None:
    story = Story()
    story.change(
        1.0, "nodes", "", NODE, {**story.object("nodes", "", NODE), "spec": {"podCIDR": "10.0.0.0/24"}}
    )
    story.remove(2.0, "nodes", "", NODE)
    history = story.history()
    prefix = moments.became("nodes", NODE, {"spec": {"podCIDR": {"$prefix": "10."}}})
    another = moments.changed("nodes", NODE, "spec.podCIDR")
    removed = moments.removed("nodes", NODE)

    assert moments.find(history, prefix) == Occurrence(1.0)
    assert moments.resources(prefix) == ("nodes",)
    assert moments.unable(history, prefix, Span.at(1.5)).endswith("it had already occurred")
    assert moments.find(history, another) == Occurrence(1.0)
    assert moments.find(history, removed) == Occurrence(2.0)
    assert moments.last_state(history, removed).startswith("node node-1")
    assert "podCIDR" in str(prefix)


def test_any_write_of_any_object_is_a_moment() -> None:
    story = Story().renew(3.0)
    renewed = moments.written("leases", {"metadata": {"name": NODE}})
    assert time_of(story, renewed) == pytest.approx(3.0, abs=0.1)
    assert moments.unable(story.history(), renewed, Span.at(1.0)) == ""
    assert moments.last_state(story.history(), moments.created("leases", "other", "kube-node-lease")) == (
        "leases other: never seen"
    )


# Renewals, defaults and observations.


NOT_FOUND = {"status": 404, "body": {"kind": "Status", "message": "not found"}}
NO_CORDON = {"unschedulable": {"$present": False}}
ANSWER = {"status": 403, "body": {"message": "nodes is forbidden: no"}}
FIRST, SECOND = (Observation(name, "value", NODE, None) for name in ("first", "second"))
LATE = WindowContext(configuration(), 0.5)


def observed(story: Story, t: float, name: str, value: object, **more: float) -> Story:
    return story.look(t, value, "value", NODE, id=name, **more)


def judged(check: Check, **values: object) -> Verdict:
    story = Story()
    for at, (name, value) in enumerate(values.items()):
        observed(story, 10.0 + at, name, value)
    return run(check, story, LATE)


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
        ({"$not": {"$contains": "y"}}, ["x"], "unproven: gap"),
        ([{"spec": NO_CORDON}], [{"kind": "Status"}], "unproven: gap"),
        ([{"spec": NO_CORDON}], [{"kind": "Status"}, {"spec": {}}], "conforms"),
        # The reason for a missing field does not matter.
        ({"x": 1}, "no answer", "deviates"),
        ({"body": {"spec": {"x": 1}}}, NOT_FOUND, "deviates"),
        ({"body": {"message": {"$contains": "forbidden"}}}, {"status": 404, "body": {}}, "deviates"),
        # Another part decides.
        ({"status": 200, "body": {"spec": NO_CORDON}}, NOT_FOUND, "deviates"),
        ({"$not": {"status": 200, "body": {"spec": NO_CORDON}}}, NOT_FOUND, "conforms"),
        ({"status": {"$not": 200}}, NOT_FOUND, "conforms"),
        ({"body": {"kind": "Status", "details": {"$present": False}}}, NOT_FOUND, "conforms"),
        # A pattern of the whole value needs no parent.
        ({"$in": [None]}, None, "conforms"),
        ({"$present": False}, None, "conforms"),
        ({"$not": None}, None, "deviates"),
        ({"$contains": "0"}, 0, "conforms"),
    ],
)
def test_only_existing_parents_can_lack_a_field(pattern: object, value: object, label: str) -> None:
    assert judged(shows(FIRST, pattern), first=value).label == label


EMPTY_NODE = {"status": 200, "body": {"kind": "Node", "spec": {}, "metadata": {"labels": {"a": "b"}}}}


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


def test_invalid_pattern_is_refused() -> None:
    with pytest.raises(LookupError, match="matches everything"):
        judged(shows(FIRST, {}), first=ANSWER)


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
        started = {} if later_s is None else {"process_s": WALL_OFFSET_S - 100.0 + later_s * at}
        observed(story, 10.0 + at, name, value, **started)
    assert run(grew(FIRST, SECOND, 0, 3), story, LATE).label == label


def test_clock_step_is_no_process_start() -> None:
    """A kernel computes the start of a process by the wall clock."""
    story, started_s = Story(), WALL_OFFSET_S - 100.0
    observed(story, 10.0, "first", 1.0, process_s=started_s)
    story.say(20.0, "wall", offset_s=WALL_OFFSET_S + 500.0, since=19.95)
    observed(story, 30.0, "second", 2.0, process_s=started_s + 500.0)
    assert run(grew(FIRST, SECOND, 1, 1), story, LATE).label == "conforms"


@pytest.mark.parametrize(
    ("first", "second", "label"),
    [
        (2.0, 3.0, "conforms"),
        (None, 1.0, "conforms"),
        (2.0, 2.0, "deviates"),
        (2.0, 4.0, "deviates"),
        (None, None, "unproven: gap"),
    ],
)
def test_counter_growth_is_judged(first: float | None, second: float | None, label: str) -> None:
    assert judged(grew(FIRST, SECOND, 1, 1), first=first, second=second).label == label


REPORTED = moments.event_reported("Seen", "Node", NODE, "")


def counting(growth: float, *reported: float, fenced: bool = True) -> Story:
    """Record events at these times, and a counter at 10 s and 20 s that grew by `growth`."""
    story = Story()
    for t in reported:
        story.event(t, "Seen", NODE, kind="Node")
    observed(observed(story, 10.0, "first", 2.0), 20.0, "second", 2.0 + growth)
    return story.fence(30.0) if fenced else story


@pytest.mark.parametrize(
    ("story", "label"),
    [
        (counting(2, 12.0, 15.0), "conforms"),
        (counting(2, 5.0, 12.0, 15.0, 25.0), "conforms"),
        (counting(1, 12.0, 20.1), "conforms"),
        (counting(2, 12.0, 20.1), "conforms"),
        (counting(0, 20.1), "unproven: gap"),
        (counting(1, 12.0, 15.0), "deviates"),
        (counting(2, 15.0), "deviates"),
        (counting(0, 15.0), "deviates"),
        (counting(0, 15.0, fenced=False), "deviates"),
        (counting(2, 15.0, fenced=False), "unproven: gap"),
        (counting(1, 15.0, fenced=False), "unproven: gap"),
        (counting(0, 5.0), "unproven: no-anchor"),
    ],
)
def test_counter_grows_with_the_events_between_its_observations(story: Story, label: str) -> None:
    assert run(grew_with(FIRST, SECOND, REPORTED), story).label == label


NAMES, MAPS = Observation("names", "ConfigMaps at control-plane-1", "space", None), "configmaps"


def written(*acknowledged: tuple[str | None, float]) -> Story:
    """Record writes by name and time of acknowledgement, and a list of `a` and `b` requested at 9 s."""
    story = Story()
    for name, t in acknowledged:
        story.look(t, name, moments.WRITE, "space")
    return story.say(10.0, "observed", **NAMES.to_json(), value=["a", "b", "kube-root-ca.crt"], asked_t=9.0)


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        (written(("a", 1.0), ("b", 2.0)), "conforms", ""),
        (written(("a 101", 1.0), ("b 102", 2.0)), "conforms", ""),
        (written(("a", 1.0), (None, 2.0), ("b", 3.0)), "conforms", ""),
        (written(("a", 1.0), ("c", 9.5)), "conforms", ""),
        (written(("a", 1.0), ("c", 2.0)), "deviates", "lack 1 of 2 acknowledged writes: c"),
        (written((None, 2.0)), "unproven: gap", ""),
        (written().look(1.0, "c", moments.WRITE, "other"), "unproven: gap", ""),
    ],
)
def test_acknowledged_writes_are_listed(story: Story, label: str, word: str) -> None:
    assert_verdict(run(has_writes(NAMES), story), label, word)


def watched(*, lost: bool = False, lists: bool = False, acknowledged: bool = True) -> Story:
    """Record four writes, of which two come while the watch is interrupted, from 4 to 8 s."""
    story = Story(resources=(*RESOURCES, MAPS)).sentinel(1.0)
    for t, delivered_t in ((2.0, 2.1), (6.0, 8.1), (7.0, 8.2), (9.0, 9.1)):
        story.change(delivered_t, MAPS, "space", f"write-{t:g}", {}, is_watched=not (lost and t == 6.0))
        is_answered = acknowledged or not 4.0 < t < 8.0
        story.look(t, f"write-{t:g} {story.rv}" if is_answered else None, moments.WRITE, "space")
    return story.gap(4.0, 8.0, MAPS, lists=lists).sentinel(10.0).fence(20.0)


def repeated_event() -> Story:
    """Record that a watch repeats an event after it resumed."""
    story = watched()
    event = next(entry for entry in story.entries if entry.kind == "watch" and entry.t == 2.1)
    return story.say(8.05, "watch", **event.data)


def unstored_event() -> Story:
    """Record a history that lost an event after it was received."""
    story = watched(lost=True)
    last = next(entry for entry in story.entries if entry.kind == "fence")
    count = story.history().received(MAPS, last.t)
    last.data["listed"][MAPS]["received"] = count + 1
    return story


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        (watched(), "conforms", "lacks 0 of 4 acknowledged writes, 2 of them"),
        (watched(lost=True), "deviates", "lacks 1"),
        (repeated_event(), "deviates", "1 events are not newer"),
        (unstored_event(), "unproven: gap", "are stored"),
        (watched(lists=True), "unproven: gap", "did not resume"),
        (watched(acknowledged=False), "unproven: no-anchor", ""),
        (Story(resources=(*RESOURCES, MAPS)).sentinel(1.0).fence(20.0), "unproven: no-anchor", ""),
        (written(("a 101", 1.0)), "unproven: gap", ""),
    ],
)
def test_resumed_watch_delivers_acknowledged_writes(story: Story, label: str, word: str) -> None:
    assert_verdict(run(watched_writes("space"), story), label, word)


def test_first_acknowledgement_after_a_moment_is_found() -> None:
    story = written(("a", 1.0), (None, 6.0), ("b", 7.0)).fault(5.0, "injecting", "injected")
    acknowledged = moments.first_after(
        moments.write_acknowledged("space"), moments.fault_step("cut", "injected")
    )
    assert time_of(story, acknowledged) == 7.0


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


@pytest.mark.parametrize(
    ("story", "label", "word"),
    [
        (renewing().fence(20.5), "conforms", "9 renewals of node-1"),
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
    ("value", "flags", "label", "shown"),
    [
        (True, {}, "conforms", "true"),
        (False, {}, "deviates", "false"),
        (None, {}, "deviates", "nothing"),
        (True, {"fail-swap-on": "true"}, "unproven: scaled", ""),
        (True, {"failSwapOn": "true"}, "unproven: scaled", ""),
        # A feature gate may have another default.
        (True, {"featureGates": '{"A": true}'}, "conforms", "true"),
        (False, {"featureGates": '{"A": true}'}, "unproven: scaled", ""),
    ],
)
def test_boolean_default_is_judged(
    value: bool | None, flags: Mapping[str, str], label: str, shown: str
) -> None:
    swap = Constant(
        "swap", "kubelet", "failSwapOn", "failSwapOn", "boolean", ((">=1.18", 1.0),), None, "f.go"
    )
    settings = configuration(reported={"kubelet": {"failSwapOn": value}}, flags_set={"kubelet": flags})
    verdict = run_check(
        default_of("swap"), Story().history(), WindowContext(settings, 0.3), replace(CLAIM, constants=(swap,))
    )
    assert_verdict(verdict, label)
    assert shown in str(verdict.measured)


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


# Checks of probe pods and observations: what conforms, what deviates, and what proves nothing.


BEGAN, HEALING = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
TERM, END = witnessed.sigterm(POD), witnessed.last_sign(POD)
CUT_T, HEALING_T = 10.0, 40.0
LINE = "shutdown kubelet delay"


def probed() -> Story:
    """Record a fault from `CUT_T` to `HEALING_T`."""
    return Story().fault(CUT_T, "planned").fault(CUT_T, "injected").fault(HEALING_T, "healing")


def label(check: Check, story: Story) -> str:
    history = story.fence(60.0).history()
    context = WindowContext(configuration(), slack_s(history, configuration()))
    return run_check(Check.from_json(check.to_json()), history, context, CLAIM).label


def other_ended() -> Story:
    return probed().tell("beat", 20.0, by="other").hear(50.0, by="other")


LIVES = observations.stays_alive(POD, BEGAN, HEALING)
IN_TIME, IN_GRACE = TERM.after(HEALING, windows.up_to(5)), END.after(TERM, windows.grace_period(10))
OF_OTHER = TERM.after(witnessed.last_sign("other"), windows.afterwards(5))
SOON, NEVER_CAME = moments.fault_step("cut", "soon"), moments.fault_step("x", "y")


@pytest.mark.parametrize(
    ("check", "story", "expected"),
    [
        (LIVES, probed().beats(5, 45).hear(50), "conforms"),
        (LIVES, probed().beats(5, 45), "unproven: gap"),
        (LIVES, probed().beats(5, 38).hear(38), "unproven: gap"),
        (LIVES, probed().beats(5, 20).hear(50), "deviates"),
        (LIVES, probed().beats(5, 20).beats(26, 45).hear(50), "deviates"),
        (LIVES, probed().beats(5, 20).beats(24, 45).hear(50), "conforms"),
        (LIVES, probed().hear(50), "deviates"),
        (LIVES, probed().beats(5, 45).tell(STARTED, 20).hear(50), "deviates"),
        (LIVES, probed().beats(5, 45).tell(STARTED, 5).hear(50), "conforms"),
        (LIVES, probed().beats(5, 45).tell(STARTED, 45).hear(50), "conforms"),
        # Too short a time, and a missing end.
        (
            observations.stays_alive(POD, BEGAN, SOON),
            probed().beats(5, 45).hear(50).fault(12.0, "soon"),
            "unproven: scaled",
        ),
        *(
            (observations.stays_alive(POD, *ends), probed().beats(5, 45).hear(50), "unproven: not-injected")
            for ends in ((BEGAN, NEVER_CAME), (NEVER_CAME, HEALING))
        ),
        (IN_TIME, probed().tell(SIGTERM, 41).hear(50), "conforms"),
        (IN_TIME, probed().tell(SIGTERM, 38).hear(50), "deviates"),
        (IN_TIME, probed().tell(SIGTERM, 48).hear(50), "deviates"),
        (IN_TIME, probed().hear(50), "deviates"),
        (IN_TIME, probed(), "unproven: gap"),
        (IN_TIME, probed().hear(42), "unproven: gap"),
        *((IN_GRACE, probed().tell(SIGTERM, 10).tell("beat", t).hear(50), "deviates") for t in (13, 19, 26)),
        *((IN_GRACE, probed().tell(SIGTERM, 10).tell("beat", t).hear(50), "conforms") for t in (20.1, 24)),
        (IN_GRACE, probed(), "unproven: gap"),
        (IN_GRACE, probed().beats(5, 45).hear(50), "unproven: no-anchor"),
        *(
            (OF_OTHER, other_ended().tell(SIGTERM, t).hear(50), expected)
            for t, expected in ((19.9, "deviates"), (20, "conforms"), (24, "conforms"), (27, "deviates"))
        ),
        # A recording that ends too early does not prove that a machine stays up.
        (witnessed.machine_ended(NODE).after(HEALING, windows.up_to(30)), probed(), "unproven: gap"),
        (witnessed.machine_ended(NODE).after(HEALING, windows.up_to(5)), probed(), "deviates"),
    ],
)
def test_probe_pod_and_its_machine_are_judged_by_their_messages(
    check: Check, story: Story, expected: str
) -> None:
    assert label(check, story) == expected


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (probed().beats(5, 20).hear(50), "conforms"),
        (probed().beats(5, 20).tell(SIGTERM, 19).hear(50), "deviates"),
        # A pod that does not run gets no signal.
        (probed().hear(50), "unproven: gap"),
        (probed().beats(15, 45).hear(50), "unproven: gap"),
        (probed().beats(1, 4).hear(50), "unproven: gap"),
        (probed().beats(5, 8).tell("exits", 9).hear(50), "unproven: gap"),
    ],
)
def test_absence_of_a_sigterm_requires_a_running_probe_pod(story: Story, expected: str) -> None:
    for check in (
        TERM.never_after(BEGAN, windows.absence(20)),
        repeated.counted(TERM, 0, 0, after=BEGAN, until=HEALING),
    ):
        assert label(check, story) == expected


def test_clock_error_of_a_node_is_part_of_the_slack() -> None:
    stories = probed(), probed().hear(50), probed().hear(50.0, error_s=0.5)
    slacks = [slack_s(story.history(), configuration()) for story in stories]
    assert slacks == pytest.approx([slacks[0], slacks[0] + 0.02, slacks[0] + 0.5])


LISTED = observations.listed("locks", NODE, LINE, BEGAN, HEALING)
NOT_LISTED = observations.not_listed("locks", NODE, LINE, BEGAN)
FEW = observations.amounts_to("locks", NODE, 1, 5, BEGAN, HEALING)
LINE_SHOWN = observations.shown_throughout("locks", NODE, LINE, BEGAN, HEALING)


@pytest.mark.parametrize(
    ("check", "story", "expected"),
    [
        (LISTED, probed().look(20, f"sleep x\n{LINE}", id="look"), "conforms"),
        (LISTED, probed().look(20, "sleep x", id="look"), "deviates"),
        (LISTED, probed().look(20, "", id="look"), "deviates"),
        (LISTED, probed().look(20, f"{LINE} block", id="look"), "deviates"),
        (LISTED, probed().look(20, LINE, id="look").look(30, "", id="look"), "deviates"),
        (LISTED, probed().look(5, LINE, id="look").look(45, LINE, id="look"), "unproven: gap"),
        (LISTED, probed().look(10.02, LINE, id="look"), "unproven: gap"),
        (LISTED, probed(), "unproven: gap"),
        (LISTED, probed().look(20.0, LINE, subject="node-9", id="look"), "unproven: gap"),
        (NOT_LISTED, probed().look(5, "sleep x", id="look").look(20, LINE, id="look"), "conforms"),
        (NOT_LISTED, probed().look(5, LINE, id="look"), "deviates"),
        (NOT_LISTED, probed().look(20, "", id="look"), "unproven: gap"),
        (FEW, probed().look(20, "1", id="look").look(21, "5", id="look"), "conforms"),
        (FEW, probed().look(20, "0", id="look"), "deviates"),
        (FEW, probed().look(20, "6", id="look"), "deviates"),
        (FEW, probed().look(20, "max", id="look"), "deviates"),
        (FEW, probed().look(20, "", id="look"), "deviates"),
        (FEW, probed(), "unproven: gap"),
        # Near an end of our own, it is inside.
        (LINE_SHOWN, probed().looks(10.5, 39.5, LINE).look(39.995, "gone"), "deviates"),
    ],
)
def test_observations_are_judged(check: Check, story: Story, expected: str) -> None:
    assert label(check, story) == expected


NEVER = observations.not_listed("locks", NODE, "Unknown", HEALING)


def failing(story: Story, t: float) -> Story:
    """Record a look that failed."""
    return story.look(t, None, error="HTTP 500")


@pytest.mark.parametrize(
    "check", [LISTED, NEVER, LINE_SHOWN, observations.amounts_to("locks", NODE, 7, 7, BEGAN, HEALING)]
)
def test_repeated_observations_must_reach_both_ends(check: Check) -> None:
    value = "7" if check.name == "amounts-to" else LINE

    def looked(*times: tuple[float, float]) -> Story:
        story = probed()
        for since_t, until_t in times:
            story.looks(since_t, until_t, value)
        return story

    assert label(check, looked((2.0, 45.0))) == "conforms"
    for times in ((3.0, 3.0), (10.3, 10.3), (30.0, 45.0), (2.0, 20.0)):
        assert label(check, looked(times)) == "unproven: gap"
    assert label(check, looked((2.0, 15.0), (36.0, 45.0))) == "unproven: gap"
    slow = probed().say(39.5, "observed", what="locks", subject=NODE, value=value, asked_t=10.1)
    assert label(check, slow) == "unproven: gap"
    assert label(check, failing(looked((2.0, 45.0)), 20.1)) == "unproven: gap"
    assert label(check, failing(looked((2.0, 45.0)), 41.0)) == "conforms"
    assert label(check, failing(looked((2.0, 20.0)), 20.1).look(21.0, "Unknown")) == "deviates"


@pytest.mark.parametrize("check", [LISTED, NEVER])
@pytest.mark.parametrize("times", [(39.5,), (39.0, 39.5), (10.3, 10.8)])
def test_few_repeated_observations_at_one_end_prove_nothing(check: Check, times: tuple[float, ...]) -> None:
    assert label(check, probed().looks(times[0], times[-1], LINE)) == "unproven: gap"


REMOVED = moments.pod_removed(NAMESPACE, POD)
UP_TO_REMOVAL = observations.shown_throughout("locks", NODE, LINE, BEGAN, REMOVED)
NOT_BEFORE_REMOVAL = observations.not_listed("locks", NODE, "gone", REMOVED)


@pytest.mark.parametrize("check", [UP_TO_REMOVAL, NOT_BEFORE_REMOVAL])
@pytest.mark.parametrize(("gone_t", "expected"), [(29.995, "conforms"), (29.6, "deviates")])
def test_observation_near_a_watched_end_may_lie_beyond_it(check: Check, gone_t: float, expected: str) -> None:
    story = probed().pod(1.0).remove(30.0, "pods", NAMESPACE, POD).looks(2.0, 29.5, LINE)
    assert label(check, story.look(gone_t, "gone")) == expected


def test_observation_or_lifetime_cannot_be_waited_for() -> None:
    for check in (LISTED, NOT_LISTED, FEW, LIVES):
        assert not checks.can_be_waited_for(check)
        assert checks.describe(check)
