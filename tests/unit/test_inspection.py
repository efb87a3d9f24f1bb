"""What machines answer over SSH, and which faults that refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.existing import inspection
from nodeproof.existing.inspection import NEEDS, OWN_KERNEL, SSH_PEER, SYSTEMD, Inspection
from nodeproof.faults import FAULTS
from nodeproof.faults.units import KUBELET
from tests.unit.ssh_server import Hosts
from tests.unit.test_impact import member
from tests.unit.test_marks import INVENTORY, NAME

NODE = member(status={"nodeInfo": {"machineID": "machine-1", "bootID": "boot-1"}})
COMPLETE = Inspection("machine-1", "boot-1", frozenset({SYSTEMD, KUBELET, *NEEDS["partition"]}))
REFUSED: dict[str, tuple[str, Inspection | str, str]] = {
    "no answer": ("partition", "worker-7: ssh: refused", "does not answer as root over SSH: worker-7: ssh"),
    "another machine": ("partition", replace(COMPLETE, machine_id="machine-2"), "another machine id"),
    "clone of the machine": ("partition", replace(COMPLETE, boot_id="boot-2"), "another boot id"),
    "power of another machine": (
        "power-off",
        replace(COMPLETE, machine_id="machine-2"),
        "another machine id",
    ),
    "no systemd": ("unit-down", replace(COMPLETE, provides=frozenset({KUBELET})), "no systemd"),
    "kubelet of another name": (
        "unit-down",
        replace(COMPLETE, provides=frozenset({SYSTEMD})),
        "no active kubelet.service",
    ),
    "container": ("clock", COMPLETE, "no kernel of its own"),
    "settings elsewhere": ("kubelet-settings", COMPLETE, "no /etc/kubernetes/kubelet.json"),
    "no program": ("partition", replace(COMPLETE, provides=frozenset({SYSTEMD})), "no nft"),
    "unknown SSH client": (
        "partition",
        replace(COMPLETE, provides=COMPLETE.provides - {SSH_PEER}),
        "no address of the SSH client",
    ),
}


@pytest.mark.parametrize(("fault", "facts", "message"), REFUSED.values(), ids=list(REFUSED))
def test_unsuitable_machine_refuses_a_fault(fault: str, facts: Inspection | str, message: str) -> None:
    (reason,) = inspection.refusals(fault, NODE, facts)
    assert message in reason


@pytest.mark.parametrize("fault", ["partition", "unit-down", "power-off"])
def test_suitable_machine_refuses_nothing(fault: str) -> None:
    assert list(inspection.refusals(fault, NODE, COMPLETE)) == []


@pytest.mark.parametrize(
    ("fault", "is_refused"), [("power-off", True), ("partition", True), ("clock", False)]
)
def test_machine_of_nodeproof_itself_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, is_refused: bool
) -> None:
    own = tmp_path / "machine-id"
    own.write_text("machine-1\n")
    monkeypatch.setattr(inspection, "_MACHINE_ID", own)
    facts = replace(COMPLETE, provides=COMPLETE.provides | {OWN_KERNEL})
    refusals = list(inspection.refusals(fault, NODE, facts))
    assert refusals == (["nodeproof runs on its machine, and would cut itself off"] if is_refused else [])


def test_power_needs_no_program_on_the_machine() -> None:
    assert list(inspection.refusals("power-off", NODE, replace(COMPLETE, provides=frozenset()))) == []


def test_each_fault_with_needs_exists() -> None:
    assert NEEDS.keys() <= FAULTS.keys()


@pytest.mark.skipif(not Path("/etc/machine-id").exists(), reason="this machine has no machine id")
def test_facts_are_read_as_root(hosts: Hosts) -> None:
    hosts.program("nft", "#!/bin/sh\n")
    hosts.program("readlink", "#!/bin/sh\necho 'pid:[4026531836]'\n")
    hosts.program("systemctl", f'#!/bin/sh\n[ "$*" = "is-active {KUBELET}" ]\n')
    with hosts.shell(hosts.node.known_host) as shell:
        facts = inspection.inspect(INVENTORY, shell.config)[NAME]
    assert isinstance(facts, Inspection)
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.machine_id == Path("/etc/machine-id").read_text().strip()
    assert {"nft", KUBELET, OWN_KERNEL, SSH_PEER} <= facts.provides


@pytest.mark.parametrize("connection", ["", "UNKNOWN 65535 UNKNOWN 65535"])
def test_ssh_client_without_an_address_is_noticed(hosts: Hosts, connection: str) -> None:
    hosts.program("env", f'#!/bin/sh\nshift\nSSH_CONNECTION="{connection}" exec "$@"\n')
    with hosts.shell(hosts.node.known_host) as shell:
        facts = inspection.inspect_host(shell)
    assert isinstance(facts, Inspection)
    assert SSH_PEER not in facts.provides


def test_machine_that_does_not_answer_is_a_reason(hosts: Hosts) -> None:
    with hosts.shell("") as shell:
        facts = inspection.inspect(INVENTORY, shell.config)[NAME]
    assert isinstance(facts, str)
    assert "Host key verification failed" in facts
