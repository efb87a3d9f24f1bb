"""Times of a recording for which a source's record may be incomplete."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nodeproof.labs.ground.logs import LOOKED_EACH_S
from nodeproof.model.history import Entry, History
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import BootClock, journal_began, journal_of
from nodeproof.sources.source import Hearing, Told

_STARTS = ("booted", "restored", "reset")
_JOURNAL_BEGINS_S = 60.0
"""Longest time (s) from a boot to the journal's first line on a slow machine. A journal that starts later was
shortened, by many megabytes.
"""


def why_unsure(hearing: Hearing, record: str, whole_since_t: float, until_t: float) -> list[Lost]:
    """Return possible losses of a log or journal: before its start (s), or due to a full memory."""
    began_t = hearing.history.began_t
    losses = []
    if whole_since_t > began_t:
        losses.append(Lost(began_t, whole_since_t, f"{record} starts after the recording"))
    return [*losses, *no_room(hearing, until_t)]


def no_room(hearing: Hearing, until_t: float) -> list[Lost]:
    """Return possible losses due to a lab's full memory; the time when it was full is not known."""
    since_t = hearing.history.began_t - LOOKED_EACH_S
    return [Lost(since_t, until_t, why) for why in hearing.lab.life.full(since_t=since_t)[:1]]


def read_journal(hearing: Hearing, node: str, unit: str, clock: BootClock) -> Told:
    """Read the messages of a unit in one boot of its node.

    Raises:
        MachineError: The journal cannot be read.
    """
    machine, until_t = hearing.lab.fleet.machine(node), time.monotonic()
    words = list(journal_of(machine, unit, clock))
    first_t, boot_entries = journal_began(machine, clock), _boot_entries(hearing.history, node)
    first_t = until_t if first_t is None else first_t
    record, complete_since_t = f"the journal of {node}", _whole_since(hearing.history, node, clock, first_t)
    later = [start.t for start in boot_entries if start.t > first_t and start.data["step"] != "restored"]
    unsure = [
        *why_unsure(hearing, record, complete_since_t, until_t),
        *(Lost(t, until_t, f"{record} is from an earlier boot") for t in later[:1]),
    ]
    return Told(words, until_t, clock.error_s, unsure, node, clock.boot_id)


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
    is_whole = begins_t - clock.offset_s < _JOURNAL_BEGINS_S
    return boot_times[-1] if boot_times and is_whole else begins_t


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
