"""Whether guests run on KVM: a device that is there, a boot sector and a kernel that really run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeproof.labs.kinds.libvirt import kvm

SECTOR = 'case " $* " in *" -kernel "*) ;; *) exit 33 ;; esac'
QEMU = {
    "runs all": f"{SECTOR}; exit 0",
    "runs a sector and breaks off": f"{SECTOR}; echo 'KVM internal error. Suberror: 1' >&2; exec sleep 60",
    "runs a sector and refuses the kernel": f"{SECTOR}; exit 1",
    "runs nothing": "exit 1",
}
LIMIT_S = 5.0


@pytest.mark.parametrize(
    ("qemu", "expected"),
    [(QEMU["runs all"], True), *((said, False) for name, said in QEMU.items() if name != "runs all")],
    ids=list(QEMU),
)
def test_guests_run_on_kvm_where_a_kernel_ran(
    qemu: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, device, kernel = (tmp_path / name for name in ("qemu-system-x86_64", "kvm", "vmlinuz"))
    program.write_text(f"#!/bin/sh\n{qemu}\n")
    program.chmod(0o755)
    device.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(kvm, "DEVICE", device)
    began = time.monotonic()
    assert kvm.runs_on_kvm(tmp_path / "sector", kernel) is expected
    assert time.monotonic() - began < LIMIT_S
    assert kvm.runs_on_kvm(tmp_path / "sector", None) is (qemu != QEMU["runs nothing"])
    assert not (tmp_path / "sector").exists()
