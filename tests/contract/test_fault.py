"""What every fault keeps: one harm, and its exact inverse."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import Fault, KubeletSettings, Partition, Swap, fault_from_json, faults_on
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.control_plane import SERVICE_ADDRESS
from nodeproof.labs.ground.spec import API_ADDRESS
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.cluster import condition_status
from nodeproof.safety.injector import HEAL_LIMIT_S, INJECT_LIMIT_S
from tests.contract.kinds import FAULTS, Kind
from tests.waiting import eventually, throughout, told

COMMAND_LIMIT_S = 10.0
ANSWER_LIMIT_S = 2.0
KUBELET_PORT, API_PORT = 10250, 6443
DETECTION_MARGIN_S = 10.0
READY_LIMIT_S = 60.0
SHUTDOWN_LIMIT_S = 60.0
LOCKED_S, FROZEN_S = 3.0, 8.0
IN_ORDER = "Reached target poweroff.target"
"""What systemd says last in a shutdown, and never when the power goes."""
KIB_PER_MIB, HEADER_KIB = 1024, 4
DIRECTIONS = ["both", "node-to-api", "api-to-node", "rejects"]
FOREIGN = """
add table inet somebody_else
add chain inet somebody_else mine { type filter hook input priority 5; }
add rule inet somebody_else mine tcp dport 9 counter drop
"""


@pytest.fixture
def foreign_table(machine: Machine) -> Iterator[str]:
    """A table that somebody else has on the machine, as nft shows it."""
    nft(machine, "-f", "-", stdin=FOREIGN)
    yield nft(machine, "list", "table", "inet", "somebody_else")
    nft(machine, "delete", "table", "inet", "somebody_else")


@pytest.fixture(params=DIRECTIONS)
def cut(request: pytest.FixtureRequest, machine: Machine) -> Iterator[Partition]:
    """A partition of each direction, and one that rejects."""
    made = FAULTS[f"partition-{request.param}"](machine.name)
    assert isinstance(made, Partition)
    yield made
    made.heal(machine)
    assert eventually(lambda: made.is_healed(machine), HEAL_LIMIT_S)


@pytest.fixture
def has_one(kind: Kind, machine: Machine) -> Iterator[Callable[[str], Fault]]:
    """Makes a fault of a name, healed afterwards; skips the test where the kind of lab can't have it."""
    made: list[Fault] = []

    def make(name: str) -> Fault:
        if name in kind.lacks:
            pytest.skip(f"a {kind.name} lab can't have it: {kind.lacks[name]}")
        made.append(FAULTS[name](machine.name))
        return made[-1]

    yield make
    for fault in made:
        fault.heal(machine)
        assert eventually(lambda fault=fault: fault.is_healed(machine), HEAL_LIMIT_S)  # type: ignore[misc]


def command(machine: Machine, *argv: str) -> str:
    done = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
    assert done.status == 0, done.stderr
    return done.stdout


def journal_of_the_boot_before(machine: Machine) -> str:
    return command(machine, "journalctl", "--boot=-1", "--lines=300", "--output=cat", "--no-pager")


def total_swap_kib(machine: Machine) -> int:
    return int(command(machine, "grep", "SwapTotal", "/proc/meminfo").split()[1])


def nft(machine: Machine, *arguments: str, stdin: str = "") -> str:
    done = machine.run(["nft", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)
    assert done.status == 0, done.stderr
    return done.stdout


def inject(fault: Fault, machine: Machine) -> None:
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_LIMIT_S)


def ready(lab: Lab, node: str) -> str:
    return condition_status(lab.cluster.api.get(node_path(node)), "Ready")


def test_a_fault_is_available_and_not_there_by_itself(fault: Fault, machine: Machine) -> None:
    assert fault.available(machine) == ""
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert not told(lambda: fault.is_injected(machine))


def test_a_fault_that_a_kind_of_lab_cannot_have_is_refused_with_the_reason(
    kind: Kind, machine: Machine, lacked_fault: str
) -> None:
    assert kind.lacks[lacked_fault] in FAULTS[lacked_fault](machine.name).available(machine)


def test_healing_what_was_never_injected_changes_nothing(fault: Fault, machine: Machine) -> None:
    boot = machine.boot_id()
    fault.heal(machine)

    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert machine.boot_id() == boot


