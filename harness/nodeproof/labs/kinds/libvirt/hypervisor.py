"""The lab's private libvirtd, inside the lab's namespaces; it shares nothing with the host's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nodeproof import proc
from nodeproof.hints import MACHINES, hint_for
from nodeproof.labs.base.mounts import ETC, logs_in, run_mount
from nodeproof.labs.base.processes import LIMIT_BYTES, Processes, last_console_lines
from nodeproof.labs.kinds.libvirt.domain_xml import pool_xml
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import retry_on

if TYPE_CHECKING:
    from nodeproof.labs.kinds.libvirt.domains import Domains


TOOLS = ("libvirtd", "mke2fs", "qemu-img", "qemu-system-x86_64", "virsh", "virtlogd")
"""Programs that a lab of virtual machines needs besides those of every lab."""
_RUN = Path("/run")
_LIBVIRT = ETC / "libvirt"
_SOCKET = _RUN / "libvirt" / "libvirt-sock"
URI = f"qemu+unix:///system?socket={_SOCKET}"
VIRSH = ("virsh", "-q", "-c", URI)
"""The command that queries the lab's libvirtd, to be run inside the lab by clients outside of it."""
_START_TIMEOUT_S = 30.0
_LOG_LINES = 20
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
DEVICE = Path("/dev/kvm")
_PROBE_TIMEOUT_S, _KERNEL_TIMEOUT_S = 2.0, 10.0
# A boot sector that writes 16 to QEMU's exit device, upon which QEMU exits with 2 * 16 + 1:
# mov dx, 0x501; mov al, 16; out dx, al; hlt
_BOOT_SECTOR = bytes.fromhex("ba0105b010eef4").ljust(510, b"\0") + b"\x55\xaa"
_BOOTED = 33


