"""Fields of the running configuration of a kubelet or a controller manager."""

from __future__ import annotations

from nodeproof.cluster.configuration import configz, kubelet_configz
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.measuring import CLOUD_MANAGER, MANAGER
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import value_at
from nodeproof.probes.probe import Json, Probe

_AT = {"kube-controller-manager": MANAGER, CLOUD: CLOUD_MANAGER}


def kubelet_field(node: str, path: str) -> Probe:
    """Return a probe of a kubelet's setting, such as `memorySwap.swapBehavior`; None if it is not set."""

    def read(lab: Lab) -> Json:
        return value_at(path, kubelet_configz(lab.cluster.api, node))

    return Probe(f"/configz {path}", node, read)


def manager_field(component: str, path: str) -> Probe:
    """Return a probe of a controller manager's configuration at a path; None if it is not set.

    A path is, for example, `KubeCloudShared.NodeMonitorPeriod`.
    """

    def read(lab: Lab) -> Json:
        return value_at(path, configz(lab.cluster.api, _AT[component]))

    return Probe(f"/configz {path}", component, read)
