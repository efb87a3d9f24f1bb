"""A watch that delays events between two sentinels: their write times, or newer writes, show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest

from nodeproof.checks.judge import judge
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.judgment import Check
from nodeproof.model.slack import Span, misread_s
from tests.unit.histories import (
    CUT_T,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    TOLERATION_S,
    Story,
    configuration,
    last_renewal_t,
    wall,
)
from tests.unit.sample_checks import CLAIM, DETECTION, EVICTION, STAYS

Json = Any
Deed = tuple[float, Callable[[], object]]


def second(t: float) -> str:
    """Return the API's timestamp for a write at `t`."""
    return f"{wall(math.floor(t))[:19]}Z"


def write(
    story: Story, t: float, late_s: float, change: Callable[[Json], object], node: str = NODE, by: str = "it"
) -> None:
    """Write a Node at `t`, and deliver it later by its watch."""
    body = story.object("nodes", "", node)
    change(body)
    others = [field for field in body["metadata"].get("managedFields", ()) if field["manager"] != by]
    body["metadata"]["managedFields"] = [*others, {"manager": by, "time": second(t)}]
    story.change(t + late_s, "nodes", "", node, body)


def unlabelled(body: Json) -> None:
    body["metadata"]["labels"] = {}


def unknown(body: Json) -> None:
    body["status"]["conditions"][0]["status"] = "Unknown"


def tainted(body: Json) -> None:
    body["spec"]["taints"] = [{"key": UNREACHABLE, "effect": "NoExecute"}]


def detected(after_s: float, late_s: float, other_t: float | None = None) -> Story:
    """Return a story of a node that is Unknown `after_s` after its last heartbeat, delivered `late_s` late.

    Sentinels are in time. What somebody writes of another Node at `other_t` is 1.6 s late.
    """
    story, unknown_t = Story(), last_renewal_t() + after_s
    deeds: list[Deed] = [(unknown_t + late_s, partial(write, story, unknown_t, late_s, unknown))]
    if other_t is not None:
        deeds.append((other_t + 1.6, partial(write, story, other_t, 1.6, unlabelled, OTHER)))
    return cut_off(story, deeds)


def overtaken(after_s: float, late_s: float) -> Story:
    """Return a story as `detected`, without write times; a Lease of another node is renewed all the time."""
    story, unknown_t = Story(), last_renewal_t() + after_s

    def write_unknown() -> None:
        body = story.object("nodes", "", NODE)
        unknown(body)
        story.change(unknown_t, "nodes", "", NODE, body, is_watched=False)

    def deliver() -> None:
        body = story.object("nodes", "", NODE)
        story.say(unknown_t + late_s, "watch", resource="nodes", type="MODIFIED", object=body)

    renewals = [(t, partial(story.renew, t, OTHER)) for t in (number * 0.25 for number in range(4, 240))]
    return cut_off(story, [(unknown_t, write_unknown), (unknown_t + late_s, deliver), *renewals])


def cut_off(story: Story, deeds: Sequence[Deed]) -> Story:
    """Complete a story of a node that is partitioned at `CUT_T`, with sentinels in time."""
    cut: list[Deed] = [
        (CUT_T, partial(story.fault, CUT_T, "planned", "armed", "injected")),
        *((t, partial(story.sentinel, t)) for t in map(float, range(2, 60, 2))),
    ]
    renewed_t = 2.5
    while renewed_t <= CUT_T:
        cut.append((renewed_t, partial(story.renew, renewed_t)))
        renewed_t += RENEW_S * 1.02
    for _t, deed in sorted([*cut, *deeds], key=lambda pair: pair[0]):
        deed()
    return story.fence(61.0)


@pytest.mark.parametrize(
    ("after_s", "late_s", "expected"),
    [
        (13.4, 0.02, "conforms"),
        (11.2, 0.02, "deviates"),
        (15.5, 0.02, "deviates"),
        (13.4, 0.9, "unproven: host-too-loaded"),
        (13.2, 1.1, "unproven: host-too-loaded"),
        (11.2, 1.0, "unproven: host-too-loaded"),
        (11.5, 0.8, "unproven: host-too-loaded"),
        (11.2, 1.6, "unproven: host-too-loaded"),
    ],
)
def test_event_received_after_newer_ones_was_delayed(after_s: float, late_s: float, expected: str) -> None:
    assert outcome(DETECTION, overtaken(after_s, late_s)) == expected


@pytest.mark.parametrize("resource", ["nodes", "leases", "events"])
def test_revisions_of_another_etcd_show_no_delay(resource: str) -> None:
    """kube-apiserver's --etcd-servers-overrides gives a resource an etcd of its own."""
    story = overtaken(13.4, 0.02)
    for entry in story.entries:
        if entry.kind == "watch" and entry.data["resource"] == resource:
            meta = entry.data["object"]["metadata"]
            meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1_000_000)
    assert story.history().late == []


