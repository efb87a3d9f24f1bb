"""A node's kube-proxy: what it is started with, and when it is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nodeproof.faults import KubeProxy, fault_from_json, faults_on
from nodeproof.labs.ground.pki import Authority
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.process import proxy
from nodeproof.machines.machine import CommandResult, Shell

FAULT = KubeProxy("0a1b2c3d", "node-1", "10.96.0.1")


class Node:
    """A node whose folder holds these files; one without a folder is no process node."""

    name = "node-1"

    def __init__(self, *files: str, is_process: bool = True) -> None:
        self._files, self._is_process = files, is_process

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        del deadline_s, stdin
        if argv[0] == "test":
            return CommandResult(0 if self._is_process else 1, "", "")
        return CommandResult(0, "\n".join(self._files) if "/run/node" in " ".join(argv) else "", "")


def shell(*files: str, is_process: bool = True) -> Shell:
    return cast("Shell", Node(*files, is_process=is_process))


def test_a_kube_proxy_is_made_again_from_its_data() -> None:
    assert fault_from_json(json.loads(json.dumps(dict(FAULT.to_json())))) == FAULT
    assert FAULT.harms == ("node-1",)


def test_one_that_was_left_is_found_by_its_name() -> None:
    assert KubeProxy("0a1b2c3d", "node-1") in faults_on(shell("kubeconfig", "kube-proxy-0a1b2c3d"))
    assert not [each for each in faults_on(shell("kube-proxy.kubeconfig")) if isinstance(each, KubeProxy)]


def test_a_node_has_one_at_most_and_only_where_its_host_starts_it() -> None:
    assert FAULT.available(shell("kubeconfig")) == ""
    assert "has a kube-proxy already: ffffffff" in FAULT.available(shell("kube-proxy-ffffffff"))
    assert "its host cannot start one" in FAULT.available(shell(is_process=False))


def test_it_is_started_by_flags_with_a_credential_of_its_own(tmp_path: Path) -> None:
    authority, inside = Authority(tmp_path / "pki"), tmp_path / "node"
    inside.mkdir()
    spec = NodeSpec("box", 0, "zone-a", "0" * 32, node="node-1")

    argv = proxy.command("kube-proxy", spec, inside, authority)

    assert {"--hostname-override=node-1", "--kubeconfig=/run/node/kube-proxy.kubeconfig"} <= {*argv}
    config = json.loads((inside / "kube-proxy.kubeconfig").read_text())
    assert config["users"][0]["user"]["client-key"] == "/run/node/kube-proxy.key"
    key = (inside / "kube-proxy.key").read_bytes()
    assert proxy.command("kube-proxy", spec, inside, authority) == argv
    assert (inside / "kube-proxy.key").read_bytes() == key
