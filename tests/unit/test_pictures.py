"""Pictures: text at every width, colours that everybody tells apart, gaps, a hundred thousand events."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nodeproof import catalogue
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.history import Entry, History
from nodeproof.report import behaviours, drawing, svg, timeline
from nodeproof.report.drawing import Bar, Bracket, Lane, Mark, Picture
from nodeproof.report.rates import Curve
from nodeproof.report.rates import draw as draw_rates
from nodeproof.report.recheck import rejudge
from tests.freeze import RUNS, thawed
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, Story, wall

HOSTILE = "<script>alert(1)</script>\u202e\u05e9\u05dc\u05d5\u05dd\x1b[31m\x00\ud800" + "x" * 10_000
SHOWN = Path(__file__).parents[2] / "docs" / "timeline.svg"
CONDITIONS = ("ready", "not-ready", "unknown", "no-condition")
OUTCOMES = ("conforms", "deviates", "unproven")
LANES = (("pod", "leaving"), ("attaching", "attached", "detaching"), ("fault", "taint"))
# Machado, Oliveira and Fernandes 2009, of linear RGB, where a kind of cone is missing.
SEEN_BY = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopes": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopes": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "tritanopes": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}


def drawn(path: Path) -> ElementTree.Element:
    """What of a picture is there; it is one, nothing in it runs, and nothing is loaded."""
    root = ElementTree.fromstring(path.read_text())  # noqa: S314
    assert root.tag.endswith("svg")
    names = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert names <= {"svg", "title", "style", "defs", "pattern", "rect", "line", "path", "circle", "text"}
    assert "url(http" not in path.read_text()
    assert not [each.attrib for each in root.iter() if any(name.startswith("on") for name in each.attrib)]
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter() if each.tag.endswith("}text")]


def linear(colour: str) -> list[float]:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in values]


def contrast(one: str, other: str) -> float:
    """By WCAG 2, 1.4.3."""
    light, dark = sorted(
        (
            sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(each), strict=True))
            for each in (one, other)
        ),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, eyes: Sequence[Sequence[float]]) -> list[float]:
    """CIE 1976 L*a*b* of what these eyes see, D65."""
    red, green, blue = (
        min(max(sum(a * b for a, b in zip(row, linear(colour), strict=True)), 0.0), 1.0) for row in eyes
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return [116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])]


@pytest.mark.parametrize("eyes", SEEN_BY)
@pytest.mark.parametrize("role", [CONDITIONS, OUTCOMES, *LANES])
def test_everybody_tells_colours_apart_that_lie_in_one_lane(eyes: str, role: Sequence[str]) -> None:
    for one, other in combinations(role, 2):
        seen = [lab(svg.FILLS[name][0], SEEN_BY[eyes]) for name in (one, other)]
        assert sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5 > 12, (one, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_light_and_dark(scheme: str) -> None:
    for words in (svg.INK, svg.SOFT):
        assert contrast(words[scheme], svg.PAPER[scheme]) >= 4.5
    for fill, on in svg.FILLS.values():
        assert contrast(fill, on) >= 4.5


def test_the_picture_in_the_docs_is_what_is_drawn_today(tmp_path: Path) -> None:
    with thawed(RUNS / "unreachable") as scenario:
        judged = rejudge(scenario, catalogue.load([RUNS / "claims"]))
        title = behaviours.title(scenario.nodeid)
        path = timeline.render(scenario.history(), judged, tmp_path / "timeline.svg", title)
    assert path.read_text() == SHOWN.read_text(), f"cp {path} {SHOWN}"
    root = drawn(path)
    assert {"node-1", "condition", "unreachable:NoExecute", "Unknown", "judgments"} <= set(texts(root))
    assert "prefers-color-scheme:dark" in path.read_text()


def test_others_text_is_text(tmp_path: Path) -> None:
    bar, mark = Bar(0.0, 10.0, "pod", HOSTILE), Mark(5.0, "✕", HOSTILE)
    brackets = (
        Bracket(HOSTILE, "deviates", HOSTILE, 0.0, 1.0, 2.0, 1.5),
        Bracket(HOSTILE, "unproven", HOSTILE),
    )
    lanes = (Lane(HOSTILE, HOSTILE, (bar,), (mark,)),)
    picture = Picture(HOSTILE, "the fault", 0.0, 0.0, 10.0, lanes, brackets, (bar,))
    root = drawn(drawing.draw(picture, tmp_path / "x.svg"))
    assert any(said.startswith("<script>") for said in texts(root))
    assert max(map(len, texts(root))) <= svg.LETTERS + 2
    curve = Curve(HOSTILE, "deviates", HOSTILE, (0.0, 1.0, 2.0), 0.9, 1.1)
    assert any(
        said.startswith("✗ <script>") for said in texts(drawn(draw_rates([curve], tmp_path / "y.svg")))
    )


def test_a_gap_is_hatched_and_a_judgment_is_told_by_its_sign(tmp_path: Path) -> None:
    story = Story()
    story.gap(3.0, 6.0, "leases")
    story.renew(9.0)
    path = timeline.render(story.history(), (), tmp_path / "x.svg")
    gaps = [
        each for each in drawn(path).iter() if each.get("class") == "gap edged" and "%" in each.get("x", "")
    ]
    assert [each[0].text for each in gaps] == ["no leases, 3.00 to 6.00 s"]
    assert ".gap{fill:url(#np-gap)" in path.read_text()
    shown = Picture("", "", 0.0, 0.0, 1.0, (), tuple(Bracket("a.b", outcome) for outcome in OUTCOMES))
    assert texts(drawn(drawing.draw(shown, path)))[-3:] == ["✓ a.b", "✗ a.b", "? a.b"]


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, ""), (0.15, "from-640"), (0.05, "from-1280"), (0.01, None)]
)
def test_a_word_is_shown_where_there_is_room(share: float, shown: str | None) -> None:
    assert svg.room("node-12", share) == shown


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(-0.3, 63.5, [0, 20, 40, 60]), (0, 0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]), (0, 0, [0])],
)
def test_ticks_are_round_and_few(low: float, high: float, shown: list[float]) -> None:
    assert [*svg.ticks(low, high)] == pytest.approx(shown)


def many(events: int, nodes: int) -> Iterator[Entry]:
    """A cluster whose nodes renew their Leases, now and then miss some, and become Unknown."""
    story = Story([f"node-{number}" for number in range(1, nodes + 1)])
    yield from story.entries
    uids = {key[1]: told["metadata"] for key, told in story._live["leases"].items()}
    for number in range(events):
        name, t = f"node-{number % nodes + 1}", 1.0 + number / nodes
        meta = {**uids[name], "resourceVersion": str(1000 + number)}
        body = {
            "metadata": {**meta, "namespace": LEASE_NAMESPACE, "name": name},
            "spec": {"renewTime": wall(t)},
        }
        yield Entry(t + 0.01, "watch", {"resource": "leases", "type": "MODIFIED", "object": body})


def test_a_hundred_thousand_events_are_drawn_in_three_seconds(tmp_path: Path) -> None:
    # Clocks that nobody measured take the longest.
    entries = [each for each in many(100_000, 20) if each.kind != "clock"]
    began = time.process_time()
    path = timeline.render(History.of(entries), (), tmp_path / "x.svg")
    took = time.process_time() - began
    print(f"{len(entries)} events: {took:.2f} s, {path.stat().st_size} bytes")
    assert took < 3.0
    ticks = [
        len(re.findall("M", each.get("d", ""))) for each in drawn(path).iter() if each.get("class") == "beat"
    ]
    assert max(ticks) <= svg.VISIBLE + 1
    assert path.stat().st_size < 500_000


def pods_of(story: Story, *names: str) -> list[Lane]:
    return [lane for lane in timeline.compose(story.history(), ()).lanes if lane.name in (names or (POD,))]


def test_a_pod_that_is_made_anew_elsewhere_has_a_bar_on_each_node() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.evict(10.0)
    story.remove(16.0, "pods", NAMESPACE, POD)
    story.pod(16.5)
    story.bind(17.0, node="node-11")
    story.say(60.0, "ended")
    (lane,) = pods_of(story)
    assert [(bar.start, bar.end, bar.colour, bar.word) for bar in lane.bars] == [
        (1.0, 10.0, "pod", f"on {NODE}"),
        (10.0, 16.0, "leaving", "deletion asked for"),
        (16.5, 60.0, "pod", "on node-11"),
    ]
    # It lives: nothing says that it was removed.
    assert not lane.marks


def test_a_pod_that_was_replaced_unseen_is_another_one() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.remove(5.0, "pods", NAMESPACE, POD, seen=False)
    story.pod(9.0, node=OTHER)
    story.say(20.0, "ended")
    (lane,) = pods_of(story)
    assert [(bar.start, bar.end, bar.word) for bar in lane.bars] == [
        (1.0, 9.0, f"on {NODE}"),
        (9.0, 20.0, f"on {OTHER}"),
    ]


def test_a_pod_that_a_list_lacked_and_the_next_has_was_there_twice() -> None:
    story, same = Story(), {"metadata": {"uid": "the-same"}, "spec": {"nodeName": NODE}, "status": {}}
    story.change(1.0, "pods", NAMESPACE, POD, same)
    story.remove(5.0, "pods", NAMESPACE, POD, seen=False)
    story.list(6.0, "pods")
    story.change(9.0, "pods", NAMESPACE, POD, same)
    story.say(20.0, "ended")
    (lane,) = pods_of(story)
    assert [(bar.start, bar.end) for bar in lane.bars] == [(1.0, 6.0), (9.0, 20.0)]


def test_each_removal_of_a_name_is_marked_where_there_is_room() -> None:
    story = Story()
    for t in (1.0, 30.0):
        story.pod(t, node=NODE)
        story.remove(t + 10, "pods", NAMESPACE, POD)
    story.say(60.0, "ended")
    (lane,) = pods_of(story)
    assert [(mark.t, mark.word, mark.tip) for mark in lane.marks] == [
        (11.0, "", "removed"),
        (40.0, "removed", ""),
    ]


def test_pods_of_one_name_in_two_namespaces_are_told_apart() -> None:
    story = Story()
    for namespace, node in ((NAMESPACE, NODE), ("others", OTHER)):
        story.change(1.0, "pods", namespace, POD, {"spec": {"nodeName": node}, "status": {}})
    lanes = pods_of(story, f"{NAMESPACE}/{POD}", f"others/{POD}")
    assert [[bar.word for bar in lane.bars] for lane in lanes] == [[f"on {NODE}"], [f"on {OTHER}"]]


EDGES = {
    "inside": ((2.0, 8.0), 2, [], ""),
    "to the end": ((2.0, 10.0), 2, [], ""),
    "past the end": ((2.0, 30.0), 1, [98.0], "2.00 to 30.00 s, goes on beyond the picture's end"),
    "without an end": ((2.0, float("inf")), 1, [98.0], "2.00 to inf s, goes on beyond the picture's end"),
    "before it": ((-5.0, 8.0), 1, [2.0], "-5.00 to 8.00 s, goes on beyond the picture's beginning"),
    "on both sides": (
        (-5.0, 30.0), 0, [2.0, 98.0],
        "-5.00 to 30.00 s, goes on beyond the picture's beginning and end",
    ),
    "after all": ((20.0, 30.0), 0, [98.0], "20.00 to 30.00 s, lies beyond the picture's end"),
}  # fmt: skip


@pytest.mark.parametrize("where", EDGES)
def test_a_window_has_an_edge_where_it_ends_and_an_arrow_where_the_picture_does(
    where: str, tmp_path: Path
) -> None:
    (low, high), edges, arrows, said = EDGES[where]
    bracket = Bracket("a.b", "unproven", "reason", 1.0, low, high)
    path = drawing.draw(Picture("", "", 0.0, 0.0, 10.0, (), (bracket,)), tmp_path / "x.svg")
    root = drawn(path)
    assert len([each for each in root.iter() if each.get("class") == "edge"]) == edges
    heads = [each for each in root.iter() if any(child.get("class") == "beat" for child in each)]
    assert [percent(each, "x") for each in heads] == arrows
    told = texts(root)
    assert " ".join(told[told.index("reason") + 1 : -1]) == (f"the window, {said}" if said else "")
    bars = [each for each in root.iter() if each.get("class") == "unproven faint"]
    assert len(bars) == (low < 10)
    for each in bars:
        left, right = (2 + 9.6 * min(max(t, 0.0), 10.0) for t in (low, high))
        assert percent(each, "x") == pytest.approx(left, abs=0.01)
        assert percent(each, "width") == pytest.approx(right - left, abs=0.01)


def percent(each: ElementTree.Element, name: str) -> float:
    """A place or a length, in percent or px."""
    return float(each.get(name, "").rstrip("%"))


def test_what_was_observed_outside_the_picture_has_no_place_in_it(tmp_path: Path) -> None:
    for observed, dots in ((5.0, 1), (12.0, 0)):
        bracket = Bracket("a.b", "deviates", "", 1.0, 2.0, 4.0, observed)
        root = drawn(drawing.draw(Picture("", "", 0.0, 0.0, 10.0, (), (bracket,)), tmp_path / "x.svg"))
        assert len([each for each in root.iter() if each.tag.endswith("circle")]) == dots
