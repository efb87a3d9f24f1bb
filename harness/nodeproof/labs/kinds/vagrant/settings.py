"""The files that the `Vagrantfile` and Vagrant read in a lab: an installed box, and the list of machines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.labs.ground.spec import AS_ALL, LabSpec, NodeSpec
from nodeproof.labs.kinds.libvirt import box
from nodeproof.labs.kinds.libvirt.domain_xml import mac
from nodeproof.labs.kinds.libvirt.guests import MEMORY_MIB

Json = Any
_DISK_LIMIT_S = 30.0
_VERSION = "0"
"""The version that Vagrant assumes for a box without one."""


class Settings:
    """The folder that the Vagrantfile calls the box, and Vagrant's installed boxes below `home`."""

    def __init__(self, folder: Path, home: Path, lab: LabSpec) -> None:
        self.folder = folder
        self._home = home
        self._lab = lab
        self._disk = Path(lab.guest["disk"])

    def install(self, pool: Path) -> None:
        """Install the box for Vagrant and libvirt as a first `up` would, without a copy of the image.

        Raises CommandFailed, OSError.
        """
        name = box.box_name(self._disk)
        installed = self._home / "boxes" / name / _VERSION / "libvirt"
        installed.mkdir(parents=True)
        (installed / "metadata.json").write_text(json.dumps(box.METADATA))
        (installed / "box.img").symlink_to(self._disk)
        # As vagrant-libvirt calls the volume of a box (action/handle_box_image.rb).
        volume = pool / f"{name}_vagrant_box_image_{_VERSION}_{int(self._disk.stat().st_mtime)}_box.img"
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(self._disk), "-F", "qcow2", str(volume)]
        proc.run(argv, timeout_s=_DISK_LIMIT_S)
        self.folder.mkdir()
        for role, file in (("kernel", "vmlinuz"), ("initrd", "initrd.img")):
            (self.folder / file).symlink_to(self._lab.guest[role])
        shutil.copy(self._lab.dir / "pki" / "ssh", self.folder / "ssh")
        (self.folder / "ssh").chmod(0o600)

    def tell(self, nodes: Sequence[Mapping[str, Json]], *, kvm: bool) -> None:
        """Write the list of machines for the next Vagrant command. Raises OSError."""
        settings = {
            "box": box.box_name(self._disk),
            "arguments": self._lab.guest["arguments"],
            "kvm": kvm,
            "memory_mib": MEMORY_MIB,
            "cpus": AS_ALL.cpus,
            "lab": {"pool": self._lab.lab, "control": "control", "data": "data"},
            "nodes": nodes,
        }
        fresh = self.folder / f".{box.SETTINGS}"
        fresh.write_text(json.dumps(settings, indent=2) + "\n")
        fresh.rename(self.folder / box.SETTINGS)

    def node(self, spec: NodeSpec, seed: Path, host_key: str, console: Path) -> Mapping[str, Json]:
        """Write a node's known_hosts and ssh_config; return its entry in the Vagrantfile's settings."""
        home = self.folder / spec.name
        home.mkdir(exist_ok=True)
        known_hosts = home / "known_hosts"
        known_hosts.write_text(f"{spec.name} {host_key}\n")
        (home / "ssh_config").write_text(box.SSH_CONFIG.format(name=spec.name, known_hosts=known_hosts))
        return {
            "name": spec.name,
            "control_mac": mac("control", spec.slot),
            "data_mac": mac("data", spec.slot),
            "data_address": spec.data_address,
            "memory_mib": spec.shape.memory_mib or MEMORY_MIB,
            "cpus": spec.shape.cpus,
            "seed": str(seed),
            "console": str(console),
        }
