"""What a scenario takes over from its sources: nothing whose time nobody can tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from nodeproof.labs.client.lab import Lab
from nodeproof.model.history import History
from nodeproof.recording.recorder import Recording
from nodeproof.recording.testimony import Word
from nodeproof.scenario.evidence import Evidence
from nodeproof.sources.source import Hearing, Told
from tests.unit.histories import NODE, Story


@dataclass
class Recorded:
    """A recording that is over but for what is heard."""

    story: Story = field(default_factory=Story)

    def history(self) -> History:
        return self.story.history()

    def append(self, kind: str, t: float, **data: Any) -> None:
        self.story.say(t, kind, **data)


@dataclass(frozen=True)
class Journal:
    """A source that tells one word, on a node or not."""

    node: str
    by: str = "a journal"

    def read(self, _hearing: Hearing) -> Told:
        return Told((Word(5.0, "it began"),), 10.0, 0.01, node=self.node, boot_id="one")


@pytest.mark.parametrize(
    ("told_on", "step", "words"),
    [
        (NODE, "frozen", 0),
        (NODE, "thawed", 0),
        (NODE, "booted", 1),
        ("another", "frozen", 1),
        ("", "frozen", 1),
    ],
)
def test_words_of_a_node_that_stood_still_have_no_time(told_on: str, step: str, words: int) -> None:
    recorded = Recorded()
    recorded.story.say(3.0, "machine", node=NODE, step=step)
    Evidence(cast(Lab, None)).hear(cast(Recording, recorded), Journal(told_on))
    history = recorded.history()
    assert len(history.of_kind("told")) == words
    (heard,) = history.of_kind("heard")
    assert bool(heard.data["unsure"]) is (words == 0)
