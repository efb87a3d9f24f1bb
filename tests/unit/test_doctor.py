"""`nodeproof doctor` on machines that lack one thing each, made of a PATH with nothing but told programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeproof import doctor, room
from nodeproof.artifacts import image
from nodeproof.cli import main
from nodeproof.doctor import diagnose
from nodeproof.labs.kinds import KINDS, LIBVIRT, PROCESS, VAGRANT
from nodeproof.labs.kinds.kind import MISSING, NOTE, OK, Finding
from nodeproof.labs.kinds.libvirt import hypervisor, kvm
from nodeproof.model.problem import Problem
from nodeproof.root import TOOLS

# Without namespaces: what is tried runs, but all programs that would do something are told.
UNSHARE = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
SUDO = 'while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; [ $# -eq 0 ] || { shift; exec "$@"; }'
QEMU_ON_KVM = "exit 33"
Tell = Callable[[str, str], None]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """A machine that has everything; `tell(program, script)` replaces a program."""
    folder, cache = tmp_path / "bin", tmp_path / "cache" / "nodeproof"
    folder.mkdir()
    (cache / "sshd" / "usr" / "sbin").mkdir(parents=True)
    (cache / "sshd" / "usr" / "sbin" / "sshd").touch()

    def program(name: str, script: str) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    for name in {*TOOLS, *hypervisor.TOOLS, *image.TOOLS, "dnsmasq", "iptables", "mkdir"}:
        program(name, "exit 0")
    program("unshare", UNSHARE)
    program("sudo", SUDO)
    program("qemu-system-x86_64", QEMU_ON_KVM)
    (folder / "bash").unlink()
    (folder / "bash").symlink_to(str(shutil.which("bash")))
    memory, device = tmp_path / "meminfo", tmp_path / "kvm"
    memory.write_text("MemAvailable: 16777216 kB\n")
    device.touch()
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "libvirt.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "_MEMORY_INFO", memory)
    monkeypatch.setattr(doctor, "_free_gib", lambda _place: 50.0)
    monkeypatch.setattr(kvm, "DEVICE", device)
    return program


def _about(kind: str, words: str, nodes: int = 2) -> Finding:
    """The only finding with these words."""
    (found,) = [finding for finding in diagnose(kind, nodes).findings if words in finding.what]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_that_has_everything_can_start_each_lab(tell: Tell, kind: str) -> None:
    tell("vagrant", "exit 0")
    diagnosis = diagnose(kind, 2)

    assert diagnosis.can_start, str(diagnosis)
    assert str(diagnosis).startswith(f"{kind} lab: can start\n")


@pytest.mark.usefixtures("tell")
def test_a_missing_program_is_named_with_the_command_that_installs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "virsh").unlink()

    assert main(["doctor"]) == 1

    said = capsys.readouterr().out
    assert "process lab: can start" in said
    assert "libvirt lab: cannot start, 1 missing" in said
    assert "missing  programs: virsh; run `infra/setup.sh libvirt`" in said


@pytest.mark.usefixtures("tell")
def test_a_python_without_libvirt_gets_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "find_spec", lambda _name: None)

    found = _about(LIBVIRT.name, "no libvirt for this Python")

    assert found.state == MISSING
    assert found.mend == "run `infra/setup.sh libvirt`"


@pytest.mark.usefixtures("tell")
def test_a_lab_that_was_not_asked_for_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "bin" / "virsh").unlink()

    assert main(["doctor", "--lab", PROCESS.name]) == 0


@pytest.mark.parametrize(
    ("program", "words", "mend"),
    [
        ("unshare", "namespaces", "privileged container"),
        ("ip", "bridges and veth pairs", "modprobe -a bridge veth"),
        ("nft", "nftables with connection tracking", "modprobe -a nf_tables nf_conntrack"),
        ("mount", "file systems in memory", "mount"),
        ("mount", "overlays", "modprobe overlay"),
        ("ip", "network cards for guests", "modprobe tun"),
    ],
)
def test_what_the_kernel_refuses_is_named_with_its_words_and_a_remedy(
    tell: Tell, program: str, words: str, mend: str
) -> None:
    tell(program, "echo first; echo Operation not permitted >&2; exit 1")

    found = _about(LIBVIRT.name, words)

    assert found.state == MISSING
    assert "Operation not permitted" in found.what
    assert mend in found.mend


def test_a_password_of_sudo_is_named_and_nothing_is_tried(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tell("sudo", "exit 1")
    tell("unshare", f"touch {tmp_path}/tried")

    found = _about(PROCESS.name, "asks for a password")

    assert found.state == MISSING
    assert "sudo -v" in found.mend
    assert not (tmp_path / "tried").exists()
    assert _about(PROCESS.name, "not tried").state == NOTE


@pytest.mark.usefixtures("tell")
def test_no_sshd_is_named(tmp_path: Path) -> None:
    if Path("/usr/sbin/sshd").exists():
        pytest.skip("this machine has an sshd of its own, which is taken wherever the cache is")
    shutil.rmtree(tmp_path / "cache" / "nodeproof" / "sshd")

    assert _about(PROCESS.name, "no sshd") == Finding(MISSING, "no sshd", "run `make setup`")


@pytest.mark.usefixtures("tell")
def test_kubelets_that_would_get_too_few_inotify_instances_are_a_note_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    monkeypatch.setattr(doctor, "_INOTIFY", limit)

    assert _about(PROCESS.name, "inotify", 30).state == OK
    found = _about(PROCESS.name, "inotify", 31)
    assert (found.state, found.what) == (
        NOTE,
        "inotify instances for 31 nodes: 132 of the 128 allowed per user",
    )
    assert "`sysctl -w fs.inotify.max_user_instances=1024`" in found.mend
    assert diagnose(PROCESS.name, 31).can_start
    assert not [each for each in diagnose(LIBVIRT.name, 8).findings if "inotify" in each.what]


@pytest.mark.usefixtures("tell")
def test_memory_is_asked_for_by_kind_and_number_of_nodes() -> None:
    assert _about(PROCESS.name, "memory for 8 nodes", 8).state == OK
    assert _about(LIBVIRT.name, "memory for 8 nodes", 8).state == OK
    room._MEMORY_INFO.write_text("MemAvailable: 8388608 kB\n")
    assert _about(PROCESS.name, "memory for 8 nodes", 8).state == OK
    assert _about(LIBVIRT.name, "memory for 8 nodes", 8).state == MISSING
    assert _about(LIBVIRT.name, "memory for 4 nodes", 4).state == OK


@pytest.mark.usefixtures("tell")
def test_disk_is_asked_for_what_is_still_to_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_free_gib", lambda _place: 8.0)

    assert _about(PROCESS.name, "disk: 7 GiB").state == OK
    assert _about(LIBVIRT.name, "disk: 12 GiB").state == MISSING


def test_a_device_that_runs_no_guest_stops_no_lab(tell: Tell) -> None:
    assert _about(LIBVIRT.name, "KVM runs guests").state == OK
    tell("qemu-system-x86_64", "exit 1")

    found = _about(LIBVIRT.name, "cannot run a guest")

    assert found.state == NOTE
    assert diagnose(LIBVIRT.name, 2).can_start


def test_without_the_device_guests_are_emulated(tell: Tell) -> None:
    kvm.DEVICE.unlink()

    assert _about(LIBVIRT.name, "emulated").state == NOTE


@pytest.mark.parametrize(("kind", "nodes"), [("vmware", 1), (LIBVIRT.name, 9), (PROCESS.name, 0)])
def test_what_no_lab_can_be_is_refused(kind: str, nodes: int) -> None:
    with pytest.raises(Problem):
        diagnose(kind, nodes)


def test_what_vagrant_lacks_stops_no_lab_but_its_own(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VAGRANT_HOME", str(tmp_path))
    monkeypatch.setenv("NODEPROOF_BOX", str(tmp_path / "box"))
    monkeypatch.setattr(doctor, "_LIBVIRT_SOCKET", tmp_path / "socket")

    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "no vagrant; run `infra/setup.sh vagrant`" in said
    assert "vagrant lab:" not in said
    found = _about(VAGRANT.name, "programs:")
    assert (found.state, found.what, found.mend) == (
        MISSING,
        "programs: vagrant",
        "run `infra/setup.sh vagrant`",
    )

    tell("vagrant", "exit 0")
    (tmp_path / "plugins.json").write_text('{"installed": {"vagrant-libvirt": {}}}')
    (tmp_path / "socket").touch()
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "settings.json").touch()
    assert diagnose(VAGRANT.name, 2).can_start
    (note,) = doctor.vagrant_notes(tmp_path / "box")
    assert note == Finding(NOTE, f"vagrant: {tmp_path}/bin/vagrant")
