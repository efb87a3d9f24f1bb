"""The injector and the dead-man's switch: each step is on disk before it is taken, each fault is healed."""

from __future__ import annotations

import errno
import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.partition import Partition
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.pattern import Json
from nodeproof.safety import injector as injecting
from nodeproof.safety.deadman import LATE_S, RETRY_S, Timers
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import HEAL_TIMEOUT_S, Injector, NotInjected
from nodeproof.safety.ledger import Ledger
from tests.contract.kinds import FAULTS, Kind
from tests.contract.late_machine import assert_late_commands_have_no_effect
from tests.contract.silence import silence
from tests.lab_snapshot import TIMERS
from tests.leftovers import file_of
from tests.waiting import eventually, pause, throughout

SHORT_TTL_S, LONG_TTL_S = 1.5, 120.0
RENEWED_TTL_S = 5.0
"""Long enough to renew the switch of an emulated machine."""
BOOT_TTL_S = 10.0
FIRED_TIMEOUT_S = 15.0
COMMAND_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class LedgerReader(Partition):
    """A partition that reads the ledger at each of its steps."""

    path: Path = Path()
    read: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> Mapping[str, Any]:
        return Partition(self.node, id=self.id).to_json()

    def inject(self, machine: Shell) -> None:
        self.read["inject"] = steps(self.path)
        self.read["timers"] = timers_on(machine)
        super().inject(machine)

    def heal(self, machine: Shell) -> None:
        self.read["heal"] = steps(self.path)
        super().heal(machine)


@dataclass(frozen=True)
class WithoutEffect(Partition):
    """A partition whose command succeeds without effect."""

    def inject(self, machine: Shell) -> None:
        super().inject(machine)
        super().heal(machine)


@pytest.fixture
def own_injector(lab: LabHandle, tmp_path: Path) -> Injector:
    """Return the lab's injector with its own ledger."""
    return replace(lab.safety.injector, ledger=Ledger(lab.name, tmp_path), quarantined=set(), active={})


@pytest.fixture
def foreign_table(machine: Machine) -> Iterator[None]:
    """Add a foreign nft table that cuts off the node like a partition; no heal removes it."""
    rule = f"ip saddr {machine.control_plane_addresses[0]} drop"
    script = "add table inet foreign\nadd chain inet foreign in { type filter hook input priority 0; }\n"
    load = ["nft", "-f", "-"]
    machine.run(load, timeout_s=COMMAND_TIMEOUT_S, stdin=f"{script}add rule inet foreign in {rule}\n")
    yield
    machine.run(["nft", "delete", "table", "inet", "foreign"], timeout_s=COMMAND_TIMEOUT_S)


def steps(ledger: Path) -> list[str]:
    return [json.loads(line)["step"] for line in ledger.read_text().splitlines()]


def new_partition(node: str) -> Partition:
    partition = FAULTS["partition-both"](node)
    assert isinstance(partition, Partition)
    return partition


def fired(lab: LabHandle, fault: Fault) -> bool:
    lines = (lab.dir / "events.jsonl").read_text().splitlines()
    events = (json.loads(line) for line in lines)
    return any(entry["kind"] == "deadman" and entry["id"] == fault.id for entry in events)


def armed(lab: LabHandle) -> Mapping[str, float]:
    return dict(registry.client(lab.name).status().armed)


def timers_on(machine: Shell) -> list[str]:
    """Return the units of armed dead-man's timers."""
    return machine.run(TIMERS, timeout_s=COMMAND_TIMEOUT_S).stdout.splitlines()


def inject_only(fault: Fault, machine: Machine) -> None:
    """Inject without ledger and switch."""
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), FIRED_TIMEOUT_S)


def discard(*_args: Json, **_data: Json) -> None:
    """Discard history entries."""


@pytest.mark.vm
def test_every_step_is_on_disk_before_it_is_taken(lab: LabHandle, node: str, own_injector: Injector) -> None:
    plain = new_partition(node)
    fault = LedgerReader(node, path=file_of(own_injector.ledger), id=plain.id)
    with own_injector.inject(fault, Declared({node}), discard):
        during = steps(file_of(own_injector.ledger))
        assert fault.id in armed(lab)

    timers = 1 if "systemd" in lab.features else 0
    assert [fault.id in unit for unit in fault.read["timers"]] == [True] * timers
    assert timers_on(lab.fleet.machine(node)) == []
    assert fault.read["inject"] == ["planned", "armed", "injecting"]
    assert during == ["planned", "armed", "injecting", "injected"]
    assert fault.read["heal"] == [*during, "healing"]
    assert steps(file_of(own_injector.ledger)) == [*during, "healing", "healed", "closed"]
    assert own_injector.ledger.unfinished() == []
    assert fault.id not in armed(lab)


