"""How a shutdown that is called off is healed: in an order that never lets the machine go."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nodeproof.faults import CalledOff

SYSTEMCTL = """#!/bin/sh
case "$1" in
is-enabled) cat "$STATE/target"; exit 0 ;;
mask) echo masked-runtime >"$STATE/target" ;;
unmask) echo static >"$STATE/target" ;;
stop) [ ! -e "$STATE/holds" ] || { rm "$STATE/holds"; echo 'b false' >"$STATE/preparing"; } ;;
esac
echo "$1 $(cat "$STATE/preparing") $(cat "$STATE/target")" >>"$STATE/calls"
"""
BUSCTL = '#!/bin/sh\ncat "$STATE/preparing"\n'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with what stands for systemd and logind."""
    for name, script in (("systemctl", SYSTEMCTL), ("busctl", BUSCTL)):
        program = tmp_path / name
        program.write_text(script)
        program.chmod(0o755)
    return tmp_path


def healed(machine: Path, preparing: bool, target: str, holds_s: int = 0) -> list[str]:
    """What was done, each with whether logind prepares by then, and what the target is."""
    (machine / "preparing").write_text(f"b {str(preparing).lower()}\n")
    (machine / "target").write_text(f"{target}\n")
    if preparing:
        (machine / "holds").touch()
    (machine / "calls").write_text("")
    env = {**os.environ, "PATH": f"{machine}:{os.environ['PATH']}", "STATE": str(machine)}
    undo = CalledOff("00000000", "node-1", holds_s).undo
    subprocess.run(undo, env=env, timeout=30, check=True)
    return (machine / "calls").read_text().splitlines()


@pytest.mark.parametrize("target", ["masked-runtime", "static"])
def test_while_logind_prepares_the_target_is_masked(machine: Path, target: str) -> None:
    assert healed(machine, True, target) == [
        "mask b true masked-runtime",
        "stop b false masked-runtime",
        "start b false masked-runtime",
        "unmask b false static",
    ]


def test_after_a_refusal_the_kubelet_starts_anew(machine: Path) -> None:
    steps = [line.split()[0] for line in healed(machine, False, "masked-runtime")]
    assert steps == ["mask", "stop", "start", "unmask"]


def test_what_holds_a_lock_of_ours_ends_while_the_target_is_masked(machine: Path) -> None:
    steps = [line.split() for line in healed(machine, True, "masked-runtime", holds_s=60)]
    assert [step[0] for step in steps] == ["mask", "stop", "stop", "start", "unmask"]
    assert {step[-1] for step in steps[:-1]} == {"masked-runtime"}


def test_where_nothing_was_done_nothing_is(machine: Path) -> None:
    assert healed(machine, False, "static") == []
