"""What a lab's supervisor answers, over a socket as it has one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nodeproof.labs.client.host import SupervisedHost
from nodeproof.labs.ground.wire import SupervisorClient, receive, send
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem

LIMIT_S = 5.0
NO_API: Any = None
REPLY = {"error": "node-1 hangs at boot", "detail": "Kernel panic\nCPU: 0"}


def test_a_machine_that_hangs_is_one_line_and_its_console_is_what_that_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket is short (unix(7)).
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind("lab.sock")
        listener.listen()
        listener.settimeout(LIMIT_S)
        answered = pool.submit(_answer, listener)
        with pytest.raises(MachineError) as raised:
            SupervisedHost(SupervisorClient(Path("lab.sock")), NO_API).power("node-1", "on")
        assert answered.result(LIMIT_S) == {"verb": "power", "node": "node-1", "action": "on"}

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
