"""The type of a source: what is collected after the fact, and lines that a source lost."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodeproof.labs.base.processes import CHECK_PERIOD_S
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import Lost
from nodeproof.recording.node_messages import (
    BootClock,
    Message,
    journal_began,
    journal_of,
    lines_of,
    wall_offset_s,
)

Line = TypeVar("Line")


@dataclass(frozen=True)
class SourceContext:
    """The context for reading a source: lab, recording so far, and node clocks.

    `clock` is for the boot whose messages are wanted, `present_clock` for the current boot. Both raise
    MachineError and Problem.
    """

    lab: LabHandle
    history: History
    clock: Callable[[str], BootClock]
    present_clock: Callable[[str], BootClock]

    def wall_error_s(self, t: float) -> float:
        """Return how far the host's wall clock has moved since `t` (s), so the error of times by it."""
        return abs(wall_offset_s() - self.history.wall_offset_s(t))


@dataclass(frozen=True)
class SourceMessages:
    """The messages of a source, complete up to `until_t` (s, monotonic).

    `error_s` is the largest error of their times (s). `losses` are times in which messages may be missing.
    `node` and `boot_id` are set if the source is on a node.
    """

    messages: Sequence[Message]
    until_t: float
    error_s: float = 0.0
    losses: Sequence[Lost] = ()
    node: str = ""
    boot_id: str = ""


class Source(ABC):
    """A source that can be read after the events."""

    @property
    @abstractmethod
    def by(self) -> str:
        """Unique name in the recording; a source with fewer messages has another name."""

    @abstractmethod
    def read(self, context: SourceContext) -> SourceMessages:
        """Return the messages since the recording began.

        Raises:
            ApiError, MachineError, Problem, OSError: The source cannot be read.
        """

    @property
    def collected(self) -> Moment:
        """The time up to which the source was collected."""
        return Moment("heard", {"by": self.by})

    @property
    def next_message(self) -> Moment:
        """The next message of the source."""
        return Moment("told", {"by": self.by, "what": ""})


_STARTS = ("booted", "restored", "reset")
_JOURNAL_BEGINS_S = 60.0
"""Longest time (s) from a boot to the journal's first line on a slow machine. A journal that starts later was
shortened, by many megabytes.
"""


def possible_losses(
    context: SourceContext, record: str, complete_since_t: float, until_t: float
) -> list[Lost]:
    """Return possible losses of a log or journal: before its start (s), or due to a full memory."""
    began_t = context.history.began_t
    losses = []
    if complete_since_t > began_t:
        losses.append(Lost(began_t, complete_since_t, f"{record} starts after the recording"))
    return [*losses, *memory_losses(context, until_t)]


def memory_losses(context: SourceContext, until_t: float) -> list[Lost]:
    """Return possible losses due to a lab's full memory; the time when it was full is not known."""
    since_t = context.history.began_t - CHECK_PERIOD_S
    return [Lost(since_t, until_t, why) for why in context.lab.life.full_parts(since_t=since_t)[:1]]


def read_journal(context: SourceContext, node: str, unit: str, clock: BootClock) -> SourceMessages:
    """Read the messages of a unit in one boot of its node.

    Raises:
        MachineError: The journal cannot be read.
    """
    machine, until_t = context.lab.fleet.machine(node), time.monotonic()
    messages = list(journal_of(machine, unit, clock))
    first_t, boot_entries = journal_began(machine, clock), _boot_entries(context.history, node)
    first_t = until_t if first_t is None else first_t
    record, complete_since_t = f"the journal of {node}", _whole_since(context.history, node, clock, first_t)
    later = [start.t for start in boot_entries if start.t > first_t and start.data["step"] != "restored"]
    losses = [
        *possible_losses(context, record, complete_since_t, until_t),
        *(Lost(t, until_t, f"{record} is from an earlier boot") for t in later[:1]),
    ]
    return SourceMessages(messages, until_t, clock.error_s, losses, node, clock.boot_id)


def _boot_entries(history: History, node: str) -> Sequence[Entry]:
    steps = (entry for entry in history.of_kind("machine") if entry.data["node"] == node)
    return [entry for entry in steps if entry.data["step"] in _STARTS]


def _whole_since(history: History, node: str, clock: BootClock, begins_t: float) -> float:
    """Return from when on (s) the journal of one boot is complete: from the boot, if it starts with that.

    Messages of an earlier boot are in another journal. A node that joined during the recording and booted
    once had none.
    """
    boot_entries = _boot_entries(history, node)
    if joined(history, node) and len(boot_entries) == 1:
        return history.began_t
    # A snapshot contains a journal that started earlier.
    boot_times = [
        entry.t for entry in boot_entries if entry.t <= begins_t or entry.data["step"] == "restored"
    ]
    is_complete = begins_t - clock.offset_s < _JOURNAL_BEGINS_S
    return boot_times[-1] if boot_times and is_complete else begins_t


def joined(history: History, node: str) -> bool:
    """Return whether a node joined its cluster during the recording, and so had no log before."""
    steps = (entry.data for entry in history.of_kind("machine") if entry.data["node"] == node)
    return any(data["step"] == "joining" for data in steps)


def torn(times: Sequence[float | None], within: tuple[float, float], why: str) -> list[Lost]:
    """Return the possible losses at unreadable lines, whose time in `times` (s) is None.

    Messages may be lost between the readable lines on both sides, or up to an end of `within`.
    """
    losses = []
    for number, t in enumerate(times):
        if t is not None:
            continue
        earlier_times = [line_t for line_t in times[:number] if line_t is not None]
        later_times = [line_t for line_t in times[number:] if line_t is not None]
        since_t, until_t = (
            earlier_times[-1] if earlier_times else within[0],
            later_times[0] if later_times else within[1],
        )
        losses.append(Lost(since_t, max(since_t, until_t), why))
    return losses


def parse_lines(text: str, parse: Callable[[Json], Line]) -> list[Line | None]:
    """Return each line of JSON as `parse` reads it; None for one that is torn or overwritten."""

    def parse_line(line: str) -> Line | None:
        try:
            return parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    return [parse_line(line) for line in lines_of(text)]
