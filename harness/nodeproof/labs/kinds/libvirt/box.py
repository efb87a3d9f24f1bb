"""The guest of a libvirt lab as a Vagrant box, with all that the `Vagrantfile` needs to boot it.

The folder holds the box, kernel and initial RAM disk, the key of whoever may log in, and for each node a seed
disk and the host key by which it is known. `settings.json` says what is where, `.nodeproof-box` what is ours.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from nodeproof.artifacts.image import KERNEL_ARGUMENTS, Image
from nodeproof.kept import Report
from nodeproof.labs.ground.pki import ssh_key
from nodeproof.labs.ground.spec import AS_ALL, NodeSpec
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.domain_xml import mac
from nodeproof.labs.kinds.libvirt.guests import MAX_NODES, MEMORY_MIB
from nodeproof.labs.kinds.libvirt.kvm import runs_on_kvm
from nodeproof.model.problem import Problem
from nodeproof.remedy import VAGRANT, remedy
from nodeproof.root import check_tools, root_prefix

Json = Any
SETTINGS = "settings.json"
MARK = ".nodeproof-box"
"""Lists every file of a box, one path a line: a folder that holds anything else is nobody's to remove."""
_BOX = "nodeproof.box"
_DISK_GB = 8
_OTHERS_MAY_ENTER = 0o001
# Read by ssh and by Vagrant's own client, which takes no other list of known hosts than the global one.
SSH_CONFIG = """\
Host *
  HostKeyAlias {name}
  GlobalKnownHostsFile {known}
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""
METADATA = {"provider": "libvirt", "format": "qcow2", "virtual_size": _DISK_GB}


def box_name(disk: Path) -> str:
    """Vagrant keeps boxes by name: another image has to be another box."""
    return f"nodeproof-{disk.parent.name}"


def make(folder: Path, image: Image, report: Report) -> None:
    """Fill `folder`, which may hold an older box. Raises Problem."""
    check_tools(("mke2fs", "qemu-system-x86_64"), "box", remedy(VAGRANT))
    folder = folder.resolve()
    _refuse_foreign(folder)
    try:
        _replace(folder, image)
    except OSError as error:
        raise Problem(f"the box cannot be written: {error}", str(folder), "free some space (2 GB)") from error
    report(f"a box of this image, and seeds for {MAX_NODES} nodes: {folder}")
    _say_who_cannot_enter(folder, report)


def _refuse_foreign(folder: Path) -> None:
    """Raises Problem where a folder holds anything but a box."""
    foreign = _foreign(folder)
    if foreign:
        said = f"this folder is not empty and holds what is of no box of this version: {foreign[0]}"
        raise Problem(said, str(folder), "name another with --folder, or remove it yourself")


def _foreign(folder: Path) -> list[str]:
    """What in a folder is not of a box that we made there, links above all."""
    listed = folder / MARK
    own = set(listed.read_text().splitlines()) if listed.is_file() and not listed.is_symlink() else set()
    found = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    return [name for name in (str(path.relative_to(folder)) for path in found) if name not in own]


def _replace(folder: Path, image: Image) -> None:
    """Make the folder anew, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nodeproof-box-", dir=folder.parent) as scratch:
        fresh = Path(scratch, "box")
        fresh.mkdir(mode=0o755)
        _fill(fresh, folder, image)
        _refuse_foreign(folder)
        shutil.rmtree(folder)
        fresh.rename(folder)


def _fill(fresh: Path, folder: Path, image: Image) -> None:
    """Write everything below `fresh`; what is written says that it is in `folder`."""
    _write_box(fresh / _BOX, image)
    shutil.copy(image.kernel, fresh / "vmlinuz")
    shutil.copy(image.initrd, fresh / "initrd.img")
    public = ssh_key(fresh / "ssh")
    specs = [_spec(number) for number in range(1, MAX_NODES + 1)]
    settings = {
        "box": box_name(image.disk),
        "arguments": " ".join(KERNEL_ARGUMENTS),
        "kvm": runs_on_kvm(fresh / "boot-sector", image.kernel, root_prefix()),
        "memory_mib": MEMORY_MIB,
        "cpus": AS_ALL.cpus,
        "nodes": [_node(fresh, folder, spec, specs, public) for spec in specs],
    }
    (fresh / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
    files = [path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()]
    (fresh / MARK).write_text("".join(f"{path}\n" for path in [*files, MARK]))


def _spec(number: int) -> NodeSpec:
    """A node with addresses ending in 100 + its number; Vagrant takes one ending in 1 for a router's."""
    return NodeSpec(f"node-{number}", 99 + number, "", uuid.uuid4().hex)


def _write_box(path: Path, image: Image) -> None:
    """A box is a tar file; packing it would take longer than it saves."""
    metadata = json.dumps(METADATA).encode()
    with tarfile.open(path, "w") as box:
        entry = tarfile.TarInfo("metadata.json")
        entry.size = len(metadata)
        box.addfile(entry, BytesIO(metadata))
        box.add(image.disk, "box.img")


def _node(fresh: Path, folder: Path, spec: NodeSpec, specs: Sequence[NodeSpec], public: str) -> Json:
    """Write a node's seed disk and host key; gives what the Vagrantfile has to know of it."""
    home = fresh / spec.name
    root = home / "seed" / "root"
    for path, text in _files(spec, specs, public).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    host_key = ssh_key(root / "etc/ssh/ssh_host_ed25519_key")
    # It holds a private key; libvirt gives the file to its own user while a guest runs.
    disk = home / "seed.img"
    disk.touch(mode=0o600)
    seed.make_disk(home, disk)
    shutil.rmtree(home / "seed")
    (home / "known_hosts").write_text(f"{spec.name} {host_key}\n")
    known = folder / spec.name / "known_hosts"
    (home / "ssh_config").write_text(SSH_CONFIG.format(name=spec.name, known=known))
    return {
        "name": spec.name,
        "control_mac": mac("control", spec.slot),
        "data_mac": mac("data", spec.slot),
        "data_address": spec.data_address,
    }


def _files(spec: NodeSpec, specs: Sequence[NodeSpec], public: str) -> dict[str, str]:
    """The seed's plain files, by their path below the guest's /. No kubelet has credentials here."""
    hosts = "".join(f"{other.data_address} {other.name}\n" for other in specs)
    return {
        "etc/hostname": f"{spec.name}\n",
        "etc/machine-id": f"{spec.machine_id}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        "etc/systemd/network/10-control.network": seed.network("control", "DHCP=ipv4"),
        "etc/systemd/network/10-data.network": seed.network("data", f"Address={spec.data_address}/16"),
        "etc/ssh/sshd_config.d/nodeproof.conf": seed.PATIENT,
        "root/.ssh/authorized_keys": f"{public}\n",
    }


def _say_who_cannot_enter(folder: Path, report: Report) -> None:
    """The host's libvirt runs QEMU as a user of its own, which reads kernel and seeds by their paths."""
    closed = [path for path in (folder, *folder.parents) if not path.stat().st_mode & _OTHERS_MAY_ENTER]
    if closed:
        report(
            f"libvirt's own user cannot enter {closed[-1]}: run `chmod o+x {closed[-1]}`, or make the box "
            "elsewhere (--folder, and NODEPROOF_BOX for vagrant)"
        )