def test_fault_is_healed_if_its_block_is_interrupted(own_injector: Injector, machine: Machine) -> None:
    fault = new_partition(machine.name)
    with pytest.raises(KeyboardInterrupt), own_injector.inject(fault, Declared({machine.name}), discard):
        raise KeyboardInterrupt

    assert fault.is_healed(machine)
    assert own_injector.ledger.unfinished() == []


def test_fault_that_no_probe_confirms_is_healed_and_not_injected(
    lab: LabHandle, node: str, own_injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injecting, "INJECT_TIMEOUT_S", 2.0)
    fault = WithoutEffect(node)
    with pytest.raises(NotInjected), own_injector.inject(fault, Declared({node}), discard):
        pytest.fail("a fault without effect was injected")

    taken = ["planned", "armed", "injecting", "unproven", "healing", "healed", "closed"]
    assert steps(file_of(own_injector.ledger)) == taken
    assert fault.id not in armed(lab)
    assert own_injector.quarantined == set()


def test_refused_fault_leaves_no_trace(lab: LabHandle, node: str, own_injector: Injector) -> None:
    fault = new_partition(node)
    with pytest.raises(Refused), own_injector.inject(fault, Declared(set()), discard):
        pytest.fail("the refused fault was injected")

    assert not file_of(own_injector.ledger).exists()
    assert fault.id not in armed(lab)


def test_plan_is_refused_before_its_target_is_contacted(node: str, own_injector: Injector) -> None:
    def connect(_name: str) -> Any:
        pytest.fail("the machine was contacted")

    def read_target(_place: str, _affected_nodes: Sequence[str]) -> Any:
        pytest.fail("the target was read")

    unconnected = replace(own_injector, machine=connect, targets=read_target)
    with pytest.raises(Refused), unconnected.inject(new_partition(node), Declared(set()), discard):
        pytest.fail("the refused fault was injected")


def test_node_without_a_proven_heal_counts_as_lost(lab: LabHandle, node: str, own_injector: Injector) -> None:
    others = set(lab.fleet.node_names()) - {node}
    last_node_left = replace(own_injector, quarantined=others)
    with pytest.raises(Refused), last_node_left.inject(new_partition(node), Declared({node}), discard):
        pytest.fail("the refused fault was injected")


