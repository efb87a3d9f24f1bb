"""Names and objects of Kubernetes: taints, labels, components, nodes, pods, workloads."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.actions import CAST_GRACE_S, Cast, Workload, preferring, using_pvc, workload
from nodeproof.cluster.workloads import (
    HOSTNAME_LABEL,
    Pod,
    Witness,
    mirror_pod,
    tolerates,
    unique,
    unresponsive,
    witness_fields,
)
from nodeproof.model.cluster import (
    NOT_READY,
    OUT_OF_SERVICE,
    POD_COLLECTOR,
    UNREACHABLE,
    UNSCHEDULABLE,
    ZONE_LABEL,
)
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.pattern import PRESENT
from nodeproof.scenario.faults import STATIC_PODS
from nodeproof.scenario.lab import Node


def shutdown_periods(total_s: int, critical_s: int) -> dict[str, str]:
    """Return settings for `faults.kubelet_settings`: the periods of all pods and of critical ones (s)."""
    return {"shutdownGracePeriod": f"{total_s}s", "shutdownGracePeriodCriticalPods": f"{critical_s}s"}
