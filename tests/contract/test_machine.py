"""Properties of every machine, whatever its kind."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeproof.labs.base.network import BRIDGES
from nodeproof.labs.base.pki import ssh_key
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.supervised import SupervisedHost
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.machines.ssh import SshAccess, SshMachine
from tests.waiting import eventually

COMMAND_TIMEOUT_S = 10.0
BOOT_TIMEOUT_S = 60.0
OVERRUN_S = 2.0
"""The tolerance of a call's timeout."""


@pytest.fixture
def power_cycled(lab: LabHandle, machine: SshMachine) -> Iterator[SshMachine]:
    """Return a machine that a test may turn off; it is turned on afterwards."""
    yield machine
    machine.power("on")
    assert eventually(machine.reaches_control_plane, BOOT_TIMEOUT_S)


def info_of(lab: LabHandle, machine: SshMachine) -> NodeInfo:
    return next(entry for entry in lab.fleet.nodes() if entry.name == machine.name)


def output(machine: Machine, *argv: str) -> str:
    return machine.run(argv, timeout_s=COMMAND_TIMEOUT_S).stdout


def test_command_gets_arguments_and_stdin_and_returns_status_and_outputs(machine: SshMachine) -> None:
    argv = ["sh", "-c", 'cat; printf "%s|" "$@"; echo err >&2; exit 3', "sh", "a b", "$HOME", "'\"", "*"]
    process = machine.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin="one\ntwo\n")
    expected = (3, "one\ntwo\na b|$HOME|'\"|*|", "err\n")
    assert (process.status, process.stdout, process.stderr) == expected


def test_large_output_on_both_streams_does_not_block(machine: SshMachine) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' e >&2; head -c 3000000 /dev/zero | tr '\\0' o"
    process = machine.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)

    assert (len(process.stdout), len(process.stderr)) == (3000000, 3000000)


@pytest.mark.vm
@pytest.mark.parametrize("script", ["sleep 30", "yes", "exec >&- 2>&-; sleep 30"])
def test_command_is_aborted_at_its_timeout(machine: SshMachine, script: str) -> None:
    timeout_s = 1.0
    began = time.monotonic()
    with pytest.raises(MachineError):
        machine.run(["timeout", "5", "sh", "-c", script], timeout_s=timeout_s)

    assert timeout_s <= time.monotonic() - began + 0.05 < timeout_s + OVERRUN_S
    assert output(machine, "echo", "next") == "next\n"


def test_command_aborted_by_another_thread_has_no_status(machine: SshMachine) -> None:
    running = ["sleep", "7.25"]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(machine.run, running, timeout_s=COMMAND_TIMEOUT_S)
        assert eventually(
            lambda: " ".join(running) in output(machine, "ps", "-eo", "args"), COMMAND_TIMEOUT_S
        )
        machine.close()
        with pytest.raises(MachineError, match="cut"):
            future.result()


def test_machine_booted_by_another_process_answers_the_next_call(lab: LabHandle, machine: SshMachine) -> None:
    boot = machine.boot_id()
    elsewhere = registry.attach(lab.name)
    try:
        elsewhere.fleet.machine(machine.name).power("off")
        elsewhere.fleet.machine(machine.name).power("on")
    finally:
        elsewhere.close()
    assert machine.boot_id() != boot


@pytest.mark.vm
def test_machine_with_another_host_key_is_refused(
    lab: LabHandle, machine: SshMachine, tmp_path: Path
) -> None:
    info = info_of(lab, machine)
    (control_plane,) = machine.control_plane_addresses
    keys = (lab.dir / "pki" / "ssh", ssh_key(tmp_path / "other"))
    access = SshAccess(info.name, info.control_address, info.data_address, control_plane, *keys)
    client = registry.client(lab.name)
    untrusted = SshMachine(access, client.dial, SupervisedHost(client, lab.cluster.api))

    with pytest.raises(MachineError, match=r"(?i)host key"):
        untrusted.run(["true"], timeout_s=COMMAND_TIMEOUT_S)


@pytest.mark.vm
def test_healthy_machine_is_reachable_from_everywhere(machine: SshMachine) -> None:
    assert machine.is_powered()
    assert machine.answers_on_control()
    assert machine.reached_from_control_plane()
    assert machine.reaches_control_plane()


@pytest.mark.vm
def test_machine_has_two_networks_and_a_default_route(lab: LabHandle, machine: SshMachine) -> None:
    info = info_of(lab, machine)
    links = {entry["ifname"]: entry for entry in json.loads(output(machine, "ip", "-json", "-4", "address"))}
    addresses = {name: [address["local"] for address in link["addr_info"]] for name, link in links.items()}

    assert addresses["control"] == [info.control_address]
    assert addresses["data"] == [info.data_address]
    (route,) = json.loads(output(machine, "ip", "-json", "route", "show", "default"))
    assert route["dev"] == "data"


@pytest.mark.vm
def test_machine_resolves_its_own_name(machine: SshMachine) -> None:
    assert output(machine, "uname", "-n").strip() == machine.name
    assert output(machine, "getent", "hosts", machine.name).split()[0] == machine.data_address


@pytest.mark.vm
def test_machine_sees_only_its_own_processes(lab: LabHandle, machine: SshMachine) -> None:
    commands = output(machine, "ps", "-eww", "-o", "args=")
    assert f"--hostname-override={machine.name}" in commands
    other_names = {"kube-apiserver", "etcd", *lab.fleet.node_names()} - {machine.name}
    assert [name for name in other_names if name in commands] == []


@pytest.mark.vm
@pytest.mark.parametrize("folder", ["/root", "/etc", "/usr", "/var/tmp", "/run"])
def test_machine_writes_do_not_reach_its_host(machine: SshMachine, folder: str) -> None:
    name = f"nodeproof-{uuid.uuid4().hex}"
    machine.run(["touch", f"{folder}/{name}"], timeout_s=COMMAND_TIMEOUT_S)

    assert not (Path(folder) / name).exists()


def test_machine_without_power_does_not_answer(power_cycled: SshMachine) -> None:
    power_cycled.power("off")

    assert not power_cycled.is_powered()
    assert not power_cycled.answers_on_control()
    assert not power_cycled.reached_from_control_plane()
    with pytest.raises(MachineError):
        power_cycled.run(["true"], timeout_s=1.0)


def test_power_cycle_boots_the_same_machine_again(lab: LabHandle, power_cycled: SshMachine) -> None:
    machine = power_cycled
    identity, boot = output(machine, "cat", "/etc/machine-id"), machine.boot_id()
    info = info_of(lab, machine)
    assert identity.strip() == info.machine_id

    machine.power("off")
    machine.power("off")
    assert not machine.is_powered()
    machine.power("on")

    assert eventually(machine.reaches_control_plane, BOOT_TIMEOUT_S)
    again = machine.boot_id()
    assert again != boot
    machine.power("on")
    assert machine.boot_id() == again, "a running machine is left alone"
    assert output(machine, "cat", "/etc/machine-id") == identity
    assert info_of(lab, machine) == info


def test_bridge_has_no_hardware_address_that_goes_with_a_machine(lab: LabHandle) -> None:
    links = registry.client(lab.name).spawn_command(["ip", "-json", "link"], COMMAND_TIMEOUT_S)["stdout"]
    ports = {link["address"] for link in json.loads(links) if "master" in link}
    bridges = {link["address"] for link in json.loads(links) if link["ifname"] in BRIDGES}
    assert len(bridges) == len(BRIDGES)
    assert not bridges & ports
