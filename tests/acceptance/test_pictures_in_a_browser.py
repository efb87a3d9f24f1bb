"""Chromium opens a picture of volumes that move, and of windows that go beyond it: all of it can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.report import drawing, timeline
from nodeproof.report.drawing import Bracket
from tests.acceptance.looks import OVERLAPS
from tests.chromium import Page
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD
from tests.unit.test_held_volumes import Disks

pytestmark = pytest.mark.night("needs Chromium, which nothing else does; unit tests hold what is drawn")
# A word is on a bar or beside it, never half on it: its colour is that of the one or of the other.
STRADDLING = """(() => {
  const box = (each) => each.getBoundingClientRect();
  const words = [...document.querySelectorAll("text")].filter(each => each.getClientRects().length);
  const bars = [...document.querySelectorAll("rect.edged")];
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
  return words.flatMap(word => bars.map(bar => [word, box(word), box(bar)]))
    .filter(([, a, b]) => a.top < b.bottom - 6 && b.top < a.bottom - 6)
    .filter(([word, a, b]) => over(a, b) > 2 && !word.getAttribute("class").startsWith("on-"))
    .map(([word]) => word.textContent);
})()"""


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume whose node is cut off, which two nodes hold for a while; its pod is made anew."""
    story = Disks()
    story.pod(1.0, node=NODE)
    story.attach(2.0, NODE, 2.4)
    story.fault(20.0, "planned", "armed", "injecting", "injected")
    story.evict(60.0)
    story.remove(66.0, "pods", NAMESPACE, POD)
    story.pod(66.5, node=OTHER)
    story.attach(70.0, OTHER, 71.0)
    story.detach(90.0, NODE, 100.0)
    story.attach(5.0, NODE, 6.0, "ebs.csi.aws.com", "pvc-0b7ac9c9-1d7b-4b5e-9d0a-6f6a1f1f2c3d-of-a-database")
    for t, method in ((2.3, "ControllerPublishVolume"), (2.9, "NodeStageVolume")):
        story.ask(t, method)
        story.ask(t + 68, method, OTHER)
    story.ask(99.8, "ControllerUnpublishVolume", code="DEADLINE_EXCEEDED")
    story.say(120.0, "ended")
    made = timeline.compose(story.history(), (), "A volume of a node that lost its power")
    zero = made.zero
    brackets = (
        Bracket("a.within", "conforms", "reason", zero, zero + 10, zero + 30, zero + 20),
        Bracket("a.open", "deviates", "reason", zero + 10, zero + 40, zero + 400),
        Bracket("a.never", "unproven", "reason", zero, zero - 90, zero + 200, negative=True),
    )
    path = tmp_path_factory.mktemp("picture") / "timeline.svg"
    return drawing.draw(replace(made, brackets=brackets), path)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_who_holds_the_disk_can_be_read(picture: Path, browser: Page, width: int, dark: bool) -> None:
    browser.open(picture.as_uri(), width, dark=dark)
    seen = browser.run(OVERLAPS)
    assert seen["count"] > 60
    assert [seen[name] for name in ("wide", "small", "meeting")] == [[], [], []]
    assert not seen["scrolls"]
    assert browser.run(STRADDLING) == []
    assert browser.wrong == []
