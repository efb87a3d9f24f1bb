"""Nodes of an own cluster: what answers of the API server show of a kubelet, and nodes that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.faults.units import UnitDown
from nodeproof.labs.kinds.existing.machine import ClusterMachine
from nodeproof.machines.machine import MachineError, Shell
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.problem import Problem
from nodeproof.safety.deadman import Timers

UNREACHED = "error trying to reach service: dial tcp 10.0.0.7:10250: "


class Answers:
    """An API that answers each request with an error."""

    def __init__(self, status: int, message: str) -> None:
        self._error = ApiError(status, message)

    def text(self, _path: str) -> str:
        raise self._error


def machine(status: int, message: str) -> ClusterMachine:
    api = cast(Api, Answers(status, message))
    return ClusterMachine(OpenSsh("worker-7", Path("ssh_config")), api, "10.0.0.7", ("10.0.0.1", 6443))


@pytest.mark.parametrize(
    ("message", "reached"), [("connect: connection refused", True), ("i/o timeout", False)]
)
def test_stopped_kubelet_does_not_serve(message: str, reached: bool) -> None:
    worker = machine(503, f"{UNREACHED}{message}")
    assert not worker.serves_kubelet()
    assert worker.reached_from_control_plane() == reached


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (0, "timed out"),
        (401, "Unauthorized"),
        (403, "nodes/proxy is forbidden"),
        (429, "too many requests"),
        (500, "etcdserver: request timed out"),
        (503, "apiserver is shutting down"),
    ],
)
def test_answer_of_the_api_server_alone_shows_no_kubelet(status: int, message: str) -> None:
    with pytest.raises(MachineError, match=f"no answer about its kubelet: .*{message}"):
        machine(status, message).serves_kubelet()


def test_timer_of_a_node_that_is_gone_blocks_no_other() -> None:
    def gone(name: str) -> NoReturn:
        raise Problem(f"no node {name!r}", "cluster.yaml", "run this in a lab")

    Timers(lambda name: cast(Shell, gone(name))).arm(UnitDown("worker-2").to_json(), 0)
