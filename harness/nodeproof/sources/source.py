"""The interface of sources: components that record events, completely up to some time."""

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
    """The context for reading a source: lab, recording so far, and node clocks.

    `clock` is for the boot whose messages are wanted, `present_clock` for the current boot. Both raise
    MachineError and Problem.
    """

    lab: Lab
    history: History
    clock: Callable[[str], BootClock]
    present_clock: Callable[[str], BootClock]


@dataclass(frozen=True)
class Told:
    """The messages of a source, complete up to `until_t` (s, monotonic).

    `error_s` is the largest error of their times (s). `unsure` are times in which messages may be missing.
    `node` and `boot_id` are set if the source is on a node.
    """

    words: Sequence[Word]
    until_t: float
    error_s: float = 0.0
    unsure: Sequence[Lost] = ()
    node: str = ""
    boot_id: str = ""


class Source(Protocol):
    """A source that can be read; `by` is its name in the recording."""

    @property
    def by(self) -> str:
        """Unique name; a source with fewer messages has another name."""
        ...

    def read(self, hearing: Hearing) -> Told:
        """Return the messages since the recording began.

        Raises:
            ApiError, MachineError, Problem, OSError: The source cannot be read.
        """
        ...


def last_heard(source: Source) -> Moment:
    """Match the time up to which a source was collected."""
    return Moment("heard", {"by": source.by})


def any_word(source: Source) -> Moment:
    """Match the next message of a source."""
    return Moment("told", {"by": source.by, "what": ""})
