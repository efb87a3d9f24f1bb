"""A process node: its sshd, its kube-proxy and its service manager."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from nodeproof.faults.units import KubeProxy
from nodeproof.labs.base.pki import Authority
from nodeproof.labs.base.spec import LabSpec, NodeSpec
from nodeproof.labs.kinds.process import seed
from nodeproof.labs.kinds.process.seed import ServiceManager, Unit, _sshd_config
from nodeproof.machines.machine import CommandResult, Shell
from nodeproof.model.overrides import parse
from nodeproof.model.problem import Problem
from tests.fakes import Local

SPEC = NodeSpec("node-1", 0, "zone-a", "0" * 32)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_unpacked_sshd_has_its_helpers(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "usr" / "lib" / "openssh"
    folder.mkdir(parents=True)
    for name in ("sshd-session", "sshd-auth")[:count]:
        (folder / name).touch()
    lines = _sshd_config(SPEC, tmp_path / "usr" / "sbin" / "sshd").splitlines()
    keywords = ["SshdSessionPath", "SshdAuthPath"][:count]
    assert [line.split()[0] for line in lines if line.startswith("Sshd")] == keywords
    assert all(str(folder) in line for line in lines if line.startswith("Sshd"))


FAULT = KubeProxy("node-1", id="0a1b2c3d")


class Node:
    """A node with these marker files; only a process node has a kube-proxy as a service."""

    name = "node-1"

    def __init__(self, *files: str, is_process: bool = True) -> None:
        self._files, self._is_process = files, is_process

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        del timeout_s, stdin
        if argv[0] == "systemctl":
            return CommandResult(0 if self._is_process else 1, "", "")
        return CommandResult(0, "\n".join(self._files) if "kube-proxy" in " ".join(argv) else "", "")


def shell(*files: str, is_process: bool = True) -> Shell:
    return cast("Shell", Node(*files, is_process=is_process))


def test_leftover_kube_proxy_is_recognised_by_its_name() -> None:
    assert KubeProxy.leftovers_on(shell("/run/nodeproof-kube-proxy-0a1b2c3d")) == [FAULT]
    assert not KubeProxy.leftovers_on(shell("/run/nodeproof-state"))


def test_node_has_at_most_one_kube_proxy_if_its_host_can_start_it() -> None:
    assert FAULT.available(shell()) == ""
    other = shell("/run/nodeproof-kube-proxy-ffffffff")
    assert "has a kube-proxy already: ffffffff" in FAULT.available(other)
    assert "its host cannot start one" in FAULT.available(shell(is_process=False))


def test_kube_proxy_has_its_own_flags_and_credential(tmp_path: Path) -> None:
    authority, inside = Authority(tmp_path / "pki"), tmp_path / "node"
    inside.mkdir()
    spec = NodeSpec("box", 0, "zone-a", "0" * 32, node="node-1")
    components, own = {"kube-proxy": {"path": "kube-proxy"}}, parse([], ["kube-proxy.proxy-mode=iptables"])
    lab = LabSpec("p-000000", 0, 0, "v1.36.3", components, True, "", "fast", (spec,), False, "process")

    argv = seed.kube_proxy_command(lab, spec, inside, authority)

    assert {"--hostname-override=node-1", "--kubeconfig=/run/node/kube-proxy.kubeconfig"} <= {*argv}
    config = json.loads((inside / "kube-proxy.kubeconfig").read_text())
    assert config["users"][0]["user"]["client-key"] == "/run/node/kube-proxy.key"
    key = (inside / "kube-proxy.key").read_bytes()
    assert seed.kube_proxy_command(lab, spec, inside, authority) == argv
    assert (inside / "kube-proxy.key").read_bytes() == key
    with pytest.raises(Problem, match="a lab sets proxy-mode of kube-proxy itself"):
        seed.kube_proxy_command(replace(lab, overrides=own), spec, inside, authority)


TIMEOUT_S = 10.0


@dataclass
class Services:
    """A node with a kubelet and a broken service, and what was done to the kubelet."""

    folder: Path
    node: Local
    actions: list[str] = field(default_factory=list)

    def systemctl(self, *arguments: str) -> CommandResult:
        return self.node.run([f"{self.folder}/bin/systemctl", *arguments], timeout_s=TIMEOUT_S)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    folder = tmp_path / "node"
    folder.mkdir()
    seed.install_systemctl(folder)
    program = folder / "bin" / "systemctl"
    program.write_text(program.read_text().replace("/run/node", str(folder)))
    services = Services(folder, Local(tmp_path))
    actions = services.actions

    def fail() -> None:
        raise Problem("node-1 is off", "lab one", "power it on first")

    units = {
        "kubelet.service": Unit(
            lambda: actions.append("start"),
            lambda: actions.append("stop"),
            lambda: actions[-1:] != ["stop"],
        ),
        "broken.service": Unit(fail, fail, lambda: False),
    }
    manager = ServiceManager(folder, units, threading.Lock())
    yield services
    manager.close()
    services.node.end()


@pytest.mark.parametrize(
    ("arguments", "status", "output", "actions"),
    [
        ("stop kubelet.service", 0, "", ["stop"]),
        ("start kubelet", 0, "", ["start"]),
        ("restart kubelet.service", 0, "", ["stop", "start"]),
        ("is-active kubelet.service", 0, "active", []),
        ("--quiet is-active kubelet.service", 0, "", []),
        ("is-active broken.service", 3, "inactive", []),
        ("is-active containerd.service", 4, "inactive", []),
        ("stop containerd.service", 5, "no containerd.service", []),
        ("start broken.service", 1, "node-1 is off", []),
        ("cat kubelet.service", 0, "", []),
        ("daemon-reload", 0, "", []),
        ("reset-failed kubelet.service", 0, "", []),
        ("list-units --all --plain --no-legend nodeproof-up-*", 0, "", []),
        ("poweroff --force --force", 1, "no systemd", []),
        ("mask --runtime poweroff.target", 1, "no systemd", []),
    ],
)
def test_services_obey_systemctl(
    services: Services, arguments: str, status: int, output: str, actions: list[str]
) -> None:
    result = services.systemctl(*arguments.split())
    assert result.status == status
    assert output in result.stdout + result.stderr
    assert bool(result.stdout + result.stderr) == bool(output)
    assert services.actions == actions


def test_request_of_a_killed_caller_has_no_effect(services: Services) -> None:
    pipes = services.folder / "systemctl"
    os.mkfifo(pipes / "killed")
    (pipes / "requests").write_text("killed stop kubelet.service\nremoved stop kubelet.service\n")
    assert services.systemctl("is-active", "kubelet.service").stdout == "active\n"
    assert services.actions == []
