"""Number of scenarios that may run at once without making verdicts unproven."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum

STRAINED = 0.5
"""Share of the slack limit above which fewer scenarios run; the rest is a reserve for those that run."""
ROOMY, ROOMY_UNDER_PRESSURE = 0.45, 0.35
"""Share of the slack limit up to which one more scenario may start, without and with constant CPU pressure.
An idle machine has 0.3.
"""
SETTLING_S = 6.0
"""Time (s) until a change of the number of scenarios affects the measurements."""
STRAINED_FOR_S = 30.0
"""Time (s) for which fewer scenarios run than the number that strained the machine."""
_IDLE_SHARE, _BUSY_SHARE = 1 / 2, 1 / 6
"""Share of the workers at the start of a run on an idle machine, and on one that other programs use fully.
More are added within seconds, one at a time.
"""


@dataclass(frozen=True)
class Load:
    """Measurements of the machine in the last seconds.

    Args:
        slack_share: worst slack of the current recordings, as a share of the profile's slack limit.
        pressure: share of the time in which something waited for a processor, from 0 to 1.
    """

    slack_share: float = 0.0
    pressure: float = 0.0


@dataclass(frozen=True)
class Allowance:
    """Number of scenarios that may run at once, and the time of its last change (s, monotonic).

    Args:
        strained: number of scenarios at which slack last became large; 0 if it never did.
        strained_t: when that was.
    """

    workers: int
    since_t: float
    strained: int = 0
    strained_t: float = 0.0


def initial(maximum: int, foreign_share: float) -> int:
    """Return the number of workers to start with.

    Args:
        maximum: workers of the run.
        foreign_share: share of the processors that other programs use, from 0 to 1.
    """
    share = _IDLE_SHARE + (_BUSY_SHARE - _IDLE_SHARE) * foreign_share
    return max(1, min(maximum, round(maximum * share)))


def adapt(allowance: Allowance, running: int, load: Load, maximum: int, now_t: float) -> Allowance:
    """Return the next allowance: one more if there is capacity, half of it if slack becomes large.

    The allowance changes at most once in `SETTLING_S` and stays between 1 and `maximum`. It is not halved
    again while more scenarios run than it allows: the last change must first have an effect. It grows only
    while all of it is in use. For `STRAINED_FOR_S` it stays below the number that strained the machine,
    unless that was two or one. Where there is capacity although more scenarios run than it allows, the
    machine supports that many.

    Source: the additive increase and multiplicative decrease of D. Chiu and R. Jain, 1989.
    """
    if now_t - allowance.since_t < SETTLING_S:
        return allowance
    if load.slack_share > STRAINED:
        if running > allowance.workers:
            return allowance
        return Allowance(max(1, running // 2), now_t, running, now_t)
    is_strained = allowance.strained and now_t - allowance.strained_t < STRAINED_FOR_S
    limit = min(maximum, max(2, allowance.strained - 1)) if is_strained else maximum
    has_room = load.slack_share <= ROOMY + (ROOMY_UNDER_PRESSURE - ROOMY) * load.pressure
    if has_room and running >= allowance.workers and allowance.workers < limit:
        return replace(allowance, workers=min(limit, running + 1), since_t=now_t)
    return allowance


class Turn(IntEnum):
    """The phase in which a scenario runs: with all others, or again at the end of the run."""

    QUEUE = 0
    """In the order of the plan."""
    HALF = 1
    """Again, while at most half of the workers run scenarios."""
    ALONE = 2
    """Again, with no other scenario of the run at the same time."""

    @classmethod
    def after(cls, tries: int) -> Turn:
        """Return the turn of a scenario after so many tries."""
        return cls(min(tries, cls.ALONE))


@dataclass(frozen=True)
class Worker:
    """State of a worker of the run.

    Args:
        turn: the earliest turn for which it still has scenarios.
        is_running: whether it is running a scenario.
        waits_since_t: since when it waits for a turn (s, monotonic), if it does.
        starts_lab: whether it starts a lab, or waits until no scenario runs to do so.
    """

    name: str
    turn: Turn
    is_running: bool = False
    waits_since_t: float | None = None
    starts_lab: bool = False


def may_start_lab(name: str, workers: Collection[Worker]) -> bool:
    """Return whether a worker may start a lab, which takes processor time from running measurements."""
    return not any(worker.is_running for worker in workers if worker.name != name)


def may_start(name: str, workers: Collection[Worker], allowed: int, maximum: int) -> bool:
    """Return whether a waiting worker may start a scenario.

    Scenarios of an earlier turn come first, and of the same turn those that have waited longest. None starts
    while a lab starts. A first retry starts beside the last scenarios of the queue, if no worker is free for
    another one.
    """
    own = next(worker for worker in workers if worker.name == name)
    others = [worker for worker in workers if worker.name != name]
    if any(_comes_before(worker, own) or worker.starts_lab for worker in others):
        return False
    at_once = {Turn.QUEUE: allowed, Turn.HALF: min(allowed, max(1, maximum // 2)), Turn.ALONE: 1}[own.turn]
    ahead = sum(worker.is_running or _waits_longer(worker, own) for worker in others)
    return ahead < at_once


def _comes_before(worker: Worker, own: Worker) -> bool:
    """Return whether a worker still has scenarios of an earlier turn, of which none runs beside a retry."""
    runs_beside = own.turn is Turn.HALF and worker.is_running
    return worker.turn < own.turn and not runs_beside


def _waits_longer(worker: Worker, than: Worker) -> bool:
    if worker.waits_since_t is None or than.waits_since_t is None or worker.turn != than.turn:
        return False
    return (worker.waits_since_t, worker.name) < (than.waits_since_t, than.name)
