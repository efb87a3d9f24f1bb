"""What every fault keeps: one harm, and its exact inverse."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.cluster.resources import node as node_path
from harness.faults import Fault, Partition, PowerOff, fault_from_json
from harness.labs.lab import Lab
from harness.machines.ssh import SshMachine
from harness.model.cluster import condition_status
from harness.safety.injector import HEAL_LIMIT_S, INJECT_LIMIT_S
from tests.contract.kinds import FAULTS
from tests.waiting import eventually, throughout

COMMAND_LIMIT_S = 10.0
ANSWER_LIMIT_S = 2.0
KUBELET_PORT, API_PORT = 10250, 6443
DETECTION_MARGIN_S = 10.0
READY_LIMIT_S = 60.0
DIRECTIONS = ["both", "node-to-api", "api-to-node"]
FOREIGN = """
add table inet somebody_else
add chain inet somebody_else mine { type filter hook input priority 5; }
add rule inet somebody_else mine tcp dport 9 counter drop
"""


@pytest.fixture
def foreign_table(machine: SshMachine) -> Iterator[str]:
    """A table that somebody else has on the machine, as nft shows it."""
    nft(machine, "-f", "-", stdin=FOREIGN)
    yield nft(machine, "list", "table", "inet", "somebody_else")
    nft(machine, "delete", "table", "inet", "somebody_else")


@pytest.fixture(params=DIRECTIONS)
def cut(request: pytest.FixtureRequest, machine: SshMachine) -> Iterator[Partition]:
    """A partition of each direction."""
    made = FAULTS[f"partition-{request.param}"](machine.name)
    assert isinstance(made, Partition)
    yield made
    made.heal(machine)
    assert eventually(lambda: made.is_healed(machine), HEAL_LIMIT_S)


@pytest.fixture
def power_off(machine: SshMachine) -> Iterator[Fault]:
    """A power-off of the node."""
    made = FAULTS["power-off"](machine.name)
    yield made
    made.heal(machine)
    assert eventually(lambda: made.is_healed(machine), HEAL_LIMIT_S)


def nft(machine: SshMachine, *arguments: str, stdin: str = "") -> str:
    done = machine.run(["nft", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)
    assert done.status == 0, done.stderr
    return done.stdout


def inject(fault: Fault, machine: SshMachine) -> None:
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_LIMIT_S)


def ready(lab: Lab, node: str) -> str:
    return condition_status(lab.api.get(node_path(node)), "Ready")


def test_a_fault_is_available_and_not_there_by_itself(fault: Fault, machine: SshMachine) -> None:
    assert fault.available(machine) == ""
    assert fault.is_healed(machine)
    assert not fault.is_injected(machine)


def test_healing_what_was_never_injected_changes_nothing(fault: Fault, machine: SshMachine) -> None:
    boot = machine.boot_id()
    fault.heal(machine)

    assert fault.is_healed(machine)
    assert machine.boot_id() == boot


def test_a_fault_injected_twice_is_seen_and_healed_twice_is_gone(fault: Fault, machine: SshMachine) -> None:
    fault.inject(machine)
    inject(fault, machine)
    assert not fault.is_healed(machine)

    fault.heal(machine)
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert not fault.is_injected(machine)


def test_a_fault_is_healed_by_one_made_from_its_data_alone(fault: Fault, machine: SshMachine) -> None:
    stored = json.dumps(dict(fault.to_json()))
    inject(fault, machine)

    again = fault_from_json(json.loads(stored))
    assert again == fault
    again.heal(machine)
    assert eventually(lambda: again.is_healed(machine), HEAL_LIMIT_S)


def test_unknown_fault_data_is_refused() -> None:
    with pytest.raises(KeyError):
        fault_from_json({"fault": "rm -rf", "id": "1", "node": "node-1"})


def test_a_partition_leaves_ssh_alone(cut: Partition, machine: SshMachine) -> None:
    inject(cut, machine)

    assert machine.run(["true"], deadline_s=COMMAND_LIMIT_S).status == 0
    machine.close()
    assert machine.run(["true"], deadline_s=COMMAND_LIMIT_S).status == 0


def test_a_partition_takes_away_its_own_table_and_no_other(
    cut: Partition, machine: SshMachine, foreign_table: str
) -> None:
    before = nft(machine, "list", "tables")
    inject(cut, machine)
    assert nft(machine, "list", "tables") != before
    assert nft(machine, "list", "table", "inet", "somebody_else") == foreign_table

    cut.heal(machine)
    assert nft(machine, "list", "tables") == before
    assert nft(machine, "list", "table", "inet", "somebody_else") == foreign_table


def test_new_connections_are_cut_by_who_opens_them(cut: Partition, machine: SshMachine) -> None:
    inject(cut, machine)

    assert machine.reaches_control_plane() == (cut.direction == "api-to-node")
    assert machine.reached_from_control_plane() == (cut.direction == "node-to-api")


def test_connections_from_before_are_cut_by_who_opened_them(
    cut: Partition, lab: Lab, machine: SshMachine
) -> None:
    to_kubelet = _speak_to_kubelet(lab, machine)
    assert _answers(to_kubelet)
    marker = f"/run/nodeproof-{cut.id}"
    ask_api = (
        f"exec 3<>/dev/tcp/{machine.control_plane_address}/{API_PORT}; touch {marker}; "
        f"until [ ! -e {marker} ]; do sleep 0.05; done; "
        f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; timeout {ANSWER_LIMIT_S} head -c 4 <&3"
    )
    with ThreadPoolExecutor(1) as pool:
        to_api = pool.submit(machine.run, ["timeout", "30", "bash", "-c", ask_api], deadline_s=40.0)
        assert eventually(lambda: _exists(machine, marker), COMMAND_LIMIT_S)
        inject(cut, machine)
        machine.run(["rm", marker], deadline_s=COMMAND_LIMIT_S)
        answered = to_api.result().stdout == "HTTP"

    assert answered == (cut.direction == "api-to-node")
    assert _answers(to_kubelet) == (cut.direction == "node-to-api")
    to_kubelet.close()


def test_a_node_that_reaches_the_api_stays_ready_though_nobody_reaches_it(
    lab: Lab, machine: SshMachine
) -> None:
    fault = FAULTS["partition-api-to-node"](machine.name)
    longer_than_the_grace_s = lab.configuration.node_monitor_grace_period_s + 4
    inject(fault, machine)
    try:
        assert throughout(lambda: ready(lab, machine.name) == "True", longer_than_the_grace_s)
    finally:
        fault.heal(machine)


def test_a_node_that_does_not_reach_the_api_becomes_unknown_and_comes_back(
    lab: Lab, machine: SshMachine
) -> None:
    fault = FAULTS["partition-node-to-api"](machine.name)
    limit_s = lab.configuration.node_monitor_grace_period_s + DETECTION_MARGIN_S
    inject(fault, machine)
    try:
        assert eventually(lambda: ready(lab, machine.name) == "Unknown", limit_s)
        assert machine.reached_from_control_plane()
    finally:
        fault.heal(machine)
    assert eventually(lambda: ready(lab, machine.name) == "True", READY_LIMIT_S)


def test_a_machine_that_loses_power_tells_no_peer(lab: Lab, machine: SshMachine, power_off: Fault) -> None:
    assert isinstance(power_off, PowerOff)
    peer = lab.supervisor.dial(machine.data_address, KUBELET_PORT, ANSWER_LIMIT_S)
    peer.settimeout(ANSWER_LIMIT_S)
    inject(power_off, machine)

    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.close()


def test_a_machine_that_has_power_again_has_booted_and_becomes_ready(
    lab: Lab, machine: SshMachine, power_off: Fault
) -> None:
    boot = machine.boot_id()
    inject(power_off, machine)
    power_off.heal(machine)
    assert eventually(lambda: power_off.is_healed(machine), HEAL_LIMIT_S)

    booted = machine.boot_id()
    assert booted != boot
    assert eventually(lambda: _reported_boot(lab, machine.name) == booted, READY_LIMIT_S)
    assert eventually(lambda: ready(lab, machine.name) == "True", READY_LIMIT_S)


def _reported_boot(lab: Lab, node: str) -> str:
    return str(lab.api.get(node_path(node))["status"]["nodeInfo"]["bootID"])


def _exists(machine: SshMachine, path: str) -> bool:
    return machine.run(["test", "-e", path], deadline_s=COMMAND_LIMIT_S).status == 0


def _speak_to_kubelet(lab: Lab, machine: SshMachine) -> ssl.SSLSocket:
    """A connection that the control plane's side opens, and keeps."""
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    made = lab.supervisor.dial(machine.data_address, KUBELET_PORT, ANSWER_LIMIT_S)
    made.settimeout(COMMAND_LIMIT_S)
    speaking = context.wrap_socket(made, server_hostname=machine.data_address)
    speaking.settimeout(ANSWER_LIMIT_S)
    return speaking


def _answers(connection: socket.socket) -> bool:
    """Whether the kubelet still answers on a connection; whom it does not know it refuses, which is an
    answer.
    """
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: kubelet\r\n\r\n")
    try:
        return connection.recv(4096).startswith(b"HTTP/1.1 401")
    except TimeoutError:
        return False
