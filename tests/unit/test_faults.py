"""The registry of faults: what one class gives, and what ledgers store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.docs import words_pages
from nodeproof import scenario
from nodeproof.faults import FAULTS, Fault
from nodeproof.machines.machine import CommandResult, Machine, MachineError, Shell
from nodeproof.safety.injector import sweep
from nodeproof.scenario import Lab, needs, standing
from nodeproof.session import markers
from nodeproof.testing import healed_at_end
from tests.fakes import FakeMachine

NODE = "node-1"
STORED = {
    "called-off-shutdown": ("node", "holds_s"),
    "clock": ("node", "ahead_s"),
    "cloud": ("node", "answers", "labels", "sets_up"),
    "freeze": ("node",),
    "huge-pages": ("node", "many"),
    "kube-proxy": ("node", "address", "port"),
    "kubelet-settings": ("node", "settings"),
    "labelled": ("node", "key", "value", "before"),
    "link-down": ("node",),
    "node-deleted": ("node", "on", "labels"),
    "other-file": ("node", "path", "content"),
    "outage": ("node", "nodes"),
    "partition": ("node", "direction", "answer"),
    "power-off": ("node",),
    "ready-patched": ("node", "on"),
    "refused": ("node", "on", "what"),
    "reset": ("node",),
    "settings": ("node", "flags"),
    "shutdown": ("node", "way"),
    "swap": ("node", "size_mib", "used_mib"),
    "taint": ("node", "on", "key", "effect", "value", "also"),
    "unit-down": ("node", "unit"),
    "unit-up": ("node", "script"),
    "upgrade": ("node", "version"),
    "volumes": ("node", "many"),
}
"""The keys of released faults in ledgers and recordings, which other versions read."""


@pytest.fixture
def disk_full() -> Iterator[type[Fault]]:
    """Define a fault as its file would: nothing else is registered for it."""

    @dataclass(frozen=True)
    class DiskFull(Fault):
        """File that fills `node`'s disk; healing removes it."""

        name = "disk-full"
        left_mib: int = 0

        @classmethod
        def leftovers_on(cls, machine: Shell) -> list[DiskFull]:
            return [cls(machine.name, id=path) for path in machine.run(["ls"], timeout_s=1.0).stdout.split()]

        def inject(self, machine: Shell) -> None:
            self.run(machine, ["fill", self.id])

        def heal(self, machine: Shell) -> None:
            self.run(machine, ["rm", "-f", self.id])

        def is_injected(self, machine: Machine) -> bool:
            return machine.run(["test", "-e", self.id], timeout_s=1.0).status == 0

        def is_healed(self, machine: Machine) -> bool:
            return not self.is_injected(machine)

    yield DiskFull
    del FAULTS["disk-full"]


def machine(status: int = 0, stdout: str = "", stderr: str = "") -> Machine:
    """Return a machine that answers every command alike."""
    answer = CommandResult(status, stdout, stderr)
    return cast("Machine", SimpleNamespace(name=NODE, run=lambda *_args, **_options: answer))


def test_new_fault_is_a_word_of_scenarios(disk_full: Any, request: pytest.FixtureRequest) -> None:
    assert scenario.disk_full is disk_full  # type: ignore[attr-defined]
    row = "| `disk_full(node, left_mib=0)` | File that fills `node`'s disk; healing removes it. |"
    assert any(row in page for page in words_pages().values())

    @needs(faulted=1)
    @standing(disk_full, 3)
    def fills(lab: Lab) -> None: ...

    module = request.node.getparent(pytest.Module)
    function = pytest.Function.from_parent(module, name="fills", callobj=fills)
    markers.check(function)
    assert markers.fault_names(function) == ("disk_full",)
    assert markers.fault_summary("disk_full") == "File that fills `node`'s disk; healing removes it."
    assert list(markers.describe_faults(markers.key(markers.standing(function)))) == ["disk-full left_mib=3"]


def test_new_fault_is_found_by_its_ledger_entry_and_leftovers(disk_full: Any) -> None:
    fault = disk_full(NODE, 3)
    stored = {"fault": "disk-full", "id": fault.id, "node": NODE, "left_mib": 3}
    assert fault.to_json() == stored
    assert Fault.from_json(stored) == fault
    assert fault.affected_nodes == (NODE,)
    assert (fault.self_heal_command, fault.available(machine())) == ((), "")
    assert disk_full(NODE).id != fault.id
    full = FakeMachine(lambda argv: "0123abcd\n" if argv == ["ls"] else "")
    sweep(lambda _name: full, NODE)
    assert any(command.endswith("rm -f 0123abcd") for command in full.commands)


def test_fault_is_healed_at_the_end_of_a_failed_test(disk_full: Any) -> None:
    full = FakeMachine(lambda _argv: "")
    with (
        pytest.raises(ZeroDivisionError),
        healed_at_end(disk_full(NODE, id="0123abcd"), cast("Machine", full)),
    ):
        1 / 0  # noqa: B018
    assert full.commands == ["rm -f 0123abcd"]


def test_failed_command_of_a_fault_is_reported(disk_full: Any) -> None:
    with pytest.raises(MachineError, match="disk-full on node-1: fill: no space"):
        disk_full(NODE).inject(machine(1, stderr="no space\n"))


def test_second_fault_of_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Other: Partition has the name 'partition', too"):
        type("Other", (Fault,), {"name": "partition"})
    assert FAULTS["partition"].__name__ == "Partition"


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"fault": "none", "id": "0123abcd", "node": NODE}, KeyError),
        ({"fault": "partition", "id": "0123abcd", "node": NODE, "unknown": 1}, KeyError),
        ({"fault": "clock", "id": "0123abcd", "node": NODE}, TypeError),
    ],
)
def test_invalid_ledger_entry_is_refused(entry: Mapping[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Fault.from_json(entry)


def test_stored_keys_of_faults_keep_their_spelling() -> None:
    for name, keys in STORED.items():
        entry = {"fault": name, "id": "0123abcd", **dict.fromkeys(keys, "")}
        fault = Fault.from_json(entry)
        assert fault.to_json().keys() == entry.keys()
        assert Fault.from_json(fault.to_json()) == fault
