"""Pictures show the facts of a recording, escape foreign text, and are safe SVG."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nodeproof import catalogue
from nodeproof.checks import invariants, moments
from nodeproof.model import window as windows
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Judgment
from nodeproof.model.verdict import Verdict, conforms, deviates
from nodeproof.report import plain, timeline
from nodeproof.report.recheck import rejudge
from nodeproof.report.timeline import Bar, Bracket, Curve, Lane, Mark, Picture, draw_rates, draw_timeline
from tests.golden_runs import RUNS, thawed
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, Story, wall

HOSTILE = "<script>alert(1)</script>\u202e\u05e9\u05dc\u05d5\u05dd\x1b[31m\x00\ud800" + "x" * 10_000
DOCUMENTED = Path(__file__).parents[2] / "docs" / "timeline.svg"


def parsed(path: Path) -> ElementTree.Element:
    """Parse a picture and assert that it is one, runs nothing and loads nothing."""
    root = ElementTree.fromstring(path.read_text())  # noqa: S314
    assert root.tag.endswith("svg")
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "title", "style", "defs", "pattern", "rect", "line", "path", "circle", "text"}
    assert "url(http" not in path.read_text()
    assert [name for element in root.iter() for name in element.attrib if name.startswith("on")] == []
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def test_documented_picture_is_current(tmp_path: Path) -> None:
    with thawed(RUNS / "unreachable") as scenario:
        judged = rejudge(scenario, catalogue.load([RUNS / "claims"])).judged
        title = plain.title(scenario.nodeid)
        path = timeline.render(scenario.history(), judged, tmp_path / "timeline.svg", title)
    assert path.read_text() == DOCUMENTED.read_text(), f"cp {path} {DOCUMENTED}"
    labels = set(texts(parsed(path)))
    assert {"node-1", "condition", "unreachable:NoExecute", "Unknown", "judgments"} <= labels


def test_foreign_text_is_escaped_and_shortened(tmp_path: Path) -> None:
    bar, mark = Bar(0.0, 10.0, "pod", HOSTILE), Mark(5.0, "✕", HOSTILE)
    deviating = Bracket(HOSTILE, "deviates", HOSTILE, 0.0, 1.0, 2.0, 1.5)
    brackets = (deviating, Bracket(HOSTILE, "unproven", HOSTILE))
    lanes = (Lane(HOSTILE, HOSTILE, (bar,), (mark,)),)
    picture = Picture(HOSTILE, "the fault", 0.0, 0.0, 10.0, lanes, brackets, (bar,))
    labels = texts(parsed(draw_timeline(picture, tmp_path / "x.svg")))
    assert any(label.startswith("<script>") for label in labels)
    assert max(map(len, labels)) <= timeline.LINE_LETTERS + 2
    curve = Curve(HOSTILE, "deviates", HOSTILE, (0.0, 1.0, 2.0), 0.9, 1.1)
    labels = texts(parsed(draw_rates([curve], tmp_path / "y.svg")))
    assert any(label.startswith("✗ <script>") for label in labels)


def test_gap_is_distinct_and_judgment_has_a_sign(tmp_path: Path) -> None:
    story = Story().gap(3.0, 6.0, "leases").renew(9.0)
    root = parsed(timeline.render(story.history(), (), tmp_path / "x.svg"))
    assert parsed(timeline.render(History.of(()), (), tmp_path / "empty.svg")) is not None
    assert [gap[0].text for gap in by_class(root, "gap edged") if len(gap)] == ["no leases, 3.00 to 6.00 s"]
    brackets = tuple(Bracket("a.b", outcome) for outcome in ("conforms", "deviates", "unproven"))
    picture = Picture("", "", 0.0, 0.0, 1.0, (), brackets)
    labels = texts(parsed(draw_timeline(picture, tmp_path / "y.svg")))
    assert labels[-3:] == ["✓ a.b", "✗ a.b", "? a.b"]


def many(events: int, nodes: int) -> Iterator[Entry]:
    """Record nodes that renew their Leases, miss some, and become Unknown."""
    story = Story([f"node-{number}" for number in range(1, nodes + 1)])
    yield from story.entries
    uids = {key[1]: object["metadata"] for key, object in story._live["leases"].items()}
    for number in range(events):
        name, t = f"node-{number % nodes + 1}", 1.0 + number / nodes
        meta = {**uids[name], "resourceVersion": str(1000 + number)}
        meta |= {"namespace": LEASE_NAMESPACE, "name": name}
        body = {"metadata": meta, "spec": {"renewTime": wall(t)}}
        yield Entry(t + 0.01, "watch", {"resource": "leases", "type": "MODIFIED", "object": body})


def test_hundred_thousand_events_are_drawn_in_three_seconds(tmp_path: Path) -> None:
    # Unmeasured clocks take the longest.
    entries = [entry for entry in many(100_000, 20) if entry.kind != "clock"]
    began = time.process_time()
    path = timeline.render(History.of(entries), (), tmp_path / "x.svg")
    assert time.process_time() - began < 3.0
    assert parsed(path) is not None
    assert path.stat().st_size < 500_000


def lanes_of(story: Story, *names: str) -> list[Lane]:
    return [lane for lane in timeline.compose(story.history(), ()).lanes if lane.name in (names or (POD,))]


@pytest.mark.parametrize("nodes", [3, 18])
def test_timeline_shows_the_scenarios_own_nodes_and_pods(nodes: int) -> None:
    """In a lab that workers share, the watches deliver the nodes and pods of all zones."""
    story = Story(f"node-{number}" for number in range(1, nodes + 1))
    zone = ["node-1", "node-2", "node-3"]
    story.entries[0] = Entry(0.0, "begun", {**story.entries[0].data, "nodes": zone})
    story.pod(1.0, node=NODE)
    story.pod(1.0, "pending")
    for number in range(4, nodes + 1):
        for t in (2.0, 4.0, 6.0):
            story.condition(t + number / 10, "False" if t == 4.0 else "Unknown", f"node-{number}")
        story.pod(3.0, f"foreign-{number}", f"node-{number}")
        story.evict(5.0, f"foreign-{number}")
    for name in ("joined", "judged", "foreign"):
        story.change(7.0, "nodes", "", name, {"spec": {}, "status": {"conditions": []}})
    story.say(7.0, "machine", node="machine-1", step="joining", **{"as": "joined"})
    judgment = Judgment("a.b", moments.condition_became("judged", "Ready", "True").after(
        moments.recording_began(), windows.up_to(5)
    ))  # fmt: skip
    lanes = timeline.compose(story.history(), [(judgment, conforms("it came"))]).lanes
    assert {lane.group for lane in lanes if lane.name == "condition"} == {*zone, "joined", "judged"}
    assert {lane.name for lane in lanes if lane.group == "pods"} == {POD, "pending", "sentinel"}
    assert not [lane for lane in lanes if "quieter" in lane.name]


@pytest.mark.parametrize(
    ("verdict", "first_s", "last_s"),
    [
        (deviates("300.0 s after the recording began, pod quiet was evicted"), 270.0, 330.0),
        (deviates("10.0 s after the recording began, pod quiet was evicted"), 0.0, 40.0),
        (deviates("it came late"), 0.0, 600.0),
        (conforms("held on 3 occasions"), 0.0, 600.0),
    ],
)
def test_storm_is_drawn_for_the_minute_around_a_violation(
    verdict: Verdict, first_s: float, last_s: float
) -> None:
    story = Story().pod(1.0, "quiet", NODE)
    for number in range(timeline.MOST_PODS + 1):
        story.pod(2.0, f"gone-{number}", NODE).evict(500.0, f"gone-{number}")
    story.taint(100.0).untaint(120.0).taint(290.0).say(600.0, "ended")
    check = invariants.evicted_when_due()
    picture = timeline.compose(story.history(), [(Judgment("a.b", check), verdict)])
    assert (picture.start, picture.end) == (first_s, last_s)
    for lane in picture.lanes:
        assert all(bar.start < last_s and bar.end > first_s for bar in lane.bars)
    is_whole = last_s - first_s > 60.0
    assert ("quiet" in {lane.name for lane in picture.lanes}) != is_whole


def test_pod_recreated_on_another_node_has_a_bar_on_each() -> None:
    story = Story().pod(1.0, node=NODE).evict(10.0).remove(16.0, "pods", NAMESPACE, POD).pod(16.5)
    story.bind(17.0, node="node-11")
    story.say(60.0, "ended")
    (lane,) = lanes_of(story)
    assert [(bar.start, bar.end, bar.colour, bar.label) for bar in lane.bars] == [
        (1.0, 10.0, "pod", f"on {NODE}"),
        (10.0, 16.0, "terminating", "Terminating"),
        (16.5, 60.0, "pod", "on node-11"),
    ]
    # It exists: no event reports its removal.
    assert not lane.marks


def test_pod_replaced_unseen_is_another_pod() -> None:
    story = Story().pod(1.0, node=NODE).remove(5.0, "pods", NAMESPACE, POD, is_watched=False)
    story.pod(9.0, node=OTHER)
    story.say(20.0, "ended")
    (lane,) = lanes_of(story)
    bars = [(bar.start, bar.end, bar.label) for bar in lane.bars]
    assert bars == [(1.0, 9.0, f"on {NODE}"), (9.0, 20.0, f"on {OTHER}")]


def test_pods_of_the_same_name_in_two_namespaces_are_distinct() -> None:
    story = Story()
    for namespace, node in ((NAMESPACE, NODE), ("others", OTHER)):
        story.change(1.0, "pods", namespace, POD, {"spec": {"nodeName": node}, "status": {}})
    lanes = lanes_of(story, f"{NAMESPACE}/{POD}", f"others/{POD}")
    assert [[bar.label for bar in lane.bars] for lane in lanes] == [[f"on {NODE}"], [f"on {OTHER}"]]
