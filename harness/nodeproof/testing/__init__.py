"""The contract tests that every fault passes, for faults of other packages, too.

A test module imports all of this module, and defines the fixtures `machine` and `fault`:

    import pytest
    from acme_faults import DiskFull
    from nodeproof.testing import *

    @pytest.fixture(scope="module")
    def machine():
        with machine_of_new_lab() as machine:
            yield machine

    @pytest.fixture
    def fault(machine):
        with healed_at_end(DiskFull(machine.name), machine) as fault:
            yield fault
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import getattr_static

import pytest

from nodeproof import terminal
from nodeproof.artifacts.components import obtain
from nodeproof.faults import Fault
from nodeproof.labs.client import starting
from nodeproof.labs.kinds import DEFAULT_KIND
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.safety.injector import HEAL_TIMEOUT_S, INJECT_TIMEOUT_S
from nodeproof.waiting import retry_on, wait_until

__all__ = [
    "healed_at_end",
    "machine_of_new_lab",
    "test_fault_is_available_and_not_present_by_itself",
    "test_fault_is_healed_by_a_copy_from_its_stored_data",
    "test_fault_is_healed_by_its_leftovers",
    "test_fault_is_idempotent",
    "test_healing_without_injection_changes_nothing",
]
ANSWER_TIMEOUT_S = 10.0


@contextmanager
def machine_of_new_lab(kind: str = DEFAULT_KIND.name, nodes: int = 2) -> Iterator[Machine]:
    """Start a lab, yield the machine of its first node, and remove the lab. Raises Problem."""
    components = obtain("build", DEFAULT_KUBERNETES_VERSION, terminal.say)
    request = starting.LabRequest(starting.new_name(), nodes, 1, "fast", False, kind)
    lab = starting.up(request, components, terminal.say)
    try:
        lab.prepare()
        yield lab.fleet.machine(sorted(lab.fleet.node_names())[0])
    finally:
        lab.down()


@contextmanager
def healed_at_end(fault: Fault, machine: Machine) -> Iterator[Fault]:
    """Yield a fault, heal it in any case, and check that it is healed."""
    try:
        yield fault
    finally:
        fault.heal(machine)
    assert becomes(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)


def becomes(probe: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether a probe succeeds in time. Raises MachineError if the machine does not answer."""
    return wait_until(probe, timeout_s, errors=(MachineError,))


def first_answer(probe: Callable[[], bool]) -> bool:
    """Return the first answer of a machine that may be too slow to give one at once. Raises MachineError."""
    return retry_on(probe, MachineError, timeout_s=ANSWER_TIMEOUT_S)


def test_fault_is_available_and_not_present_by_itself(fault: Fault, machine: Machine) -> None:
    assert fault.available(machine) == ""
    assert becomes(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert not first_answer(lambda: fault.is_injected(machine))


def test_healing_without_injection_changes_nothing(fault: Fault, machine: Machine) -> None:
    boot = machine.boot_id()
    fault.heal(machine)

    assert becomes(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert machine.boot_id() == boot


def check_idempotence(fault: Fault, machine: Machine) -> None:
    """Inject a fault twice and heal it twice, and check what its probes see. Raises MachineError."""
    fault.inject(machine)
    fault.inject(machine)
    assert becomes(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)
    assert not first_answer(lambda: fault.is_healed(machine))

    fault.heal(machine)
    fault.heal(machine)
    assert becomes(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert not first_answer(lambda: fault.is_injected(machine))


def test_fault_is_idempotent(fault: Fault, machine: Machine) -> None:
    check_idempotence(fault, machine)


def test_fault_is_healed_by_its_leftovers(fault: Fault, machine: Machine) -> None:
    """A sweep knows a fault without a ledger by its `leftovers_on` alone."""
    if getattr_static(fault, "leftovers_on") is vars(Fault)["leftovers_on"]:
        pytest.skip(f"{fault.name} names no leftovers")
    assert not fault.leftovers_on(machine)
    fault.inject(machine)
    assert becomes(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)

    leftovers = fault.leftovers_on(machine)
    assert leftovers
    for leftover in leftovers:
        leftover.heal(machine)
    assert becomes(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert not fault.leftovers_on(machine)


def test_fault_is_healed_by_a_copy_from_its_stored_data(fault: Fault, machine: Machine) -> None:
    stored = json.dumps(dict(fault.to_json()))
    fault.inject(machine)
    assert becomes(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)

    again = Fault.from_json(json.loads(stored))
    assert again == fault
    again.heal(machine)
    assert becomes(lambda: again.is_healed(machine), HEAL_TIMEOUT_S)
