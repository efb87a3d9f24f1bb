"""Nodes of an own cluster: what answers of the API server show of a kubelet, and nodes that are gone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NoReturn, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.existing.power import OwnCommand, Power
from nodeproof.faults.units import UnitDown
from nodeproof.labs.kinds.existing.machine import ClusterMachine
from nodeproof.machines.machine import MachineError, Shell
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.problem import Problem
from nodeproof.safety.deadman import Timers
from tests.unit.ssh_server import Hosts

UNREACHED = "error trying to reach service: dial tcp 10.0.0.7:10250: "
UNREACHABLE = OpenSsh("worker-7", Path("ssh_config"))


class Answers:
    """An API that answers each request with an error, but those for `paths`."""

    def __init__(self, status: int, message: str, paths: Collection[str] = ()) -> None:
        self._error, self._paths = ApiError(status, message), paths

    def text(self, path: str) -> str:
        if path in self._paths:
            return "{}"
        raise self._error


def machine(
    status: int,
    message: str,
    paths: Collection[str] = (),
    ssh: OpenSsh = UNREACHABLE,
    power: Power | None = None,
) -> ClusterMachine:
    api = cast(Api, Answers(status, message, paths))
    return ClusterMachine(ssh, api, "10.0.0.7", ("10.0.0.1", 6443), power)


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


def test_kubelet_that_the_api_server_waits_for_is_silent() -> None:
    worker = machine(0, "timed out", paths=["/version"])
    assert not worker.reached_from_control_plane()
    assert not worker.serves_kubelet()


@pytest.mark.parametrize("power", [None, Power(OwnCommand({"argv": ["true"]}))])
def test_no_power_driver_resets(power: Power | None) -> None:
    with pytest.raises(MachineError, match="no power driver for reset"):
        machine(0, "", power=power).power("reset")


def test_failing_power_driver_keeps_no_machine_that_answers_from_being_healed(hosts: Hosts) -> None:
    failing = Power(OwnCommand({"argv": ["false"]}))
    with hosts.shell(hosts.node.known_host) as ssh:
        assert machine(0, "", ssh=ssh, power=failing).is_powered()
    with hosts.shell("") as ssh, pytest.raises(MachineError, match="status by the power driver command"):
        machine(0, "", ssh=ssh, power=failing).is_powered()


def test_power_is_back_once_the_machine_answers(hosts: Hosts) -> None:
    sudo = hosts.folder / "bin" / "sudo"
    sudo.rename(sudo.with_name("sudo.later"))
    hosts.program("sudo", "#!/bin/sh\nexit 1\n")
    boot = f"(sleep 1; mv {sudo}.later {sudo}) >/dev/null 2>&1 &"
    with hosts.shell(hosts.node.known_host) as ssh:
        worker = machine(0, "", ssh=ssh, power=Power(OwnCommand({"argv": ["sh", "-c", boot]})))
        assert not worker.answers_on_control()
        worker.power("on")
        assert worker.answers_on_control()


def test_timer_of_a_node_that_is_gone_blocks_no_other() -> None:
    def gone(name: str) -> NoReturn:
        raise Problem(f"no node {name!r}", "cluster.yaml", "run this in a lab")

    Timers(lambda name: cast(Shell, gone(name))).arm(UnitDown("worker-2").to_json(), 0)
