"""The nodes of a Vagrant lab: the libvirt lab's guests, created by Vagrant from the project's Vagrantfile.

Vagrant creates and removes machines. It never halts one: power is the domain's, as in a libvirt lab. Its home
and its records of machines are in the lab's memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodeproof import disk, proc
from nodeproof.labs.base.mounts import logs_in, run_mount
from nodeproof.labs.base.network import BRIDGES, ip_batch
from nodeproof.labs.base.nodes import NodeEnvironment
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.kinds.libvirt import box, seed
from nodeproof.labs.kinds.libvirt.domain_xml import card_xml, leased_network_xml, mac, network_xml, tag_xml
from nodeproof.labs.kinds.libvirt.guests import MEMORY_MIB, Guests, make_overlay
from nodeproof.model.pattern import Json

UP_TIMEOUT_S = 240.0
"""How long machines may take until their sshd serves, all at once: under emulation, on a busy host. A join
waits up to twice this time, a power-on once.
"""
_TIMEOUT_S = 120.0
_PLUGINS = Path("/usr/share/vagrant-plugins")
"""Debian's list of plugins, which its Vagrant rewrites when root starts it for the first time."""
_VERSION = "0"
"""The version that Vagrant assumes for a box without one."""


class Vagrant:
    """Runs Vagrant commands, whose output goes to a log. Every verb raises CommandFailed.

    `folder` belongs to the lab, and `project` contains the Vagrantfile, which reads the folder's `box`.
    """

    def __init__(self, folder: Path, project: Path, log: Path) -> None:
        self.home = folder / "home"
        self._folder = folder
        self._project = project
        self._log = log

    def prepare(self) -> None:
        """Give Vagrant a private copy of the plugin list that it rewrites. Raises CommandFailed, OSError."""
        if _PLUGINS.is_dir():
            own = shutil.copytree(_PLUGINS, self._folder / "plugins")
            run_mount("--bind", str(own), str(_PLUGINS))

    def up(self, names: Sequence[str]) -> None:
        """Create and start machines, all at once, and wait until their sshd answers."""
        self._run("up", "--provider=libvirt", *names, timeout_s=UP_TIMEOUT_S)

    def destroy(self, name: str) -> None:
        """Remove a machine from Vagrant and libvirt; do nothing if it is unknown."""
        self._run("destroy", "--force", name)

    def machine_id(self, name: str) -> str:
        """Return the id by which Vagrant and libvirt know a machine; empty if Vagrant knows none."""
        file = self._id_file(name)
        return file.read_text().strip() if file.exists() else ""

    def remember(self, name: str, machine_id: str) -> None:
        """Restore the id of a machine that Vagrant has lost from its folder."""
        file = self._id_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(machine_id)

    def forget(self, name: str) -> None:
        """Remove Vagrant's records of a machine."""
        shutil.rmtree(self._id_file(name).parent, ignore_errors=True)

    def addresses(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the addresses at which Vagrant reaches running machines, by name."""
        config = "\n".join(self._run("ssh-config", *names))
        return dict(re.findall(r"^Host (\S+)\n(?:.*\n)*?\s*HostName \"?([^\s\"]+)", config, re.MULTILINE))

    def _id_file(self, name: str) -> Path:
        return self._folder / "machines" / "machines" / name / "libvirt" / "id"

    def _run(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> list[str]:
        lines: list[str] = []
        env = {
            **os.environ,
            "HOME": str(self.home),
            "VAGRANT_HOME": str(self.home),
            "VAGRANT_CWD": str(self._project),
            "VAGRANT_DOTFILE_PATH": str(self._folder / "machines"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_NO_COLOR": "1",
            "NODEPROOF_BOX": str(self._folder / "box"),
        }
        with self._log.open("a") as log:
            print(f"$ vagrant {' '.join(arguments)}", file=log, flush=True)

            def log_line(line: str) -> None:
                lines.append(line)
                print(line, file=log, flush=True)

            proc.stream_lines(["vagrant", *arguments], log_line, timeout_s=timeout_s, env=env)
        return lines


_SLOTS = 100
"""How many slots get an address lease on `control`."""
_PERMANENT_LEASE = ("DHCP=ipv4", "KeepConfiguration=dhcp")
"""Vagrant finds a machine by its lease; the address is as permanent as one that a seed sets."""


class VagrantNodes(Guests):
    """All nodes of one lab; Vagrant creates its first machines all at once."""

    def __init__(self, environment: NodeEnvironment) -> None:
        super().__init__(environment)
        folder = environment.memory / "vagrant"
        folder.mkdir()
        project = Path(environment.lab.guest["vagrantfile"])
        self._vagrant = Vagrant(folder, project, logs_in(environment.memory) / "vagrant.log")
        self._box = folder / "box"
        self._entries: dict[str, Mapping[str, Json]] = {}
        self._initial = {node.name for node in environment.lab.nodes}
        self._queued: list[str] = []
        self._pending: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        # One command at a time: Vagrant's commands read and change the box and libvirt's state.
        self._runner = ThreadPoolExecutor(1)

    def prepare(self) -> None:
        """Start the hypervisor, and install the box. Raises Problem, OutsideError, CommandFailed."""
        # libvirt creates the bridge again: it leases addresses only on its own bridges.
        ip_batch(["link delete control"])
        super().prepare()
        self._vagrant.prepare()
        self._install_box()
        self._hypervisor.refresh_volumes()

    def _install_box(self) -> None:
        """Install the box for Vagrant and libvirt as a first `up` would, without a copy of the image.

        Raises CommandFailed, OSError.
        """
        image = Path(self._lab.guest["disk"])
        name = box.box_name(image)
        installed = self._vagrant.home / "boxes" / name / _VERSION / "libvirt"
        installed.mkdir(parents=True)
        (installed / "metadata.json").write_text(json.dumps(box.METADATA))
        (installed / "box.img").symlink_to(image)
        # As vagrant-libvirt calls the volume of a box (action/handle_box_image.rb).
        volume = f"{name}_vagrant_box_image_{_VERSION}_{int(image.stat().st_mtime)}_box.img"
        make_overlay(image, self._hypervisor.disks / volume)
        self._box.mkdir()
        for role, file in (("kernel", "vmlinuz"), ("initrd", "initrd.img")):
            (self._box / file).symlink_to(self._lab.guest[role])
        shutil.copy(self._lab.dir / "pki" / "ssh", self._box / "ssh")
        (self._box / "ssh").chmod(0o600)

    def power_on(self, name: str) -> None:
        """Start the virtual machine; if libvirt does not know it any more, create it again."""
        pending = self._pending.get(name)
        if pending is not None and not pending.done():
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
        pending = self._pending.pop(name, None)
        if pending is not None:
            pending.result()
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
        home = self._box / spec.name
        home.mkdir(exist_ok=True)
        entry = {
            **box.write_host(home, home, spec, host_key),
            "memory_mib": spec.shape.memory_mib or MEMORY_MIB,
            "cpus": spec.shape.cpus,
            "seed": str(self._seed(spec.name)),
            "console": str(self._console_log(spec.name)),
        }
        with self._lock:
            self._specs[spec.name] = spec
            self._entries[spec.name] = entry
            self._queued.append(spec.name)
            if not self._initial <= self._entries.keys():
                return
            names, self._queued = self._queued, []
        self._begin(names)

    def _begin(self, names: Sequence[str]) -> None:
        self._initial = set()
        pending = self._runner.submit(self._up, names)
        self._pending.update(dict.fromkeys(names, pending))

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
        addresses = self._run_vagrant(lambda: self._vagrant.addresses(names), "ssh-config")
        for name in names:
            spec, address = self._specs[name], addresses.get(name, "nowhere")
            machine_id = self._vagrant.machine_id(name)
            if not machine_id or machine_id != self._hypervisor.domains.uuid(name):
                message = f"Vagrant's {name} is not a machine of this lab's libvirt ({machine_id or 'no id'})"
                raise self._problem(message, "see `nodeproof logs vagrant`")
            if address != spec.control_address:
                message = f"Vagrant finds {name} at {address}, its lease is {spec.control_address}"
                raise self._problem(message, "see `nodeproof logs vagrant`")
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
                self._hypervisor.domains.act("undefine", name)
            self._disk(name).unlink(missing_ok=True)
            self._vagrant.forget(name)
        self._hypervisor.refresh_volumes()

    def _unmake(self, name: str) -> None:
        """Destroy the machine through Vagrant, even if Vagrant has lost it, and clear what remains."""
        self._runner.submit(self._destroy, name).result()
        with self._lock:
            self._entries.pop(name, None)
        self._pending.pop(name, None)

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
        """Write the list of machines for the next Vagrant command. Raises OSError."""
        with self._lock:
            nodes = list(self._entries.values())
        image, arguments = Path(self._lab.guest["disk"]), self._lab.guest["arguments"]
        settings = {
            **box.settings(image, arguments, self._hypervisor.kvm, nodes),
            "lab": {"pool": self._lab.lab, "control": "control", "data": "data"},
        }
        disk.replace(self._box / box.SETTINGS, f"{json.dumps(settings, indent=2)}\n".encode())

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
            raise self._problem(message, "its last lines follow", failed.output) from failed


def _last(failed: proc.CommandFailed) -> str:
    return (failed.output.strip().splitlines() or ["no word"])[-1]
