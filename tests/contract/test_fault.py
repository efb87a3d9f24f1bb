"""Properties of every fault: one effect, and its exact inverse."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodeproof.cluster import workloads
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import Fault
from nodeproof.faults.machine import Swap
from nodeproof.faults.partition import Partition
from nodeproof.faults.settings import KubeletSettings
from nodeproof.faults.units import READY, UnitUp
from nodeproof.labs.base.spec import API_ADDRESS
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.cluster import SERVICE_ADDRESS, condition_status
from nodeproof.safety.injector import HEAL_TIMEOUT_S, INJECT_TIMEOUT_S
from nodeproof.testing import *
from tests.contract.kinds import FAULTS, Kind
from tests.waiting import eventually, first_answer, throughout

pytest.mark.core(test_fault_is_idempotent)
COMMAND_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 2.0
KUBELET_PORT, API_PORT = 10250, 6443
DETECTION_MARGIN_S = 10.0
READY_TIMEOUT_S = 60.0
SHUTDOWN_TIMEOUT_S = 60.0
LOCKED_S, FROZEN_S = 3.0, 8.0
SHUTDOWN_MESSAGE = "Reached target poweroff.target"
"""systemd's last message in a shutdown; a power cut has none."""
KIB_PER_MIB, HEADER_KIB = 1024, 4
DIRECTIONS = ["both", "node-to-api", "api-to-node", "rejects"]
FOREIGN = """
add table inet foreign
add chain inet foreign mine { type filter hook input priority 5; }
add rule inet foreign mine tcp dport 9 counter drop
"""


@pytest.fixture
def foreign_table(machine: Machine) -> Iterator[str]:
    """Add a foreign table to the machine; return it as nft prints it."""
    nft(machine, "-f", "-", stdin=FOREIGN)
    yield nft(machine, "list", "table", "inet", "foreign")
    nft(machine, "delete", "table", "inet", "foreign")


@pytest.fixture(params=DIRECTIONS)
def partition(request: pytest.FixtureRequest, machine: Machine) -> Iterator[Partition]:
    """Return a partition of each direction, and one that rejects."""
    fault = FAULTS[f"partition-{request.param}"](machine.name)
    assert isinstance(fault, Partition)
    yield fault
    heal(fault, machine)


@pytest.fixture
def new_fault(kind: Kind, machine: Machine) -> Iterator[Callable[[str], Fault]]:
    """Return a factory of faults by name, healed afterwards; it skips the test if the lab lacks the fault."""
    faults: list[Fault] = []

    def make(name: str) -> Fault:
        if name in kind.lacks:
            pytest.skip(f"a {kind.name} lab lacks this fault: {kind.lacks[name]}")
        faults.append(FAULTS[name](machine.name))
        return faults[-1]

    yield make
    for fault in faults:
        heal(fault, machine)


def command(machine: Machine, *argv: str, stdin: str = "") -> str:
    process = machine.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin=stdin)
    assert process.status == 0, process.stderr
    return process.stdout


def journal_of_previous_boot(machine: Machine) -> str:
    return command(machine, "journalctl", "--boot=-1", "--lines=300", "--output=cat", "--no-pager")


def total_swap_kib(machine: Machine) -> int:
    return int(command(machine, "grep", "SwapTotal", "/proc/meminfo").split()[1])


def nft(machine: Machine, *arguments: str, stdin: str = "") -> str:
    return command(machine, "nft", *arguments, stdin=stdin)


def inject(fault: Fault, machine: Machine) -> None:
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)


def heal(fault: Fault, machine: Machine) -> None:
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)


def ready_status(lab: LabHandle, node: str) -> str:
    return condition_status(lab.cluster.api.get(node_path(node)), "Ready")


def test_fault_unsupported_by_the_lab_is_refused_with_the_reason(
    kind: Kind, machine: Machine, unsupported_fault: str
) -> None:
    assert kind.lacks[unsupported_fault] in FAULTS[unsupported_fault](machine.name).available(machine)


def test_machine_running_without_kubelet_has_not_booted(
    new_fault: Callable[[str], Fault], machine: Machine
) -> None:
    fault = new_fault("power-off")
    command(machine, "systemctl", "stop", "kubelet.service")
    assert eventually(lambda: not fault.is_healed(machine), INJECT_TIMEOUT_S)
    assert machine.reaches_control_plane()

    inject(fault, machine)
    heal(fault, machine)