def outcome(check: Check, story: Story, limit_s: float = 1.0) -> str:
    return judge(CLAIM, check, story.history(), configuration(slack_limit_s=limit_s)).label


@pytest.mark.parametrize("limit_s", [1.0, 3.0])
@pytest.mark.parametrize(
    ("after_s", "late_s", "expected"),
    [
        (13.4, 0.02, "conforms"),
        (11.2, 0.02, "deviates"),
        (15.5, 0.02, "deviates"),
        (13.4, 1.6, "unproven: host-too-loaded"),
        (11.2, 1.2, "unproven: host-too-loaded"),
        (11.2, 3.0, "unproven: host-too-loaded"),
    ],
)
def test_time_of_a_delayed_event_is_unproven(
    after_s: float, late_s: float, expected: str, limit_s: float
) -> None:
    assert outcome(DETECTION, detected(after_s, late_s), limit_s) == expected


def test_event_delayed_beyond_the_limit_gives_no_wrong_time() -> None:
    for late_s, limit_s in product((1.25, 1.5, 2.0, 4.0), (1.0, 3.0)):
        for true_s, true in ((12.1, "conforms"), (13.0, "conforms"), (10.0, "deviates"), (18.0, "deviates")):
            label = outcome(DETECTION, detected(true_s, late_s), limit_s)
            assert label in (true, "unproven: host-too-loaded")


@pytest.mark.parametrize(
    ("other_t", "expected"),
    [
        (25.0, "conforms"),
        (31.0, "unproven: host-too-loaded"),
        (32.0, "unproven: host-too-loaded"),
        (45.0, "conforms"),
    ],
)
def test_delay_long_before_or_after_does_not_matter(other_t: float, expected: str) -> None:
    assert outcome(DETECTION, detected(12.6, 0.02, other_t)) == expected


def test_absence_with_a_delayed_event_is_unproven() -> None:
    story = Story().pod(1.0, node=NODE).condition(20.0, "Unknown").condition(30.0, "True")
    assert outcome(STAYS, story.fence(60.0)) == "conforms"
    body = story.object("pods", NAMESPACE, POD)
    body["metadata"] |= {"deletionTimestamp": second(33.0 + 30.0), "deletionGracePeriodSeconds": 30}
    story.change(36.0, "pods", NAMESPACE, POD, body)
    story.fence(61.0)
    (late,) = story.history().late
    assert (late.t, late.resource) == (36.0, "pods")
    assert late.late_s == pytest.approx(3.0)
    assert outcome(STAYS, story) == "unproven: host-too-loaded"


def test_removal_alone_has_no_time_of_its_own() -> None:
    story = Story()
    write(story, 5.3, 0.02, lambda body: body["spec"].update(unschedulable=True))
    body = story.object("nodes", "", NODE)
    del body["spec"]["unschedulable"]
    story.change(40.0, "nodes", "", NODE, body)
    story.remove(50.0, "nodes", "", NODE)
    assert story.history().late == []


def test_listed_or_replayed_event_was_not_delayed() -> None:
    story = detected(12.6, 5.0)
    assert len(story.history().late) == 1
    story.gap(30.0, 36.0, "nodes")
    assert story.history().late == []
    listed = Story()
    write(listed, 5.0, 0.02, unknown)
    listed.list(30.0, "nodes")
    assert listed.history().late == []


def test_delay_explained_by_a_stall_or_sentinel_counts_once() -> None:
    story = detected(12.6, 1.6)
    event_t = last_renewal_t() + 12.6
    about = [Span.at(event_t)]
    assert misread_s(story.history(), configuration(), about) == pytest.approx(1.6, abs=1.0)
    story.say(event_t + 1.6, "stall", late_s=1.6)
    assert misread_s(story.history(), configuration(), about) == 0.0


@pytest.mark.parametrize(("late_s", "expected"), [(0.02, "conforms"), (1.5, "unproven: host-too-loaded")])
def test_delayed_anchor_does_not_make_an_event_too_early(late_s: float, expected: str) -> None:
    story = Story().pod(1.0, node=NODE)
    write(story, 20.0, late_s, tainted)
    story.evict(20.0 + TOLERATION_S + 0.1)
    assert outcome(EVICTION, story.fence(60.0)) == expected


def test_gap_explains_only_what_was_written_before_the_watch_was_back() -> None:
    """A Node is written 0.6 s after the watch was back, and delivered 1.4 s late."""
    story = Story().sentinel(10.0).gap(10.5, 12.9, "nodes")
    write(story, 13.5, 1.4, unlabelled, OTHER)
    history = story.sentinel(15.5).fence(20.0).history()
    assert [late.resource for late in history.late] == ["nodes"]
    before = Story().sentinel(10.0).gap(10.5, 12.9, "nodes")
    write(before, 11.5, 1.5, unlabelled, OTHER)
    assert before.sentinel(15.5).fence(20.0).history().late == []
