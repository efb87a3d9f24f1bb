"""Alterations of virtual machines without the harness's knowledge, and their results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.cluster.published import kubelet_configz
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import Cluster, refused
from tests.waiting import eventually

COMMAND_TIMEOUT_S = 60.0
BASE, ENVIRONMENT = "/etc/kubernetes/kubelet.json", "/etc/default/kubelet"
KILL_WITNESSES = "for p in $(pgrep -f nodeproof/witness); do [ $p = $$ ] || kill -KILL $p; done"
FELL = "fell"
"""The name of the report property with the claims that fell."""


def sh(lab: LabHandle, script: str) -> str:
    """Run a script on the target node."""
    machine = lab.fleet.machine(lab.fleet.node_names()[0])
    # The scenarios run in another process: the node may have booted since our last call.
    machine.close()
    process = machine.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr
    return process.stdout


@contextmanager
def kubelet_refused(
    cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = ""
) -> Iterator[None]:
    """Deny the target's kubelet its usual writes."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    own = {"name": "own", "expression": f"request.userInfo.username == 'system:node:{cluster.target}'"}
    with refused(cluster, [rule], [own]):
        yield


@contextmanager
def changed(lab: LabHandle, file: str, edit: str) -> Iterator[None]:
    """Change files of the target's kubelet with sed."""
    restart = "systemctl restart kubelet"
    sh(lab, f"cp -p {file} {file}.kept && sed -i '{edit}' {file} && {restart}")
    try:
        assert eventually(
            lambda: kubelet_configz(lab.cluster.api, lab.fleet.node_names()[0]), COMMAND_TIMEOUT_S
        )
        yield
    finally:
        sh(lab, f"mv {file}.kept {file} && {restart}")
        lab.wait_nodes_ready()
