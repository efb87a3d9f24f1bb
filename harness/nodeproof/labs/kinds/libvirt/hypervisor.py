"""The lab's private libvirtd, inside the lab's namespaces; it shares nothing with the host's."""

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
"""Programs that a lab of virtual machines needs besides those of every lab."""
_RUN = Path("/run")
_LIBVIRT = etc.HOST / "libvirt"
_SOCKET = _RUN / "libvirt" / "libvirt-sock"
URI = f"qemu+unix:///system?socket={_SOCKET}"
VIRSH = ("virsh", "-q", "-c", URI)
"""The command that queries the lab's libvirtd, to be run inside the lab by clients outside of it."""
_START_LIMIT_S = 30.0
_MOUNT_LIMIT_S = 10.0
_CPU_FACTS = ("vendor_id", "model name", "flags")

# libvirtd refuses to run QEMU on a host without this user, although QEMU runs as root here.
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
    """Return where the Python binding of libvirt is, an optional extra. Raises Problem."""
    spec = find_spec("libvirt")
    if spec is None:
        raise Problem("no libvirt for this Python", "libvirt lab", remedy(MACHINES))
    return f"libvirt for Python: {spec.origin}"


class Hypervisor:
    """Runs libvirtd and virtlogd.

    `kvm` is True if guests run on KVM, `domains` are the guests, and `disks` is the folder of its storage
    pool, in the lab's memory.
    """

    domains: Domains

    def __init__(self, lab_folder: Path, memory: Path, processes: Processes) -> None:
        self.kvm = False
        self.disks = memory / "disks"
        self._lab_folder = lab_folder
        self._memory = memory
        self._processes = processes

    def start(self, kernel: Path, networks: Sequence[str]) -> None:
        """Start the daemons, create the lab's pool and networks, and test whether guests run on KVM.

        Args:
            kernel: the guests' kernel, for the test.
            networks: XML descriptions of the networks.

        Raises:
            Problem: a daemon does not serve.
            CommandFailed: a daemon cannot be started.
        """
        self.start_daemons()
        self.kvm = runs_on_kvm(self._memory / "scratch" / "boot-sector", kernel)
        self._make_pool_and_networks(networks)

    def start_daemons(self) -> None:
        """Give the daemons private folders and wait until they serve. Raises Problem, CommandFailed."""
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
        """Return what a guest's memory depends on: versions, and with KVM the host's CPU."""
        return "\n".join([self.domains.versions(), *(_cpu() if self.kvm else ())])

    def refresh_volumes(self) -> None:
        """Let libvirt reread the folder of its pool. Raises DomainError."""
        self.domains.refresh_pool(self._lab_folder.name)

    def pid(self, domain: str) -> int | None:
        """Return a virtual machine's process id in the lab; None while it is off."""
        try:
            pid = int((_RUN / "libvirt" / "qemu" / f"{domain}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if Path(f"/proc/{pid}/exe").exists() else None

    def _make_pool_and_networks(self, networks: Sequence[str]) -> None:
        """Create the pool, named like the lab as it has no metadata, and the networks."""
        lab = self._lab_folder.name
        self.disks.mkdir()
        self.domains.make_pool(pool_xml(lab, self.disks))
        for network in networks:
            self.domains.make_network(network)

    def _mount_run(self) -> None:
        """Mount an empty /run that contains the lab's own folder."""
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
        """Mount an overlay over a folder of /var, so that writes stay in the lab's memory."""
        upper, work = (self._memory / "var" / part / folder for part in ("upper", "work"))
        for path in (upper, work):
            path.mkdir(parents=True)
        layers = f"lowerdir=/var/{folder},upperdir={upper},workdir={work}"
        _mount("-t", "overlay", "-o", layers, "overlay", f"/var/{folder}")

    def _connect(self) -> Domains:
        try:
            return insist(self._try_to_connect, OutsideError, limit_s=_START_LIMIT_S)
        except OutsideError as error:
            message = f"libvirtd does not answer after {_START_LIMIT_S:g} s"
            raise Problem(message, "libvirt lab", "see libvirtd's log", str(error)) from error

    def _try_to_connect(self) -> Domains:
        # The binding is an optional extra: a lab of process nodes does not need it.
        from nodeproof.labs.kinds.libvirt.domains import Domains  # noqa: PLC0415

        died = self._processes.died()
        for daemon in ("virtlogd", "libvirtd"):
            if daemon in died:
                raise Problem(f"{daemon} {died[daemon]}", "libvirt lab", f"see {daemon}.log")
        return Domains(URI)


def _cpu() -> list[str]:
    """Return the facts of the host's first CPU from /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return [line for line in first.splitlines() if line.partition("\t")[0] in _CPU_FACTS]


def _mount(*arguments: str) -> None:
    proc.run(["mount", "-n", *arguments], timeout_s=_MOUNT_LIMIT_S)


def _write_configuration() -> None:
    """Write the daemons' configuration below the lab's own /etc."""
    _LIBVIRT.mkdir()
    for name, text in (("qemu", _QEMU_CONF), ("libvirtd", _LIBVIRTD_CONF), ("virtlogd", _VIRTLOGD_CONF)):
        (_LIBVIRT / f"{name}.conf").write_text(text)
    _add_line(etc.HOST / "passwd", f"{_QEMU_USER}:x:{_QEMU_ID}:{_QEMU_ID}::/nonexistent:/usr/sbin/nologin")
    _add_line(etc.HOST / "group", f"{_QEMU_USER}:x:{_QEMU_ID}:")


def _add_line(file: Path, line: str) -> None:
    """Add a line to passwd or group; it replaces the one with the same name."""
    name = re.escape(line.partition(":")[0])
    rest = re.sub(rf"^{name}:.*\n?", "", file.read_text(), flags=re.MULTILINE).rstrip("\n")
    file.write_text(f"{rest}\n{line}\n")
