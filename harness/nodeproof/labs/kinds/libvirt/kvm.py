"""Whether guests run on KVM here: only one that really ran tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodeproof import proc

DEVICE = Path("/dev/kvm")
_PROBE_LIMIT_S = 2.0

# A boot sector that tells QEMU's exit device 16, upon which QEMU exits with 2 * 16 + 1:
# mov dx, 0x501; mov al, 16; out dx, al; hlt
_BOOT_SECTOR = bytes.fromhex("ba0105b010eef4").ljust(510, b"\0") + b"\x55\xaa"
_BOOTED = 33


def runs_on_kvm(scratch: Path, root: Sequence[str] = ()) -> bool:
    """Whether a guest really runs on KVM here, and soon: the device may open and still not run one.

    `scratch` is a file that it makes and removes; `root` is put before QEMU's command. Raises OSError.
    """
    if not DEVICE.exists():
        return False
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
