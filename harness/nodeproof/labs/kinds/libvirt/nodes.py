"""The nodes of a libvirt lab: virtual machines restored from snapshots, or booted if there is none."""

from __future__ import annotations

import uuid
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.ground.network import BRIDGES, outer_end
from nodeproof.labs.ground.nodes import Ground
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.libvirt.domain_xml import (
    METADATA_NAMESPACE,
    ROOT_TARGET,
    SEED_TARGET,
    Disk,
    Domain,
    Nic,
    domain_xml,
    mac,
    nic_xml,
)
from nodeproof.labs.kinds.libvirt.guests import BOOT_LIMIT_S, MEMORY_MIB, Guests
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor
from nodeproof.labs.kinds.libvirt.restoring import Restorer
from nodeproof.labs.kinds.libvirt.snapshots import Busy, Shelf
from nodeproof.model.problem import OutsideError, Problem

SETTLE_LIMIT_S = 200.0
"""How long a guest may take until its snapshot can be taken."""
_MOUNT_LIMIT_S = 10.0


class GuestNodes(Guests):
    """All nodes of one lab; their machines are defined here."""

    def __init__(self, ground: Ground, hypervisor: Hypervisor) -> None:
        super().__init__(ground, hypervisor)
        self._restorer: Restorer
        self._restored: dict[str, str | None] = {}

    def prepare(self) -> None:
        """Start the hypervisor, and find the snapshots. Raises Problem, OutsideError, CommandFailed."""
        super().prepare()
        guest = self._lab.guest
        shelf = Shelf(
            _writable(Path(guest["snapshots"]), self._memory / "snapshots"),
            self._lab.owner_uid,
            self._lab.owner_gid,
        )
        self._restorer = Restorer(
            self._hypervisor.domains,
            self._hypervisor.platform(),
            shelf,
            Path(guest["disk"]),
            self._events,
            self._check_running,
        )

    def wait_up(self, name: str) -> None:
        """Wait until the guest's sshd listens; if its snapshot does not work, boot it instead.

        Raises Problem with the console's last lines.
        """
        key = self._restored.pop(name, None)
        if key is not None:
            try:
                self._wait_up(name, BOOT_LIMIT_S)
            except Problem as problem:
                self._restorer.blame(name, key, problem.what)
                self._boot_instead(name)
            else:
                self._restorer.came_up(key)
                return
        super().wait_up(name)

    def _make(self, spec: NodeSpec) -> None:
        """Define the machine and restore it from its snapshot, or else boot it."""
        domain = self._domain(spec)
        self._hypervisor.domains.define(domain_xml(domain))
        self._specs[spec.name] = spec
        try:
            self._restored[spec.name] = self._restorer.start(domain, SETTLE_LIMIT_S)
            self._expect_running(spec.name)
        except (Busy, Problem, OutsideError, proc.CommandFailed, OSError) as error:
            reason = str(error).partition("\n")[0]
            self._events.write("machine", node=spec.name, step="no-snapshot", detail=reason)
            self._boot_instead(spec.name)

    def _boot_instead(self, name: str) -> None:
        """Boot a guest whose snapshot does not work, with its seed. Raises OutsideError, CommandFailed."""
        if self._hypervisor.pid(name) is not None:
            self._wanted.discard(name)
            self._hypervisor.domains.destroy(name)
        self._restorer.make_disk(self._domain(self._specs[name]))
        self.power_on(name)

    def _unmake(self, name: str) -> None:
        self._hypervisor.domains.undefine(name)
        self._disk(name).unlink()

    def _card(self, name: str, state: str) -> str:
        return nic_xml(self._nic(self.get(name).spec, "data"), state)

    def _disk(self, name: str) -> Path:
        return self._hypervisor.disks / f"{name}.qcow2"

    def _nic(self, spec: NodeSpec, bridge: str) -> Nic:
        return Nic(bridge, mac(bridge, spec.slot), outer_end(spec, bridge))

    def _domain(self, spec: NodeSpec) -> Domain:
        guest = self._lab.guest
        root = Disk(self._disk(spec.name), "qcow2", ROOT_TARGET)
        return Domain(
            name=spec.name,
            # A restored guest has its snapshot's UUID, so every node of this name gets the same one.
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA_NAMESPACE}/{spec.name}")),
            lab=self._lab.lab,
            machine_id=spec.machine_id,
            memory_mib=spec.shape.memory_mib or MEMORY_MIB,
            vcpus=spec.shape.cpus,
            numa_nodes=spec.shape.numa_nodes,
            kvm=self._hypervisor.kvm,
            kernel=Path(guest["kernel"]),
            initrd=Path(guest["initrd"]),
            arguments=[*guest["arguments"].split(), *spec.shape.kernel],
            disks=[root, Disk(self._seed(spec.name), "raw", SEED_TARGET, read_only=True)],
            nics=[self._nic(spec, bridge) for bridge in BRIDGES],
            console=self._console_log(spec.name),
        )


def _writable(folder: Path, inside: Path) -> Path:
    """Mount `folder`, the one folder of the host that a lab may write to, writable at `inside`."""
    inside.mkdir()
    for arguments in (["--bind", str(folder)], ["-o", "remount,bind,rw"]):
        proc.run(["mount", "-n", *arguments, str(inside)], timeout_s=_MOUNT_LIMIT_S)
    return inside
