"""What the workers of a run share, through files in its folder: a lab, lab starts, capacity, and retries.

Every worker holds a lock on a file as long as it lives, so that a dead worker no longer counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from nodeproof import disk
from nodeproof.cache import Detail
from nodeproof.capacity import pressure
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import InUse, LabHandle
from nodeproof.locks import is_held, lock, locked, open_file, try_lock
from nodeproof.model.plan import Allowance, Load, Turn, Worker, adapt, may_start, may_start_lab
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import wait_until

FOLDER = "sharing"
"""Folder of the throttle and the retries, in the run's folder."""
_SHARED_NAME, _SHARED_LOCK = "shared", "shared.lock"
"""Files in the run's folder of labs: the name of the shared lab, and the lock for changing it."""
_LATENCY = ".latency"
"""Ends the name of the file, in the run's folder of labs, with the watch latency of a shared lab."""
_STARTUP_LOCK, _UP = "starting.lock", "up-"
_LOCK_TIMEOUT_S, _LOCK_PERIOD_S = 1800.0, 0.1
"""Longer than a lab start that first builds images and components."""
_STATE_TIMEOUT_S = 60.0
"""Longer than a worker on a busy machine reads and writes the states of all."""
_UP_TIMEOUT_S = 240.0
"""Longer than all lab starts of a run that build images and components."""
_IDLE_S = 5.0
"""If no lab starts for this long, no other worker will start one: it may have died."""
_LOCK, _ALLOWANCE, _STATE, _ALIVE = "lock", "allowance.json", ".worker", ".alive"
_RETRIES_LOCK, _RETRIES = "retries.lock", "retries.json"
_PERIOD_S, _REPORT_PERIOD_S = 0.5, 2.0
TURN_TIMEOUT_S = 3600.0
"""Longer than any scenario waits for other scenarios of a run."""
_FRESH_S = 10.0
"""Age (s) above which a reported slack is outdated."""
SlackShare = Callable[[], float | None]
"""Returns the slack of the last seconds as a share of its limit, or None if nothing was measured."""


