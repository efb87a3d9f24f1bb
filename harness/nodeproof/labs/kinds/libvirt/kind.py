"""Labs of virtual machines: real systemd, containerd and kubelet, with KVM or without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from nodeproof.artifacts import image
from nodeproof.artifacts.components import Components
from nodeproof.cache import make_folder
from nodeproof.hints import MACHINES
from nodeproof.labs.base.wire import LabStatus
from nodeproof.labs.kinds.kind import NOTE, OK, Finding, HostNeeds, Image, Kind, Limits, Run, Trial
from nodeproof.labs.kinds.libvirt import hypervisor, seed
from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE, parse_owner
from nodeproof.labs.kinds.libvirt.guests import MAX_NODES, MEMORY_MIB, driver_options
from nodeproof.labs.kinds.libvirt.nodes import GuestNodes
from nodeproof.model.pattern import Json
from nodeproof.root import become_root

_SNAPSHOT_GIB, _IMAGE_GIB = 0.5, 4
OVERHEAD_MIB = 256
"""Measured: what QEMU and a guest's disk take in addition to its memory."""
_SNAPSHOT_STEPS = {
    "snapshot-taken": "booted, and saved a snapshot for later labs",
    "snapshot-refused": "could not restore its snapshot",
    "no-snapshot": "no snapshot taken",
}


def boot_files(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """Return the files of the golden image, which is built if necessary. Raises Problem."""
    return files_of(image.golden_image(components, report))


def files_of(golden: image.Image) -> Mapping[str, str]:
    """Return the files of an image that guests boot. Raises Problem."""
    make_folder(golden.snapshots)
    return {
        "kernel": str(golden.kernel),
        "initrd": str(golden.initrd),
        "disk": str(golden.disk),
        "snapshots": str(golden.snapshots),
        "arguments": " ".join(image.KERNEL_ARGUMENTS),
    }


def started(status: LabStatus, events: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    """Yield what the guests run on, and a line for each that was not simply restored from its snapshot."""
    accelerator = "KVM" if status.kvm else "QEMU's emulation, as no guest runs on KVM"
    yield f"virtual machines on {accelerator}"
    for entry in events:
        if entry["kind"] == "machine" and entry["step"] in _SNAPSHOT_STEPS:
            yield f"{entry['node']}: {_SNAPSHOT_STEPS[entry['step']]} ({entry['detail']})"


def _owner(run: Run, node: str) -> str:
    """Return the owner that libvirt reports for a node."""
    return parse_owner(run([*hypervisor.VIRSH, "metadata", node, METADATA_NAMESPACE]))


def _accelerator() -> Iterator[Finding]:
    slow = "guests are emulated and take half a minute to boot"
    kernel = image.cached_kernel()
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        if hypervisor.runs_on_kvm(Path(folder, "boot-sector"), kernel, become_root()):
            yield Finding(
                OK, "KVM runs guests" if kernel else "KVM runs guests (tested with a boot sector only)"
            )
        elif hypervisor.DEVICE.exists():
            yield Finding(NOTE, f"{hypervisor.DEVICE} exists but cannot run a guest: {slow}")
        else:
            next_step = "with virtualization in the firmware: `modprobe kvm`"
            yield Finding(NOTE, f"no {hypervisor.DEVICE}: {slow}", next_step)


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
    GuestNodes,
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
        runs_in_parallel=True,
    ),
    host=HostNeeds(
        node_mib=MEMORY_MIB + OVERHEAD_MIB,
        machine_mib=MEMORY_MIB,
        node_gib=_SNAPSHOT_GIB,
        node_inotify=0,
        tools=hypervisor.TOOLS,
        trials=_TRIALS,
        checks=(hypervisor.binding,),
        notes=_accelerator,
        image=Image(image.TOOLS, _IMAGE_GIB, lambda components: image.cached(components) is not None),
        hint=MACHINES,
    ),
    kubelet=lambda: seed.KUBELET,
    storage=driver_options,
    has_shapes=True,
    has_node_versions=True,
    boot_files=boot_files,
    start_messages=started,
    owner=_owner,
)
