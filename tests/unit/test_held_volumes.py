"""Pictures of who holds the disk: told histories of volumes that move, stay, or are held by two nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeproof.faults import volumes
from nodeproof.model.history import SENTINEL_ANNOTATION
from nodeproof.report import holders, svg, timeline
from nodeproof.report.drawing import ATTACHED, ATTACHING, DETACHING, Lane
from nodeproof.sources.volumes import VolumeCalls
from tests.unit.histories import NODE, OTHER, RESOURCES, Json, Story, wall
from tests.unit.test_pictures import drawn, texts

VOLUME, ATTACHMENTS = "volume-12ab34cd-0", "volumeattachments"


def attachment(node: str, by: str, volume: str) -> Json:
    """One that is fulfilled."""
    source = {"persistentVolumeName": volume}
    spec = {"attacher": by, "nodeName": node, "source": source}
    return {"spec": spec, "status": {"attached": True}}


class Disks(Story):
    """A story with attachments, each called by its node."""

    def __init__(self) -> None:
        super().__init__(resources=(*RESOURCES, ATTACHMENTS))

    def attach(
        self,
        t: float,
        node: str,
        attached_t: float | None = None,
        by: str = volumes.DRIVER,
        volume: str = VOLUME,
    ) -> None:
        """An attachment is made, and fulfilled where it is told when."""
        body = {"spec": attachment(node, by, volume)["spec"]}
        self.change(t, ATTACHMENTS, "", f"csi-{volume}-{node}", body)
        if attached_t is not None:
            self.alter(attached_t, node, {"status": {"attached": True}}, volume)

    def alter(self, t: float, node: str, body: Json, volume: str = VOLUME) -> None:
        """More is said of an attachment."""
        name = f"csi-{volume}-{node}"
        self.change(t, ATTACHMENTS, "", name, {**self.object(ATTACHMENTS, "", name), **body})

    def detach(self, t: float, node: str, gone_t: float | None = None) -> None:
        """The end of an attachment is asked for, and comes where it is told when."""
        name = f"csi-{VOLUME}-{node}"
        meta = self.object(ATTACHMENTS, "", name)["metadata"]
        self.alter(t, node, {"metadata": {**meta, "deletionTimestamp": wall(t)}})
        if gone_t is not None:
            self.remove(gone_t, ATTACHMENTS, "", name)

    def ask(self, t: float, method: str, node: str = NODE, code: str = "OK", only: str = "") -> None:
        """The driver tells what it was asked."""
        self.tell(f"{method} {node} {code}", t, by=VolumeCalls(VOLUME, only).by)

    def until(self, t: float) -> Sequence[Lane]:
        """What is drawn of a recording that ends about then."""
        self.say(t, "ended")
        return self.lanes()

    def lanes(self) -> Sequence[Lane]:
        return holders.volume_lanes(self.history())


def told(lane: Lane) -> list[tuple[float, float, str, str]]:
    return [(bar.start, bar.end, bar.colour, bar.word) for bar in lane.bars]


def moved() -> Disks:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.detach(20.0, NODE, 21.0)
    story.attach(21.5, OTHER, 22.0)
    story.say(40.0, "ended")
    return story


def texts_of(story: Story, tmp: Path) -> list[str]:
    return texts(drawn(timeline.render(story.history(), (), tmp / "drawn.svg")))


def places(path: Path, colour: str) -> list[tuple[float, float, float]]:
    """Left and right (percent) and top (px) of bars of a colour in a lane."""
    rects = [each for each in drawn(path).iter() if each.get("class") == f"{colour} edged" and len(each)]
    at = [tuple(float(each.get(name, "").rstrip("%")) for name in ("x", "width", "y")) for each in rects]
    return [(left, left + width, top) for left, width, top in at]


def test_a_volume_that_moves_is_held_by_one_node_after_the_other() -> None:
    (lane,) = moved().lanes()
    assert (lane.group, lane.name) == (f"volume {VOLUME}", "held")
    assert told(lane) == [
        (2.0, 3.0, ATTACHING, f"attaching to {NODE}"),
        (3.0, 20.0, ATTACHED, f"on {NODE}"),
        (20.0, 21.0, DETACHING, f"detaching from {NODE}"),
        (21.5, 22.0, ATTACHING, f"attaching to {OTHER}"),
        (22.0, moved().history().ended_t, ATTACHED, f"on {OTHER}"),
    ]
    tips = [bar.tip for bar in lane.bars[1::3]]
    assert tips == [f"{VOLUME}: on {NODE}", f"{VOLUME}: on {OTHER} until the recording ended"]


def test_two_holders_at_once_are_two_bars_one_over_the_other(tmp_path: Path) -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.attach(10.0, OTHER, 11.0)
    story.detach(20.0, NODE, 21.0)
    story.detach(25.0, OTHER, 26.0)
    # It fits into the first row again.
    story.attach(30.0, NODE, 31.0)
    first, second = story.until(40.0)
    assert (first.name, second.name) == ("held", "held at the same time")
    assert {bar.word for bar in first.bars if bar.colour == ATTACHED} == {f"on {NODE}"}
    assert {bar.word for bar in second.bars if bar.colour == ATTACHED} == {f"on {OTHER}"}
    path = timeline.render(story.history(), (), tmp_path / "x.svg")
    one, other, again = sorted(places(path, ATTACHED))
    assert one[0] < other[0] < one[1] < other[1] < again[0]
    assert one[2] == again[2]
    assert other[2] >= one[2] + 16


def test_one_attachment_ends_where_the_next_begins_in_the_same_row() -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.detach(20.0, NODE, 21.0)
    story.attach(21.0, OTHER, 21.0)
    assert [lane.name for lane in story.until(30.0)] == ["held"]


def test_a_volume_that_is_never_detached_is_held_to_the_end() -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.detach(20.0, NODE)
    (lane,) = story.until(40.0)
    assert told(lane)[-1] == (20.0, story.history().ended_t, DETACHING, f"detaching from {NODE}")
    assert lane.bars[-1].tip.endswith("until the recording ended")
    assert not lane.marks


def test_an_attachment_that_was_made_anew_unseen_ends_where_the_next_is_seen() -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.remove(9.0, ATTACHMENTS, "", f"csi-{VOLUME}-{NODE}", seen=False)
    story.attach(12.0, NODE, 13.0)
    (lane,) = story.until(40.0)
    held = [bar for bar in lane.bars if bar.colour == ATTACHED]
    assert [(bar.start, bar.end) for bar in held] == [(3.0, 12.0), (13.0, 40.0)]
    assert [bar.tip.endswith("until the recording ended") for bar in held] == [False, True]


def test_what_is_detached_says_so() -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    story.detach(20.0, NODE, 21.0)
    (lane,) = story.until(40.0)
    assert [(mark.t, mark.sign, mark.word) for mark in lane.marks] == [(21.0, "✕", "detached")]


def test_a_volume_that_is_attached_to_the_same_node_again_has_a_bar_for_each_time() -> None:
    story = Disks()
    for t in (2.0, 12.0):
        story.attach(t, NODE, t + 1)
        story.detach(t + 5, NODE, t + 6)
    (lane,) = story.until(40.0)
    held = [(bar.start, bar.end) for bar in lane.bars if bar.colour == ATTACHED]
    assert held == [(3.0, 7.0), (13.0, 17.0)]


def test_an_attachment_that_ends_before_it_was_fulfilled_was_never_attached() -> None:
    story = Disks()
    story.attach(2.0, NODE)
    story.detach(5.0, NODE, 6.0)
    (lane,) = story.until(10.0)
    assert [bar.colour for bar in lane.bars] == [ATTACHING, DETACHING]


def test_somebody_elses_volume_is_shown_where_something_happened_to_it() -> None:
    story, theirs = Disks(), "ebs.csi.aws.com"
    story.attach(0.0, NODE, 0.0, theirs, "pvc-quiet")
    story.attach(0.0, OTHER, 0.0, theirs, "pvc-moves")
    story.attach(0.0, OTHER, 0.0, volumes.DRIVER, "volume-of-ours")
    story.entries[:] = [each for each in story.entries if each.data.get("resource") != ATTACHMENTS]
    story.list(0.0, ATTACHMENTS)
    story.remove(9.0, ATTACHMENTS, "", f"csi-pvc-moves-{OTHER}")
    # Made and attached while no watch saw it.
    story.change(10.0, ATTACHMENTS, "", "csi-new", attachment(NODE, theirs, "pvc-new"), seen=False)
    story.list(12.0, ATTACHMENTS)
    story.say(20.0, "ended")
    shown = [lane.group.removeprefix("volume ") for lane in story.lanes()]
    assert shown == ["pvc-moves", "pvc-new", "volume-of-ours"]


def test_the_recordings_own_attachment_is_no_volume() -> None:
    story, own = Disks(), "nodeproof-sentinel"
    story.attach(0.0, own, None, "none.nodeproof.dev", own)
    story.alter(1.0, own, {"metadata": {"annotations": {SENTINEL_ANNOTATION: "s-1"}}}, own)
    assert not story.lanes()


def test_of_many_volumes_those_are_shown_that_are_the_scenarios_own_or_moved() -> None:
    story = Disks()
    story.attach(25.0, NODE, 26.0)
    for number in range(holders.MOST_VOLUMES + 2):
        story.attach(25.0, NODE, 26.0, "ebs.csi.aws.com", f"pvc-{number}")
    story.attach(27.0, OTHER, 28.0, "ebs.csi.aws.com", "pvc-7")
    groups = {lane.group for lane in story.lanes()}
    assert {f"volume {VOLUME}", "volume pvc-7", "volume pvc-0"} < groups
    assert "volume pvc-6" not in groups
    assert story.lanes()[-1].name == "3 quieter volumes"


def test_a_long_name_of_a_volume_loses_its_middle(tmp_path: Path) -> None:
    story, long = Disks(), "pvc-0b7ac9c9-1d7b-4b5e-9d0a-6f6a1f1f2c3d-of-the-database"
    story.attach(2.0, NODE, 3.0, volume=long)
    story.say(10.0, "ended")
    (shown,) = [said for said in texts_of(story, tmp_path) if said.startswith("volume pvc-")]
    assert re.fullmatch("volume pvc-0b7ac9c9.*….*-of-the-database", shown)
    assert len(shown) <= svg.LETTERS
    assert f"<title>{long}: on {NODE} until the recording ended" in (tmp_path / "drawn.svg").read_text()


def test_what_the_driver_was_asked_is_told_beside_its_volume(tmp_path: Path) -> None:
    story = Disks()
    story.attach(2.0, NODE, 3.0)
    for only in ("", "ControllerPublishVolume"):
        story.ask(2.5, "ControllerPublishVolume", only=only)
    story.ask(3.5, "NodeStageVolume")
    story.ask(3.6, "NodePublishVolume")
    story.ask(20.0, "ControllerUnpublishVolume", OTHER, "FAILED_PRECONDITION")
    story.say(60.0, "ended")
    held, *asked = story.lanes()
    assert [lane.group for lane in asked] == [held.group] * len(asked)
    assert [lane.name for lane in asked] == ["what its driver was asked", *[""] * (len(asked) - 1)]
    marks = sorted((mark for lane in asked for mark in lane.marks), key=lambda mark: mark.t)
    assert [(mark.t, mark.sign, mark.word) for mark in marks] == [
        (2.5, "⊕", f"publish {NODE}"),
        (3.5, "⊙", f"stage {NODE}"),
        (20.0, "⊖", f"unpublish {OTHER}: FAILED_PRECONDITION"),
    ]
    said = texts_of(story, tmp_path)
    assert {"⊕ publish", "⊖ unpublish", "⊙ stage", "attached", "detaching"} <= {*said}
    tips = {each.text for each in drawn(tmp_path / "drawn.svg").iter() if each.tag.endswith("}title")}
    assert f"ControllerUnpublishVolume {OTHER}: FAILED_PRECONDITION, at 20.00 s" in tips


def test_many_calls_are_ticks_a_row_for_each_method(tmp_path: Path) -> None:
    story = Disks()
    for number in range(500):
        story.ask(2.0 + number / 100, "ControllerUnpublishVolume", OTHER, "UNAVAILABLE")
        story.ask(2.0 + number / 100, "ControllerPublishVolume")
    published, unpublished = story.lanes()
    assert published.name == "ControllerPublishVolume: 500"
    assert unpublished.name == "ControllerUnpublishVolume: 500, 500 not OK"
    assert {(mark.sign, mark.word) for mark in unpublished.marks} == {("|", "")}
    assert unpublished.name in texts_of(story, tmp_path)


def test_the_words_of_others_are_no_calls() -> None:
    story = Disks()
    story.tell("ControllerPublishVolume node-1 OK", 2.0)
    assert not story.lanes()
    assert holders.DRIVER == volumes.DRIVER


@pytest.mark.parametrize("said", ["attaching", "⊕ publish"])
def test_a_picture_without_volumes_explains_none(said: str, tmp_path: Path) -> None:
    assert said not in texts_of(Story(), tmp_path)