@dataclass(frozen=True)
class SharedLab:
    """The lab whose zones a run's workers share: the first one starts it, the last one ends it.

    Args:
        labs: the run's folder of labs.
        start: starts a lab.
    """

    labs: Path
    start: Callable[[], LabHandle]

    def lease_zone(self) -> tuple[LabHandle, bool]:
        """Lease a zone, starting the lab if needed; return whether the zone was used before.

        A zone lease lasts until the lab is closed, or until its worker ends.

        Raises:
            InUse: No zone is free.
            Problem: The lab cannot be started.
        """
        with _held(self.labs / _SHARED_LOCK):
            try:
                return _lease_zone_of(registry.attach(self._read_name(), hold=True))
            except InUse:
                raise
            except (Problem, OutsideError, OSError):
                # There is no shared lab, or it is about to end.
                lab = self.start()
                self._file.write_text(lab.name)
                return _lease_zone_of(lab)

    def watch_latency_s(self, lab: LabHandle) -> float:
        """Return the lab's watch latency (s), which the first worker measures for all. Raises Problem."""
        path = self.labs / f"{lab.name}{_LATENCY}"
        with _held(self.labs / _SHARED_LOCK):
            if not path.exists():
                path.write_text(str(lab.measure_watch_latency_s()))
            return float(path.read_text())

    def give_back(self, lab: LabHandle) -> None:
        """Give a zone back; the last worker keeps the lab's logs and ends the lab. Raises Problem."""
        if not lab.leases.is_last():
            lab.close()
            return
        try:
            lab.copy_logs(self.labs)
        finally:
            lab.down()

    def forget(self, lab: str) -> None:
        """Forget an unusable shared lab: the next worker that needs one starts another."""
        with _held(self.labs / _SHARED_LOCK):
            if self._read_name() == lab:
                self._file.unlink()

    def _read_name(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._file.read_text()
        return ""

    @property
    def _file(self) -> Path:
        return self.labs / _SHARED_NAME


def _lease_zone_of(lab: LabHandle) -> tuple[LabHandle, bool]:
    try:
        return lab, lab.lease()
    except BaseException:
        lab.close()
        raise


@dataclass
class StartupLock:
    """Starts the labs of a run one at a time, and measures nothing until every worker's first lab is up.

    A starting lab uses all processors: two that start together both take longer, and disturb measurements.

    Args:
        labs: the run's folder of labs.
        workers: number of workers that begin with a lab start; 0 turns the lock off.
        timeout_s: longest wait for the first labs of the other workers.
        idle_s: time without a lab start after which no more are expected.
    """

    labs: Path
    workers: int = 0
    timeout_s: float = _UP_TIMEOUT_S
    idle_s: float = _IDLE_S
    has_waited: bool = field(default=False, init=False)
    """Whether this worker's wait for the first labs has begun or is over."""
    _busy_t: float = field(default=0.0, init=False)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock, so that no other worker starts a lab."""
        if not self.workers:
            yield
            return
        with _held(self.labs / _STARTUP_LOCK):
            yield

    def wait(self, report: Callable[[str], None]) -> None:
        """Wait until the first labs of all workers are up; return at once if called again."""
        if self.has_waited or not self.workers:
            return
        self.has_waited, self._busy_t = True, time.monotonic()
        self.labs.mkdir(parents=True, exist_ok=True)
        (self.labs / f"{_UP}{uuid.uuid4().hex}").touch()
        if not wait_until(self._may_begin, self.timeout_s, _LOCK_PERIOD_S):
            report(f"labs of other workers are not up after {self.timeout_s:g} s: starting without them")

    def _may_begin(self) -> bool:
        """Return whether all labs are up, or no lab has started for `idle_s`."""
        if len(list(self.labs.glob(f"{_UP}*"))) >= self.workers:
            return True
        if is_held(self.labs / _STARTUP_LOCK):
            self._busy_t = time.monotonic()
        return time.monotonic() - self._busy_t > self.idle_s


def remove_locks(labs: Path) -> None:
    """Remove the files by which workers share and start labs, once they are gone."""
    names = (_SHARED_NAME, _SHARED_LOCK, _STARTUP_LOCK)
    for path in (*(labs / name for name in names), *labs.glob(f"{_UP}*"), *labs.glob(f"*{_LATENCY}")):
        path.unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock of the run while this worker starts or attaches to a lab. Raises Problem."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_file(path)) as file:
        if not wait_until(lambda: try_lock(file), _LOCK_TIMEOUT_S, _LOCK_PERIOD_S):
            message = f"another worker is still starting a lab after {_LOCK_TIMEOUT_S:g} s"
            raise Problem(message, str(path), "see the lab's logs in the run folder, then run again")
        yield


@dataclass(frozen=True)
class _State:
    """What a worker reports to the others; times in s, monotonic."""

    turn: Turn = Turn.QUEUE
    is_running: bool = False
    waits_since_t: float | None = None
    starts_lab: bool = False
    slack_share: float = 0.0
    reported_t: float = 0.0


@dataclass
class Throttle:
    """Lets a worker start a scenario only while the machine has capacity for another one.

    Each worker writes its state into `folder`; a worker that waits for its turn reads the states of all, and
    applies the rules of `nodeproof.model.plan`. A run of one worker writes and waits for nothing.

    Args:
        folder: a folder that the workers of the run share.
        name: the worker's name, unique in the run.
        max_workers: number of workers of the run.
        timeout_s: longest wait for a turn.
    """

    folder: Path
    name: str
    max_workers: int
    timeout_s: float = TURN_TIMEOUT_S
    read_pressure: Callable[[], float] = pressure
    _state: _State = field(default=_State(), init=False)
    _alive: int = field(default=-1, init=False)
    """The descriptor of the file that this worker locks as long as it lives."""
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    """Ends the reports of the running scenario's slack."""

    def start_scenario(self, report: Callable[[str], None], slack_share: SlackShare = lambda: None) -> None:
        """Wait for a turn; a scenario of this worker runs from then on until `end_scenario`."""
        if self._is_single or self._state.is_running:
            return
        self._write(waits_since_t=time.monotonic(), is_running=False)
        if not self._takes_turn():
            report(Detail("waiting: the machine has no capacity for another scenario"))
            if not wait_until(self._takes_turn, self.timeout_s, _PERIOD_S):
                report(f"no capacity after {self.timeout_s:g} s: starting anyway")
                self._write(waits_since_t=None, is_running=True)
        self._ended = threading.Event()
        threading.Thread(target=self._report_slack, args=(slack_share, self._ended), daemon=True).start()

    def end_scenario(self) -> None:
        """Report that the scenario is over; do nothing if none runs."""
        self._ended.set()
        if self._state.is_running:
            self._write(is_running=False, slack_share=0.0)

    @contextmanager
    def lab_start(self) -> Iterator[None]:
        """Start a lab while no other scenario of the run runs, and let none begin meanwhile."""
        if self._is_single:
            yield
            return
        is_running = self._state.is_running
        self._write(is_running=False, starts_lab=True)
        try:
            wait_until(self._may_start_lab, self.timeout_s, _PERIOD_S)
            yield
        finally:
            self._write(is_running=is_running, starts_lab=False)

    def go_on_to(self, turn: Turn) -> None:
        """Report that this worker has no scenarios of an earlier turn any more."""
        if not self._is_single:
            self._write(turn=turn)

    def is_reached_by_all(self, turn: Turn) -> bool:
        """Return whether no worker has scenarios of an earlier turn."""
        if self._is_single:
            return True
        with locked(self.folder / _LOCK, _STATE_TIMEOUT_S):
            return all(worker.turn >= turn for worker in self._workers()[0])

    def close(self) -> None:
        """Report that this worker has nothing to run any more."""
        self.end_scenario()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    @property
    def _is_single(self) -> bool:
        return self.max_workers < 2

    def _may_start_lab(self) -> bool:
        with locked(self.folder / _LOCK, _STATE_TIMEOUT_S):
            return may_start_lab(self.name, self._workers()[0])

    def _takes_turn(self) -> bool:
        """Take a turn if there is capacity; return whether it was taken."""
        with locked(self.folder / _LOCK, _STATE_TIMEOUT_S):
            workers, shares = self._workers()
            running = sum(worker.is_running for worker in workers)
            load = Load(max(shares, default=0.0), self.read_pressure())
            allowance = adapt(self._allowance(), running, load, self.max_workers, time.monotonic())
            _write(self.folder / _ALLOWANCE, allowance)
            if not may_start(self.name, workers, allowance.workers, self.max_workers):
                return False
            self._write(waits_since_t=None, is_running=True)
            return True

    def _report_slack(self, slack_share: SlackShare, ended: threading.Event) -> None:
        last = 0.0
        while not ended.wait(_REPORT_PERIOD_S):
            share = slack_share()
            if ended.is_set():
                return
            # A lab without an answer is at least as late as before.
            before, last = last, last if share is None else share
            # A single late wake-up is not a load; a persistent load shows in two reports.
            self._write(slack_share=round(min(before, last), 3), reported_t=time.monotonic())

    def _allowance(self) -> Allowance:
        with contextlib.suppress(OSError, ValueError):
            return Allowance(**json.loads((self.folder / _ALLOWANCE).read_text()))
        return Allowance(self.max_workers, time.monotonic())

    def _workers(self) -> tuple[Sequence[Worker], Sequence[float]]:
        """Return the state of all live workers, and the slack reported by workers with a running scenario."""
        workers, shares, now = [], [], time.monotonic()
        for path in sorted(self.folder.glob(f"*{_STATE}")):
            if path.stem != self.name and not is_held(path.with_suffix(_ALIVE)):
                continue
            state = _State(**json.loads(path.read_text()))
            turn = Turn(state.turn)
            workers.append(Worker(path.stem, turn, state.is_running, state.waits_since_t, state.starts_lab))
            if state.is_running and now - state.reported_t < _FRESH_S:
                shares.append(state.slack_share)
        return workers, shares

    def _write(self, **changes: Any) -> None:
        """Write the state of this worker; hold its lock from the first call on."""
        with self._writing:
            self._state = replace(self._state, **changes)
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._alive < 0:
                path = self.folder / f"{self.name}{_ALIVE}"
                self._alive = open_file(path)
                lock(self._alive, path, _STATE_TIMEOUT_S)
            _write(self.folder / f"{self.name}{_STATE}", self._state)


def allow(folder: Path, workers: int) -> None:
    """Set how many scenarios may run at once, from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / _ALLOWANCE, Allowance(workers, time.monotonic()))


def _write(path: Path, content: Allowance | _State) -> None:
    disk.replace(path, json.dumps(asdict(content)).encode())


@dataclass(frozen=True)
class Retry:
    """A scenario to retry, how many tries it had, and how long it is expected to take (s)."""

    nodeid: str
    tries: int
    duration_s: float = 0.0


class Retries:
    """The scenarios to retry at the end of the run.

    Any free worker takes the next one. Only a scenario with a lab of its own stays with its worker, which
    keeps that lab.

    Args:
        folder: a folder that the workers of the run share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: list[Retry] = []

    @property
    def needs_dedicated_lab(self) -> bool:
        """Whether this worker will retry a scenario in a lab of its own."""
        return bool(self._own)

    def add(self, retry: Retry) -> None:
        """Add a scenario for any worker."""
        with self._shared() as retries:
            retries.append(retry)

    def add_own(self, retry: Retry) -> None:
        """Add a scenario for this worker."""
        self._own.append(retry)

    def take(self, tries: int) -> Retry | None:
        """Remove and return the longest scenario with at most so many tries; None if there is none.

        The longest one comes first, so that the run does not end with one worker busy and all others idle.
        """
        if (retry := _take(self._own, tries)) or not (self._folder / _RETRIES).exists():
            return retry
        with self._shared() as retries:
            return _take(retries, tries)

    @contextmanager
    def _shared(self) -> Iterator[list[Retry]]:
        """Yield the retries of all workers for changes, while no other worker changes them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _RETRIES
        with locked(self._folder / _RETRIES_LOCK, _STATE_TIMEOUT_S):
            retries = [Retry(*entry) for entry in json.loads(path.read_text())] if path.exists() else []
            yield retries
            path.write_text(json.dumps([astuple(retry) for retry in retries]))


def _take(retries: list[Retry], tries: int) -> Retry | None:
    due = (retry for retry in retries if retry.tries <= tries)
    retry = max(due, key=lambda retry: retry.duration_s, default=None)
    if retry is not None:
        retries.remove(retry)
    return retry
