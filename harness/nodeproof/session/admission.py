"""Start scenarios of a run's workers only while the machine has capacity for another one.

Each worker writes its state into a folder of the run and holds a lock there, so that a dead worker no longer
counts. A worker that waits for its turn applies the rules of `nodeproof.model.load`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nodeproof.kept import Detail, is_free
from nodeproof.load import pressure
from nodeproof.model.load import Allowance, Load, Turn, Worker, adapt, may_start, may_start_lab
from nodeproof.waiting import wait_for

Json = Any
FOLDER = "admission"
_LOCK, _ALLOWANCE, _STATE, _ALIVE = "lock", "allowance.json", ".worker", ".alive"
_PERIOD_S, _REPORT_PERIOD_S = 0.5, 2.0
TURN_LIMIT_S = 3600.0
"""Longer than any scenario waits for other scenarios of a run."""
_FRESH_S = 10.0
"""Age (s) above which a reported slack is outdated."""
SlackShare = Callable[[], float | None]
"""Returns the slack of the last seconds as a share of its limit, or None if nothing was measured."""


def no_slack() -> None:
    """Return no measurement."""


@dataclass
class Admission:
    """The admission of one worker's scenarios.

    Args:
        folder: a folder that the workers of the run share.
        name: the worker's name, unique in the run.
        most: workers of the run.
    """

    folder: Path
    name: str
    most: int
    limit_s: float = TURN_LIMIT_S
    read_pressure: Callable[[], float] = pressure
    _turn: Turn = field(default=Turn.QUEUE, init=False)
    _alive: int = field(default=-1, init=False)
    _state: dict[str, Json] = field(default_factory=dict, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _reporting: threading.Event | None = field(default=None, init=False)

    def enter(self, report: Callable[[str], None], slack_share: SlackShare = no_slack) -> None:
        """Wait for a turn; a scenario of this worker runs from then on until `leave`."""
        if self.most < 2 or self._state.get("is_running"):
            return
        self._write(waits_since_t=time.monotonic(), is_running=False)
        if not self._enters():
            report(Detail("waiting: the machine has no capacity for another scenario"))
            if not wait_for(self._enters, self.limit_s, _PERIOD_S):
                report(f"no turn within {self.limit_s:g} s: starting without one")
                self._write(waits_since_t=None, is_running=True)
        self._reporting = threading.Event()
        threading.Thread(target=self._report_slack, args=(slack_share, self._reporting), daemon=True).start()

    @contextmanager
    def lab_start(self) -> Iterator[None]:
        """Start a lab while no other scenario of the run runs, and let none begin meanwhile."""
        if self.most < 2:
            yield
            return
        is_running = bool(self._state.get("is_running"))
        self._write(is_running=False, starts_lab=True)
        try:
            wait_for(self._may_start_lab, self.limit_s, _PERIOD_S)
            yield
        finally:
            self._write(is_running=is_running, starts_lab=False)

    def leave(self) -> None:
        """Report that the scenario is over."""
        if self._reporting is not None:
            self._reporting.set()
            self._reporting = None
        if self._state.get("is_running"):
            self._write(is_running=False, slack_share=0.0)

    def go_on_to(self, turn: Turn) -> None:
        """Report that this worker has no scenarios of an earlier turn any more."""
        self._turn = turn
        if self.most >= 2:
            self._write()

    def close(self) -> None:
        """Report that this worker has nothing to run any more."""
        self.leave()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def _may_start_lab(self) -> bool:
        with self._locked():
            return may_start_lab(self.name, self._workers()[0])

    def _enters(self) -> bool:
        with self._locked():
            workers, shares = self._workers()
            running = sum(worker.is_running for worker in workers)
            load = Load(max(shares, default=0.0), self.read_pressure())
            allowance = adapt(self._allowance(), running, load, self.most, time.monotonic())
            _replace(self.folder / _ALLOWANCE, asdict(allowance))
            if not may_start(self.name, workers, allowance.workers, self.most):
                return False
            self._write(waits_since_t=None, is_running=True)
            return True

    def _report_slack(self, slack_share: SlackShare, over: threading.Event) -> None:
        last = 0.0
        while not over.wait(_REPORT_PERIOD_S):
            share = slack_share()
            # A lab without an answer is at least as late as before.
            before, last = last, last if share is None else share
            # A single late wake-up is no load; a lasting load shows in two reports.
            self._write(slack_share=round(min(before, last), 3), reported_t=time.monotonic())

    def _allowance(self) -> Allowance:
        with contextlib.suppress(OSError, ValueError):
            return Allowance(**json.loads((self.folder / _ALLOWANCE).read_text()))
        return Allowance(self.most, time.monotonic())

    def _workers(self) -> tuple[Sequence[Worker], Sequence[float]]:
        """Return the state of all live workers, and the slack reported by workers with a running scenario."""
        workers, shares, now = [], [], time.monotonic()
        for path in sorted(self.folder.glob(f"*{_STATE}")):
            if path.stem != self.name and is_free(path.with_suffix(_ALIVE)):
                continue
            state = json.loads(path.read_text())
            turn, running, since_t = Turn(state["turn"]), state["is_running"], state["waits_since_t"]
            workers.append(Worker(path.stem, turn, running, since_t, state["starts_lab"]))
            if state["is_running"] and now - state["reported_t"] < _FRESH_S:
                shares.append(float(state["slack_share"]))
        return workers, shares

    def _write(self, **changes: Json) -> None:
        """Write the state of this worker; hold its lock from the first call on."""
        with self._writing:
            measured = {"slack_share": 0.0, "reported_t": 0.0}
            blank = {"is_running": False, "waits_since_t": None, "starts_lab": False, **measured}
            self._state = {**blank, **self._state, **changes, "turn": int(self._turn)}
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._alive < 0:
                self._alive = os.open(self.folder / f"{self.name}{_ALIVE}", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._alive, fcntl.LOCK_EX)
            _replace(self.folder / f"{self.name}{_STATE}", self._state)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def allow(folder: Path, workers: int) -> None:
    """Set how many scenarios may run at once, from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / _ALLOWANCE, {"workers": workers, "since_t": time.monotonic()})


def _replace(path: Path, state: Json) -> None:
    """Write a file atomically, as another worker may be reading it."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(state))
    fresh.rename(path)
