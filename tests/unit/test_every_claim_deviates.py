"""Every shipped claim falls in a test that alters a cluster or a machine: its `falls` markers."""

from __future__ import annotations

import sys
from pathlib import Path

from nodeproof import catalogue, proc
from tests import markers

TOP = Path(__file__).resolve().parents[2]
FOLDERS = {"process": "tests/acceptance", "machine": "tests/vm"}
"""The tests of each tier's claims."""
REASONS = {
    "taints.unreachable-noexecute": "falls on mutated recordings (tests/history_mutations.py), and by a bug",
    "rate-limits.default": "falls in unit tests, by the same checks in other scenarios, and by a bug",
    "rate-limits.unhealthy-definition": "as above",
    "zones.workload-shifts": "as above",
    "eviction.after-five-minutes-unreachable": "takes minutes: the defaults that it consists of fall",
    "eviction.after-five-minutes-not-ready": "as above",
    "non-graceful.force-detach-timeout": "takes minutes: falls by a bug (infra/bugs/out-of-service.yaml)",
    "non-graceful.force-detach-disable": "as above",
    "heartbeat.annotated-lease": "falls by a bug (infra/bugs/controller-manager.yaml)",
    "conditions.pods-marked-if-not-ready-before": "as above",
    "eviction.other-nodes-stay": "as above",
    **{
        f"storm.{name}": "takes minutes: falls in unit tests, and by a bug (infra/bugs/storm.yaml)"
        for name in (
            *("known-while-heard", "evicted-when-due", "bound-to-open-nodes", "recovers"),
            *("taints-follow-ready", "evicted-in-time", "removed-by-kubelet", "replicas-recover"),
        )
    },
}
"""Why a claim falls in no such test."""


def fallen(folder: str) -> set[str]:
    """Return the claims that fall in the tests of a folder."""
    options = ["--collect-only", "-q", "-p", "tests.markers", "-p", "no:cacheprovider"]
    output = proc.run([sys.executable, "-m", "pytest", *options, folder], timeout_s=240, cwd=TOP).stdout
    lines = (line.split("\t") for line in output.splitlines() if line.startswith(markers.FALLS))
    return {claim for _sign, _test, *claims in lines for claim in claims}


def test_every_judged_claim_deviates_on_an_altered_cluster() -> None:
    by_tier = {tier: fallen(folder) for tier, folder in FOLDERS.items()}
    judged = catalogue.judged(catalogue.load())
    assert by_tier["process"] | by_tier["machine"] <= judged.keys()
    assert {name for name, claim in judged.items() if name not in by_tier[claim.tier]} == REASONS.keys()