def test_unproven_heal_stays_open_armed_and_quarantined(
    lab: LabHandle,
    machine: Machine,
    own_injector: Injector,
    foreign_table: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(injecting, "HEAL_TIMEOUT_S", 2.0)
    fault = new_partition(machine.name)
    with own_injector.inject(fault, Declared({machine.name}), discard):
        pass

    assert own_injector.quarantined == {machine.name}
    (open_fault,) = own_injector.ledger.unfinished()
    assert (open_fault.fault, open_fault.step) == (dict(fault.to_json()), "unhealed")
    assert fault.id in armed(lab)
    registry.client(lab.name).arm(fault.to_json(), 0)


@dataclass(frozen=True)
class FailsAfterEffect(Partition):
    """A partition whose command takes effect and then fails."""

    def inject(self, machine: Shell) -> None:
        super().inject(machine)
        raise MachineError("the original error")


def test_failure_of_the_second_fault_heals_both_and_is_reported(
    lab: LabHandle, own_injector: Injector, tmp_path: Path
) -> None:
    first, second, *_others = sorted(lab.fleet.node_names())
    zones = dict.fromkeys([*lab.fleet.node_names(), "spare"], "zone-a")
    injector = replace(own_injector, record=lambda: replace(lab.safety.lab_record(), zones=zones))
    working, failing = new_partition(first), FailsAfterEffect(second)
    declared = {first, second}
    with (
        pytest.raises(MachineError, match="the original error"),
        injector.inject(working, Declared(declared), discard),
        injector.inject(failing, Declared(declared), discard),
    ):
        pytest.fail("the second fault did not fail")

    assert working.is_healed(lab.fleet.machine(first))
    assert failing.is_healed(lab.fleet.machine(second))
    assert (own_injector.ledger.unfinished(), own_injector.quarantined, own_injector.active) == (
        [],
        set(),
        {},
    )
    assert not {working.id, failing.id} & armed(lab).keys()


class FullDisk(Ledger):
    """A ledger whose disk is full once a fault is active."""

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        if step in ("healing", "healed", "closed"):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(step, fault)


def test_fault_is_healed_despite_a_full_disk(
    lab: LabHandle, machine: Machine, own_injector: Injector, tmp_path: Path
) -> None:
    fault = new_partition(machine.name)
    full_disk = replace(own_injector, ledger=FullDisk(lab.name, tmp_path))
    with full_disk.inject(fault, Declared({machine.name}), discard):
        pass

    assert fault.is_healed(machine)
    assert fault.id not in armed(lab)
    assert [entry.step for entry in full_disk.ledger.unfinished()] == ["injected"]


def test_no_command_of_an_injection_acts_after_the_healing(
    own_injector: Injector, machine: Machine, fault: Fault
) -> None:
    assert_late_commands_have_no_effect(own_injector, machine, fault)


def test_interrupt_during_a_heal_waits_for_it(own_injector: Injector, machine: Machine) -> None:
    messages: list[str] = []
    own_injector.say = messages.append
    plain = new_partition(machine.name)
    fault = InterruptedHeal(plain.node, id=plain.id)
    with pytest.raises(KeyboardInterrupt), own_injector.inject(fault, Declared({machine.name}), discard):
        pass

    assert fault.is_healed(machine)
    assert steps(file_of(own_injector.ledger))[-2:] == ["healed", "closed"]
    assert fault.id in messages[0]
    assert f"dead-man's switch heals it within {injecting.TTL_S:g} s" in messages[0]


@dataclass(frozen=True)
class InterruptedHeal(Partition):
    """A partition whose heal gets SIGINT."""

    def heal(self, machine: Shell) -> None:
        signal.raise_signal(signal.SIGINT)
        super().heal(machine)


def test_fault_of_a_killed_process_is_healed_by_another(
    lab: LabHandle, machine: Machine, fault_name: str
) -> None:
    fault = FAULTS[fault_name](machine.name)
    lab.safety.ledger.write("planned", fault.to_json())
    lab.safety.ledger.write("injecting", fault.to_json())
    inject_only(fault, machine)
    # Less than a guest takes to boot: a switch that fires into the healing would cut its power.
    registry.client(lab.name).arm(fault.to_json(), BOOT_TTL_S)

    other = registry.attach(lab.name)
    try:
        assert other.safety.heal_unfinished() == []
        assert other.safety.heal_unfinished() == []
    finally:
        other.close()
    assert not fired(lab, fault)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert lab.safety.ledger.unfinished() == []
    assert fault.id not in armed(lab)


def test_deadman_heals_an_expired_fault_and_reports_it(
    kind: Kind, lab: LabHandle, machine: Machine, fault_name: str
) -> None:
    fault = FAULTS[fault_name](machine.name)
    registry.client(lab.name).arm(fault.to_json(), SHORT_TTL_S)
    fault.inject(machine)

    assert eventually(lambda: fired(lab, fault), FIRED_TIMEOUT_S)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S + kind.boot_s)
    assert eventually(lambda: fault.id not in armed(lab), FIRED_TIMEOUT_S)


def test_nested_faults_heal_by_themselves(kind: Kind, lab: LabHandle, machine: Machine) -> None:
    inner = FAULTS["kubelet-settings" if "systemd" in lab.features else "partition-both"](machine.name)
    outer = FAULTS["power-off"](machine.name)
    inject_only(inner, machine)
    outer.inject(machine)
    registry.client(lab.name).arm(inner.to_json(), SHORT_TTL_S)
    registry.client(lab.name).arm(outer.to_json(), FIRED_TIMEOUT_S)
    assert eventually(lambda: fired(lab, inner), FIRED_TIMEOUT_S)
    assert not outer.is_healed(machine)
    assert eventually(lambda: not armed(lab), FIRED_TIMEOUT_S + HEAL_TIMEOUT_S + 2 * kind.boot_s)
    both = (inner, outer)
    assert eventually(lambda: all(fault.is_healed(machine) for fault in both), HEAL_TIMEOUT_S + kind.boot_s)
    for fault in both:
        registry.client(lab.name).arm(fault.to_json(), 0)


