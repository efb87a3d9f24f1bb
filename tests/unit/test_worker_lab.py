"""Watches that must return after an API server's restart, unless their client has left."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.session import worker_lab
from nodeproof.session.worker_lab import Settling
from tests.fakes import fake_lab

ANYTHING, A_RESTART = Needs(), Needs(components=("kube-apiserver",))


class CountedApi:
    """An API server that counts some watches of Pods."""

    def __init__(self) -> None:
        self.pods = 4

    def text(self, _path: str) -> str:
        labels = 'group="",resource="pods",scope="cluster",verb="WATCH"'
        return f"apiserver_longrunning_requests{{{labels}}} {self.pods}\n"


def lab_of(api: CountedApi) -> LabHandle:
    return fake_lab({"name": "p-1", "zone": "", "cluster.api": api})


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_lab, "_TIMEOUT_S", 0.0)


def test_watcher_before_a_restart_must_watch_again() -> None:
    api = CountedApi()
    settling = Settling(lab_of(api))
    settling.begin(A_RESTART)
    api.pods = 3
    with pytest.raises(Problem, match=r"do not watch again: /pods"):
        settling.end()


def test_machine_that_left_before_a_restart_need_not_watch_again() -> None:
    api = CountedApi()
    settling = Settling(lab_of(api))
    settling.begin(ANYTHING)
    api.pods = 5
    settling.end()
    settling.begin(A_RESTART)
    api.pods = 4
    settling.end()


def test_scenario_without_a_restart_requires_no_watchers() -> None:
    api = CountedApi()
    settling = Settling(lab_of(api))
    settling.begin(ANYTHING)
    api.pods = 0
    settling.end()
