"""Histories: files, folding, gaps and fences."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeproof.model.cluster import (
    NOT_READY,
    UNREACHABLE,
    Configuration,
    condition,
    condition_status,
    has_taint,
    is_ready,
)
from nodeproof.model.history import Entry, Fence, Fold, History, fence, parse_time
from tests.unit.histories import NAMESPACE, POD, RESOURCES, Story, configuration, partition, wall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
times = st.floats(0, 1e6).map(lambda t: round(t, 6))
data = st.dictionaries(st.text().filter(lambda key: key not in ("t", "kind")), json_values, max_size=4)
entries = st.builds(Entry, times, st.text(), data)


@given(entries)
def test_entry_survives_its_line(entry: Entry) -> None:
    assert "\n" not in entry.to_json()
    assert Entry.from_json(entry.to_json()) == entry


@given(st.lists(entries))
def test_history_is_sorted_and_survives_its_lines(several: list[Entry]) -> None:
    history = History.of(several)
    assert [entry.t for entry in history.entries] == sorted(entry.t for entry in several)
    assert History.parse(entry.to_json() for entry in history.entries) == history


@pytest.mark.parametrize("line", ["{", "[]", "1", '{"t": 1}', '{"kind": "x"}', '{"t": "x", "kind": "y"}'])
def test_invalid_entry_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        History.parse([line])


def test_interrupted_recording_ends_with_its_last_entry() -> None:
    story = Story(t=3.0).cordon(9.0)
    assert (story.history().began_t, story.history().ended_t) == (3.0, 9.0)
    assert story.fence(10.0).history().ended_t == 10.05


def test_wall_times_are_converted_to_the_monotonic_clock() -> None:
    assert Story().history().from_wall(wall(12.5)) == pytest.approx(12.5)
    assert parse_time("2026-01-01T00:00:00Z") == parse_time("2026-01-01T01:00:00.000000+01:00")


def test_bookmarks_and_errors_are_no_objects() -> None:
    story = Story()
    story.say(
        1.0, "watch", resource="nodes", type="BOOKMARK", object={"metadata": {"resourceVersion": "999"}}
    )
    story.say(1.0, "watch", resource="nodes", type="ERROR", object={"code": 410})
    assert fence(story.fence(2.0).history()).passed


# Folding and fences


def test_complete_history_passes_its_fence() -> None:
    assert fence(partition().fence(60.0).history()) == Fence(True, 60.01, "")


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Draw pods that are created, changed and removed, with a fence and later events."""
    story = Story(resources=("nodes", "pods"))
    live: list[str] = []
    steps = draw(st.lists(st.sampled_from(["make", "bind", "evict", "remove"]), max_size=12))
    for t, step in enumerate(steps, start=1):
        if step == "make":
            live.append(f"pod-{t}")
            story.pod(t, live[-1])
        elif live:
            name = draw(st.sampled_from(live))
            if step == "remove":
                live.remove(name)
                story.remove(t, "pods", NAMESPACE, name)
            else:
                (story.bind if step == "bind" else story.evict)(t, name)
    return story


@given(stories(), st.data())
@settings(max_examples=200)
def test_dropped_event_fails_the_fence_unless_a_later_one_covers_it(
    story: Story, draw: st.DataObject
) -> None:
    history = story.fence(50.0).history()
    assert fence(history).passed
    events = [entry for entry in history.of_kind("watch") if entry.t < 50.0]
    if not events:
        return
    dropped = draw.draw(st.sampled_from(events))
    uid = dropped.data["object"]["metadata"]["uid"]
    later = [
        entry
        for entry in history.of_kind("watch")
        if entry.data["object"]["metadata"]["uid"] == uid and entry.t > dropped.t
    ]
    left = History.of(entry for entry in history.entries if entry is not dropped)
    assert fence(left).passed is bool(later)


@given(stories(), st.lists(st.sampled_from(["make", "remove", "bind"]), max_size=4))
def test_events_after_the_list_do_not_matter(story: Story, steps: list[str]) -> None:
    story.pod(45.0, "last")
    story.fence(50.0)
    for number, step in enumerate(steps):
        t = 51.0 + number
        if step == "make" or number:
            story.pod(t, f"late-{number}")
        elif step == "remove":
            story.remove(t, "pods", NAMESPACE, "last")
        else:
            story.bind(t, "last")
    assert fence(story.history()).passed


def test_removal_after_the_list_is_undone() -> None:
    story = Story().pod(1.0)
    listed_rv = story.rv
    before = story.objects("pods")
    story.remove(2.0, "pods", NAMESPACE, POD)
    history = story.history()
    assert history.folded("pods", listed_rv) == before
    assert history.folded("pods", story.rv) == story.objects("pods")


def test_object_listed_after_the_fence_is_not_folded() -> None:
    story = Story()
    before, rv = story.objects("pods"), story.rv
    story.pod(1.0)
    story.list(2.0, "pods")
    assert story.history().folded("pods", rv) == before


