"""Moments: each finder sees what happened, when it happened, and nothing else."""

from __future__ import annotations

import copy

import pytest

from nodeproof.checks import heartbeats, moments, witnessed
from nodeproof.checks.moments import find
from nodeproof.checks.occurrence import Occurrence
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.testimony import BEAT, HOOK_BEGAN, HOOK_ENDED, SIGTERM
from tests.unit.histories import (
    CUT_T,
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    Story,
    last_renewal_t,
    partition,
)

UNKNOWN = moments.condition_became(NODE, "Ready", "Unknown")
TAINTED = moments.taint_added(NODE, UNREACHABLE, "NoExecute")
UNTAINTED = moments.taint_removed(NODE, UNREACHABLE, "NoExecute")
DELETION = moments.pod_deletion(NAMESPACE, POD)
EVERY = [
    UNKNOWN,
    TAINTED,
    UNTAINTED,
    moments.last_heartbeat(NODE, UNKNOWN),
    moments.cordoned(NODE),
    moments.uncordoned(NODE),
    moments.conditions_changed(NODE),
    DELETION,
    moments.pod_gone(NAMESPACE, POD),
    moments.pod_created(NAMESPACE, POD),
    moments.pod_bound(NAMESPACE, POD),
    moments.pod_unschedulable(NAMESPACE, POD),
    moments.event_reported("TaintManagerEviction", "Pod", POD, "Marking"),
    moments.fault_step("cut", "injected"),
    moments.condition_said(NODE, "Ready", "False", "KubeletNotReady", "node is shutting down"),
    moments.pod_marked(NAMESPACE, POD, "Terminated", "Pod was terminated."),
    witnessed.sigterm(POD),
    witnessed.pre_stop_began(POD),
    witnessed.pre_stop_ended(POD),
    witnessed.last_sign(POD),
    witnessed.logged(NODE, "kubelet.service", "running with swap on"),
    witnessed.machine_ended(NODE),
    witnessed.kubelet_restarted(NODE),
]


def whole_life() -> Story:
    """Everything happens once."""
    story = Story()
    story.status(1.0)
    story.pod(2.0)
    story.unfit(3.0)
    story.bind(4.0)
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
    found = find(history, moment)
    assert found is not None
    assert found.t == pytest.approx(t)
    if moment.name != "last-heartbeat":
        assert find(history, moment, found.t) == found
        assert find(history, moment, found.t + 0.001) is None


@pytest.mark.parametrize("moment", EVERY, ids=str)
def test_nothing_is_found_where_nothing_happened(moment: Moment) -> None:
    assert find(Story().fence(20.0).history(), moment) is None


@pytest.mark.parametrize("moment", EVERY, ids=str)
def test_a_list_is_no_occurrence(moment: Moment) -> None:
    """What a recording finds at its beginning happened before it."""
    story = whole_life()
    late = Story()
    late.entries = late.entries[:1]
    for resource in story.resources:
        story.list(20.0, resource)
        late.entries.append(story.entries[-1])
    assert find(late.history(), moment) is None


@pytest.mark.parametrize("moment", EVERY, ids=str)
def test_a_moment_survives_its_json(moment: Moment) -> None:
    assert Moment.from_json(moment.to_json()) == moment


def test_an_unknown_moment_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        find(Story().history(), Moment("no-such", {}))


def test_a_moment_reads_well() -> None:
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
        (moments.pod_marked(NAMESPACE, POD, "Terminated", ""), ("pods",)),
    ],
)
def test_the_watches_of_a_moment(moment: Moment, watches: tuple[str, ...]) -> None:
    assert moments.resources(moment) == watches


def test_other_objects_do_not_count() -> None:
    story = Story()
    story.pod(1.0, "pod-2")
    story.evict(2.0, "pod-2")
    story.condition(3.0, "Unknown", OTHER)
    story.taint(4.0, node=OTHER)
    story.event(5.0, "TaintManagerEviction", "pod-2", "Marking")
    for moment in EVERY:
        assert find(story.history(), moment) is None


def test_another_taint_does_not_count() -> None:
    story = Story()
    story.taint(1.0, NOT_READY, "NoExecute")
    story.taint(2.0, UNREACHABLE, "NoSchedule")
    assert find(story.history(), TAINTED) is None


