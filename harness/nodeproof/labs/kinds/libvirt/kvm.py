"""Tests whether guests run on KVM by running one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodeproof import proc

DEVICE = Path("/dev/kvm")
_PROBE_LIMIT_S, _KERNEL_LIMIT_S = 2.0, 10.0

# A boot sector that writes 16 to QEMU's exit device, upon which QEMU exits with 2 * 16 + 1:
# mov dx, 0x501; mov al, 16; out dx, al; hlt
_BOOT_SECTOR = bytes.fromhex("ba0105b010eef4").ljust(510, b"\0") + b"\x55\xaa"
_BOOTED = 33


def runs_on_kvm(scratch: Path, kernel: Path | None, root: Sequence[str] = ()) -> bool:
    """Return whether a guest runs on KVM, within a few seconds: the device may open and still run none.

    Args:
        scratch: a file that is created and removed.
        kernel: the guests' kernel, if there is one yet.
        root: a command prefix for QEMU.

    Raises:
        OSError: `scratch` cannot be written.
    """
    if not DEVICE.exists() or not _runs_a_sector(scratch, root):
        return False
    return kernel is None or _runs_a_kernel(kernel, root)


def _runs_a_sector(scratch: Path, root: Sequence[str]) -> bool:
    scratch.write_bytes(_BOOT_SECTOR)
    argv = [
        *(*root, "qemu-system-x86_64"),
        *("-machine", "pc,accel=kvm", "-cpu", "host", "-m", "16", "-display", "none", "-nodefaults"),
        *("-no-reboot", "-drive", f"file={scratch},format=raw,if=ide"),
        *("-device", "isa-debug-exit,iobase=0x501,iosize=2"),
    ]
    try:
        return proc.run(argv, timeout_s=_PROBE_LIMIT_S, check=False).status == _BOOTED
    except proc.CommandFailed:
        return False
    finally:
        scratch.unlink()


def _runs_a_kernel(kernel: Path, root: Sequence[str]) -> bool:
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
        proc.stream_lines(argv, _raise_on_internal_error, timeout_s=_KERNEL_LIMIT_S)
    except (proc.CommandFailed, _InternalError):
        return False
    return True


class _InternalError(Exception):
    """The machine hangs: waiting any longer is useless."""


def _raise_on_internal_error(line: str) -> None:
    if "KVM internal error" in line:
        raise _InternalError
