"""Histories: what is on disk, folding, gaps and fences."""

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
from nodeproof.model.fold import Fold
from nodeproof.model.history import Entry, Fence, History, fence, parse_time
from tests.unit.histories import NAMESPACE, POD, Story, configuration, partition, wall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
times = st.floats(0, 1e6).map(lambda t: round(t, 6))
data = st.dictionaries(st.text().filter(lambda key: key not in ("t", "kind")), json_values, max_size=4)
entries = st.builds(Entry, times, st.text(), data)


@given(entries)
def test_an_entry_survives_its_line(entry: Entry) -> None:
    assert "\n" not in entry.to_json()
    assert Entry.from_json(entry.to_json()) == entry


@given(st.lists(entries))
def test_a_history_is_sorted_and_survives_its_lines(several: list[Entry]) -> None:
    history = History.of(several)
    assert [entry.t for entry in history.entries] == sorted(entry.t for entry in several)
    assert History.parse(entry.to_json() for entry in history.entries) == history


@pytest.mark.parametrize("line", ["{", "[]", "1", '{"t": 1}', '{"kind": "x"}', '{"t": "x", "kind": "y"}'])
def test_what_is_no_entry_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        History.parse([line])


def test_an_empty_history_has_no_facts() -> None:
    history = History.of(())
    assert (history.began_t, history.ended_t, dict(history.begun)) == (0.0, 0.0, {})
    assert not fence(history).passed


def test_a_recording_that_was_cut_short_ends_with_its_last_entry() -> None:
    story = Story(t=3.0)
    story.cordon(9.0)
    assert (story.history().began_t, story.history().ended_t) == (3.0, 9.0)
    assert story.fence(10.0).history().ended_t == 10.05


def test_wall_times_come_onto_the_monotonic_clock() -> None:
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