def test_unreachable_machine_heals_by_itself(
    lab: LabHandle, machine: Machine, self_healing_fault: str
) -> None:
    fault = FAULTS[self_healing_fault](machine.name)
    timers = Timers(lab.fleet.machine)
    inject_only(fault, machine)
    timers.arm(fault.to_json(), LONG_TTL_S)
    timers.arm(fault.to_json(), SHORT_TTL_S)
    with silence(lab, machine):
        pause(SHORT_TTL_S + LATE_S + 2.0)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert eventually(lambda: not timers_on(machine), FIRED_TIMEOUT_S)


# Lazily: a heal that fails at that moment still runs the mounted program.
BREAK_NFT = """
mount --bind /bin/false /usr/sbin/nft &&
systemd-run --quiet --collect --on-active="$0" --timer-property=AccuracySec=1s umount --lazy /usr/sbin/nft
"""


@pytest.mark.vm
def test_unreachable_partitioned_machine_heals_as_soon_as_it_can(lab: LabHandle, machine: Machine) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd holds the timer")
    fault, fails_until_s = new_partition(machine.name), SHORT_TTL_S + LATE_S + RETRY_S + 1.0
    inject_only(fault, machine)
    fails_until_t = time.monotonic() + fails_until_s
    process = machine.run(["sh", "-c", BREAK_NFT, f"{fails_until_s:g}s"], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr
    Timers(lab.fleet.machine).arm(fault.to_json(), SHORT_TTL_S)
    with silence(lab, machine):
        fails_for_s = fails_until_t - time.monotonic() - ANSWER_TIMEOUT_S
        assert throughout(lambda: not machine.reached_from_control_plane(), max(0.1, fails_for_s))
        assert eventually(machine.reached_from_control_plane, FIRED_TIMEOUT_S)
    assert eventually(lambda: not timers_on(machine), FIRED_TIMEOUT_S)


def test_failing_heal_on_the_machine_ends_when_disarmed(lab: LabHandle, machine: Machine) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd holds the timer")
    fault, timers = new_partition(machine.name), Timers(lab.fleet.machine)
    process = machine.run(["mount", "--bind", "/bin/false", "/usr/sbin/nft"], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr
    try:
        timers.arm(fault.to_json(), SHORT_TTL_S)
        assert eventually(lambda: any(".service" in unit for unit in timers_on(machine)), FIRED_TIMEOUT_S)
        timers.arm(fault.to_json(), 0)
        assert timers_on(machine) == []
    finally:
        machine.run(["umount", "--lazy", "/usr/sbin/nft"], timeout_s=COMMAND_TIMEOUT_S)


def test_renewed_or_disarmed_timer_does_not_fire(
    lab: LabHandle, machine: Machine, self_healing_fault: str
) -> None:
    fault = FAULTS[self_healing_fault](machine.name)
    timers = Timers(lab.fleet.machine)
    inject_only(fault, machine)
    timers.arm(fault.to_json(), RENEWED_TTL_S)
    timers.arm(fault.to_json(), LONG_TTL_S)
    assert throughout(lambda: fault.is_injected(machine), RENEWED_TTL_S + LATE_S + 2.0)
    assert len(timers_on(machine)) == 1
    timers.arm(fault.to_json(), 0)
    timers.arm(fault.to_json(), 0)
    assert timers_on(machine) == []
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)


def test_renewed_or_disarmed_deadman_does_not_fire(lab: LabHandle, node: str) -> None:
    renewed, disarmed = new_partition(node), new_partition(node)
    for fault, ttl_s in ((renewed, 60.0), (disarmed, 0.0)):
        registry.client(lab.name).arm(fault.to_json(), SHORT_TTL_S)
        registry.client(lab.name).arm(fault.to_json(), ttl_s)

    assert throughout(lambda: not fired(lab, renewed) and not fired(lab, disarmed), 2 * SHORT_TTL_S)
    assert renewed.id in armed(lab)
    assert disarmed.id not in armed(lab)
    registry.client(lab.name).arm(renewed.to_json(), 0)