@pytest.mark.core
def test_a_fault_injected_twice_is_seen_and_healed_twice_is_gone(fault: Fault, machine: Machine) -> None:
    fault.inject(machine)
    inject(fault, machine)
    assert not told(lambda: fault.is_healed(machine))

    fault.heal(machine)
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert not told(lambda: fault.is_injected(machine))


END_KUBELET = """
systemctl stop kubelet.service 2>/dev/null ||
for process in /proc/[0-9]*; do
    case $(readlink "$process/exe") in */bin/components) kill -KILL "${process#/proc/}" ;; esac
done
"""


def test_a_machine_that_runs_without_its_kubelet_has_not_booted(
    has_one: Callable[[str], Fault], machine: Machine
) -> None:
    fault = has_one("power-off")
    machine.run(["sh", "-c", END_KUBELET], deadline_s=COMMAND_LIMIT_S)
    assert eventually(lambda: not fault.is_healed(machine), INJECT_LIMIT_S)
    assert machine.reaches_control_plane()

    inject(fault, machine)
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)


def test_a_heal_that_failed_half_way_is_made_good_by_the_next(
    has_one: Callable[[str], Fault], machine: Machine, lab: Lab
) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd is what is broken")
    fault = has_one("kubelet-settings")
    inject(fault, machine)
    broken = "/run/systemd/system/kubelet.service.d/broken.conf"
    write = 'mkdir -p "$(dirname "$0")" && printf "[Service]\nExecStartPre=/bin/false\n" >"$0"'
    command(machine, "sh", "-c", write, broken)
    try:
        with pytest.raises(MachineError):
            fault.heal(machine)
    finally:
        command(machine, "rm", broken)
    assert faults_on(machine) != []
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert faults_on(machine) == []


def test_a_fault_is_healed_by_one_made_from_its_data_alone(fault: Fault, machine: Machine) -> None:
    stored = json.dumps(dict(fault.to_json()))
    inject(fault, machine)

    again = fault_from_json(json.loads(stored))
    assert again == fault
    again.heal(machine)
    assert eventually(lambda: again.is_healed(machine), HEAL_LIMIT_S)


def test_unknown_fault_data_is_refused() -> None:
    with pytest.raises(KeyError):
        fault_from_json({"fault": "rm -rf", "id": "1", "node": "node-1"})


def test_a_partition_leaves_ssh_alone(cut: Partition, machine: Machine) -> None:
    inject(cut, machine)

    assert machine.run(["true"], deadline_s=COMMAND_LIMIT_S).status == 0
    machine.close()
    assert machine.run(["true"], deadline_s=COMMAND_LIMIT_S).status == 0


def test_a_partition_takes_away_its_own_table_and_no_other(
    cut: Partition, machine: Machine, foreign_table: str
) -> None:
    before = nft(machine, "list", "tables")
    inject(cut, machine)
    assert nft(machine, "list", "tables") != before
    assert nft(machine, "list", "table", "inet", "somebody_else") == foreign_table

    cut.heal(machine)
    assert nft(machine, "list", "tables") == before
    assert nft(machine, "list", "table", "inet", "somebody_else") == foreign_table


ANSWERS_FOR_A_SERVICE = f"""
add table ip somebody_else_serves
add chain ip somebody_else_serves out {{ type nat hook output priority -90; }}
add rule ip somebody_else_serves out ip daddr {SERVICE_ADDRESS} tcp dport 443 dnat to {API_ADDRESS}:{API_PORT}
"""


def test_a_kube_proxy_leaves_nothing_and_is_not_gone_while_its_service_answers(
    has_one: Callable[[str], Fault], machine: Machine
) -> None:
    fault = has_one("kube-proxy")
    before = nft(machine, "list", "ruleset")
    inject(fault, machine)
    assert "kube-proxy" in nft(machine, "list", "tables")

    nft(machine, "-f", "-", stdin=ANSWERS_FOR_A_SERVICE)
    fault.heal(machine)
    assert not told(lambda: fault.is_healed(machine))
    nft(machine, "delete", "table", "ip", "somebody_else_serves")
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    tables = [line for line in before.splitlines() if line.startswith("table")]
    assert [
        line for line in nft(machine, "list", "ruleset").splitlines() if line.startswith("table")
    ] == tables
    assert faults_on(machine) == []


@pytest.mark.vm
def test_new_connections_are_cut_by_who_opens_them(cut: Partition, machine: Machine) -> None:
    inject(cut, machine)

    assert machine.reaches_control_plane() == (cut.direction == "api-to-node")
    assert machine.reached_from_control_plane() == (cut.direction == "node-to-api")