def test_a_node_that_is_made_anew_is_another() -> None:
    story = Story()
    story.taint(1.0)
    body = story.object("nodes", "", NODE)
    story.remove(2.0, "nodes", "", NODE)
    story.change(3.0, "nodes", "", NODE, {"spec": {}, "status": body["status"]})
    assert find(story.history(), UNTAINTED) is None


def test_later_states_of_a_leaving_pod_are_no_deletion() -> None:
    """The deletion was at 2 s: neither the kubelet's last status nor the removal is it."""
    story = Story()
    story.pod(1.0)
    story.evict(2.0)
    story.bind(9.0)
    story.remove(10.0, "pods", NAMESPACE, POD)
    assert find(story.history(), DELETION, 3.0) is None


def test_a_pod_that_is_removed_at_once_was_deleted() -> None:
    story = Story()
    story.pod(1.0)
    story.remove(2.0, "pods", NAMESPACE, POD)
    deletion = find(story.history(), DELETION)
    assert deletion is not None
    assert deletion.t == 2.0


def test_a_namesake_is_another_pod() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.remove(2.0, "pods", NAMESPACE, POD)
    story.pod(3.0, node=OTHER)
    created = find(story.history(), moments.pod_created(NAMESPACE, POD), 2.5)
    bound = find(story.history(), moments.pod_bound(NAMESPACE, POD), 2.5)
    assert created is not None
    assert bound is not None
    assert (created.t, bound.t) == (3.0, 3.0)


def test_later_states_of_a_bound_pod_are_no_binding() -> None:
    story = Story()
    story.pod(1.0)
    story.bind(2.0)
    story.unfit(8.0)
    assert find(story.history(), moments.pod_bound(NAMESPACE, POD), 3.0) is None


def test_an_event_that_is_counted_up_comes_again() -> None:
    story = Story()
    story.event(1.0, "Evicted", POD, "Marking")
    name = next(entry for entry in story.entries if entry.kind == "watch").data["object"]["metadata"]["name"]
    story.change(5.0, "events", NAMESPACE, name, story.object("events", NAMESPACE, name))
    found = find(story.history(), moments.event_reported("Evicted", "Pod", POD, "Mark"), 2.0)
    assert found is not None
    assert found.t == 5.0
    assert find(story.history(), moments.event_reported("Evicted", "Pod", POD, "Cancelling")) is None


def test_the_last_heartbeat_is_the_last_renewal() -> None:
    found = find(partition().history(), moments.last_heartbeat(NODE, UNKNOWN))
    assert found is not None
    assert found.t == pytest.approx(last_renewal_t())
    assert found.detail["heartbeat"] == "lease"


def test_the_last_heartbeat_may_be_a_status() -> None:
    story = Story()
    story.renew(10.0)
    story.status(12.0)
    story.condition(25.0, "Unknown")
    found = find(story.history(), moments.last_heartbeat(NODE, UNKNOWN))
    assert found is not None
    assert (found.t, found.detail["heartbeat"]) == (12.0, "status")


def test_a_change_of_node_that_is_no_heartbeat_does_not_count() -> None:
    story = Story()
    story.renew(10.0)
    story.cordon(12.0)
    story.condition(25.0, "Unknown")
    story.condition(30.0, "True", type_="DiskPressure")
    beats = [(beat.t, beat.detail["heartbeat"]) for beat in heartbeats.heartbeats(story.history(), NODE)]
    assert [beat[1] for beat in beats] == ["lease", "lease"]
    assert beats[1][0] == pytest.approx(10.0)


def test_a_renewal_that_arrives_after_unknown_was_no_heartbeat_before_it() -> None:
    """A cut holds up a request; when it heals, an old renewTime arrives."""
    story = Story()
    story.renew(10.0)
    story.condition(22.5, "Unknown")
    story.renew(12.0, received_t=40.0)
    found = find(story.history(), moments.last_heartbeat(NODE, UNKNOWN))
    assert found is not None
    assert found.t == pytest.approx(10.0)


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


