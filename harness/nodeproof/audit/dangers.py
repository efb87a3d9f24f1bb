"""Dangerous values of a cluster's settings, each with its claim and the finding behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeproof.existing.settings import Evidence, numbers, swap_bytes
from nodeproof.model.claim import Claim
from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s

HEALTH_CHECK_S = 45.0
"""HTTP/2 read-idle and ping time-outs of a client: 30 s + 15 s (k8s.io/apimachinery/pkg/util/net/http.go)."""
CRITICAL = 2_000_000_000
"""Least priority of critical pods (pkg/apis/scheduling/types.go: SystemCriticalPriority)."""
LOGIND_S = 30.0
"""InhibitDelayMaxSec of unattended-upgrades on Ubuntu and Debian, whose drop-in sorts after the kubelet's."""
_LIMITED = "LimitedSwap"


@dataclass(frozen=True)
class Danger:
    """A dangerous value: what it is, the claim, its statement, and the heading or remark of the finding."""

    what: str
    claim: str
    statement: str
    finding: str


def dangers(evidence: Evidence, claims: Mapping[str, Claim], version: str) -> Iterator[Danger]:
    """Yield the dangerous values among the settings that are known."""
    concerns = [
        *_of_manager(evidence, claims, version),
        *_of_tolerations(evidence),
        *_of_static_pods(evidence),
        *(entry for name in evidence.kubelets for entry in _of_kubelet(evidence, name)),
    ]
    for claim, what, finding in concerns:
        yield Danger(what, claim, claims[claim].statement, finding or claims[claim].drift)


Concern = tuple[str, str, str]
"""A claim, the dangerous value, and the title of a page in docs/findings; empty for the claim's remark."""


def _of_manager(evidence: Evidence, claims: Mapping[str, Claim], version: str) -> Iterator[Concern]:
    for grace_s in sorted(numbers(evidence, "node-monitor-grace-period", claims, version)):
        if grace_s < HEALTH_CHECK_S:
            what = f"a grace period of {grace_s:g} s is below the {HEALTH_CHECK_S:g} s in which a kubelet"
            what += " notices a dead connection: one lost connection can make a healthy node Unknown"
            yield "monitoring.grace-period-default", what, "The grace period is 50 s, not 40 s"
    if 1.0 in numbers(evidence, "node-eviction-rate", claims, version):
        what = "with an eviction rate of exactly 1, evictions never resume after all zones were down"
        heading = "With `--node-eviction-rate=1` exactly, evictions never resume after all zones were down"
        yield "zones.recovery-resumes", what, heading


def _of_tolerations(evidence: Evidence) -> Iterator[Concern]:
    for taint, seconds in (evidence.tolerations.seconds or {}).items():
        if seconds == 0:
            what = f"pods tolerate {taint} for 0 s: they are deleted as soon as a node has the taint"
            heading = "The node controller does not define the five minutes"
            yield "eviction.default-tolerations-injected", what, heading


def _of_static_pods(evidence: Evidence) -> Iterator[Concern]:
    for pod in evidence.static_pods:
        if (pod["spec"].get("priority") or 0) < CRITICAL:
            what = f"static pod {pod['metadata']['name']} has no critical priority class: a shutdown stops it"
            yield "graceful-shutdown.critical-definition", f"{what} with the regular pods", ""


def _of_kubelet(evidence: Evidence, name: str) -> Iterator[Concern]:
    configuration = evidence.kubelets[name]
    total_s, critical_s = (
        duration_s(configuration.get(field) or 0)
        for field in ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    )
    if critical_s and critical_s >= total_s:
        what = (
            f"{name}: a critical period of {critical_s:g} s out of {total_s:g} s leaves regular pods no time"
        )
        yield "graceful-shutdown.validation", what, ""
    if total_s and not critical_s:
        what = f"{name}: no shutdown period for critical pods: they get two seconds"
        heading = (
            "Without a period for critical pods they get two seconds, and the shutdown does not wait for them"
        )
        yield "graceful-shutdown.activation", what, heading
    node = next(node for node in evidence.nodes if node["metadata"]["name"] == name)
    image = str(node["status"].get("nodeInfo", {}).get("osImage", ""))
    if total_s > LOGIND_S and image.startswith(("Ubuntu", "Debian")):
        what = (
            f"{name} ({image}): unattended-upgrades, if installed, limits a shutdown to {LOGIND_S:g} s, which"
        )
        what += f" is less than {total_s:g} s and switches graceful shutdown off"
        yield "graceful-shutdown.inhibit-delay-conflict", what, ""
    behavior = (configuration.get("memorySwap") or {}).get("swapBehavior")
    if behavior == _LIMITED and swap_bytes(node) and not _reserves_memory(configuration):
        what = f"{name}: pods may use all {swap_bytes(node)} bytes of swap, and no memory is reserved"
        yield "swap.formula-no-reservation", what, ""


def _reserves_memory(configuration: Mapping[str, Json]) -> bool:
    reserved = (configuration.get(field) or {} for field in ("systemReserved", "kubeReserved"))
    with contextlib.suppress(AttributeError):
        return any(resources.get("memory") for resources in reserved)
    return False
