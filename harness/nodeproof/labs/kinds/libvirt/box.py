"""The guest of a libvirt lab as a Vagrant box, with the files that the `Vagrantfile` needs to boot it.

The folder contains the box, kernel and initial RAM disk, a client key for ssh, and for each node a seed disk
and its host key. `settings.json` lists these files for Vagrant, `.nodeproof-box` lists all files of the box.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from nodeproof.artifacts.image import KERNEL_ARGUMENTS, Image
from nodeproof.cache import Report
from nodeproof.hints import VAGRANT, hint_for
from nodeproof.labs.base.pki import ssh_key
from nodeproof.labs.base.spec import DEFAULT_SHAPE, NodeSpec
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.domain_xml import mac
from nodeproof.labs.kinds.libvirt.guests import MAX_NODES, MEMORY_MIB
from nodeproof.labs.kinds.libvirt.hypervisor import runs_on_kvm
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.root import check_tools, root_prefix

SETTINGS = "settings.json"
MARK = ".nodeproof-box"
"""Lists every file of a box, one path per line; a folder with any other file is never removed."""
_BOX = "nodeproof.box"
_DISK_GB = 8
_OTHERS_MAY_ENTER = 0o001
# ssh and Vagrant's own client read it; the latter supports only the global list of known hosts.
SSH_CONFIG = """\
Host *
  HostKeyAlias {name}
  GlobalKnownHostsFile {known_hosts}
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""
METADATA = {"provider": "libvirt", "format": "qcow2", "virtual_size": _DISK_GB}


def box_name(disk: Path) -> str:
    """Return the name of an image's box: Vagrant stores boxes by name, so each image needs its own."""
    return f"nodeproof-{disk.parent.name}"


def make(folder: Path, image: Image, report: Report) -> None:
    """Write the box to `folder`, which may contain an older box. Raises Problem."""
    check_tools(("mke2fs", "qemu-system-x86_64"), "box", hint_for(VAGRANT))
    folder = folder.resolve()
    _refuse_foreign(folder)
    try:
        _replace(folder, image)
    except OSError as error:
        raise Problem(f"the box cannot be written: {error}", str(folder), "free some space (2 GB)") from error
    report(f"a box of this image, and seeds for {MAX_NODES} nodes: {folder}")
    _report_closed_folder(folder, report)


def _refuse_foreign(folder: Path) -> None:
    """Check that the folder contains nothing but a box. Raises Problem."""
    listed = folder / MARK
    is_box = listed.is_file() and not listed.is_symlink()
    own = {folder / name for name in listed.read_text().splitlines()} if is_box else set()
    for path in sorted(folder.rglob("*")):
        if path not in own and (path.is_symlink() or not path.is_dir()):
            name = path.relative_to(folder)
            message = f"this folder contains a file that is not part of a box of this version: {name}"
            raise Problem(message, str(folder), "choose another one with --folder, or remove it yourself")


def _replace(folder: Path, image: Image) -> None:
    """Replace the folder, completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nodeproof-box-", dir=folder.parent) as scratch:
        fresh = Path(scratch, "box")
        fresh.mkdir(mode=0o755)
        _fill(fresh, folder, image)
        _refuse_foreign(folder)
        shutil.rmtree(folder)
        fresh.rename(folder)


def _fill(fresh: Path, folder: Path, image: Image) -> None:
    """Write everything below `fresh`; the files refer to their final `folder`."""
    _write_box(fresh / _BOX, image)
    shutil.copy(image.kernel, fresh / "vmlinuz")
    shutil.copy(image.initrd, fresh / "initrd.img")
    public = ssh_key(fresh / "ssh")
    # Vagrant takes an address that ends in 1 for a router's: those of the nodes end in 100 + their number.
    specs = [NodeSpec(f"node-{number}", 99 + number, "") for number in range(1, MAX_NODES + 1)]
    kvm = runs_on_kvm(fresh / "boot-sector", image.kernel, root_prefix())
    nodes = [_node(fresh, folder, spec, specs, public) for spec in specs]
    content = settings(image.disk, " ".join(KERNEL_ARGUMENTS), kvm, nodes)
    (fresh / SETTINGS).write_text(json.dumps(content, indent=2) + "\n")
    files = [path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()]
    (fresh / MARK).write_text("".join(f"{path}\n" for path in [*files, MARK]))


def _write_box(path: Path, image: Image) -> None:
    """Write the box as a tar file, uncompressed: compression takes longer than it saves."""
    metadata = json.dumps(METADATA).encode()
    with tarfile.open(path, "w") as box:
        entry = tarfile.TarInfo("metadata.json")
        entry.size = len(metadata)
        box.addfile(entry, BytesIO(metadata))
        box.add(image.disk, "box.img")


def _node(fresh: Path, folder: Path, spec: NodeSpec, specs: Sequence[NodeSpec], public: str) -> Json:
    """Write a node's seed disk and host key; return its entry in the Vagrantfile's settings."""
    home = fresh / spec.name
    root = home / "seed" / "root"
    seed.write_files(root, _files(spec, specs, public))
    host_key = ssh_key(root / "etc/ssh/ssh_host_ed25519_key")
    # It contains a private key; libvirt gives the file to its own user while a guest runs.
    disk = home / "seed.img"
    disk.touch(mode=0o600)
    seed.make_disk(home, disk)
    shutil.rmtree(home / "seed")
    return write_host(home, folder / spec.name, spec, host_key)


def write_host(home: Path, final: Path, spec: NodeSpec, host_key: str) -> dict[str, Json]:
    """Write a node's known_hosts and ssh_config to `home`, which becomes `final`; return its settings."""
    (home / "known_hosts").write_text(f"{spec.name} {host_key}\n")
    (home / "ssh_config").write_text(SSH_CONFIG.format(name=spec.name, known_hosts=final / "known_hosts"))
    return {
        "name": spec.name,
        "control_mac": mac("control", spec.slot),
        "data_mac": mac("data", spec.slot),
        "data_address": spec.data_address,
    }


def settings(disk: Path, arguments: str, kvm: bool, nodes: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Return the settings of the Vagrantfile for machines with an image's disk."""
    return {
        "box": box_name(disk),
        "arguments": arguments,
        "kvm": kvm,
        "memory_mib": MEMORY_MIB,
        "cpus": DEFAULT_SHAPE.cpus,
        "nodes": nodes,
    }


def _files(spec: NodeSpec, specs: Sequence[NodeSpec], public: str) -> dict[str, str]:
    """Return the seed's plain files, by their path below the guest's /; no kubelet has credentials."""
    hosts = "".join(f"{other.data_address} {other.name}\n" for other in specs)
    return {
        "etc/hostname": f"{spec.name}\n",
        "etc/machine-id": f"{spec.machine_id}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        "etc/systemd/network/10-control.network": seed.network("control", "DHCP=ipv4"),
        "etc/systemd/network/10-data.network": seed.network("data", f"Address={spec.data_address}/16"),
        "etc/ssh/sshd_config.d/nodeproof.conf": seed.NO_PENALTIES,
        "root/.ssh/authorized_keys": f"{public}\n",
    }


def _report_closed_folder(folder: Path, report: Report) -> None:
    """Report a folder that QEMU cannot enter: the host's libvirt runs it as a separate user."""
    closed = [path for path in (folder, *folder.parents) if not path.stat().st_mode & _OTHERS_MAY_ENTER]
    if closed:
        report(
            f"libvirt's own user cannot enter {closed[-1]}: run `chmod o+x {closed[-1]}`, or make the box "
            "elsewhere (--folder, and NODEPROOF_BOX for vagrant)"
        )