def test_a_partition_that_rejects_does_not_let_its_node_wait(machine: Machine) -> None:
    fault = FAULTS["partition-rejects"](machine.name)
    dial = f"exec 3<>/dev/tcp/{machine.control_plane_address}/{API_PORT}"
    inject(fault, machine)
    try:
        done = machine.run(["timeout", "5", "bash", "-c", dial], deadline_s=COMMAND_LIMIT_S)
    finally:
        fault.heal(machine)

    assert done.status == 1
    assert "Connection refused" in done.stderr


def test_connections_from_before_are_cut_by_who_opened_them(
    cut: Partition, lab: Lab, machine: Machine
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


def test_a_node_that_reaches_the_api_stays_ready_though_nobody_reaches_it(lab: Lab, machine: Machine) -> None:
    fault = FAULTS["partition-api-to-node"](machine.name)
    longer_than_the_grace_s = lab.configuration["G"] + 4
    inject(fault, machine)
    try:
        assert throughout(lambda: ready(lab, machine.name) == "True", longer_than_the_grace_s)
    finally:
        fault.heal(machine)


def test_a_node_that_does_not_reach_the_api_becomes_unknown_and_comes_back(
    lab: Lab, machine: Machine
) -> None:
    fault = FAULTS["partition-node-to-api"](machine.name)
    limit_s = lab.configuration["G"] + DETECTION_MARGIN_S
    inject(fault, machine)
    try:
        assert eventually(lambda: ready(lab, machine.name) == "Unknown", limit_s)
        assert machine.reached_from_control_plane()
    finally:
        fault.heal(machine)
    assert eventually(lambda: ready(lab, machine.name) == "True", READY_LIMIT_S)


@pytest.mark.parametrize("name", ["power-off", "reset"])
def test_a_machine_that_is_cut_short_tells_no_peer(
    lab: Lab, machine: Machine, has_one: Callable[[str], Fault], name: str
) -> None:
    fault = has_one(name)
    peer = registry.client(lab.name).dial(machine.data_address, KUBELET_PORT, ANSWER_LIMIT_S)
    peer.settimeout(ANSWER_LIMIT_S)
    inject(fault, machine)

    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.close()


@pytest.mark.parametrize("name", ["power-off", "reset"])
def test_a_machine_that_was_cut_short_has_booted_and_becomes_ready(
    lab: Lab, machine: Machine, has_one: Callable[[str], Fault], name: str
) -> None:
    fault = has_one(name)
    boot = machine.boot_id()
    inject(fault, machine)
    assert machine.is_powered() == (name == "reset")
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)

    booted = machine.boot_id()
    assert booted != boot
    assert eventually(lambda: _reported_boot(lab, machine.name) == booted, READY_LIMIT_S)
    assert eventually(lambda: ready(lab, machine.name) == "True", READY_LIMIT_S)


def test_a_shutdown_waits_for_delay_locks_and_ends_in_order(
    machine: Machine, has_one: Callable[[str], Fault]
) -> None:
    shutdown = has_one("shutdown")
    lock = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "--why=test", "sleep", "120"]
    command(machine, "systemd-run", "--quiet", "--unit=lock", *lock)
    assert eventually(lambda: "delay" in command(machine, "systemd-inhibit", "--list"), COMMAND_LIMIT_S)
    inject(shutdown, machine)
    assert throughout(lambda: machine.answers_on_control() and shutdown.is_injected(machine), LOCKED_S)
    command(machine, "systemctl", "stop", "lock")
    assert eventually(lambda: not machine.is_powered(), SHUTDOWN_LIMIT_S)
    assert shutdown.is_injected(machine)

    shutdown.heal(machine)
    assert IN_ORDER in journal_of_the_boot_before(machine)


def test_a_machine_that_loses_power_says_no_last_words(
    machine: Machine, has_one: Callable[[str], Fault]
) -> None:
    assert has_one("shutdown").available(machine) == ""
    power_off = has_one("power-off")
    inject(power_off, machine)
    power_off.heal(machine)

    said = journal_of_the_boot_before(machine)
    assert "kubelet" in said
    assert IN_ORDER not in said


