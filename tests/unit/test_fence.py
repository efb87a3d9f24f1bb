"""No command of an injection acts once the healing of its fault has begun."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.fault import Place
from nodeproof.faults.fence import Fenced, heal_for_good, undo_for_good
from nodeproof.machines.machine import Machine, MachineError, Shell
from tests.local import LATE_S, Local
from tests.waiting import throughout

LIMIT_S = 10.0
OTHER = "0badcafe"


@dataclass(frozen=True)
class Touched:
    """A file is there; `script` makes it."""

    name: ClassVar[str] = "touched"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    path: Path
    script: str = 'touch "$0"'
    id: str = "0123abcd"
    node: str = "node-1"
    harms: Sequence[str] = ("node-1",)

    @property
    def undo(self) -> Sequence[str]:
        return ["rm", "-f", str(self.path)]

    def to_json(self) -> Mapping[str, Any]:
        return {}

    def available(self, machine: Machine) -> str:
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        done = machine.run(["sh", "-c", self.script, str(self.path)], deadline_s=0.5)
        if done.status != 0:
            raise MachineError(done.stderr)

    def heal(self, machine: Shell) -> None:
        machine.power("on")
        machine.run(self.undo, deadline_s=LIMIT_S)

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


def late_injection(fault: Fault, machine: Local) -> None:
    """Inject; the command begins after its deadline."""
    fenced = Fenced(machine, fault.id)
    machine.is_late = True
    with pytest.raises(MachineError):
        fault.inject(fenced)
    machine.is_late = False
    assert not fenced.has_ended


def test_a_command_that_ends_in_time_does_its_work_and_has_ended(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    fenced = Fenced(machine, fault.id)
    fault.inject(fenced)
    assert fault.path.exists()
    assert fenced.has_ended


def test_a_command_gets_its_input_and_gives_its_status_and_output(machine: Local) -> None:
    done = Fenced(machine, OTHER).run(["sh", "-c", "cat; exit 7"], deadline_s=LIMIT_S, stdin="some text")
    assert (done.status, done.stdout) == (7, "some text")


def test_a_command_that_begins_after_the_healing_does_nothing(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    late_injection(fault, machine)
    heal_for_good(fault, machine)
    assert throughout(lambda: not fault.path.exists(), 2 * LATE_S)
    assert machine.commands[0].wait(LIMIT_S) != 0


def test_healing_waits_for_a_command_that_is_under_way(machine: Local) -> None:
    fault = Touched(machine.folder / "harm", f'sleep {LATE_S}; touch "$0"')
    with pytest.raises(MachineError):
        fault.inject(Fenced(machine, fault.id))
    heal_for_good(fault, machine)
    assert not fault.path.exists()
    assert machine.commands[0].wait(LIMIT_S) == 0


def test_healing_kills_a_command_that_does_not_end(machine: Local) -> None:
    fault = Touched(machine.folder / "harm", 'while :; do touch "$0"; sleep 0.1; done')
    with pytest.raises(MachineError):
        fault.inject(Fenced(machine, fault.id))
    heal_for_good(fault, machine)
    assert throughout(lambda: not fault.path.exists(), LATE_S)


def test_healing_does_not_wait_for_what_a_command_left_behind(machine: Local) -> None:
    fault = Touched(machine.folder / "harm", 'touch "$0"; sleep 30 >/dev/null 2>&1 & echo $! >"$0.pid"')
    fault.inject(Fenced(machine, fault.id))
    heal_for_good(fault, machine)
    left = int((machine.folder / "harm.pid").read_text())
    os.kill(left, signal.SIGKILL)
    assert not fault.path.exists()


def test_a_machine_that_answers_only_once_it_is_healed_is_healed_behind_its_fence(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    late_injection(fault, machine)
    machine.is_on = False
    heal_for_good(fault, machine)
    assert machine.is_on
    assert throughout(lambda: not fault.path.exists(), 2 * LATE_S)


def test_a_fault_of_another_id_is_not_refused(machine: Local) -> None:
    fault, other = Touched(machine.folder / "harm"), Touched(machine.folder / "harm", id=OTHER)
    heal_for_good(fault, machine)
    other.inject(Fenced(machine, OTHER))
    assert other.path.exists()


def test_a_command_on_a_machine_beside_is_fenced_too(machine: Local) -> None:
    fenced = Fenced(machine, OTHER).beside("node-2")
    heal_for_good(Touched(machine.folder / "harm", id=OTHER), machine)
    assert fenced.run(["true"], deadline_s=LIMIT_S).status != 0


def test_what_undoes_a_fault_on_the_machine_itself_closes_the_fence(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    late_injection(fault, machine)
    undo = undo_for_good(fault, machine.state_folder)
    assert machine.run(undo, deadline_s=LIMIT_S).status == 0
    assert throughout(lambda: not fault.path.exists(), 2 * LATE_S)


def test_what_undoes_a_fault_undoes_it_and_fails_where_the_fence_cannot_be_closed(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    fault.inject(machine)
    (machine.folder / "state").write_text("no folder")
    assert machine.run(undo_for_good(fault, machine.state_folder), deadline_s=LIMIT_S).status != 0
    assert not fault.path.exists()


def test_no_lock_is_left_behind(machine: Local) -> None:
    fault = Touched(machine.folder / "harm")
    fault.inject(Fenced(machine, fault.id))
    heal_for_good(fault, machine)
    assert [path.name for path in (machine.folder / "state").iterdir()] == [f"{fault.id}.over"]
