"""What a source is: something that writes down what happens, and vouches up to some time for all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeproof.labs.client.lab import Lab
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import BootClock, Word


@dataclass(frozen=True)
class Hearing:
    """What a source is heard with: the lab, the recording so far, and each node's clock, in the boot whose
    words are wanted and in the present one. Both raise MachineError, Problem.
    """

    lab: Lab
    history: History
    clock: Callable[[str], BootClock]
    present_clock: Callable[[str], BootClock]


@dataclass(frozen=True)
class Told:
    """What a source told: its words in order, up to when (s, monotonic) they are all that there were, and how
    wrong their times may be (s).

    `unsure` are times in which it may have told more, and for which it does not vouch. `node` and `boot_id`
    say where it was told, if that was on a node.
    """

    words: Sequence[Word]
    until_t: float
    error_s: float = 0.0
    unsure: Sequence[Lost] = ()
    node: str = ""
    boot_id: str = ""


class Source(Protocol):
    """Something that can be heard; `by` is what the recording calls it."""

    @property
    def by(self) -> str:
        """Unique for what it tells: a source that tells less has another name."""
        ...

    def read(self, hearing: Hearing) -> Told:
        """What it told since the recording began. Raises ApiError, MachineError, Problem, OSError where it
        cannot be read.
        """
        ...


def last_heard(source: Source) -> Moment:
    """Up to when a source was heard."""
    return Moment("heard", {"by": source.by})


def any_word(source: Source) -> Moment:
    """The next that a source tells."""
    return Moment("told", {"by": source.by, "what": ""})
