"""A real API server accepts the Jobs of shards and the CronJob of audits, and ignores no field of them."""

from __future__ import annotations

import pytest

from nodeproof.cluster import workloads
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.command import TOP

TIMEOUT_S = 60.0


def applied(lab: LabHandle, manifest: str) -> tuple[int, str]:
    """Return the server's answer to a dry run, through the lab's own kubectl."""
    process = lab.cluster.run_kubectl(
        ("apply", "--dry-run=server", "--validate=strict", "-f", "-"), TIMEOUT_S, manifest
    )
    return int(process["status"]), f"{process['stdout']}{process['stderr']}"


OBJECTS = {
    "job": (
        "namespace/nodeproof",
        "persistentvolumeclaim/nodeproof-results",
        "job.batch/nodeproof-shards-20261120",
    ),
    "merge-job": ("job.batch/nodeproof-merge-20261120",),
    "audit": (
        "namespace/nodeproof-audit",
        "serviceaccount/nodeproof-audit",
        "clusterrolebinding.rbac.authorization.k8s.io/nodeproof-audit",
        "configmap/nodeproof-audit",
        "cronjob.batch/nodeproof-audit",
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_api_server_accepts_the_job_manifests(lab: LabHandle, name: str) -> None:
    """Except for privileged pods: a lab's API server allows none, as no flag enables them."""
    workloads.prepare(lab.cluster.api)
    manifest = (TOP / "infra" / "ci" / f"{name}.yaml").read_text().replace("tonight", "20261120")
    # A dry run creates no namespace for the objects in it.
    manifest = manifest.replace("namespace: nodeproof-audit", "namespace: nodeproof")
    if "privileged: true" in manifest:
        status, output = applied(lab, manifest)
        assert status != 0
        assert (
            output.count("invalid")
            == output.count("privileged: Forbidden: disallowed by cluster policy")
            == 1
        )
    status, output = applied(lab, manifest.replace("privileged: true", "privileged: false"))
    assert status == 0, output
    assert all(line in output for line in OBJECTS[name])
    assert output.count("(server dry run)") == len(OBJECTS[name])


def test_api_server_refuses_invalid_job_manifests(lab: LabHandle) -> None:
    workloads.prepare(lab.cluster.api)
    manifest = (TOP / "infra" / "ci" / "job.yaml").read_text()
    for right, wrong in (
        ("completionMode: Indexed", "completionMode: NonIndexed"),
        ("enableServiceLinks:", "enableServiceLink:"),
    ):
        assert right in manifest
        status, output = applied(lab, manifest.replace(right, wrong))
        assert status != 0, output