def binding() -> str:
    """Return the path of libvirt's Python binding, an optional extra. Raises Problem."""
    spec = find_spec("libvirt")
    if spec is None:
        raise Problem("no libvirt for this Python", "libvirt lab", hint_for(MACHINES))
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
            Problem: a daemon does not answer.
            CommandFailed: a daemon cannot be started.
        """
        self.start_daemons()
        self.kvm = runs_on_kvm(self._memory / "scratch" / "boot-sector", kernel)
        # Pools have no metadata, so the pool has the lab's name.
        self.disks.mkdir()
        self.domains.make_pool(pool_xml(self._lab_folder.name, self.disks))
        for network in networks:
            self.domains.make_network(network)

    def start_daemons(self) -> None:
        """Start the daemons in private folders, and wait until they answer. Raises Problem, CommandFailed."""
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
        """Return the facts that a snapshot of a guest depends on: versions, and with KVM the host's CPU."""
        return "\n".join([self.domains.versions(), *(_cpu() if self.kvm else ())])

    def refresh_volumes(self) -> None:
        """Make libvirt read the folder of its storage pool again. Raises DomainError."""
        self.domains.refresh_pool(self._lab_folder.name)

    def pid(self, domain: str) -> int | None:
        """Return a virtual machine's process id in the lab; None while it is off."""
        try:
            pid = int((_RUN / "libvirt" / "qemu" / f"{domain}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if Path(f"/proc/{pid}/exe").exists() else None

    def _mount_run(self) -> None:
        """Mount an empty /run that contains the lab's own folder."""
        fresh = self._memory / "run"
        inside = fresh / self._lab_folder.relative_to(_RUN)
        fresh.mkdir()
        run_mount("-t", "tmpfs", "-o", "mode=0755", "nodeproof", str(fresh))
        inside.mkdir(parents=True)
        run_mount("--bind", str(self._lab_folder), str(inside))
        for path in (self._memory, logs_in(self._memory)):
            run_mount("--bind", str(path), str(inside / path.relative_to(self._lab_folder)))
        run_mount("--move", str(fresh), str(_RUN))
        (_RUN / "libvirt").mkdir()

    def _mount_overlay(self, folder: str) -> None:
        """Mount an overlay over a folder of /var, so that writes stay in the lab's memory."""
        upper, work = (self._memory / "var" / part / folder for part in ("upper", "work"))
        for path in (upper, work):
            path.mkdir(parents=True)
        layers = f"lowerdir=/var/{folder},upperdir={upper},workdir={work}"
        run_mount("-t", "overlay", "-o", layers, "overlay", f"/var/{folder}")

    def _connect(self) -> Domains:
        try:
            return retry_on(self._try_to_connect, OutsideError, timeout_s=_START_TIMEOUT_S)
        except OutsideError as error:
            message = f"libvirtd does not answer after {_START_TIMEOUT_S:g} s: {error}"
            raise self._problem(message, "libvirtd") from error

    def _try_to_connect(self) -> Domains:
        # The binding is an optional extra: a lab of process nodes does not need it.
        from nodeproof.labs.kinds.libvirt.domains import Domains  # noqa: PLC0415

        died = self._processes.died()
        for daemon in ("virtlogd", "libvirtd"):
            if daemon in died:
                raise self._problem(f"{daemon} ended: {died[daemon]}", daemon)
        return Domains(URI)

    def _problem(self, message: str, daemon: str) -> Problem:
        """Return a problem with the last lines of a daemon's log."""
        log = (logs_in(self._memory) / f"{daemon}.log").read_text(errors="replace")
        lines = last_console_lines(log, _LOG_LINES)
        return Problem(message, f"lab {self._lab_folder.name}", "its last log lines follow", lines)


def _cpu() -> list[str]:
    """Return the facts of the host's first CPU from /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return [line for line in first.splitlines() if line.partition("\t")[0] in _CPU_FACTS]


def _write_configuration() -> None:
    """Write the daemons' configuration below the lab's own /etc."""
    _LIBVIRT.mkdir()
    for name, text in (("qemu", _QEMU_CONF), ("libvirtd", _LIBVIRTD_CONF), ("virtlogd", _VIRTLOGD_CONF)):
        (_LIBVIRT / f"{name}.conf").write_text(text)
    _add_line(ETC / "passwd", f"{_QEMU_USER}:x:{_QEMU_ID}:{_QEMU_ID}::/nonexistent:/usr/sbin/nologin")
    _add_line(ETC / "group", f"{_QEMU_USER}:x:{_QEMU_ID}:")


def _add_line(file: Path, line: str) -> None:
    """Add a line to passwd or group; it replaces the one with the same name."""
    name = re.escape(line.partition(":")[0])
    rest = re.sub(rf"^{name}:.*\n?", "", file.read_text(), flags=re.MULTILINE).rstrip("\n")
    file.write_text(f"{rest}\n{line}\n")


def runs_on_kvm(scratch: Path, kernel: Path | None, root: Sequence[str] = ()) -> bool:
    """Return whether a guest runs on KVM; an accessible /dev/kvm does not prove it.

    Args:
        scratch: a file that is created and removed.
        kernel: the guests' kernel, if there is one yet.
        root: a command prefix for QEMU.

    Raises:
        OSError: `scratch` cannot be written.
    """
    if not DEVICE.exists() or not _runs_boot_sector(scratch, root):
        return False
    return kernel is None or _boots_kernel(kernel, root)


def _runs_boot_sector(scratch: Path, root: Sequence[str]) -> bool:
    scratch.write_bytes(_BOOT_SECTOR)
    argv = [
        *(*root, "qemu-system-x86_64"),
        *("-machine", "pc,accel=kvm", "-cpu", "host", "-m", "16", "-display", "none", "-nodefaults"),
        *("-no-reboot", "-drive", f"file={scratch},format=raw,if=ide"),
        *("-device", "isa-debug-exit,iobase=0x501,iosize=2"),
    ]
    try:
        return proc.run(argv, timeout_s=_PROBE_TIMEOUT_S, check=False).status == _BOOTED
    except proc.CommandFailed:
        return False
    finally:
        scratch.unlink()


def _boots_kernel(kernel: Path, root: Sequence[str]) -> bool:
    """Return whether a kernel boots on KVM until it panics without a root file system.

    It then resets the machine, upon which QEMU exits with 0. KVM in a virtual machine may run a boot sector
    and fail on a kernel (seen with kvm-pvm): QEMU prints "KVM internal error", and the machine hangs.
    """
    argv = [
        *(*root, "qemu-system-x86_64"),
        *("-machine", "q35,accel=kvm", "-cpu", "host", "-m", "256", "-display", "none", "-nodefaults"),
        *("-no-reboot", "-kernel", str(kernel), "-append", "panic=-1"),
    ]
    try:
        proc.stream_lines(argv, _raise_on_internal_error, timeout_s=_KERNEL_TIMEOUT_S)
    except (proc.CommandFailed, _InternalError):
        return False
    return True


class _InternalError(Exception):
    """The machine hangs: waiting any longer is useless."""


def _raise_on_internal_error(line: str) -> None:
    if "KVM internal error" in line:
        raise _InternalError
