"""A scenario that the host's load left open is run again: nothing was learned of the cluster, either way."""

from __future__ import annotations

import pytest

from nodeproof.report import rundir
from nodeproof.session.judging import Closed
from nodeproof.session.run import session_of
from nodeproof.session.times import ENDED, LABEL

RERUN = "rerun"
"""The outcome of a try that is followed by another; as pytest-rerunfailures names it."""
_LEFT_OPEN = pytest.StashKey[bool]()
_TRIES = pytest.StashKey[int]()


def note(item: pytest.Item, closed: Closed) -> None:
    """Remember whether a scenario's host was too loaded, and another try may tell more: not where something
    deviates, which counts.
    """
    codes = {verdict.code for _claim, verdict in closed.verdicts()}
    tries_left = item.config.getoption("again") - item.stash.get(_TRIES, 0)
    is_open = "host-too-loaded" in codes and closed.worst().outcome != "deviates"
    item.stash[_LEFT_OPEN] = is_open and tries_left > 0


def is_due(item: pytest.Item) -> bool:
    """Whether the scenario's last try is to be followed by another."""
    return item.stash.get(_LEFT_OPEN, False)


def prepare(item: pytest.Item) -> None:
    """Put what the last try recorded aside, and say why there is another."""
    session = session_of(item.config)
    kept = rundir.put_aside(session.run, item.nodeid)
    session.say(f"{item.nodeid} runs again, as the host was too loaded to tell; what it recorded: {kept}")
    item.stash[_TRIES] = item.stash.get(_TRIES, 0) + 1
    item.stash[_LEFT_OPEN] = False
    ours = (ENDED, LABEL)
    item.user_properties[:] = [told for told in item.user_properties if told[0] not in ours]
