"""The nodes of a Vagrant lab: the libvirt lab's guests, which Vagrant makes from the project's Vagrantfile.

Vagrant makes and removes machines. It never halts one: power is the domain's, as in a libvirt lab.
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
"""For so many slots `control` has an address to lease."""
_KEPT_LEASE = ("DHCP=ipv4", "KeepConfiguration=dhcp")
"""Vagrant finds a machine by its lease; the address stays as long as one that a seed tells."""


class VagrantNodes(Guests):
    """All nodes of one lab, whose machines Vagrant makes: those that a lab begins with all at once."""

    def __init__(self, on: Ground, hypervisor: Hypervisor) -> None:
        super().__init__(on, hypervisor)
        folder = on.memory / "vagrant"
        folder.mkdir()
        project = Path(on.lab.guest["vagrantfile"])
        self._vagrant = Vagrant(folder, project, folder / "box", logs_in(on.memory) / "vagrant.log")
        self._settings_told = Settings(folder / "box", self._vagrant.home, on.lab)
        self._told: dict[str, Mapping[str, Json]] = {}
        self._first = {node.name for node in on.lab.nodes}
        self._waiting: list[str] = []
        self._coming: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        # One command at a time: what each reads of the box and of libvirt, another may be changing.
        self._runner = ThreadPoolExecutor(1)

    def prepare(self) -> None:
        """Start the hypervisor, and install the box. Raises Problem, OutsideError, CommandFailed."""
        # libvirt makes it anew, and leases addresses on it: it does that on no bridge of somebody else's.
        ip_batch(["link delete control"])
        super().prepare()
        self._vagrant.prepare()
        self._settings_told.install(self._hypervisor.disks)
        self._hypervisor.refresh_volumes()

    def power_on(self, name: str) -> None:
        """Start the virtual machine, which then boots; one that libvirt knows no more is made again."""
        if self._is_coming(name):
            return
        if self._hypervisor.domains.uuid(name):
            super().power_on(name)
            return
        self._events.write("machine", node=name, step="made-again")
        self._ends.pop(name, None)
        self._begin([name])

    def wait_up(self, name: str) -> None:
        """Wait until Vagrant has made the machine and its sshd listens.

        Raises Problem, with the last lines of whoever did not get it up.
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
        return replace(super()._seed_of(spec), control=_KEPT_LEASE)

    def _make(self, spec: NodeSpec) -> None:
        """Begin with it, once all are there that the lab begins with: they are made at once."""
        host_key = (self._lab.dir / "pki" / f"{spec.name}.hostkey").read_text().strip()
        told = self._settings_told.node(spec, self._seed(spec.name), host_key, self._console_log(spec.name))
        with self._lock:
            self._specs[spec.name] = spec
            self._told[spec.name] = told
            self._waiting.append(spec.name)
            if not self._first <= self._told.keys():
                return
            names, self._waiting = self._waiting, []
        self._begin(names)

    def _is_coming(self, name: str) -> bool:
        coming = self._coming.get(name)
        return coming is not None and not coming.done()

    def _begin(self, names: Sequence[str]) -> None:
        self._first = set()
        coming = self._runner.submit(self._up, names)
        self._coming.update(dict.fromkeys(names, coming))

    def _up(self, names: Sequence[str]) -> None:
        """Have machines made, once more where that was broken off. Raises Problem, OutsideError."""
        self._tell()
        self._clear(names)
        try:
            self._vagrant.up(names)
        except proc.CommandFailed as failed:
            for name in names:
                self._events.write("machine", node=name, step="up-again", detail=_last(failed))
            self._clear(names)
            self._insist(lambda: self._vagrant.up(names), f"up of {', '.join(names)}")
        self._take_in(names)

    def _take_in(self, names: Sequence[str]) -> None:
        """Mark machines as the lab's, which are those that Vagrant knows and libvirt has. Raises Problem."""
        reached = self._insist(lambda: self._vagrant.reached(names), "ssh-config")
        for name in names:
            spec, told = self._specs[name], reached.get(name)
            machine_id, address = self._vagrant.machine_id(name), told.address if told else "nowhere"
            if not machine_id or machine_id != self._hypervisor.domains.uuid(name):
                said = f"Vagrant's {name} is no machine of this lab's libvirt ({machine_id or 'no id'})"
                raise Problem(said, f"lab {self._lab.lab}", "see `nodeproof logs vagrant`")
            if address != spec.control_address:
                said = f"Vagrant finds {name} at {address}, its lease is {spec.control_address}"
                raise Problem(said, f"lab {self._lab.lab}", "see `nodeproof logs vagrant`")
            self._hypervisor.domains.tag(name, tag_xml(self._lab.lab, spec.machine_id))
            self._want(name)
            self._events.write("machine", node=name, step="up", detail=machine_id)

    def _clear(self, names: Sequence[str]) -> None:
        """Remove what is left of machines that are to be made: an `up` that was broken off leaves a domain, a
        volume or an id, each of which keeps the next one from making it.
        """
        for name in names:
            if self._hypervisor.domains.uuid(name):
                self.power_off(name)
                self._hypervisor.domains.undefine(name)
            self._disk(name).unlink(missing_ok=True)
            self._vagrant.forget(name)
        self._hypervisor.refresh_volumes()

    def _unmake(self, name: str) -> None:
        """By Vagrant, which is told again of a machine that it has lost; then whatever it left."""
        self._runner.submit(self._destroy, name).result()
        with self._lock:
            self._told.pop(name, None)
        self._coming.pop(name, None)

    def _destroy(self, name: str) -> None:
        machine_id = self._hypervisor.domains.uuid(name)
        if machine_id and not self._vagrant.machine_id(name):
            self._events.write("machine", node=name, step="remembered", detail=machine_id)
            self._vagrant.remember(name, machine_id)
        self._insist(lambda: self._vagrant.destroy(name), f"destroy of {name}")
        self._clear([name])

    def _card(self, name: str, state: str) -> str:
        card = mac("data", self.get(name).spec.slot)
        return card_xml(self._hypervisor.domains.description(name), card, state)

    def _tell(self) -> None:
        with self._lock:
            self._settings_told.tell(list(self._told.values()), kvm=self._hypervisor.kvm)

    def _disk(self, name: str) -> Path:
        """As vagrant-libvirt calls a machine's volume."""
        return self._hypervisor.disks / f"{name}.img"

    def _insist(self, do: Callable[[], Any], what: str) -> Any:
        """What Vagrant does. Raises Problem with its last lines where it fails."""
        try:
            return do()
        except proc.CommandFailed as failed:
            ended = f"ended with {failed.status}" if failed.status is not None else "did not end"
            said = f"vagrant: {what} {ended}"
            raise Problem(said, f"lab {self._lab.lab}", "its last lines follow", failed.output) from failed


def _last(failed: proc.CommandFailed) -> str:
    return (failed.output.strip().splitlines() or ["no word"])[-1]
