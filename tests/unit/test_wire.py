"""Replies of a lab's supervisor over its socket."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nodeproof.labs.base.wire import LabStatus, SupervisorClient, receive, send
from nodeproof.labs.client.supervised import SupervisedHost
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem

TIMEOUT_S = 5.0
NO_API: Any = None
REPLY = {"error": "node-1 hangs at boot", "detail": "Kernel panic\nCPU: 0"}


NODE = {
    "name": "node-1",
    "slot": 0,
    "zone": "zone-a",
    "machine_id": "0" * 32,
    "control_address": "10.78.1.1",
    "data_address": "10.77.1.1",
    "memory_mib": 0,
    "cpus": 1,
    "on": True,
    "pid": 7,
}
STATUS = {
    "lab": "p-000000",
    "kind": "process",
    "features": ["power"],
    "phase": "ready",
    "failure": "",
    "profile": "fast",
    "kubernetes_version": "v1.36.3",
    "nodes": [NODE, {**NODE, "name": "node-2", "slot": 1, "on": False, "pid": None}],
    "components": {"etcd": 5},
    "services": {"etcd": {"pid": 5, "argv": ["etcd"]}, "kube-scheduler": {"pid": None, "argv": []}},
    "settings": "/run/nodeproof/p-000000/mem/settings",
    "died": {"kubelet-node-2": "exited 1"},
    "memory": {"memory": {"size_bytes": 2, "free_bytes": 1, "is_full": False, "full_t": None}},
    "armed": {"cut": 44.9},
    "not_disarmed": [{"fault": "partition", "id": "cut", "node": "node-1"}],
    "control_plane_address": "10.77.0.1",
    "witness_port": 40000,
    "received": ["token"],
    "holders": 1,
    "overrides": {"gates": {"A": True}, "settings": {}, "known_gates": {"kubelet": ["A"]}},
}


@pytest.mark.parametrize("status", [STATUS, {**STATUS, "kind": "libvirt", "kvm": False}])
def test_status_keeps_its_json(status: dict[str, object]) -> None:
    parsed = LabStatus.from_json(status)
    assert [node.is_on for node in parsed.nodes] == [True, False]
    assert json.loads(json.dumps(parsed.to_json())) == status


@pytest.mark.parametrize("status", [{}, {**STATUS, "new": 1}, {**STATUS, "nodes": [{"name": "node-1"}]}])
def test_status_of_another_version_is_a_problem(
    status: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SupervisorClient(Path("p-000000/s"))
    monkeypatch.setattr(client, "_checked", lambda *_: status)
    with pytest.raises(Problem, match=r"another version .*`nodeproof down --lab-name p-000000"):
        client.status()


def test_hanging_machine_is_one_line_caused_by_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket is short (unix(7)).
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind("lab.sock")
        listener.listen()
        listener.settimeout(TIMEOUT_S)
        answered = pool.submit(_answer, listener)
        with pytest.raises(MachineError) as raised:
            SupervisedHost(SupervisorClient(Path("lab.sock")), NO_API).power("node-1", "on")
        assert answered.result(TIMEOUT_S) == {"verb": "power", "node": "node-1", "action": "on"}

    assert str(raised.value).splitlines() == [str(raised.value)]
    assert str(raised.value).startswith("node-1 hangs at boot (lab ")
    assert isinstance(raised.value.__cause__, Problem)
    assert raised.value.__cause__.detail == "Kernel panic\nCPU: 0"


def _answer(listener: socket.socket) -> object:
    client, _ = listener.accept()
    with client:
        request, _ = receive(client)
        send(client, REPLY)
    return request
