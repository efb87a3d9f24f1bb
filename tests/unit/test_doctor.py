"""`nodeproof doctor` on machines that lack one thing each, with a PATH of fake programs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeproof import capacity, doctor
from nodeproof.artifacts import image
from nodeproof.doctor import diagnose
from nodeproof.labs.kinds import KINDS, LIBVIRT, PROCESS, VAGRANT
from nodeproof.labs.kinds.kind import MISSING, NOTE, OK, Finding, Kind
from nodeproof.labs.kinds.libvirt import hypervisor
from nodeproof.model.problem import Problem
from nodeproof.root import TOOLS
from tests.fakes import executable
from tests.unit.in_process import Call

# Without namespaces: trials run, but with fake programs.
UNSHARE = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
SUDO = 'while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; [ $# -eq 0 ] || { shift; exec "$@"; }'
QEMU_ON_KVM = "exit 33"
Tell = Callable[[str, str], None]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose name has no words of a finding, as a test's name may have."""
    return tmp_path_factory.mktemp("host")


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Return a complete machine; `tell(program, script)` replaces a program."""
    folder, cache = tmp_path / "bin", tmp_path / "cache" / "nodeproof"
    folder.mkdir()
    (cache / "sshd" / "usr" / "sbin").mkdir(parents=True)
    (cache / "sshd" / "usr" / "sbin" / "sshd").touch()

    def program(name: str, script: str) -> None:
        (folder / name).unlink(missing_ok=True)
        executable(folder / name, script)

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
    monkeypatch.setattr(capacity, "_MEMORY_INFO", memory)
    monkeypatch.setattr(doctor, "_free_gib", lambda _place: 50.0)
    monkeypatch.setattr(hypervisor, "DEVICE", device)
    return program


def _about(kind: str, words: str, nodes: int = 2) -> Finding:
    """Return the only finding with these words."""
    (finding,) = [finding for finding in diagnose(kind, nodes).findings if words in finding.subject]
    return finding


@pytest.mark.parametrize("kind", KINDS)
def test_complete_machine_can_start_each_lab(tell: Tell, kind: str) -> None:
    tell("vagrant", "exit 0")
    diagnosis = diagnose(kind, 2)

    assert diagnosis.can_start, str(diagnosis)
    assert str(diagnosis).startswith(f"{kind} lab: can start\n")


@pytest.mark.usefixtures("tell")
def test_missing_program_is_named_with_its_install_command(tmp_path: Path, call: Call) -> None:
    (tmp_path / "bin" / "virsh").unlink()

    output = call("doctor")

    assert output.status == 1
    assert "process lab: can start" in output.out
    assert "libvirt lab: cannot start, 1 missing" in output.out
    assert "missing  programs: virsh; run `infra/setup.sh libvirt`" in output.out
    assert call("doctor", "--lab", PROCESS.name).status == 0, "the other lab was not requested"


Change = Callable[[Tell, pytest.MonkeyPatch], object]
"""What a machine lacks."""


def refuses(program: str) -> Change:
    return lambda tell, _patch: tell(program, "echo first; echo Operation not permitted >&2; exit 1")


def is_arm64(_tell: Tell, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(platform, "machine", lambda: "aarch64")


def has_8_gib(_tell: Tell, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor, "_free_gib", lambda _place: 8.0)
    capacity._MEMORY_INFO.write_text("MemAvailable: 8388608 kB\n")


def has_no_libvirt_module(_tell: Tell, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hypervisor, "find_spec", lambda _name: None)


@pytest.mark.parametrize(
    ("change", "kind", "words", "state", "mend"),
    [
        (refuses("unshare"), LIBVIRT, "namespaces: Operation not permitted", MISSING, "privileged container"),
        (refuses("ip"), LIBVIRT, "bridges and veth pairs: Operation", MISSING, "modprobe -a bridge veth"),
        (refuses("nft"), LIBVIRT, "connection tracking: Operation", MISSING, "nf_tables nf_conntrack"),
        (refuses("mount"), LIBVIRT, "file systems in memory: Operation", MISSING, "mount"),
        (refuses("mount"), LIBVIRT, "overlays", MISSING, "modprobe overlay"),
        (refuses("ip"), LIBVIRT, "network cards for guests: Operation", MISSING, "modprobe tun"),
        (is_arm64, LIBVIRT, "this machine is aarch64", MISSING, "process lab"),
        (is_arm64, VAGRANT, "this machine is aarch64", MISSING, "process lab"),
        (is_arm64, PROCESS, "aarch64 was not tried", NOTE, "--components"),
        (has_no_libvirt_module, LIBVIRT, "no libvirt for this Python", MISSING, "`infra/setup.sh libvirt`"),
        # What is still to be built takes space, too.
        (has_8_gib, PROCESS, "disk: 7 GiB", OK, ""),
        (has_8_gib, LIBVIRT, "disk: ", MISSING, "free some space"),
        (has_8_gib, PROCESS, "memory for 8 nodes", OK, ""),
        (has_8_gib, LIBVIRT, "memory for 8 nodes", MISSING, "use fewer nodes"),
        (lambda *_host: None, LIBVIRT, "memory for 8 nodes", OK, ""),
    ],
)
def test_finding_names_what_is_missing_and_a_fix(
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    kind: Kind,
    words: str,
    state: str,
    mend: str,
) -> None:
    change(tell, monkeypatch)
    finding = _about(kind.name, words, 8)
    assert finding.state == state
    assert mend in finding.fix


def test_sudo_password_stops_the_trials(tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tell("sudo", "exit 1")
    tell("unshare", f"touch {tmp_path}/tried")

    finding = _about(PROCESS.name, "asks for a password")

    assert finding.state == MISSING
    assert "sudo -v" in finding.fix
    assert not (tmp_path / "tried").exists()
    assert _about(PROCESS.name, "not tried").state == NOTE


@pytest.mark.usefixtures("tell")
def test_missing_sshd_is_named(tmp_path: Path) -> None:
    if Path("/usr/sbin/sshd").exists():
        pytest.skip("this machine has an sshd of its own, which is taken wherever the cache is")
    shutil.rmtree(tmp_path / "cache" / "nodeproof" / "sshd")

    assert _about(PROCESS.name, "no sshd") == Finding(MISSING, "no sshd", "run `make setup`")


@pytest.mark.usefixtures("tell")
def test_too_few_inotify_instances_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    monkeypatch.setattr(doctor, "_INOTIFY", limit)

    assert _about(PROCESS.name, "inotify", 30).state == OK
    finding = _about(PROCESS.name, "inotify instances for 31 nodes: 132 of the 128 allowed", 31)
    assert finding.state == NOTE
    assert "`sysctl -w fs.inotify.max_user_instances=1024`" in finding.fix
    assert diagnose(PROCESS.name, 31).can_start
    assert not [finding for finding in diagnose(LIBVIRT.name, 8).findings if "inotify" in finding.subject]


def test_unusable_or_missing_kvm_device_is_only_a_note(tell: Tell) -> None:
    assert _about(LIBVIRT.name, "KVM runs guests").state == OK
    tell("qemu-system-x86_64", "exit 1")

    finding = _about(LIBVIRT.name, "cannot run a guest")

    assert finding.state == NOTE
    assert diagnose(LIBVIRT.name, 2).can_start
    hypervisor.DEVICE.unlink()
    assert _about(LIBVIRT.name, "emulated").state == NOTE


@pytest.mark.parametrize(("kind", "nodes"), [("vmware", 1), (LIBVIRT.name, 9), (PROCESS.name, 0)])
def test_impossible_lab_is_refused(kind: str, nodes: int) -> None:
    with pytest.raises(Problem):
        diagnose(kind, nodes)


def test_missing_vagrant_parts_affect_only_the_vagrant_lab(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("VAGRANT_HOME", str(tmp_path))
    monkeypatch.setenv("NODEPROOF_BOX", str(tmp_path / "box"))
    monkeypatch.setattr(doctor, "_LIBVIRT_SOCKET", tmp_path / "socket")

    output = call("doctor")
    assert output.status == 0
    assert "no vagrant; run `infra/setup.sh vagrant`" in output.out
    assert "vagrant lab:" not in output.out
    missing = Finding(MISSING, "programs: vagrant", "run `infra/setup.sh vagrant`")
    assert _about(VAGRANT.name, "programs:") == missing

    tell("vagrant", "exit 0")
    (tmp_path / "plugins.json").write_text('{"installed": {"vagrant-libvirt": {}}}')
    (tmp_path / "socket").touch()
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "settings.json").touch()
    assert diagnose(VAGRANT.name, 2).can_start
    (note,) = doctor.vagrant_notes(tmp_path / "box")
    assert note == Finding(NOTE, f"vagrant: {tmp_path}/bin/vagrant")
