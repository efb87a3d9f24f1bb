"""The Vagrantfile as a user uses it, with a libvirtd of the test: up, ssh, destroy."""

from __future__ import annotations

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
from tests.vm.private_libvirt import Command, CompletedCommand, read_completed, write_commands

_UP_TIMEOUT_S = 900.0
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
    results = _beside_libvirt(
        folder,
        _vagrant(folder, "validate"),
        _vagrant(folder, "up", "--provider=libvirt", timeout_s=_UP_TIMEOUT_S),
        _vagrant(folder, "ssh", "node-1", "-c", _QUERY),
        Command(["sh", "-c", swap_keys], {}, _TIMEOUT_S),
        _vagrant(folder, "ssh", "node-1", "-c", "hostname", may_fail=True),
        _vagrant(folder, "destroy", "--force"),
        _virsh("list", "--all", "--name"),
        _virsh("net-list", "--all", "--name"),
        _virsh("vol-list", "default"),
        Command(["ps", "-eo", "comm="], {}, _TIMEOUT_S),
    )

    _validate, up, ssh, _swap, wrong_key, _destroy, domains, networks, volumes, processes = results
    print("\n".join(f"{entry.took_s:6.1f} s  {' '.join(entry.argv)[:80]}" for entry in results))
    assert "Machine booted and ready" in up.output
    assert ssh.output.split()[:2] == ["node-1", "active"], ssh
    assert "10.77.1.101/16" in ssh.output, ssh
    assert wrong_key.status not in (0, None)
    assert "Host key verification failed" in wrong_key.output
    assert (domains.output.split(), networks.output.split()) == ([], [])
    assert [line.split()[0].rpartition("_")[2] for line in volumes.output.splitlines() if line] == ["box.img"]
    assert not {"qemu-system-x86", "dnsmasq"} & set(processes.output.split())
    assert host_tables() == tables
    assert eventually_empty(lambda: _processes_about(folder)) == []


def _vagrant(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S, may_fail: bool = False) -> Command:
    env = {
        "HOME": str(folder / "home"),
        "VAGRANT_HOME": str(folder / "home" / "vagrant"),
        "VAGRANT_CWD": str(TOP),
        "VAGRANT_DOTFILE_PATH": str(folder / "machines"),
        "NODEPROOF_BOX": str(folder / "box"),
        "NODES": "1",
        "VAGRANT_NO_COLOR": "1",
    }
    return Command(["vagrant", *arguments], env, timeout_s, may_fail)


def _virsh(*arguments: str) -> Command:
    return Command([*VIRSH, *arguments], {}, _TIMEOUT_S)


def _beside_libvirt(folder: Path, *commands: Command) -> list[CompletedCommand]:
    """Run the commands; return their outcomes."""
    write_commands(folder, commands)
    argv = [*root_prefix(), "unshare", *NAMESPACES, "--", sys.executable, "-m", "tests.vm.private_libvirt"]
    ended = proc.run([*argv, str(folder)], timeout_s=_ALL_TIMEOUT_S, cwd=TOP, check=False)
    value = read_completed(folder)
    assert len(value) == len(commands), (value[-1:], ended.stderr[-2000:])
    return value


def _processes_about(folder: Path) -> list[str]:
    lines = proc.run(["ps", "-eww", "-o", "args="], timeout_s=_TIMEOUT_S).stdout.splitlines()
    return [line for line in lines if str(folder / "box") in line]