def removed_unseen() -> Story:
    """Remove a pod without an event of the watch."""
    return Story().pod(1.0).remove(2.0, "pods", NAMESPACE, POD, is_watched=False)


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (removed_unseen().fence(4.0), "1 states of pods differ"),
        *((Story().fence(4.0, blind=[resource]), resource) for resource in RESOURCES),
        # A listed sentinel proves no watch.
        (Story().fence(4.0, blind=["pods"]).list(4.0, "pods"), "pods"),
        # The last fence counts.
        (Story().fence(4.0).pod(5.0).fence(6.0, blind=["pods"]), "pods"),
    ],
)
def test_incomplete_watch_fails_the_fence(story: Story, reason: str) -> None:
    failed = fence(story.history())
    assert not failed.passed
    assert reason in failed.reason


def more_recorded() -> Story:
    story = Story()
    story.resources = ("nodes", "leases", "events")
    return story.fence(4.0)


def without_sentinel(value: str | None) -> Story:
    story = Story().fence(4.0)
    last = story.entries[-2]
    sentinels = {**last.data["sentinels"], "pods": value}
    story.entries[-2] = Entry(last.t, "fence", {**last.data, "sentinels": sentinels})
    return story


EMPTY = History.of(())


@pytest.mark.parametrize(
    "history",
    [
        EMPTY,
        History.of([Entry(1.0, "fence", {"sentinels": {}, "listed": {}})]),
        without_sentinel(None).history(),
        without_sentinel("").history(),
    ],
    ids=["empty history", "empty fence", "no sentinel", "empty sentinel"],
)
def test_fence_without_sentinels_does_not_pass(history: History) -> None:
    assert not fence(history).passed
    assert (EMPTY.began_t, EMPTY.ended_t, dict(EMPTY.begun)) == (0.0, 0.0, {})


def test_list_after_a_gap_removes_missing_objects() -> None:
    story = removed_unseen().gap(1.5, 3.0, "pods", lists=True).fence(4.0)
    assert fence(story.history()).passed
    (present, removed) = story.history().versions("pods", NAMESPACE, POD)
    assert (present.deleted, removed.deleted, removed.listed, removed.t) == (False, True, True, 2.99)


def test_fence_requires_the_recorded_and_the_requested_resources() -> None:
    assert fence(more_recorded().history()) == Fence(False, 4.03, "the fence does not include pods")
    history = Story(resources=("nodes", "leases")).fence(4.0).history()
    assert fence(history, ("nodes",)).passed
    assert not fence(history, ("nodes", "pods")).passed


def test_fence_reaches_no_further_than_its_sentinels() -> None:
    late = Story().sentinel(3.0).fence(9.0).history()
    entry = late.of_kind("fence")[0]
    old = {**entry.data, "sentinels": dict.fromkeys(entry.data["sentinels"], "s-1")}
    stale = History.of([*(it for it in late.entries if it.kind != "fence"), Entry(9.03, "fence", old)])
    assert fence(late).t == 9.01
    assert fence(stale) == Fence(True, 3.02, "")


# Gaps


@pytest.mark.parametrize(
    ("since_t", "until_t", "overlaps"),
    [(0.0, 9.9, False), (0.0, 10.0, True), (15.0, 16.0, True), (20.0, 30.0, True), (22.1, 30.0, False)],
)
def test_gap_overlaps_what_it_may_hide(since_t: float, until_t: float, overlaps: bool) -> None:
    story = Story().gap(10.0, 20.0, "nodes").sentinel(21.98)
    assert (story.history().gap("nodes", since_t, until_t) is not None) is overlaps
    assert story.history().gap("pods", since_t, until_t) is None
    assert Story().gap(10.0, 20.0, "nodes").history().gap("nodes", 500.0, 600.0) is not None


# Reading objects


def test_node_fields_are_read() -> None:
    node = {
        "spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert is_ready(node)
    assert has_taint(node, UNREACHABLE, "NoExecute")
    assert not has_taint(node, UNREACHABLE, "NoSchedule")
    assert not has_taint(node, NOT_READY, "NoExecute")
    assert condition(node, "DiskPressure") is None
    assert condition_status({"status": {"conditions": None}}, "Ready") == ""


def test_configuration_survives_its_json() -> None:
    stored = json.loads(json.dumps(configuration().to_json()))
    assert Configuration.from_json(stored) == configuration()
    assert configuration()["R"] == 2.0
    later = {**stored, "surprise": 1, "calibration": {**stored["calibration"], "surprise": 1}}
    assert Configuration.from_json(later) == configuration()
    with pytest.raises(TypeError):
        Configuration.from_json({"calibration": {}})


@settings(deadline=None)
@given(st.data())
def test_fold_is_independent_of_the_order_of_entries(data: st.DataObject) -> None:
    """Each resource is watched by its own thread: only entries of one resource are ordered."""
    entries = list(partition().entries)
    late = data.draw(st.sampled_from([None, "nodes", "pods", "leases", "events"]))
    by = data.draw(st.integers(1, 40))
    held = [entry for entry in entries if entry.data.get("resource") == late]
    others = [entry for entry in entries if entry.data.get("resource") != late]
    arrived = [*others[:by], *held, *others[by:]]
    fold = Fold()
    for number, entry in enumerate(arrived, start=1):
        fold.add(entry)
        if number % 50 and number != len(arrived):
            continue
        grown, whole = History.so_far(fold), History.of(arrived[:number])
        assert grown == whole
        assert fence(grown) == fence(whole)
        for resource, namespace, name in fold.versions:
            assert grown.versions(resource, namespace, name) == whole.versions(resource, namespace, name)
            assert list(grown.all_versions(resource)) == list(whole.all_versions(resource))
