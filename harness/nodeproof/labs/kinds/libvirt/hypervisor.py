"""The lab's private libvirtd, inside the lab's own namespaces: nothing of it is shared with the host's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nodeproof import proc
from nodeproof.labs.ground import etc
from nodeproof.labs.ground.logs import LIMIT_BYTES
from nodeproof.labs.ground.memory import logs_in
from nodeproof.labs.ground.processes import Processes
from nodeproof.labs.kinds.libvirt.domain_xml import pool_xml
from nodeproof.labs.kinds.libvirt.kvm import runs_on_kvm
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.remedy import MACHINES, remedy
from nodeproof.waiting import insist

if TYPE_CHECKING:
    from nodeproof.labs.kinds.libvirt.domains import Domains

TOOLS = ("libvirtd", "mke2fs", "qemu-img", "qemu-system-x86_64", "virsh", "virtlogd")
"""What a lab of virtual machines needs beyond what every lab does."""
_RUN = Path("/run")
_LIBVIRT = etc.HOST / "libvirt"
_SOCKET = _RUN / "libvirt" / "libvirt-sock"
URI = f"qemu+unix:///system?socket={_SOCKET}"
VIRSH = ("virsh", "-q", "-c", URI)
"""Speaks to the lab's libvirtd, from inside the lab, for those who look at it from outside."""
_START_LIMIT_S = 30.0
_MOUNT_LIMIT_S = 10.0
_CPU_FACTS = ("vendor_id", "model name", "flags")

# libvirtd refuses to run QEMU on a host without this user, though our QEMU runs as root.
_QEMU_USER = "libvirt-qemu"
_QEMU_ID = 64055
_QEMU_CONF = """
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "logd"
"""
_LIBVIRTD_CONF = """
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:stderr"
"""
_VIRTLOGD_CONF = f"""
max_size = {LIMIT_BYTES}
max_backups = 1
log_outputs = "3:stderr"
"""


def binding() -> str:
    """Where libvirt's library for Python is, which a plain set-up leaves out. Raises Problem."""
    found = find_spec("libvirt")
    if found is None:
        raise Problem("no libvirt for this Python", "libvirt lab", remedy(MACHINES))
    return f"libvirt for Python: {found.origin}"


