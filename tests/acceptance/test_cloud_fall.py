"""Scenarios about a cluster with a cloud, where somebody meddles with nodes, and with what it is asked."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

from nodeproof.cluster.resources import node
from nodeproof.cluster.workloads import not_ready
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import BUGS_TOO, SLACK_S, each, refused, until_lost
from tests.acceptance.altered import SEEN_LIMIT_S, Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_nodes_fall import deviating
from tests.waiting import eventually, pause

LOST_MACHINES, ADDRESSES = shipped("cloud/test_lost_machines.py"), shipped("cloud/test_external_addresses.py")
IN_LOST_MACHINES = {
    f"cloud.{name}"
    for name in ("node-deleted-when-vm-gone", "only-unhealthy-checked", "vm-exists-kept", "shutdown-taint")
}
IN_ADDRESSES = {"addresses.external-ip-routable"}
IN_CLOUD = IN_LOST_MACHINES | IN_ADDRESSES
NOBODYS = "10.78.254.254"
CONTROLLER = "system:serviceaccount:kube-system:node-controller"


def nobody_may_taint(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    its = {"name": "its", "expression": f"request.userInfo.username == '{CONTROLLER}'"}
    with refused(cluster, [rule], [its]):
        cluster.over.wait()
    # A taint for a condition that it could not take off it tries again when the Node changes: in 5 min.
    assert eventually(lambda: not unready_after_a_change(cluster), SEEN_LIMIT_S)


def unready_after_a_change(cluster: Cluster) -> list[str]:
    """The nodes that are not Ready without taints yet, each of which was changed just now."""
    api, names = cluster.lab.cluster.api, cluster.lab.fleet.node_names()
    for name in names:
        api.patch(node(name), {"metadata": {"annotations": {"nodeproof.dev/changed": uuid.uuid4().hex}}})
    return list(not_ready(api, names))


def somebody_deletes_a_lost_node_that_exists(cluster: Cluster) -> None:
    lost = cluster.until_injected("power-off")
    until_lost(cluster, lost)
    # What comes within the slack may have come before.
    pause(SLACK_S)
    cluster.lab.cluster.api.delete(node(lost))


def the_cloud_is_asked_about_a_node_that_is_well(cluster: Cluster) -> None:
    well = cluster.until_injected("power-off", often=2)
    cluster.until_recorded(f"the cloud says {well}: gone")
    pause(SLACK_S)
    told = {"time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "method": "InstanceExists"}
    folder = registry.client(cluster.lab.name).status()["settings"]
    append = 'cat >>"$(ls "$0"/cloud-controller-manager/*.calls)"'
    cluster.command("sh", "-c", append, folder, stdin=f"{json.dumps({**told, 'node': well})}\n")


def an_address_that_nobody_answers_at_is_taken_away(cluster: Cluster) -> None:
    """Until the cloud says it once more."""
    cluster.until_recorded(f"kubelet at {NOBODYS}")
    # What comes within the slack may have come before.
    pause(SLACK_S)
    api, path = cluster.lab.cluster.api, node("clouded")
    others = [each for each in api.get(path)["status"]["addresses"] if each["address"] != NOBODYS]
    api.patch(f"{path}/status", {"status": {"addresses": others}})


@BUGS_TOO
def test_claims_about_a_cloud_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(
        nobody_may_taint,
        somebody_deletes_a_lost_node_that_exists,
        the_cloud_is_asked_about_a_node_that_is_well,
    )
    assert deviating(run, whole_lab, alter, LOST_MACHINES) == IN_LOST_MACHINES


@BUGS_TOO
def test_what_a_cloud_says_of_addresses_falls(whole_lab: Lab, run: Run) -> None:
    alter = an_address_that_nobody_answers_at_is_taken_away
    assert deviating(run, whole_lab, alter, ADDRESSES) == IN_ADDRESSES