def test_a_node_that_booted_has_another_clock() -> None:
    story = Story()
    story.renew(10.0)
    story.say(12.0, "machine", node=NODE, step="booted")
    story.renew(20.0)
    story.say(21.0, "clock", node=NODE, offset_s=-3.0, error_s=0.01)
    story.say(21.0, "machine", node=OTHER, step="booted")
    story.renew(30.0)
    times = [beat.t for beat in heartbeats.lease_renewals(story.history(), NODE)]
    assert times[1:] == [pytest.approx(10.0), pytest.approx(23.0), pytest.approx(33.0)]


def test_a_clock_that_nobody_asked_is_read_off_the_promptest_renewal() -> None:
    """Thawed after 20 s, its clock that far behind: a reading before its clock is set again tells nothing."""
    story = Story()
    story.renew(10.0)
    story.say(30.0, "machine", node=NODE, step="thawed")
    story.renew(11.0, received_t=31.02)
    story.renew(13.0, received_t=33.5)
    story.say(34.0, "machine", node=NODE, step="clock-setting")
    story.say(34.2, "clock", node=NODE, offset_s=-9.0, error_s=0.3)
    story.say(34.5, "machine", node=NODE, step="clock-set")
    story.say(36.0, "clock", node=NODE, offset_s=0.0, error_s=0.01)
    story.renew(35.0, received_t=35.02)
    times = [beat.t for beat in heartbeats.lease_renewals(story.history(), NODE)]
    assert times[1:] == [pytest.approx(10.0), pytest.approx(31.02), pytest.approx(33.02), pytest.approx(35.0)]


def test_a_lease_that_changes_otherwise_was_not_renewed() -> None:
    story = Story()
    story.renew(10.0)
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
def test_what_can_still_come(moment: Moment, t: float, why: str) -> None:
    assert moments.unable(whole_life().history(), moment, Span.at(t)).endswith(why)
    assert bool(moments.unable(whole_life().history(), moment, Span.at(t))) is bool(why)


def test_a_boot_id_that_changes() -> None:
    story = Story()
    for t, boot in ((1.0, "one"), (2.0, "one"), (3.0, ""), (4.0, "two"), (5.0, "three")):
        story.boot(t, boot)
    changed = moments.boot_id_changed(NODE)

    assert moments.find(story.history(), changed) == Occurrence(4.0)
    assert moments.find(story.history(), changed, 4.5) == Occurrence(5.0)
    assert moments.find(story.history(), changed, 5.5) is None


def test_a_long_silence() -> None:
    anchor = moments.last_heartbeat(NODE, UNKNOWN)
    story = Story()
    story.renewals(2.0, 10.0)
    story.renewals(40.0, 50.0)
    found = moments.long_silence(story.history(), anchor, GRACE_S)
    assert found is not None
    assert found.t == pytest.approx(8.12)
    last = moments.long_silence(story.history(), anchor, 60.0)
    assert last is not None
    assert last.t > 40.0
    assert moments.long_silence(partition().history(), anchor, GRACE_S) is None
    assert moments.long_silence(Story((OTHER,)).history(), anchor, GRACE_S) is None


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (
            UNKNOWN,
            "node node-1: Ready=Unknown, taints node.kubernetes.io/unreachable:NoExecute, unschedulable",
        ),
        (DELETION, "pod pod-1: phase Pending, node node-1, deletion 2023"),
        (moments.pod_gone(NAMESPACE, "pod-9"), "pod pod-9: never seen"),
        (moments.cordoned("node-9"), "node node-9: never seen"),
        (moments.fault_step("cut", "injected"), ""),
    ],
)
def test_the_last_state_in_words(moment: Moment, text: str) -> None:
    assert moments.last_state(partition().history(), moment).startswith(text)


def test_the_last_state_of_what_is_gone() -> None:
    assert "removed" in moments.last_state(whole_life().history(), DELETION)


def test_the_cut_comes_after_the_last_renewal() -> None:
    assert CUT_T - 2.04 <= last_renewal_t() <= CUT_T


