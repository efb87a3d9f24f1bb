"""Healing of a cancelled shutdown: its order never lets the machine power off."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nodeproof.faults.units import CancelledShutdown
from tests.fakes import executable

SYSTEMCTL = """
case "$1" in
is-enabled) cat "$STATE/target"; exit 0 ;;
mask) echo masked-runtime >"$STATE/target" ;;
unmask) echo static >"$STATE/target" ;;
stop) [ ! -e "$STATE/holds" ] || { rm "$STATE/holds"; echo 'b false' >"$STATE/preparing"; } ;;
esac
echo "$1 $(cat "$STATE/preparing") $(cat "$STATE/target")" >>"$STATE/calls"
"""
BUSCTL = 'cat "$STATE/preparing"'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder with fake systemd and logind."""
    for name, script in (("systemctl", SYSTEMCTL), ("busctl", BUSCTL)):
        executable(tmp_path / name, script)
    return tmp_path


def healed(machine: Path, preparing: bool, target: str, holds_s: int = 0) -> list[str]:
    """Return the calls, each with the state of logind and of the target."""
    (machine / "preparing").write_text(f"b {str(preparing).lower()}\n")
    (machine / "target").write_text(f"{target}\n")
    if preparing:
        (machine / "holds").touch()
    (machine / "calls").write_text("")
    env = {**os.environ, "PATH": f"{machine}:{os.environ['PATH']}", "STATE": str(machine)}
    self_heal_command = CancelledShutdown("node-1", holds_s).self_heal_command
    subprocess.run(self_heal_command, env=env, timeout=30, check=True)
    return (machine / "calls").read_text().splitlines()


@pytest.mark.parametrize("target", ["masked-runtime", "static"])
def test_shutdown_target_is_masked_while_logind_prepares(machine: Path, target: str) -> None:
    assert healed(machine, True, target) == [
        "mask b true masked-runtime",
        "stop b false masked-runtime",
        "start b false masked-runtime",
        "unmask b false static",
    ]


def test_kubelet_is_restarted_after_a_refusal(machine: Path) -> None:
    steps = [line.split()[0] for line in healed(machine, False, "masked-runtime")]
    assert steps == ["mask", "stop", "start", "unmask"]


def test_own_lock_holder_is_stopped_while_the_target_is_masked(machine: Path) -> None:
    steps = [line.split() for line in healed(machine, True, "masked-runtime", holds_s=60)]
    assert [step[0] for step in steps] == ["mask", "stop", "stop", "start", "unmask"]
    assert {step[-1] for step in steps[:-1]} == {"masked-runtime"}


def test_healing_an_untouched_machine_changes_nothing(machine: Path) -> None:
    assert healed(machine, False, "static") == []
