"""What machines answer over SSH, which faults that refuses, and hosts of an Ansible inventory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.existing import inspection
from nodeproof.existing.inspection import NEEDS, OWN_KERNEL, SSH_PEER, SYSTEMD, Inspection
from nodeproof.existing.inventory import AnsibleHosts, Ssh
from nodeproof.faults import FAULTS
from nodeproof.faults.units import KUBELET
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from tests.fakes import executable
from tests.unit.ssh_server import Hosts
from tests.unit.test_impact import member
from tests.unit.test_marks import INVENTORY, NAME

NODE = member(status={"nodeInfo": {"machineID": "machine-1", "bootID": "boot-1"}})
COMPLETE = Inspection("machine-1", "boot-1", frozenset({SYSTEMD, KUBELET, *NEEDS["partition"]}))
WITHOUT_PEER = replace(COMPLETE, provides=COMPLETE.provides - {SSH_PEER})
REFUSED: dict[str, tuple[str, Inspection | str, str]] = {
    "no answer": ("partition", "worker-7: ssh: refused", "does not answer as root over SSH: worker-7: ssh"),
    "another machine": ("partition", replace(COMPLETE, machine_id="machine-2"), "another machine id"),
    "clone of the machine": ("partition", replace(COMPLETE, boot_id="boot-2"), "another boot id"),
    "power elsewhere": ("power-off", replace(COMPLETE, machine_id="machine-2"), "another machine id"),
    "no systemd": ("unit-down", replace(COMPLETE, provides=frozenset({KUBELET})), "no systemd"),
    "other kubelet": ("unit-down", replace(COMPLETE, provides=frozenset({SYSTEMD})), "no active kubelet"),
    "container": ("clock", COMPLETE, "no kernel of its own"),
    "settings elsewhere": ("kubelet-settings", COMPLETE, "no /etc/kubernetes/kubelet.json"),
    "no program": ("partition", replace(COMPLETE, provides=frozenset({SYSTEMD})), "no nft"),
    "unknown SSH client": ("partition", WITHOUT_PEER, "no address of the SSH client"),
}


@pytest.mark.parametrize(("fault", "facts", "message"), REFUSED.values(), ids=list(REFUSED))
def test_unsuitable_machine_refuses_a_fault(fault: str, facts: Inspection | str, message: str) -> None:
    (reason,) = inspection.refusals(fault, NODE, facts)
    assert message in reason


@pytest.mark.parametrize("fault", ["partition", "unit-down", "power-off"])
def test_suitable_machine_refuses_nothing(fault: str) -> None:
    assert list(inspection.refusals(fault, NODE, COMPLETE)) == []


@pytest.mark.parametrize(("fault", "refuses"), [("power-off", True), ("partition", True), ("clock", False)])
def test_machine_of_nodeproof_itself_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, refuses: bool
) -> None:
    own = tmp_path / "machine-id"
    own.write_text("machine-1\n")
    monkeypatch.setattr(inspection, "_MACHINE_ID", own)
    facts = replace(COMPLETE, provides=COMPLETE.provides | {OWN_KERNEL})
    refusals = list(inspection.refusals(fault, NODE, facts))
    assert refusals == (["nodeproof runs on its machine, and would cut itself off"] if refuses else [])


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


# Hosts of an Ansible inventory, by a stand-in of ansible-inventory(1).


List = Callable[[Json], AnsibleHosts]


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List:
    """Return `listing(variables)`, which makes ansible-inventory list one host of a child of `kube_node`."""
    programs = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def answer(variables: Json) -> AnsibleHosts:
        content = {
            "_meta": {"hostvars": {NAME: variables} if variables else {}},
            "kube_node": {"children": ["racks"]},
            "racks": {"hosts": [NAME]},
        }
        (tmp_path / "answer").write_text(json.dumps(content))
        script = f'[ "$1 $2 $3" = "-i {tmp_path / "hosts"} --list" ] && cat {tmp_path / "answer"}'
        executable(programs / "ansible-inventory", script)
        return AnsibleHosts(tmp_path / "hosts", "kube_node")

    return answer


def test_variables_become_options(listing: List) -> None:
    variables = {
        "ansible_connection": "ansible.builtin.ssh",
        "ansible_host": "10.9.1.6",
        "ansible_ssh_host": "10.9.1.7",
        "ansible_port": 2222,
        "ansible_ssh_port": None,
        "ansible_ssh_user": "admin",
        "rack": "{{ row }}-1",
    }
    lines = inspection.ansible_ssh_config(listing(variables), [NAME]).splitlines()
    assert lines == [f"Host {NAME}", '  HostName "10.9.1.7"', '  User "admin"', '  Port "2222"']


def test_host_without_variables_is_reached_by_its_name(listing: List) -> None:
    assert inspection.ansible_ssh_config(listing({}), [NAME]) == f"Host {NAME}\n"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ansible_host": "{{ address }}"}, "ansible_host is a template"),
        ({"ansible_user": 'a"\nProxyCommand x'}, "ansible_user is a template, or has quotes"),
        ({"ansible_ssh_common_args": "-J bastion"}, "ansible_ssh_common_args is not read"),
        ({"ansible_connection": "local"}, "ansible_connection is not ssh"),
    ],
)
def test_unusable_variable_is_a_problem(listing: List, variables: Json, message: str) -> None:
    with pytest.raises(Problem, match=message):
        inspection.ansible_ssh_config(listing(variables), [NAME])


def test_node_outside_the_group_is_a_problem(listing: List) -> None:
    with pytest.raises(Problem, match="no host of group kube_node: worker-8"):
        inspection.ansible_ssh_config(listing({}), [NAME, "worker-8"])


def test_failing_program_is_a_problem(listing: List) -> None:
    hosts = replace(listing({}), inventory=Path("absent"))
    with pytest.raises(Problem, match="ansible-inventory"):
        inspection.ansible_ssh_config(hosts, [NAME])


@pytest.mark.skipif(not Path("/etc/machine-id").exists(), reason="this machine has no machine id")
def test_variables_have_priority_over_the_ssh_config(listing: List, hosts: Hosts) -> None:
    group = listing({"ansible_port": hosts.node.port})
    with hosts.shell(hosts.node.known_host):
        config = hosts.folder / "my config"
        config.write_text(config.read_text().replace(f"Port {hosts.node.port}", f"Port {hosts.jump.port}"))
        content = replace(INVENTORY, ssh=Ssh(config, hosts.folder / "my known_hosts"), hosts=group)
        with inspection.ssh_config(content) as ssh:
            facts = inspection.inspect(content, ssh)[NAME]
    assert isinstance(facts, Inspection)