@pytest.mark.parametrize(
    ("reason", "message", "phase"),
    [("Shutdown", "gone", "Failed"), ("Terminated", "other", "Failed"), ("Terminated", "gone", "Succeeded")],
)
def test_another_mark_is_none(reason: str, message: str, phase: str) -> None:
    story = Story()
    story.pod(1.0)
    story.mark(2.0, reason, message, phase)
    assert find(story.history(), moments.pod_marked(NAMESPACE, POD, "Terminated", "gone")) is None


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [("True", "R", "says it"), ("False", "other", "says it"), ("False", "R", "says something else")],
)
def test_a_condition_that_says_something_else(status: str, reason: str, message: str) -> None:
    story = Story()
    story.condition(1.0, status, reason=reason, message=message)
    assert find(story.history(), moments.condition_said(NODE, "Ready", "False", "R", "says it")) is None


def test_the_words_of_other_witnesses_do_not_count() -> None:
    story = Story()
    story.tell(SIGTERM, 1.0, by="pod-2")
    assert find(story.history(), witnessed.sigterm(POD)) is None
    assert find(story.history(), witnessed.last_sign(POD)) is None


def test_a_machine_whose_power_was_cut_has_ended() -> None:
    story = Story()
    story.say(1.0, "machine", node=OTHER, step="powered-off")
    story.say(2.0, "machine", node=NODE, step="booted")
    story.say(3.0, "machine", node=NODE, step="powered-off")
    found = find(story.history(), witnessed.machine_ended(NODE))
    assert found is not None
    assert found.t == 3.0


def test_what_a_witness_told_last_is_told_to_people() -> None:
    story = Story()
    assert moments.last_state(story.history(), witnessed.sigterm(POD)) == "pod-1: no messages"
    story.tell(BEAT, 1.0, 2.5)
    said = moments.last_state(story.history(), witnessed.sigterm(POD))
    assert said == "pod-1: 2 messages, last 'beat', 1.5 s after the first"


# Any field of any resource that was recorded


def test_a_field_that_has_no_word_of_its_own() -> None:
    story = Story()
    story.change(
        1.0, "nodes", "", NODE, {**story.object("nodes", "", NODE), "spec": {"podCIDR": "10.0.0.0/24"}}
    )
    story.remove(2.0, "nodes", "", NODE)
    history = story.history()
    given = moments.became("nodes", NODE, {"spec": {"podCIDR": {"$prefix": "10."}}})
    another = moments.changed("nodes", NODE, "spec.podCIDR")
    gone = moments.removed("nodes", NODE)

    assert moments.find(history, given) == Occurrence(1.0)
    assert moments.resources(given) == ("nodes",)
    assert moments.unable(history, given, Span.at(1.5)).endswith("it had already occurred")
    assert moments.find(history, another) == Occurrence(1.0)
    assert moments.find(history, gone) == Occurrence(2.0)
    assert moments.last_state(history, gone).startswith("node node-1")
    assert "podCIDR" in str(given)


def test_any_write_of_any_object() -> None:
    story = Story()
    story.renew(3.0)
    renewed = moments.written("leases", {"metadata": {"name": NODE}})
    found = moments.find(story.history(), renewed)
    assert found is not None
    assert found.t == pytest.approx(3.0, abs=0.1)
    assert moments.unable(story.history(), renewed, Span.at(1.0)) == ""
    assert moments.last_state(story.history(), moments.made("leases", "other", "kube-node-lease")) == (
        "leases other: never seen"
    )


def test_a_field_that_comes_and_goes_has_changed() -> None:
    story = Story()
    for t, value in ((1.0, "a"), (2.0, None), (3.0, None), (4.0, "b")):
        spec = {"podCIDR": value} if value else {}
        story.change(t, "nodes", "", NODE, {**story.object("nodes", "", NODE), "spec": spec})
    changed = moments.changed("nodes", NODE, "spec.podCIDR")
    times = [
        found.t if (found := moments.find(story.history(), changed, t)) else None
        for t in (0.5, 1.5, 2.5, 4.5)
    ]
    assert times == [1.0, 2.0, 4.0, None]


def test_a_boot_id_is_remembered_beyond_the_node_object() -> None:
    story = Story()
    story.boot(1.0, "one")
    body = story.object("nodes", "", NODE)
    story.remove(2.0, "nodes", "", NODE)
    again = copy.deepcopy(body)
    again["metadata"].pop("uid", None)
    again["status"]["nodeInfo"]["bootID"] = "two"
    story.change(3.0, "nodes", "", NODE, again)
    assert moments.find(story.history(), moments.boot_id_changed(NODE)) == Occurrence(3.0)
