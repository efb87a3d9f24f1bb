"""Hosts of an Ansible inventory, by a stand-in of ansible-inventory(1)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.existing import inspection
from nodeproof.existing.inspection import Inspection
from nodeproof.existing.inventory import AnsibleHosts, Ssh
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from tests.unit.ssh_server import Hosts
from tests.unit.test_marks import INVENTORY, NAME

List = Callable[[Json], AnsibleHosts]


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List:
    """Return `listing(variables)`, which makes ansible-inventory list one host of a child of `kube_node`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def answer(variables: Json) -> AnsibleHosts:
        content = {
            "_meta": {"hostvars": {NAME: variables} if variables else {}},
            "kube_node": {"children": ["racks"]},
            "racks": {"hosts": [NAME]},
        }
        (tmp_path / "answer").write_text(json.dumps(content))
        script = (
            f'#!/bin/sh\n[ "$1 $2 $3" = "-i {tmp_path / "hosts"} --list" ] && cat {tmp_path / "answer"}\n'
        )
        (programs / "ansible-inventory").write_text(script)
        (programs / "ansible-inventory").chmod(0o755)
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
    assert inspection.ansible_ssh_config(listing(variables), [NAME]).splitlines() == [
        f"Host {NAME}",
        '  HostName "10.9.1.7"',
        '  User "admin"',
        '  Port "2222"',
    ]


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