class Hypervisor:
    """Starts libvirtd and virtlogd; `kvm` says whether guests run on KVM, `domains` are the guests.

    `disks` is the folder of its storage pool, in the lab's memory.
    """

    domains: Domains

    def __init__(self, lab_folder: Path, memory: Path, processes: Processes) -> None:
        self.kvm = False
        self.disks = memory / "disks"
        self._lab_folder = lab_folder
        self._memory = memory
        self._processes = processes

    def start(self, kernel: Path, networks: Sequence[str]) -> None:
        """Start the daemons; make the lab's pool and its networks, as their descriptions have them; find out
        what guests with that kernel run on.
        Raises Problem, CommandFailed.
        """
        self.start_daemons()
        self.kvm = runs_on_kvm(self._memory / "scratch" / "boot-sector", kernel)
        self._make_pool_and_networks(networks)

    def start_daemons(self) -> None:
        """Give the daemons folders of their own and wait until they serve. Raises Problem, CommandFailed."""
        self._mount_run()
        for folder in ("lib", "log", "cache"):
            self._mount_overlay(folder)
        _write_configuration()
        for daemon in ("virtlogd", "libvirtd"):
            pid_file = _RUN / "libvirt" / f"{daemon}.pid"
            self._processes.start(
                daemon, [daemon, "-f", str(_LIBVIRT / f"{daemon}.conf"), "-p", str(pid_file)]
            )
        self.domains = self._connect()

    def platform(self) -> str:
        """What a guest's memory depends on besides the guest: versions, and the CPU where guests see it."""
        return "\n".join([self.domains.versions(), *(_cpu() if self.kvm else ())])

    def refresh_volumes(self) -> None:
        """Have libvirt see what is in the folder of its pool. Raises DomainError."""
        self.domains.refresh_pool(self._lab_folder.name)

    def pid(self, domain: str) -> int | None:
        """The process that a virtual machine is, as the lab sees it; None while it is off."""
        try:
            pid = int((_RUN / "libvirt" / "qemu" / f"{domain}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if Path(f"/proc/{pid}/exe").exists() else None

    def _make_pool_and_networks(self, networks: Sequence[str]) -> None:
        """A pool has no metadata in libvirt: its name is the lab's."""
        lab = self._lab_folder.name
        self.disks.mkdir()
        self.domains.make_pool(pool_xml(lab, self.disks))
        for network in networks:
            self.domains.make_network(network)

    def _mount_run(self) -> None:
        """An empty /run with the lab's own folder in it."""
        fresh = self._memory / "run"
        inside = fresh / self._lab_folder.relative_to(_RUN)
        fresh.mkdir()
        _mount("-t", "tmpfs", "-o", "mode=0755", "nodeproof", str(fresh))
        inside.mkdir(parents=True)
        _mount("--bind", str(self._lab_folder), str(inside))
        for path in (self._memory, logs_in(self._memory)):
            _mount("--bind", str(path), str(inside / path.relative_to(self._lab_folder)))
        _mount("--move", str(fresh), str(_RUN))
        (_RUN / "libvirt").mkdir()

    def _mount_overlay(self, folder: str) -> None:
        """A folder of /var in which what is written stays in the lab's memory."""
        upper, work = (self._memory / "var" / part / folder for part in ("upper", "work"))
        for path in (upper, work):
            path.mkdir(parents=True)
        layers = f"lowerdir=/var/{folder},upperdir={upper},workdir={work}"
        _mount("-t", "overlay", "-o", layers, "overlay", f"/var/{folder}")

    def _connect(self) -> Domains:
        try:
            return insist(self._try_to_connect, OutsideError, limit_s=_START_LIMIT_S)
        except OutsideError as error:
            said = f"libvirtd does not answer after {_START_LIMIT_S:g} s"
            raise Problem(said, "libvirt lab", "see libvirtd's log", str(error)) from error

    def _try_to_connect(self) -> Domains:
        # The binding is an extra: a lab of process nodes does without it.
        from nodeproof.labs.kinds.libvirt.domains import Domains  # noqa: PLC0415

        died = self._processes.died()
        for daemon in ("virtlogd", "libvirtd"):
            if daemon in died:
                raise Problem(f"{daemon} {died[daemon]}", "libvirt lab", f"see {daemon}.log")
        return Domains(URI)


def _cpu() -> list[str]:
    """What the host's first CPU is, as /proc/cpuinfo tells."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return [line for line in first.splitlines() if line.partition("\t")[0] in _CPU_FACTS]


def _mount(*arguments: str) -> None:
    proc.run(["mount", "-n", *arguments], timeout_s=_MOUNT_LIMIT_S)


def _write_configuration() -> None:
    """What the daemons read below the lab's own /etc."""
    _LIBVIRT.mkdir()
    for name, text in (("qemu", _QEMU_CONF), ("libvirtd", _LIBVIRTD_CONF), ("virtlogd", _VIRTLOGD_CONF)):
        (_LIBVIRT / f"{name}.conf").write_text(text)
    _add_line(etc.HOST / "passwd", f"{_QEMU_USER}:x:{_QEMU_ID}:{_QEMU_ID}::/nonexistent:/usr/sbin/nologin")
    _add_line(etc.HOST / "group", f"{_QEMU_USER}:x:{_QEMU_ID}:")


def _add_line(file: Path, line: str) -> None:
    """Put a line into passwd or group, instead of the one of that name."""
    name = re.escape(line.partition(":")[0])
    rest = re.sub(rf"^{name}:.*\n?", "", file.read_text(), flags=re.MULTILINE).rstrip("\n")
    file.write_text(f"{rest}\n{line}\n")
