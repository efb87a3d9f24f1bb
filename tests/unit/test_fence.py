"""No command of an injection acts after the healing of its fault began."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.fence import FencedShell, fenced_heal_command, heal_fenced
from nodeproof.machines.machine import Machine, MachineError, Shell
from tests.fakes import LATE_S, Local
from tests.waiting import throughout

TIMEOUT_S = 10.0
OTHER = "0badcafe"


@dataclass(frozen=True)
class Touched(Fault):
    """A fault that is a file, created by `script`."""

    node: str = field(default="node-1", init=False)
    path: Path
    script: str = 'touch "$0"'

    @property
    def self_heal_command(self) -> Sequence[str]:
        return ["rm", "-f", str(self.path)]

    def inject(self, machine: Shell) -> None:
        process = machine.run(["sh", "-c", self.script, str(self.path)], timeout_s=0.5)
        if process.status != 0:
            raise MachineError(process.stderr)

    def heal(self, machine: Shell) -> None:
        machine.power("on")
        machine.run(self.self_heal_command, timeout_s=TIMEOUT_S)

    def is_injected(self, machine: Machine) -> bool:
        del machine
        return self.path.exists()

    def is_healed(self, machine: Machine) -> bool:
        return not self.is_injected(machine)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path)
    yield local
    local.end()


def timed_out(fault: Fault, machine: Local) -> FencedShell:
    """Inject by a command that outlasts its timeout."""
    fenced = FencedShell(machine, fault.id)
    with pytest.raises(MachineError):
        fault.inject(fenced)
    return fenced


def test_command_gets_its_input_and_returns_status_and_output(machine: Local) -> None:
    process = FencedShell(machine, OTHER).run(
        ["sh", "-c", "cat; exit 7"], timeout_s=TIMEOUT_S, stdin="some text"
    )
    assert (process.status, process.stdout) == (7, "some text")


def heal_off(fault: Fault, machine: Local) -> None:
    """Heal a machine that answers only when it is healed."""
    machine.is_on = False
    heal_fenced(fault, machine)
    assert machine.is_on


def heal_itself(fault: Fault, machine: Local) -> None:
    self_heal_command = fenced_heal_command(fault, machine.state_folder)
    assert machine.run(self_heal_command, timeout_s=TIMEOUT_S).status == 0


@pytest.mark.parametrize("heal", [heal_fenced, heal_off, heal_itself])
def test_command_that_begins_after_the_healing_has_no_effect(
    machine: Local, heal: Callable[[Fault, Local], object]
) -> None:
    fault = Touched(machine.folder / "harm")
    machine.is_late = True
    assert not timed_out(fault, machine).has_ended
    machine.is_late = False
    heal(fault, machine)
    assert throughout(lambda: not fault.path.exists(), 2 * LATE_S)
    assert machine.commands[0].wait(TIMEOUT_S) != 0


@pytest.mark.parametrize("kills", [False, True], ids=["waiting caller", "killed caller"])
def test_healing_waits_for_a_running_command(tmp_path: Path, kills: bool) -> None:
    machine = Local(tmp_path, kills=kills)
    fault = Touched(tmp_path / "harm", f'sleep {LATE_S}; touch "$0"')
    timed_out(fault, machine)
    heal_fenced(fault, machine)
    assert throughout(lambda: not fault.path.exists(), 2 * LATE_S)
    assert kills or machine.commands[0].wait(TIMEOUT_S) == 0
    machine.end()


def test_healing_kills_a_command_that_does_not_end(machine: Local) -> None:
    fault = Touched(machine.folder / "harm", 'while :; do touch "$0"; sleep 0.1; done')
    timed_out(fault, machine)
    heal_fenced(fault, machine)
    assert throughout(lambda: not fault.path.exists(), LATE_S)


def test_healing_does_not_wait_for_background_processes(machine: Local) -> None:
    fault = Touched(machine.folder / "harm", 'touch "$0"; sleep 30 >/dev/null 2>&1 & echo $! >"$0.pid"')
    fault.inject(FencedShell(machine, fault.id))
    heal_fenced(fault, machine)
    left = int((machine.folder / "harm.pid").read_text())
    os.kill(left, signal.SIGKILL)
    assert not fault.path.exists()


def test_fault_with_another_id_is_not_refused(machine: Local) -> None:
    fault, other = Touched(machine.folder / "harm"), Touched(machine.folder / "harm", id=OTHER)
    heal_fenced(fault, machine)
    other.inject(FencedShell(machine, OTHER))
    assert other.path.exists()


def test_command_on_another_machine_is_fenced_too(machine: Local) -> None:
    fenced = FencedShell(machine, OTHER).beside("node-2")
    heal_fenced(Touched(machine.folder / "harm", id=OTHER), machine)
    assert fenced.run(["true"], timeout_s=TIMEOUT_S).status != 0


def test_self_heal_command_fails_if_the_fence_cannot_be_closed(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    fault.inject(machine)
    (machine.folder / "state").write_text("no folder")
    assert machine.run(fenced_heal_command(fault, machine.state_folder), timeout_s=TIMEOUT_S).status != 0
    assert not fault.path.exists()


def test_command_in_time_takes_effect_and_leaves_no_lock(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    fenced = FencedShell(machine, fault.id)
    fault.inject(fenced)
    assert fault.path.exists()
    assert fenced.has_ended
    heal_fenced(fault, machine)
    assert [path.name for path in (machine.folder / "state").iterdir()] == [f"{fault.id}.over"]
