"""What a source's record may lack of what was told since a recording began, and in which times."""

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
"""So long after its boot, at most, a journal has its first line on a slow machine; what is deleted to keep it
short is many megabytes.
"""


def why_unsure(hearing: Hearing, record: str, whole_since_t: float, until_t: float) -> list[Lost]:
    """What a component's log or a unit's journal may lack: what was told before it begins (s), and what there
    was no room for.
    """
    began_t = hearing.history.began_t
    lost = []
    if whole_since_t > began_t:
        lost.append(Lost(began_t, whole_since_t, f"{record} begins after the recording"))
    return [*lost, *no_room(hearing, until_t)]


def no_room(hearing: Hearing, until_t: float) -> list[Lost]:
    """What a lab's full memory may have taken. When it was full is not known."""
    since_t = hearing.history.began_t - LOOKED_EACH_S
    return [Lost(since_t, until_t, why) for why in hearing.lab.life.full(since_t=since_t)[:1]]


def read_journal(hearing: Hearing, node: str, unit: str, clock: BootClock) -> Told:
    """Read what a unit logged in one boot of its node. Raises MachineError."""
    machine, until_t = hearing.lab.fleet.machine(node), time.monotonic()
    words = list(journal_of(machine, unit, clock))
    begins_t, starts = journal_began(machine, clock), _starts(hearing.history, node)
    begins_t = until_t if begins_t is None else begins_t
    record, whole_since_t = f"the journal of {node}", _whole_since(hearing.history, node, clock, begins_t)
    later = [start.t for start in starts if start.t > begins_t and start.data["step"] != "restored"]
    unsure = [
        *why_unsure(hearing, record, whole_since_t, until_t),
        *(Lost(t, until_t, f"{record} is of an earlier boot") for t in later[:1]),
    ]
    return Told(words, until_t, clock.error_s, unsure, node, clock.boot_id)


def _starts(history: History, node: str) -> Sequence[Entry]:
    steps = (entry for entry in history.of_kind("machine") if entry.data["node"] == node)
    return [entry for entry in steps if entry.data["step"] in _STARTS]


def _whole_since(history: History, node: str, clock: BootClock, begins_t: float) -> float:
    """From when on (s) a journal of one boot lacks nothing: from the boot on, where it begins with that. What
    an earlier boot logged is in another; a node that joined meanwhile and booted once had none.
    """
    starts = _starts(history, node)
    if joined(history, node) and len(starts) == 1:
        return history.began_t
    # A snapshot holds a journal that began before.
    known = [entry.t for entry in starts if entry.t <= begins_t or entry.data["step"] == "restored"]
    is_whole = begins_t - clock.offset_s < _JOURNAL_BEGINS_S
    return known[-1] if known and is_whole else begins_t


def joined(history: History, node: str) -> bool:
    """Whether a node joined its cluster in a recording: before, it had no log."""
    steps = (entry.data for entry in history.of_kind("machine") if entry.data["node"] == node)
    return any(data["step"] == "joining" for data in steps)


def torn(times: Sequence[float | None], within: tuple[float, float], why: str) -> list[Lost]:
    """Where a record has lines that nobody can read, of which `times` (s) holds None: something is lost from
    the line before to the line after, or to an end of the time in which it was told.
    """
    lost = []
    for number, t in enumerate(times):
        if t is not None:
            continue
        before = [known for known in times[:number] if known is not None]
        after = [known for known in times[number:] if known is not None]
        since_t, until_t = before[-1] if before else within[0], after[0] if after else within[1]
        lost.append(Lost(since_t, max(since_t, until_t), why))
    return lost
