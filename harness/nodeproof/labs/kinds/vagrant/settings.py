"""What the `Vagrantfile` and Vagrant read in a lab: an installed box, and which machines there are."""

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
"""Vagrant's for a box that tells none."""


class Settings:
    """The folder that the Vagrantfile calls the box, and Vagrant's own of installed ones below `home`."""

    def __init__(self, folder: Path, home: Path, lab: LabSpec) -> None:
        self.folder = folder
        self._home = home
        self._lab = lab
        self._disk = Path(lab.guest["disk"])

    def install(self, pool: Path) -> None:
        """Put the box where Vagrant and libvirt keep what a first `up` would copy there: no lab's memory
        holds the image. Raises CommandFailed, OSError.
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
        """Which machines there are from now on. Raises OSError."""
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
        """Write by which host key a node is known; gives what the Vagrantfile has to know of it."""
        home = self.folder / spec.name
        home.mkdir(exist_ok=True)
        known = home / "known_hosts"
        known.write_text(f"{spec.name} {host_key}\n")
        (home / "ssh_config").write_text(box.SSH_CONFIG.format(name=spec.name, known=known))
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
