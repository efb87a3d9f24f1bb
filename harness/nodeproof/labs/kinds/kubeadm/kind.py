"""Labs that kubeadm makes on virtual machines: no run starts one, it is used like somebody's own cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nodeproof.artifacts import image, kubeadm
from nodeproof.artifacts.components import Components
from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.labs.base.wire import LabStatus
from nodeproof.labs.kinds.kind import Image
from nodeproof.labs.kinds.kubeadm.nodes import CONTROL_PLANE, CONTROL_PLANE_MIB, KubeadmNodes
from nodeproof.labs.kinds.libvirt import kind as libvirt
from nodeproof.labs.kinds.libvirt.guests import MAX_NODES, MEMORY_MIB
from nodeproof.model.pattern import Json

_IMAGE_GIB, _SNAPSHOT_GIB = 5, 2.0
_OVERHEAD_MIB = 800
"""The lab's memory also has a guest's disk, with the images of the cluster (measured: 540 MiB)."""


def _boot_files(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """Return the files of the guest's image, which is built if necessary. Raises Problem."""
    return libvirt.files_of(image.golden_image(components, report, kubeadm.obtain(components, report)))


def _started(status: LabStatus, events: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    """Yield how the guests started, and where the files of the cluster's owner are."""
    yield from libvirt.started(status, events)
    folder = RUNTIME_ROOT / status.lab / "pki"
    yield f"its owner's files: admin.conf, ssh_config and known_hosts in {folder}"


def _is_cached(components: Components) -> bool:
    parts = kubeadm.cached(components)
    return parts is not None and image.cached(components, parts) is not None


KUBEADM = replace(
    libvirt.LIBVIRT,
    name="kubeadm",
    make_nodes=KubeadmNodes,
    features=libvirt.LIBVIRT.features - {"shapes", "volumes"},
    limits=replace(
        libvirt.LIBVIRT.limits,
        nodes=MAX_NODES - 1,
        ready_timeout_s=1800.0,
        # Emulated, a controller manager may lose its lease before it removes the taints.
        nodes_ready_timeout_s=300.0,
        node_mib=8192,
        runs_in_parallel=False,
    ),
    host=replace(
        libvirt.LIBVIRT.host,
        control_plane_mib=CONTROL_PLANE_MIB + _OVERHEAD_MIB,
        node_mib=MEMORY_MIB + _OVERHEAD_MIB,
        node_gib=_SNAPSHOT_GIB,
        image=Image(image.TOOLS, _IMAGE_GIB, _is_cached),
        is_checked_by_default=False,
    ),
    kubelet=dict,
    storage=None,
    has_shapes=False,
    has_node_versions=False,
    hosts_control_plane=True,
    other_machines=(CONTROL_PLANE.name,),
    boot_files=_boot_files,
    start_messages=_started,
)
