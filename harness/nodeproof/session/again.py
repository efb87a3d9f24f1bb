"""Scenarios that the host's load left open run again at the end: nothing was learned of the cluster.

The first time again beside at most half as many scenarios as the run has workers, the second time alone.
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
"""The outcome of a try that is followed by another; as pytest-rerunfailures names it."""
_BUSIEST, _SAMPLE_S = 5, 1.0
"""How many processes of other programs are named for a scenario that stays open; their sampling time (s)."""
_LEFT_OPEN = pytest.StashKey[bool]()
_TRIES = pytest.StashKey[int]()


def note(item: pytest.Item, closed: Closed) -> None:
    """Remember whether a scenario's host was too loaded, and another try may tell more.

    A scenario of which anything deviates is never tried again.
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
    """Say whether the scenario's last try is to be followed by another."""
    return item.stash.get(_LEFT_OPEN, False)


def tries(item: pytest.Item) -> int:
    """Give how many times the scenario was put off for another try."""
    return item.stash.get(_TRIES, 0)


def put_off(item: pytest.Item) -> None:
    """Let the scenario run once more when its turn comes."""
    session = session_of(item.config)
    item.stash[_LEFT_OPEN] = False
    item.stash[_TRIES] = tries(item) + 1
    session.put_off.append(item)
    session.say(Detail(f"runs again at the end, as the host was too loaded to tell: {item.nodeid}"))


def run_put_off(session: Session) -> None:
    """Run what was put off, once all workers have run all other scenarios."""
    admission = session.admission
    while session.put_off:
        turn = Turn.after(min(map(tries, session.put_off)))
        admission.go_on_to(turn)
        due = [item for item in session.put_off if Turn.after(tries(item)) == turn]
        session.put_off[:] = [item for item in session.put_off if item not in due]
        for item in due:
            _put_aside(item)
            give_out(item)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    admission.close()


def _put_aside(item: pytest.Item) -> None:
    """Keep what the last try recorded where no verdict is read from."""
    session = session_of(item.config)
    rundir.put_aside(session.run, item.nodeid)
    ours = (ENDED, LABEL, WAITED)
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] not in ours]