def test_a_told_story_passes_its_fence() -> None:
    story = partition().fence(60.0)
    assert fence(story.history()) == Fence(True, 60.01, "")


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Pods made, changed and removed at random, with a fence and later events behind it."""
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
def test_a_dropped_event_fails_the_fence_unless_a_later_one_covers_it(
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
def test_what_comes_after_the_list_does_not_matter(story: Story, steps: list[str]) -> None:
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


def test_a_removal_after_the_list_is_undone() -> None:
    story = Story()
    story.pod(1.0)
    listed_rv = story.rv
    before = story.objects("pods")
    story.remove(2.0, "pods", NAMESPACE, POD)
    history = story.history()
    assert history.folded("pods", listed_rv) == before
    assert history.folded("pods", story.rv) == story.objects("pods")


def test_an_object_that_is_only_listed_later_than_the_fence_is_not_folded() -> None:
    story = Story()
    before, rv = story.objects("pods"), story.rv
    story.pod(1.0)
    story.list(2.0, "pods")
    assert story.history().folded("pods", rv) == before


def test_a_list_after_a_gap_removes_what_it_does_not_hold() -> None:
    story = Story()
    story.pod(1.0)
    story.remove(2.0, "pods", NAMESPACE, POD, seen=False)
    story.gap(1.5, 3.0, "pods", lists=True)
    assert fence(story.fence(4.0).history()).passed


def test_a_missing_removal_fails_the_fence() -> None:
    story = Story()
    story.pod(1.0)
    story.remove(2.0, "pods", NAMESPACE, POD, seen=False)
    failed = fence(story.fence(4.0).history())
    assert not failed.passed
    assert "1 states of pods differ" in failed.reason


@pytest.mark.parametrize("resource", ["nodes", "pods", "leases", "events"])
def test_a_watch_without_its_sentinel_fails_the_fence(resource: str) -> None:
    failed = fence(Story().fence(4.0, blind=[resource]).history())
    assert not failed.passed
    assert resource in failed.reason


def test_a_sentinel_on_a_list_proves_no_watch() -> None:
    story = Story().fence(4.0, blind=["pods"])
    story.list(4.0, "pods")
    assert not fence(story.history()).passed


def test_a_fence_about_nothing_does_not_pass() -> None:
    history = History.of([Entry(1.0, "fence", {"sentinels": {}, "listed": {}})])
    assert not fence(history).passed


def test_a_fence_holds_every_recorded_resource() -> None:
    story = Story()
    story.resources = ("nodes", "leases", "events")
    failed = fence(story.fence(4.0).history())
    assert (failed.passed, failed.reason) == (False, "the fence does not include pods")


def test_a_fence_holds_what_is_asked_for() -> None:
    history = Story(resources=("nodes", "leases")).fence(4.0).history()
    assert fence(history, ("nodes",)).passed
    assert not fence(history, ("nodes", "pods")).passed


@pytest.mark.parametrize("value", [None, ""])
def test_no_sentinel_at_all_is_not_a_sentinel_that_was_seen(value: str | None) -> None:
    story = Story().fence(4.0)
    last = story.entries[-2]
    sentinels = {**last.data["sentinels"], "pods": value}
    story.entries[-2] = Entry(last.t, "fence", {**last.data, "sentinels": sentinels})
    assert not fence(story.history()).passed


def test_a_fence_vouches_no_further_than_its_sentinels() -> None:
    story = Story()
    story.sentinel(3.0)
    late = story.fence(9.0).history()
    entry = late.of_kind("fence")[0]
    old = {**entry.data, "sentinels": dict.fromkeys(entry.data["sentinels"], "s-1")}
    stale = History.of([*(it for it in late.entries if it.kind != "fence"), Entry(9.03, "fence", old)])
    assert fence(late).t == 9.01
    assert fence(stale) == Fence(True, 3.02, "")


def test_the_last_fence_counts() -> None:
    story = Story().fence(4.0)
    story.pod(5.0)
    story.fence(6.0, blind=["pods"])
    assert not fence(story.history()).passed


# Gaps


@pytest.mark.parametrize(
    ("since_t", "until_t", "overlaps"),
    [(0.0, 9.9, False), (0.0, 10.0, True), (15.0, 16.0, True), (20.0, 30.0, True), (22.1, 30.0, False)],
)
def test_a_gap_overlaps_what_it_may_hide(since_t: float, until_t: float, overlaps: bool) -> None:
    story = Story()
    story.gap(10.0, 20.0, "nodes")
    story.sentinel(21.98)
    assert (story.history().gap("nodes", since_t, until_t) is not None) is overlaps
    assert story.history().gap("pods", since_t, until_t) is None


def test_a_gap_lasts_until_something_is_seen_again() -> None:
    story = Story()
    story.gap(10.0, 20.0, "nodes")
    assert story.history().gap("nodes", 500.0, 600.0) is not None


# Reading objects


def test_reading_nodes() -> None:
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


def test_a_configuration_survives_its_json() -> None:
    stored = json.loads(json.dumps(configuration().to_json()))
    assert Configuration.from_json(stored) == configuration()
    assert configuration()["R"] == 2.0
    later = {**stored, "surprise": 1, "calibration": {**stored["calibration"], "surprise": 1}}
    assert Configuration.from_json(later) == configuration()
    with pytest.raises(TypeError):
        Configuration.from_json({"calibration": {}})


def test_what_a_later_list_lacks_was_removed_at_an_unknown_time_of_the_gap() -> None:
    story = Story()
    story.pod(1.0)
    story.remove(2.0, "pods", NAMESPACE, POD, seen=False)
    story.gap(1.5, 3.0, "pods", lists=True)
    (made, gone) = story.history().versions("pods", NAMESPACE, POD)
    assert (made.deleted, gone.deleted, gone.listed, gone.t) == (False, True, True, 2.99)


@settings(deadline=None)
@given(st.data())
def test_a_fold_that_grows_in_any_order_is_the_history_of_all(data: st.DataObject) -> None:
    """Resources are watched by a thread each: one's entries come in order, between them there is none."""
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
