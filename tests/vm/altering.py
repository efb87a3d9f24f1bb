"""What tests do to virtual machines behind the harness's back, and how they read what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from nodeproof.cluster.configuration import kubelet_configz
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import refused
from tests.acceptance.altered import Alteration, Cluster, Ended
from tests.waiting import eventually

COMMAND_LIMIT_S = 60.0
BASE, ENVIRONMENT = "/etc/kubernetes/kubelet.json", "/etc/default/kubelet"
KILL_WITNESSES = "for p in $(pgrep -f nodeproof/witness); do [ $p = $$ ] || kill -KILL $p; done"
FELL = "fell"
"""By this name a report has the claims that fell."""
Fall = tuple[tuple[str, ...], Alteration, tuple[str, ...]]
"""Claims, what is done meanwhile, and the scenario in which they fall by it."""


def sh(lab: Lab, script: str) -> str:
    """Run a script on the node that scenarios harm."""
    machine = lab.fleet.machine(lab.fleet.node_names()[0])
    # The scenarios run in a process of their own: the node may have booted since we spoke to it.
    machine.close()
    done = machine.run(["sh", "-c", script], deadline_s=COMMAND_LIMIT_S)
    assert done.status == 0, done.stderr
    return done.stdout


@contextmanager
def kubelet_refused(
    cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = ""
) -> Iterator[None]:
    """The kubelet of the node that scenarios harm may not write what it writes otherwise."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    own = {"name": "own", "expression": f"request.userInfo.username == 'system:node:{cluster.target}'"}
    with refused(cluster, [rule], [own]):
        yield


@contextmanager
def changed(lab: Lab, file: str, edit: str) -> Iterator[None]:
    """A kubelet of the node that scenarios harm whose files somebody has changed with sed."""
    restart = "systemctl restart kubelet"
    sh(lab, f"cp -p {file} {file}.kept && sed -i '{edit}' {file} && {restart}")
    try:
        assert eventually(
            lambda: kubelet_configz(lab.cluster.api, lab.fleet.node_names()[0]), COMMAND_LIMIT_S
        )
        yield
    finally:
        sh(lab, f"mv {file}.kept {file} && {restart}")
        lab.wait_nodes_ready()


def check_that_all_conform(ended: Ended) -> None:
    """Every claim that was judged conforms, and there are some."""
    labels = {claim: set(ended.labels(claim)) for claim in ended.claims()}
    assert labels == {claim: {"conforms"} for claim in labels} != {}
    assert ended.status == 0


def deviating(ended: Ended) -> set[str]:
    """The claims that fell."""
    return {claim for claim in ended.claims() if "deviates" in ended.labels(claim)}


def check_that_fall(ended: Ended, claims: Iterable[str]) -> None:
    """These claims fell, among others perhaps."""
    assert set(claims) <= deviating(ended)
    assert ended.status == 1


def claims_of(falls: Iterable[Fall]) -> set[str]:
    """Every claim that falls there."""
    return {claim for claims, _alter, _scenario in falls for claim in claims}
