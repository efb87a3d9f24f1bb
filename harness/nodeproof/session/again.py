"""Retry scenarios at the end of the run that stayed open because of the host's load.

The first retry runs beside at most half as many scenarios as the run has workers, the second one alone.
"""

from __future__ import annotations

import os

import pytest

from nodeproof.kept import Detail
from nodeproof.load import busiest
from nodeproof.model.load import Turn
from nodeproof.report import rundir
from nodeproof.session.judging import Closed
from nodeproof.session.run import Session, session_of
from nodeproof.session.scheduling import give_out
from nodeproof.session.times import ENDED, LABEL, WAITED

RERUN = "rerun"
"""The outcome of a try that is followed by another, as in pytest-rerunfailures."""
_BUSIEST, _SAMPLE_S = 5, 1.0
"""Number of processes of other programs listed for a scenario that stays open; sampling time (s)."""
_LEFT_OPEN = pytest.StashKey[bool]()
_TRIES = pytest.StashKey[int]()


def note(item: pytest.Item, closed: Closed) -> None:
    """Remember whether the host was too loaded to judge the scenario, and a retry is left.

    A scenario with a deviating claim is never retried.
    """
    codes = {verdict.code for _claim, verdict in closed.verdicts()}
    tries_left = item.config.getoption("again") - tries(item)
    is_open = "host-too-loaded" in codes and closed.worst().outcome != "deviates"
    item.stash[_LEFT_OPEN] = is_open and tries_left > 0
    if is_open and tries_left <= 0:
        worker = hasattr(item.config, "workerinput")
        processes = busiest(_BUSIEST, _SAMPLE_S, os.getppid() if worker else os.getpid())
        rundir.write_json(session_of(item.config).run / rundir.BUSIEST, processes)


def is_due(item: pytest.Item) -> bool:
    """Return whether the scenario will be retried."""
    return item.stash.get(_LEFT_OPEN, False)


def tries(item: pytest.Item) -> int:
    """Return how many times the scenario was postponed for a retry."""
    return item.stash.get(_TRIES, 0)


def put_off(item: pytest.Item) -> None:
    """Postpone the scenario for a retry at the end of the run."""
    session = session_of(item.config)
    item.stash[_LEFT_OPEN] = False
    item.stash[_TRIES] = tries(item) + 1
    session.put_off.append(item)
    session.say(Detail(f"host too loaded to judge, retried at the end of the run: {item.nodeid}"))


def run_put_off(session: Session) -> None:
    """Run the postponed scenarios, after all workers have run all others."""
    admission = session.admission
    while session.put_off:
        turn = Turn.after(min(map(tries, session.put_off)))
        admission.go_on_to(turn)
        due = [item for item in session.put_off if Turn.after(tries(item)) == turn]
        session.put_off[:] = [item for item in session.put_off if item not in due]
        for item in due:
            _archive_try(item)
            give_out(item)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    admission.close()


def _archive_try(item: pytest.Item) -> None:
    """Move the recording of the last try to where no verdict is read from."""
    session = session_of(item.config)
    rundir.put_aside(session.run, item.nodeid)
    ours = (ENDED, LABEL, WAITED)
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] not in ours]
