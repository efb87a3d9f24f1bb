"""Moments: each is found at its time, and nothing else."""

from __future__ import annotations

import copy
import math

import pytest

from nodeproof.checks import heartbeats, moments, witnessed
from nodeproof.checks.moments import find
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Moment
from nodeproof.model.pod_log import BEAT, HOOK_BEGAN, HOOK_ENDED, SIGTERM
from nodeproof.model.slack import Span
from tests.unit.histories import GRACE_S, NAMESPACE, NODE, OTHER, POD, Story, last_renewal_t, partition

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
def test_no_moment_is_found_in_an_empty_history(moment: Moment) -> None:
    assert find(Story().fence(20.0).history(), moment) is None


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


@pytest.mark.parametrize("moment", EVERY, ids=str)
def test_moment_survives_its_json(moment: Moment) -> None:
    assert Moment.from_json(moment.to_json()) == moment


def test_unknown_moment_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        find(Story().history(), Moment("no-such", {}))


def test_moment_is_readable_as_text() -> None:
    assert str(moments.last_heartbeat(NODE, UNKNOWN)) == (
        "last-heartbeat(node-1, condition-became(node-1, Ready, Unknown))"
    )


@pytest.mark.parametrize(
    ("moment", "watches"),
    [
        (UNKNOWN, ("nodes",)),
        (moments.cordoned(NODE), ("nodes",)),
        (moments.last_heartbeat(NODE, UNKNOWN), ("leases", "nodes")),
        (DELETION, ("pods",)),
        (moments.event_reported("x", "Pod", POD, ""), ("events",)),
        (moments.fault_step("cut", "injected"), ()),
        (witnessed.last_sign(POD), ()),
        (witnessed.machine_ended(NODE), ()),
        (moments.pod_failed(NAMESPACE, POD, "Terminated", ""), ("pods",)),
    ],
)
def test_moment_names_its_watches(moment: Moment, watches: tuple[str, ...]) -> None:
    assert moments.resources(moment) == watches


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


def test_pod_removed_at_once_was_deleted() -> None:
    assert time_of(Story().pod(1.0).remove(2.0, "pods", NAMESPACE, POD), DELETION) == 2.0


def test_recreated_pod_is_another_object() -> None:
    story = Story().pod(1.0, node=NODE).remove(2.0, "pods", NAMESPACE, POD).pod(3.0, node=OTHER)
    assert time_of(story, moments.pod_created(NAMESPACE, POD), 2.5) == 3.0
    assert time_of(story, BOUND, 2.5) == 3.0


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


def test_renewal_arriving_after_unknown_is_no_earlier_heartbeat() -> None:
    """A partition delays a request; after the healing an old renewTime arrives."""
    story = Story().renew(10.0).condition(22.5, "Unknown").renew(12.0, received_t=40.0)
    assert time_of(story, moments.last_heartbeat(NODE, UNKNOWN)) == pytest.approx(10.0)


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


def test_boot_id_change_is_a_moment() -> None:
    story = Story()
    for t, boot in ((1.0, "one"), (2.0, "one"), (3.0, ""), (4.0, "two"), (5.0, "three")):
        story.boot(t, boot)
    changed = moments.boot_id_changed(NODE)

    assert moments.find(story.history(), changed) == Occurrence(4.0)
    assert moments.find(story.history(), changed, 4.5) == Occurrence(5.0)
    assert moments.find(story.history(), changed, 5.5) is None


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
    ("moment", "text"),
    [
        (
            UNKNOWN,
            "node node-1: Ready=Unknown, taints node.kubernetes.io/unreachable:NoExecute, unschedulable",
        ),
        (DELETION, "pod pod-1: phase Pending, node node-1, deletion 2023"),
        (moments.pod_removed(NAMESPACE, "pod-9"), "pod pod-9: never seen"),
        (moments.cordoned("node-9"), "node node-9: never seen"),
        (moments.fault_step("cut", "injected"), ""),
    ],
)
def test_last_state_is_readable_as_text(moment: Moment, text: str) -> None:
    assert moments.last_state(partition().history(), moment).startswith(text)


def test_last_state_of_a_removed_object_is_reported() -> None:
    assert "removed" in moments.last_state(whole_life().history(), DELETION)


def test_machine_has_ended_after_a_power_cut() -> None:
    story = Story().say(1.0, "machine", node=OTHER, step="powered-off")
    story.say(2.0, "machine", node=NODE, step="booted")
    story.say(3.0, "machine", node=NODE, step="powered-off")
    assert time_of(story, witnessed.machine_ended(NODE)) == 3.0


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


def test_field_that_appears_and_disappears_has_changed() -> None:
    story = Story()
    for t, value in ((1.0, "a"), (2.0, None), (3.0, None), (4.0, "b")):
        spec = {"podCIDR": value} if value else {}
        story.change(t, "nodes", "", NODE, {**story.object("nodes", "", NODE), "spec": spec})
    changed = moments.changed("nodes", NODE, "spec.podCIDR")
    times = [
        event.t if (event := moments.find(story.history(), changed, t)) else None
        for t in (0.5, 1.5, 2.5, 4.5)
    ]
    assert times == [1.0, 2.0, 4.0, None]


def test_boot_id_is_remembered_beyond_the_node_object() -> None:
    story = Story().boot(1.0, "one")
    body = story.object("nodes", "", NODE)
    story.remove(2.0, "nodes", "", NODE)
    again = copy.deepcopy(body)
    again["metadata"].pop("uid", None)
    again["status"]["nodeInfo"]["bootID"] = "two"
    story.change(3.0, "nodes", "", NODE, again)
    assert moments.find(story.history(), moments.boot_id_changed(NODE)) == Occurrence(3.0)
