"""The lock and the ledger of a user's own cluster, in its API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds.existing import lock as cluster_lock
from nodeproof.labs.kinds.existing.lock import LEDGER, LOCK, ClusterLock
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from tests.waiting import eventually, pause

FAULT = {"fault": "unit-down", "id": "f1", "node": "node-1"}
SHORT_S = 1.5
HUNG_S, RENEWED_TIMEOUT_S = 0.6, 10.0
Make = Callable[[str], ClusterLock]


@pytest.fixture
def make(lab: LabHandle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return `make(holder)`, whose locks expire soon."""
    monkeypatch.setattr(cluster_lock, "EXPIRES_S", SHORT_S)
    monkeypatch.setattr(cluster_lock, "_RENEW_PERIOD_S", SHORT_S / 5)
    monkeypatch.setattr(cluster_lock, "_LOOK_PERIOD_S", 0.1)
    locks: list[ClusterLock] = []

    def make_lock(holder: str) -> ClusterLock:
        locks.append(ClusterLock(lab.cluster.api, holder, "cluster.yaml", print))
        return locks[-1]

    yield make_lock
    for lock in locks:
        lock.release()
    lab.cluster.api.delete(LOCK)


def test_held_lock_is_refused_and_a_released_one_taken(make: Make) -> None:
    first, second = make("ann@desk"), make("bob@laptop")
    first.take()
    with pytest.raises(Problem, match="ann@desk is using the cluster"):
        second.take()
    first.release()
    second.take()
    second.check()


def test_open_faults_outlive_their_process(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_lock, "_RENEW_PERIOD_S", 60.0)
    killed, colleague = make("ann@desk"), make("bob@laptop")
    killed.take()
    killed.write("planned", FAULT)
    killed.write("injected", FAULT)
    colleague.take()
    (open_fault,) = colleague.unfinished()
    assert (open_fault.fault, open_fault.step) == (FAULT, "injected")
    with pytest.raises(OSError, match="bob@laptop has taken the lock"):
        killed.write("healing", FAULT)
    with pytest.raises(Problem, match="bob@laptop has taken the lock"):
        killed.check()
    colleague.write("closed", FAULT)
    colleague.release()
    third = make("eve@home")
    third.take()
    assert third.unfinished() == []


def test_lock_is_renewed_soon_after_a_request_that_hung(
    make: Make, lab: LabHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, hung, renewals = lab.cluster.api, threading.Event(), list[str]()
    patch = api.patch

    def hang_once(path: str, body: Json) -> Json:
        if path != LOCK or hung.is_set():
            return patch(path, body)
        # The period is read again once the lock is renewed: a renewal by the period would come too late.
        monkeypatch.setattr(cluster_lock, "_RENEW_PERIOD_S", 60.0)
        renewals.append(renewed_at(api))
        pause(HUNG_S)
        hung.set()
        raise ApiError(0, "timed out")

    monkeypatch.setattr(cluster_lock, "_WRITE_TIMEOUT_S", HUNG_S / 2)
    lock = make("ann@desk")
    lock.take()
    monkeypatch.setattr(api, "patch", hang_once)
    assert hung.wait(RENEWED_TIMEOUT_S)
    assert eventually(lambda: renewed_at(api) not in renewals, RENEWED_TIMEOUT_S)
    lock.check()


def renewed_at(api: Api) -> str:
    return str(api.get(LOCK)["spec"]["renewTime"])


def test_unreadable_ledger_is_kept(make: Make, lab: LabHandle) -> None:
    make("ann@desk").take()
    lab.cluster.api.patch(
        LOCK, {"metadata": {"annotations": {LEDGER: "[{}]"}}, "spec": {"holderIdentity": ""}}
    )
    with pytest.raises(Problem, match="the ledger cannot be read"):
        make("bob@laptop").take()
    assert lab.cluster.api.get(LOCK)["metadata"]["annotations"][LEDGER] == "[{}]"
