"""The Vagrantfile as a user uses it, with a libvirtd of the test: up, ssh, destroy."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts import image
from nodeproof.artifacts.build import BUILD
from nodeproof.artifacts.components import obtain
from nodeproof.labs.base.spec import NAMESPACES
from nodeproof.labs.kinds.libvirt import box
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.root import missing_tools, root_prefix
from tests.acceptance.command import TOP
from tests.leftovers import eventually_empty, host_tables

_TIMEOUT_S = 240.0
_ALL_TIMEOUT_S = 1800.0
_QUERY = "hostname; systemctl is-active containerd; ip -4 -o address show dev data"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for Vagrant's files and the box."""
    if missing_tools(("vagrant", "dnsmasq", "libvirtd", "iptables")):
        pytest.skip("run `infra/setup.sh vagrant`")
    folder = tmp_path_factory.mktemp("vagrant")
    golden = image.golden_image(obtain(BUILD, DEFAULT_KUBERNETES_VERSION, print), print)
    box.make(folder / "box", golden, print)
    (folder / "home").mkdir()
    return folder


def test_vagrant_up_ssh_and_destroy_work(folder: Path) -> None:
    tables = host_tables()
    swap_keys = f"sed s/node-2/node-1/ {folder}/box/node-2/known_hosts >{folder}/box/node-1/known_hosts"
    virsh = shlex.join(VIRSH)
    outputs = _beside_libvirt(
        folder,
        "vagrant validate",
        "vagrant up --provider=libvirt",
        f"vagrant ssh node-1 -c {shlex.quote(_QUERY)}",
        swap_keys,
        "! vagrant ssh node-1 -c hostname",
        "vagrant destroy --force",
        f"{virsh} list --all --name",
        f"{virsh} net-list --all --name",
        f"{virsh} vol-list default",
        "ps -eo comm=",
    )

    _validate, up, ssh, _swap, wrong_key, _destroy, domains, networks, volumes, processes = outputs
    assert "Machine booted and ready" in up
    assert ssh.split()[:2] == ["node-1", "active"], ssh
    assert "10.77.1.101/16" in ssh, ssh
    assert "Host key verification failed" in wrong_key
    assert (domains.split(), networks.split()) == ([], [])
    assert [line.split()[0].rpartition("_")[2] for line in volumes.splitlines() if line] == ["box.img"]
    assert not {"qemu-system-x86", "dnsmasq"} & set(processes.split())
    assert host_tables() == tables
    assert eventually_empty(lambda: _processes_about(folder)) == []


def _beside_libvirt(folder: Path, *commands: str) -> list[str]:
    """Run shell commands beside a libvirtd, with Vagrant's settings; return their outputs."""
    settings = {
        "HOME": folder / "home",
        "VAGRANT_HOME": folder / "home" / "vagrant",
        "VAGRANT_CWD": TOP,
        "VAGRANT_DOTFILE_PATH": folder / "machines",
        "NODEPROOF_BOX": folder / "box",
        "NODES": "1",
        "VAGRANT_NO_COLOR": "1",
    }
    (folder / "commands.json").write_text(json.dumps(commands))
    environment = ["env", *(f"{name}={value}" for name, value in settings.items())]
    argv = ["unshare", *NAMESPACES, "--", sys.executable, "-m", "tests.vm.private_libvirt", str(folder)]
    ended = proc.run([*root_prefix(), *environment, *argv], timeout_s=_ALL_TIMEOUT_S, cwd=TOP, check=False)
    assert ended.status == 0, ended.stderr[-2000:]
    outputs: list[str] = json.loads((folder / "outputs.json").read_text())
    assert len(outputs) == len(commands), (outputs[-1:], ended.stderr[-2000:])
    return outputs


def _processes_about(folder: Path) -> list[str]:
    lines = proc.run(["ps", "-eww", "-o", "args="], timeout_s=_TIMEOUT_S).stdout.splitlines()
    return [line for line in lines if str(folder / "box") in line]