def test_incomplete_heal_is_completed_by_the_next(
    new_fault: Callable[[str], Fault], machine: Machine, lab: LabHandle
) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd is what is broken")
    fault = new_fault("kubelet-settings")
    inject(fault, machine)
    broken = "/run/systemd/system/kubelet.service.d/broken.conf"
    write = 'mkdir -p "$(dirname "$0")" && printf "[Service]\nExecStartPre=/bin/false\n" >"$0"'
    command(machine, "sh", "-c", write, broken)
    try:
        with pytest.raises(MachineError):
            fault.heal(machine)
    finally:
        command(machine, "rm", broken)
    assert fault.leftovers_on(machine)
    heal(fault, machine)
    assert not fault.leftovers_on(machine)


def test_unit_is_injected_once_it_reports_ready(lab: LabHandle, machine: Machine) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd gets the report")
    path = "/run/nodeproof-test-reported"
    fault = UnitUp(machine.name, f"sleep 3; touch {path}; {READY}; exec sleep infinity")
    try:
        fault.inject(machine)
        assert _exists(machine, path)
    finally:
        fault.heal(machine)
        command(machine, "rm", "-f", path)


def test_unknown_fault_data_is_refused() -> None:
    with pytest.raises(KeyError):
        Fault.from_json({"fault": "rm -rf", "id": "1", "node": "node-1"})


def test_partition_leaves_ssh_alone(partition: Partition, machine: Machine) -> None:
    inject(partition, machine)

    command(machine, "true")
    machine.close()
    command(machine, "true")


def test_partition_removes_only_its_own_table(
    partition: Partition, machine: Machine, foreign_table: str
) -> None:
    before = nft(machine, "list", "tables")
    inject(partition, machine)
    assert nft(machine, "list", "tables") != before
    assert nft(machine, "list", "table", "inet", "foreign") == foreign_table

    partition.heal(machine)
    assert nft(machine, "list", "tables") == before
    assert nft(machine, "list", "table", "inet", "foreign") == foreign_table


SERVICE_RULES = f"""
add table ip foreign_service
add chain ip foreign_service out {{ type nat hook output priority -90; }}
add rule ip foreign_service out ip daddr {SERVICE_ADDRESS} tcp dport 443 dnat to {API_ADDRESS}:{API_PORT}
"""


def test_kube_proxy_leaves_nothing_and_is_present_while_a_service_answers(
    new_fault: Callable[[str], Fault], machine: Machine
) -> None:
    fault = new_fault("kube-proxy")
    before = nft(machine, "list", "tables")
    inject(fault, machine)
    assert "kube-proxy" in nft(machine, "list", "tables")

    nft(machine, "-f", "-", stdin=SERVICE_RULES)
    fault.heal(machine)
    assert not first_answer(lambda: fault.is_healed(machine))
    nft(machine, "delete", "table", "ip", "foreign_service")
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert nft(machine, "list", "tables") == before
    assert not fault.leftovers_on(machine)


@pytest.mark.vm
def test_new_connections_are_cut_by_direction(partition: Partition, machine: Machine) -> None:
    inject(partition, machine)

    assert machine.reaches_control_plane() == (partition.direction == "api-to-node")
    assert machine.reached_from_control_plane() == (partition.direction == "node-to-api")


