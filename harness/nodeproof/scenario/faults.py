"""The faults by their names in scenarios; a function takes other arguments than the fault's class."""

# What this module imports is public.
# mypy: implicit-reexport

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodeproof.cluster.workloads import Pod, manifest
from nodeproof.faults import FAULTS, Fault
from nodeproof.faults.api import DeleteNode as delete_node
from nodeproof.faults.api import DenyElection as deny_election
from nodeproof.faults.api import DenyUpdates as deny_updates
from nodeproof.faults.api import PatchReady as patch_ready
from nodeproof.faults.api import SetLabel as set_label
from nodeproof.faults.api import Taint as taint
from nodeproof.faults.machine import Clock as clock
from nodeproof.faults.machine import Freeze as freeze
from nodeproof.faults.machine import HugePages as huge_pages
from nodeproof.faults.machine import LinkDown as link_down
from nodeproof.faults.machine import PowerOff as power_off
from nodeproof.faults.machine import Reset as reset
from nodeproof.faults.machine import Swap as swap
from nodeproof.faults.partition import Outage
from nodeproof.faults.partition import Partition as partition
from nodeproof.faults.partition import PeerPartition as peer_partition
from nodeproof.faults.providers import DRIVER as CSI_DRIVER
from nodeproof.faults.providers import Cloud as cloud
from nodeproof.faults.providers import Volumes as volumes
from nodeproof.faults.providers import attachment, unique_volume_name
from nodeproof.faults.settings import KubeletSettings, ReplaceFile, Settings
from nodeproof.faults.settings import ReplaceFile as replace_file
from nodeproof.faults.settings import Upgrade as upgrade
from nodeproof.faults.units import CancelledShutdown as cancelled_shutdown
from nodeproof.faults.units import KubeProxy as kube_proxy
from nodeproof.faults.units import Shutdown as shutdown
from nodeproof.faults.units import UnitDown as unit_down
from nodeproof.faults.units import UnitUp as unit_up
from nodeproof.labs.base.wire import NodeInfo

STATIC_PODS = "/etc/kubernetes/manifests"
"""The folder for static pods of a kubelet that is configured to use it."""


def static_pod(pod: Pod, requests: Mapping[str, str] | None = None) -> ReplaceFile:
    """Write the manifest of a static pod, `mirror_pod(NODE)`, with these resource requests.

    It must exist before the kubelet is configured: `kubelet_settings(NODE, staticPodPath=STATIC_PODS)`.
    """
    return ReplaceFile(pod.node, f"{STATIC_PODS}/{pod.name}.json", manifest(pod, requests or {}))


def outage(*nodes: NodeInfo) -> Outage:
    """Cut all these nodes (`lab.nodes()`) off from the control plane, at one instant."""
    return Outage({node.name: node.data_address for node in nodes})


def settings(component: str, **flags: str) -> Settings:
    """Restart a component of the control plane with other flags, an underscore for each dash.

    The component must be declared: `needs(components=...)`.
    """
    return Settings(component, {name.replace("_", "-"): flag for name, flag in flags.items()})


def kubelet_settings(node: str, **settings: Any) -> KubeletSettings:
    """Restart a node's kubelet with other settings, which are fields of KubeletConfiguration."""
    return KubeletSettings(node, settings)


if not TYPE_CHECKING:

    def __getattr__(word: str) -> type[Fault]:
        """Return a fault by its name in scenarios; only type checkers need an import above."""
        for fault in FAULTS.values():
            if fault.word == word:
                return fault
        raise AttributeError(f"module {__name__!r} has no attribute {word!r}")
