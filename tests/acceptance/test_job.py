"""A real API server takes the Jobs that run shards on a cluster, and nothing in them is passed over."""

from __future__ import annotations

import pytest

from nodeproof.cluster import workloads
from nodeproof.labs.client.lab import Lab
from tests.acceptance.command import TOP

LIMIT_S = 60.0


def applied(lab: Lab, manifest: str) -> tuple[int, str]:
    """What the server answers to a dry run, by the lab's own kubectl."""
    done = lab.cluster.run_kubectl(
        ("apply", "--dry-run=server", "--validate=strict", "-f", "-"), LIMIT_S, manifest
    )
    return int(done["status"]), f"{done['stdout']}{done['stderr']}"


OBJECTS = {
    "job": (
        "namespace/nodeproof",
        "persistentvolumeclaim/nodeproof-results",
        "job.batch/nodeproof-shards-20261120",
    ),
    "merge-job": ("job.batch/nodeproof-merge-20261120",),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_server_takes_it(lab: Lab, name: str) -> None:
    """But for privileged pods: a lab's API server allows none, as no flag of it says so."""
    workloads.prepare(lab.cluster.api)
    manifest = (TOP / "infra" / "ci" / f"{name}.yaml").read_text().replace("tonight", "20261120")
    if "privileged: true" in manifest:
        status, said = applied(lab, manifest)
        assert status != 0
        assert said.count("invalid") == said.count("privileged: Forbidden: disallowed by cluster policy") == 1
    status, said = applied(lab, manifest.replace("privileged: true", "privileged: false"))
    assert status == 0, said
    assert all(each in said for each in OBJECTS[name])
    assert said.count("(server dry run)") == len(OBJECTS[name])


def test_a_server_refuses_what_is_no_such_job(lab: Lab) -> None:
    workloads.prepare(lab.cluster.api)
    manifest = (TOP / "infra" / "ci" / "job.yaml").read_text()
    for right, wrong in (
        ("completionMode: Indexed", "completionMode: NonIndexed"),
        ("enableServiceLinks:", "enableServiceLink:"),
    ):
        assert right in manifest
        status, said = applied(lab, manifest.replace(right, wrong))
        assert status != 0, said