def test_rejecting_partition_refuses_at_once(new_fault: Callable[[str], Fault], machine: Machine) -> None:
    inject(new_fault("partition-rejects"), machine)
    dial = f"exec 3<>/dev/tcp/{machine.control_plane_addresses[0]}/{API_PORT}"
    process = machine.run(["timeout", "5", "bash", "-c", dial], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 1
    assert "Connection refused" in process.stderr


def test_established_connections_are_cut_by_direction(
    partition: Partition, lab: LabHandle, machine: Machine
) -> None:
    to_kubelet = _connect_to_kubelet(lab, machine)
    assert _answers(to_kubelet)
    marker = f"/run/nodeproof-{partition.id}"
    ask_api = (
        f"exec 3<>/dev/tcp/{machine.control_plane_addresses[0]}/{API_PORT}; touch {marker}; "
        f"until [ ! -e {marker} ]; do sleep 0.05; done; "
        f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; timeout {ANSWER_TIMEOUT_S} head -c 4 <&3"
    )
    with ThreadPoolExecutor(1) as pool:
        to_api = pool.submit(machine.run, ["timeout", "30", "bash", "-c", ask_api], timeout_s=40.0)
        assert eventually(lambda: _exists(machine, marker), COMMAND_TIMEOUT_S)
        inject(partition, machine)
        machine.run(["rm", marker], timeout_s=COMMAND_TIMEOUT_S)
        answered = to_api.result().stdout == "HTTP"

    assert answered == (partition.direction == "api-to-node")
    assert _answers(to_kubelet) == (partition.direction == "node-to-api")
    to_kubelet.close()


def test_node_stays_ready_if_only_the_api_cannot_reach_it(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    longer_than_the_grace_s = lab.configuration["G"] + 4
    inject(new_fault("partition-api-to-node"), machine)
    assert throughout(lambda: ready_status(lab, machine.name) == "True", longer_than_the_grace_s)


def test_node_that_cannot_reach_the_api_becomes_unknown_and_recovers(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    fault, timeout_s = new_fault("partition-node-to-api"), lab.configuration["G"] + DETECTION_MARGIN_S
    inject(fault, machine)
    assert eventually(lambda: ready_status(lab, machine.name) == "Unknown", timeout_s)
    assert machine.reached_from_control_plane()
    heal(fault, machine)
    assert eventually(lambda: ready_status(lab, machine.name) == "True", READY_TIMEOUT_S)


@pytest.mark.parametrize("name", ["power-off", "reset"])
def test_machine_without_power_sends_nothing_to_its_peers(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault], name: str
) -> None:
    fault = new_fault(name)
    peer = registry.client(lab.name).dial(machine.data_address, KUBELET_PORT, ANSWER_TIMEOUT_S)
    peer.settimeout(ANSWER_TIMEOUT_S)
    inject(fault, machine)

    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.close()


@pytest.mark.parametrize("name", ["power-off", "reset"])
def test_machine_boots_and_becomes_ready_after_a_power_cut(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault], name: str
) -> None:
    fault = new_fault(name)
    boot = machine.boot_id()
    inject(fault, machine)
    assert machine.is_powered() == (name == "reset")
    heal(fault, machine)

    booted = machine.boot_id()
    assert booted != boot
    assert eventually(lambda: _reported_boot(lab, machine.name) == booted, READY_TIMEOUT_S)
    assert eventually(lambda: ready_status(lab, machine.name) == "True", READY_TIMEOUT_S)


def test_shutdown_waits_for_delay_locks_and_ends_in_order(
    machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    shutdown = new_fault("shutdown")
    lock = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "--why=test", "sleep", "120"]
    command(machine, "systemd-run", "--quiet", "--unit=lock", *lock)
    assert eventually(lambda: "delay" in command(machine, "systemd-inhibit", "--list"), COMMAND_TIMEOUT_S)
    inject(shutdown, machine)
    assert throughout(lambda: machine.answers_on_control() and shutdown.is_injected(machine), LOCKED_S)
    command(machine, "systemctl", "stop", "lock")
    assert eventually(lambda: not machine.is_powered(), SHUTDOWN_TIMEOUT_S)
    assert shutdown.is_injected(machine)

    shutdown.heal(machine)
    assert SHUTDOWN_MESSAGE in journal_of_previous_boot(machine)


def test_power_cut_leaves_no_shutdown_messages(machine: Machine, new_fault: Callable[[str], Fault]) -> None:
    assert new_fault("shutdown").available(machine) == ""
    power_off = new_fault("power-off")
    inject(power_off, machine)
    power_off.heal(machine)

    journal = journal_of_previous_boot(machine)
    assert "kubelet" in journal
    assert SHUTDOWN_MESSAGE not in journal


@pytest.mark.vm
def test_swap_is_usable_by_the_kernel(machine: Machine, new_fault: Callable[[str], Fault]) -> None:
    before = total_swap_kib(machine)
    swap = new_fault("swap")
    assert isinstance(swap, Swap)
    inject(swap, machine)
    assert total_swap_kib(machine) == before + swap.size_mib * KIB_PER_MIB - HEADER_KIB
    assert int(command(machine, "cat", swap.used_file)) >= swap.used_mib * KIB_PER_MIB * 1024

    swap.heal(machine)
    assert total_swap_kib(machine) == before


def test_kubelet_settings_survive_a_power_cut(machine: Machine, new_fault: Callable[[str], Fault]) -> None:
    settings = new_fault("kubelet-settings")
    before = machine.kubelet_configuration()
    inject(settings, machine)
    assert before["shutdownGracePeriod"] == "0s"
    assert machine.kubelet_configuration() == {**before, "shutdownGracePeriod": "1m30s"}

    machine.power("off")
    machine.power("on")
    assert eventually(lambda: settings.is_injected(machine), READY_TIMEOUT_S)
    settings.heal(machine)
    assert eventually(lambda: machine.kubelet_configuration() == before, READY_TIMEOUT_S)


def test_setting_without_a_change_is_refused(machine: Machine) -> None:
    configuration = machine.kubelet_configuration()
    same = KubeletSettings(machine.name, {"maxPods": configuration["maxPods"], "registryBurst": 11})
    assert same.available(machine) == f"its kubelet already has maxPods: {configuration['maxPods']}"


def test_second_change_of_settings_is_refused(machine: Machine, new_fault: Callable[[str], Fault]) -> None:
    inject(new_fault("kubelet-settings"), machine)
    assert "already" in new_fault("kubelet-settings").available(machine)


def test_pulled_cable_has_no_carrier_and_outlasts_a_power_cycle(
    machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    link_down = new_fault("link-down")
    inject(link_down, machine)
    assert carriers(machine) == {"control": True, "data": False}

    machine.power("off")
    machine.power("on")
    assert eventually(lambda: link_down.is_injected(machine), INJECT_TIMEOUT_S)
    link_down.heal(machine)
    assert eventually(lambda: carriers(machine) == {"control": True, "data": True}, HEAL_TIMEOUT_S)


@pytest.mark.vm
def test_frozen_machine_stops_and_resumes_with_the_right_time(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    freeze, boot = new_fault("freeze"), machine.boot_id()
    inject(freeze, machine)
    last = renew_time(lab, machine.name)
    assert throughout(lambda: renew_time(lab, machine.name) == last, FROZEN_S)
    freeze.heal(machine)

    assert machine.boot_id() == boot
    assert abs(float(command(machine, "date", "+%s.%N")) - time.time()) < FROZEN_S / 4
    assert eventually(lambda: renew_time(lab, machine.name) != last, READY_TIMEOUT_S)


def test_node_whose_lease_expired_is_unfit_for_a_scenario_although_it_is_ready(
    lab: LabHandle, machine: Machine, new_fault: Callable[[str], Fault]
) -> None:
    names, freeze = lab.fleet.node_names(), new_fault("freeze")
    inject(freeze, machine)

    def has_expired() -> bool:
        return "Lease renewed" in workloads.unfit_nodes(lab.cluster.api, names).get(machine.name, "")

    assert eventually(has_expired, lab.configuration["G"])
    freeze.heal(machine)
    lab.wait_nodes_ready()


def test_thaw_is_idempotent(machine: Machine) -> None:
    machine.power("thaw")
    machine.power("freeze")
    machine.power("freeze")
    machine.power("thaw")
    machine.power("thaw")

    assert command(machine, "echo", "here") == "here\n"


def renew_time(lab: LabHandle, node: str) -> str:
    lease = lab.cluster.api.get(f"{WATCHED['leases']}/{node}")
    return str(lease["spec"]["renewTime"])


def carriers(machine: Machine) -> dict[str, bool]:
    links = json.loads(command(machine, "ip", "-json", "link", "show"))
    links_up = {link["ifname"]: "NO-CARRIER" not in link["flags"] for link in links}
    return {name: links_up[name] for name in ("control", "data")}


def _reported_boot(lab: LabHandle, node: str) -> str:
    return str(lab.cluster.api.get(node_path(node))["status"]["nodeInfo"]["bootID"])


def _exists(machine: Machine, path: str) -> bool:
    return machine.run(["test", "-e", path], timeout_s=COMMAND_TIMEOUT_S).status == 0


def _connect_to_kubelet(lab: LabHandle, machine: Machine) -> ssl.SSLSocket:
    """Return a connection opened by the control plane's side."""
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    connection = registry.client(lab.name).dial(machine.data_address, KUBELET_PORT, ANSWER_TIMEOUT_S)
    connection.settimeout(COMMAND_TIMEOUT_S)
    tls = context.wrap_socket(connection, server_hostname=machine.data_address)
    tls.settimeout(ANSWER_TIMEOUT_S)
    return tls


def _answers(connection: socket.socket) -> bool:
    """Return whether the kubelet still answers on a connection.

    It refuses a client that it does not know, which is an answer.
    """
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: kubelet\r\n\r\n")
    try:
        return connection.recv(4096).startswith(b"HTTP/1.1 401")
    except TimeoutError:
        return False
