"""The nodes of a Vagrant lab: the libvirt lab's guests, created by Vagrant from the project's Vagrantfile.

Vagrant creates and removes machines. It never halts one: power is the domain's, as in a libvirt lab.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.labs.ground.memory import logs_in
from nodeproof.labs.ground.network import BRIDGES, ip_batch
from nodeproof.labs.ground.nodes import Ground
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.domain_xml import card_xml, leased_network_xml, mac, network_xml, tag_xml
from nodeproof.labs.kinds.libvirt.guests import Guests
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor
from nodeproof.labs.kinds.vagrant.settings import Settings
from nodeproof.labs.kinds.vagrant.vagrant import Vagrant
from nodeproof.model.problem import Problem

Json = Any
_SLOTS = 100
"""How many slots get an address lease on `control`."""
_PERMANENT_LEASE = ("DHCP=ipv4", "KeepConfiguration=dhcp")
"""Vagrant finds a machine by its lease; the address is as permanent as one that a seed sets."""


class VagrantNodes(Guests):
    """All nodes of one lab; Vagrant creates its first machines all at once."""

    def __init__(self, ground: Ground, hypervisor: Hypervisor) -> None:
        super().__init__(ground, hypervisor)
        folder = ground.memory / "vagrant"
        folder.mkdir()
        project = Path(ground.lab.guest["vagrantfile"])
        self._vagrant = Vagrant(folder, project, folder / "box", logs_in(ground.memory) / "vagrant.log")
        self._vagrantfile_settings = Settings(folder / "box", self._vagrant.home, ground.lab)
        self._entries: dict[str, Mapping[str, Json]] = {}
        self._first = {node.name for node in ground.lab.nodes}
        self._queued: list[str] = []
        self._coming: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        # One command at a time: Vagrant's commands read and change the box and libvirt's state.
        self._runner = ThreadPoolExecutor(1)

    def prepare(self) -> None:
        """Start the hypervisor, and install the box. Raises Problem, OutsideError, CommandFailed."""
        # libvirt creates the bridge again: it leases addresses only on its own bridges.
        ip_batch(["link delete control"])
        super().prepare()
        self._vagrant.prepare()
        self._vagrantfile_settings.install(self._hypervisor.disks)
        self._hypervisor.refresh_volumes()

    def power_on(self, name: str) -> None:
        """Start the virtual machine; if libvirt does not know it any more, create it again."""
        if self._is_coming(name):
            return
        if self._hypervisor.domains.uuid(name):
            super().power_on(name)
            return
        self._events.write("machine", node=name, step="made-again")
        self._ends.pop(name, None)
        self._begin([name])

    def wait_up(self, name: str) -> None:
        """Wait until Vagrant has created the machine and its sshd listens.

        Raises Problem, with the last output lines of Vagrant or of the guest's console.
        """
        coming = self._coming.pop(name, None)
        if coming is not None:
            coming.result()
        super().wait_up(name)

    def _networks(self) -> Sequence[str]:
        slots = [NodeSpec("", slot, "", "") for slot in range(_SLOTS)]
        leases = {mac("control", spec.slot): spec.control_address for spec in slots}
        lab = self._lab.lab
        return [
            leased_network_xml("control", lab, BRIDGES["control"], leases),
            network_xml("data", lab),
        ]

    def _seed_of(self, spec: NodeSpec) -> seed.Seed:
        return replace(super()._seed_of(spec), control=_PERMANENT_LEASE)

    def _make(self, spec: NodeSpec) -> None:
        """Register the machine; start to create all of the lab's first machines with the last of them."""
        host_key = (self._lab.dir / "pki" / f"{spec.name}.hostkey").read_text().strip()
        entry = self._vagrantfile_settings.node(
            spec, self._seed(spec.name), host_key, self._console_log(spec.name)
        )
        with self._lock:
            self._specs[spec.name] = spec
            self._entries[spec.name] = entry
            self._queued.append(spec.name)
            if not self._first <= self._entries.keys():
                return
            names, self._queued = self._queued, []
        self._begin(names)

    def _is_coming(self, name: str) -> bool:
        coming = self._coming.get(name)
        return coming is not None and not coming.done()

    def _begin(self, names: Sequence[str]) -> None:
        self._first = set()
        coming = self._runner.submit(self._up, names)
        self._coming.update(dict.fromkeys(names, coming))

    def _up(self, names: Sequence[str]) -> None:
        """Create machines, with one retry if Vagrant fails. Raises Problem, OutsideError."""
        self._write_settings()
        self._clear(names)
        try:
            self._vagrant.up(names)
        except proc.CommandFailed as failed:
            for name in names:
                self._events.write("machine", node=name, step="up-again", detail=_last(failed))
            self._clear(names)
            self._run_vagrant(lambda: self._vagrant.up(names), f"up of {', '.join(names)}")
        self._adopt(names)

    def _adopt(self, names: Sequence[str]) -> None:
        """Tag machines as the lab's, after checking their ids and addresses. Raises Problem."""
        accesses = self._run_vagrant(lambda: self._vagrant.reached(names), "ssh-config")
        for name in names:
            spec, access = self._specs[name], accesses.get(name)
            machine_id, address = self._vagrant.machine_id(name), access.address if access else "nowhere"
            if not machine_id or machine_id != self._hypervisor.domains.uuid(name):
                message = f"Vagrant's {name} is no machine of this lab's libvirt ({machine_id or 'no id'})"
                raise Problem(message, f"lab {self._lab.lab}", "see `nodeproof logs vagrant`")
            if address != spec.control_address:
                message = f"Vagrant finds {name} at {address}, its lease is {spec.control_address}"
                raise Problem(message, f"lab {self._lab.lab}", "see `nodeproof logs vagrant`")
            self._hypervisor.domains.tag(name, tag_xml(self._lab.lab, spec.machine_id))
            self._expect_running(name)
            self._events.write("machine", node=name, step="up", detail=machine_id)

    def _clear(self, names: Sequence[str]) -> None:
        """Remove the remains of machines before they are created.

        An `up` that was interrupted leaves a domain, a volume or an id, each of which makes the next one
        fail.
        """
        for name in names:
            if self._hypervisor.domains.uuid(name):
                self.power_off(name)
                self._hypervisor.domains.undefine(name)
            self._disk(name).unlink(missing_ok=True)
            self._vagrant.forget(name)
        self._hypervisor.refresh_volumes()

    def _unmake(self, name: str) -> None:
        """Destroy the machine through Vagrant, even if Vagrant has lost it, and clear what remains."""
        self._runner.submit(self._destroy, name).result()
        with self._lock:
            self._entries.pop(name, None)
        self._coming.pop(name, None)

    def _destroy(self, name: str) -> None:
        machine_id = self._hypervisor.domains.uuid(name)
        if machine_id and not self._vagrant.machine_id(name):
            self._events.write("machine", node=name, step="remembered", detail=machine_id)
            self._vagrant.remember(name, machine_id)
        self._run_vagrant(lambda: self._vagrant.destroy(name), f"destroy of {name}")
        self._clear([name])

    def _card(self, name: str, state: str) -> str:
        card = mac("data", self.get(name).spec.slot)
        return card_xml(self._hypervisor.domains.description(name), card, state)

    def _write_settings(self) -> None:
        with self._lock:
            self._vagrantfile_settings.tell(list(self._entries.values()), kvm=self._hypervisor.kvm)

    def _disk(self, name: str) -> Path:
        """Return the path of a machine's volume, as vagrant-libvirt names it."""
        return self._hypervisor.disks / f"{name}.img"

    def _run_vagrant(self, command: Callable[[], Any], description: str) -> Any:
        """Run a Vagrant command. Raises Problem with its last lines if it fails."""
        try:
            return command()
        except proc.CommandFailed as failed:
            ended = f"ended with {failed.status}" if failed.status is not None else "did not end"
            message = f"vagrant: {description} {ended}"
            raise Problem(message, f"lab {self._lab.lab}", "its last lines follow", failed.output) from failed


def _last(failed: proc.CommandFailed) -> str:
    return (failed.output.strip().splitlines() or ["no word"])[-1]
