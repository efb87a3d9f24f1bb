"""Whether guests run on KVM here: only ones that really ran tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodeproof import proc

DEVICE = Path("/dev/kvm")
_PROBE_LIMIT_S, _KERNEL_LIMIT_S = 2.0, 10.0

# A boot sector that tells QEMU's exit device 16, upon which QEMU exits with 2 * 16 + 1:
# mov dx, 0x501; mov al, 16; out dx, al; hlt
_BOOT_SECTOR = bytes.fromhex("ba0105b010eef4").ljust(510, b"\0") + b"\x55\xaa"
_BOOTED = 33


def runs_on_kvm(scratch: Path, kernel: Path | None, root: Sequence[str] = ()) -> bool:
    """Whether a guest really runs on KVM here, and soon: the device may open and still not run one.

    `scratch` is a file that it makes and removes, `kernel` that of the guests, where there is one yet; `root`
    is put before QEMU's command. Raises OSError.
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
    """Whether a kernel boots until it finds no root file system, panics and resets the machine, upon which
    QEMU exits with 0. KVM in a virtual machine may run a boot sector and break off at what a kernel does
    (seen with kvm-pvm): QEMU says "KVM internal error", and the machine stands still.
    """
    argv = [
        *(*root, "qemu-system-x86_64"),
        *("-machine", "q35,accel=kvm", "-cpu", "host", "-m", "256", "-display", "none", "-nodefaults"),
        *("-no-reboot", "-kernel", str(kernel), "-append", "panic=-1"),
    ]
    try:
        proc.stream_lines(argv, _refuse_an_error, timeout_s=_KERNEL_LIMIT_S)
    except (proc.CommandFailed, _InternalError):
        return False
    return True


class _InternalError(Exception):
    """The machine stands still: there is nothing to wait for."""


def _refuse_an_error(line: str) -> None:
    if "KVM internal error" in line:
        raise _InternalError
