"""Watches that a restarted API server has to see again: those of who is still there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.labs.client.lab import Lab
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.session import settling
from nodeproof.session.settling import Settling

ANYTHING, A_RESTART = Needs(), Needs(components=("kube-apiserver",))


class CountedApi:
    """An API server that counts some watches of Pods."""

    def __init__(self) -> None:
        self.pods = 4

    def text(self, _path: str) -> str:
        labels = 'group="",resource="pods",scope="cluster",verb="WATCH"'
        return f"apiserver_longrunning_requests{{{labels}}} {self.pods}\n"


def lab_of(api: CountedApi) -> Lab:
    return cast("Lab", SimpleNamespace(name="p-1", zone="", cluster=SimpleNamespace(api=cast("Any", api))))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_LIMIT_S", 0.0)


def test_who_watched_before_a_restart_has_to_watch_again() -> None:
    api, settles = CountedApi(), Settling()
    settles.begin(lab_of(api), A_RESTART)
    api.pods = 3
    with pytest.raises(Problem, match=r"do not watch again: /pods"):
        settles.end(lab_of(api))


def test_a_machine_that_left_before_a_restart_does_not_watch_again() -> None:
    api, settles = CountedApi(), Settling()
    settles.begin(lab_of(api), ANYTHING)
    api.pods = 5
    settles.end(lab_of(api))
    settles.begin(lab_of(api), A_RESTART)
    api.pods = 4
    settles.end(lab_of(api))


def test_nobody_has_to_watch_again_after_a_scenario_that_restarts_nothing() -> None:
    api, settles = CountedApi(), Settling()
    settles.begin(lab_of(api), ANYTHING)
    api.pods = 0
    settles.end(lab_of(api))
