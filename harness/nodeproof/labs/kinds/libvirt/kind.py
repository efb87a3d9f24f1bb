"""Labs of virtual machines: real systemd, containerd and kubelet, with KVM or without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof.artifacts import image
from nodeproof.artifacts.components import Components
from nodeproof.kept import make_folder
from nodeproof.labs.ground.nodes import Ground, Nodes
from nodeproof.labs.kinds.kind import NOTE, OK, Finding, HostNeeds, Image, Kind, Limits, Run, Trial
from nodeproof.labs.kinds.libvirt import hypervisor, kvm, seed, storage
from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE, owner_told
from nodeproof.labs.kinds.libvirt.guests import MAX_NODES, MEMORY_MIB
from nodeproof.labs.kinds.libvirt.nodes import GuestNodes
from nodeproof.remedy import MACHINES, remedy
from nodeproof.root import become_root, check_tools

Json = Any
_SNAPSHOT_GIB, _IMAGE_GIB = 0.5, 4
_OVERHEAD_MIB = 256
"""Measured: what QEMU and a guest's disk take in addition to its memory."""
_SNAPSHOT_STEPS = {
    "snapshot-taken": "booted, and saved a snapshot for later labs",
    "snapshot-refused": "could not restore its snapshot",
    "no-snapshot": "no snapshot taken",
}


def _make_nodes(ground: Ground) -> Nodes:
    return GuestNodes(ground, hypervisor.Hypervisor(ground.lab.dir, ground.memory, ground.processes))


def boots(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """Return the files of the golden image, which is built if necessary. Raises Problem."""
    check_tools(hypervisor.TOOLS, "libvirt lab", f"{remedy(MACHINES)}, or see `nodeproof doctor`")
    hypervisor.binding()
    golden = image.golden_image(components, report)
    make_folder(golden.snapshots)
    files = {
        "kernel": golden.kernel,
        "initrd": golden.initrd,
        "disk": golden.disk,
        "snapshots": golden.snapshots,
    }
    return {
        **{role: str(path) for role, path in files.items()},
        "arguments": " ".join(image.KERNEL_ARGUMENTS),
    }


def _started(status: Mapping[str, Json], events: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    """Yield what the guests run on, and a line for each that was not simply restored from its snapshot."""
    accelerator = "KVM" if status["kvm"] else "QEMU's emulation, as no guest runs on KVM"
    yield f"virtual machines on {accelerator}"
    for entry in events:
        if entry["kind"] == "machine" and entry["step"] in _SNAPSHOT_STEPS:
            yield f"{entry['node']}: {_SNAPSHOT_STEPS[entry['step']]} ({entry['detail']})"


def _owner(run: Run, node: str) -> str:
    """Return the owner that libvirt reports for a node."""
    return owner_told(run([*hypervisor.VIRSH, "metadata", node, METADATA_NAMESPACE]))


def _accelerator() -> Iterator[Finding]:
    slow = "guests are emulated and take half a minute to boot"
    kernel = image.kept_kernel()
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        if kvm.runs_on_kvm(Path(folder, "boot-sector"), kernel, become_root()):
            yield Finding(
                OK, "KVM runs guests" if kernel else "KVM runs guests (tested with a boot sector only)"
            )
        elif kvm.DEVICE.exists():
            yield Finding(NOTE, f"{kvm.DEVICE} exists but cannot run a guest: {slow}")
        else:
            mend = "with virtualization in the firmware: `modprobe kvm`"
            yield Finding(NOTE, f"no {kvm.DEVICE}: {slow}", mend)


_TRIALS = (
    Trial(
        "overlays of folders",
        "mount -t tmpfs nodeproof /tmp && mkdir /tmp/upper /tmp/work && "
        "mount -t overlay -o lowerdir=/var/lib,upperdir=/tmp/upper,workdir=/tmp/work overlay /var/lib",
        "as root: `modprobe overlay`",
    ),
    Trial("network cards for guests", "ip tuntap add mode tap name one", "as root: `modprobe tun`"),
)
LIBVIRT = Kind(
    "libvirt",
    _make_nodes,
    features=frozenset(
        {"freeze", "link", "power", "real-pods", "reset", "shapes", "swap", "systemd", "volumes"}
    ),
    limits=Limits(
        MAX_NODES,
        500.0,
        node_mib=4096,
        labs_per_core=1.0,
        zones_per_core=0.0,
        common_nodes=2,
        side_by_side=True,
    ),
    host=HostNeeds(
        node_mib=MEMORY_MIB + _OVERHEAD_MIB,
        machine_mib=MEMORY_MIB,
        node_gib=_SNAPSHOT_GIB,
        node_inotify=0,
        tools=hypervisor.TOOLS,
        trials=_TRIALS,
        checks=(hypervisor.binding,),
        notes=_accelerator,
        image=Image(image.TOOLS, _IMAGE_GIB, lambda components: image.kept(components) is not None),
        remedy=MACHINES,
    ),
    kubelet=lambda: seed.KUBELET,
    storage=storage.served,
    has_shapes=True,
    boots=boots,
    started=_started,
    owner=_owner,
)
