"""Names and objects of Kubernetes: taints, labels, components, nodes, pods, workloads."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.actions import CAST_GRACE_S, Cast, Workload, preferring, using_pvc, workload
from nodeproof.cluster.workloads import Pod, Witness, mirror_pod, tolerates, witness_fields
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