@pytest.mark.vm
def test_swap_is_what_the_kernel_may_page_to(machine: Machine, has_one: Callable[[str], Fault]) -> None:
    before = total_swap_kib(machine)
    swap = has_one("swap")
    assert isinstance(swap, Swap)
    inject(swap, machine)
    assert total_swap_kib(machine) == before + swap.size_mib * KIB_PER_MIB - HEADER_KIB
    assert int(command(machine, "cat", swap.used_file)) >= swap.used_mib * KIB_PER_MIB * 1024

    swap.heal(machine)
    assert total_swap_kib(machine) == before


def test_a_kubelet_keeps_its_other_settings_over_a_cut_of_the_power(
    machine: Machine, has_one: Callable[[str], Fault]
) -> None:
    settings = has_one("kubelet-settings")
    before = machine.kubelet_configuration()
    inject(settings, machine)
    assert before["shutdownGracePeriod"] == "0s"
    assert machine.kubelet_configuration() == {**before, "shutdownGracePeriod": "1m30s"}

    machine.power("off")
    machine.power("on")
    assert eventually(lambda: settings.is_injected(machine), READY_LIMIT_S)
    settings.heal(machine)
    assert eventually(lambda: machine.kubelet_configuration() == before, READY_LIMIT_S)


def test_a_setting_that_changes_nothing_is_refused(machine: Machine) -> None:
    told = machine.kubelet_configuration()
    same = KubeletSettings("00000000", machine.name, {"maxPods": told["maxPods"], "registryBurst": 11})
    assert same.available(machine) == f"its kubelet already has maxPods: {told['maxPods']}"


def test_a_second_change_of_settings_is_refused(machine: Machine, has_one: Callable[[str], Fault]) -> None:
    inject(has_one("kubelet-settings"), machine)
    assert "already" in has_one("kubelet-settings").available(machine)


def test_a_pulled_cable_has_no_carrier_and_outlasts_a_power_cycle(
    machine: Machine, has_one: Callable[[str], Fault]
) -> None:
    link_down = has_one("link-down")
    inject(link_down, machine)
    assert carriers(machine) == {"control": True, "data": False}

    machine.power("off")
    machine.power("on")
    assert eventually(lambda: link_down.is_injected(machine), INJECT_LIMIT_S)
    link_down.heal(machine)
    assert eventually(lambda: carriers(machine) == {"control": True, "data": True}, HEAL_LIMIT_S)


@pytest.mark.vm
def test_a_frozen_machine_does_nothing_and_goes_on_where_it_was_with_the_right_time(
    lab: Lab, machine: Machine, has_one: Callable[[str], Fault]
) -> None:
    freeze, boot = has_one("freeze"), machine.boot_id()
    inject(freeze, machine)
    last = renewed(lab, machine.name)
    assert throughout(lambda: renewed(lab, machine.name) == last, FROZEN_S)
    freeze.heal(machine)

    assert machine.boot_id() == boot
    assert abs(float(command(machine, "date", "+%s.%N")) - time.time()) < FROZEN_S / 4
    assert eventually(lambda: renewed(lab, machine.name) != last, READY_LIMIT_S)


def test_what_was_frozen_or_not_goes_on_when_thawed(machine: Machine) -> None:
    machine.power("thaw")
    machine.power("freeze")
    machine.power("freeze")
    machine.power("thaw")
    machine.power("thaw")

    assert command(machine, "echo", "here") == "here\n"


def renewed(lab: Lab, node: str) -> str:
    lease = lab.cluster.api.get(f"{WATCHED['leases']}/{node}")
    return str(lease["spec"]["renewTime"])


def carriers(machine: Machine) -> dict[str, bool]:
    links = json.loads(command(machine, "ip", "-json", "link", "show"))
    seen = {link["ifname"]: "NO-CARRIER" not in link["flags"] for link in links}
    return {name: seen[name] for name in ("control", "data")}


def _reported_boot(lab: Lab, node: str) -> str:
    return str(lab.cluster.api.get(node_path(node))["status"]["nodeInfo"]["bootID"])


def _exists(machine: Machine, path: str) -> bool:
    return machine.run(["test", "-e", path], deadline_s=COMMAND_LIMIT_S).status == 0


def _speak_to_kubelet(lab: Lab, machine: Machine) -> ssl.SSLSocket:
    """A connection that the control plane's side opens, and keeps."""
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    made = registry.client(lab.name).dial(machine.data_address, KUBELET_PORT, ANSWER_LIMIT_S)
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
