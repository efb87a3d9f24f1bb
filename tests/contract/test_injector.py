"""The injector and the dead-man's switch: what was planned is on disk before it happens, and is always
undone.
"""

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

from nodeproof.faults import Fault, Partition
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.safety import injector as injecting
from nodeproof.safety.deadman import LATE_S, RETRY_S, Timers
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import HEAL_LIMIT_S, Injector, NotInjected
from nodeproof.safety.ledger import Ledger
from tests.census import TIMERS
from tests.contract.kinds import FAULTS, Kind
from tests.contract.late import assert_no_late_harm
from tests.contract.silence import silence
from tests.waiting import eventually, pause, throughout

Json = Any
SHORT_TTL_S, LONG_TTL_S = 1.5, 120.0
RENEWED_TTL_S = 5.0
"""Long enough for an emulated machine to be told of the renewal."""
HELD_OFF_TTL_S = 10.0
FIRED_LIMIT_S = 15.0
COMMAND_LIMIT_S = 10.0
ANSWER_LIMIT_S = 1.0


@dataclass(frozen=True)
class Reading(Partition):
    """A partition that reads the ledger whenever something is done."""

    path: Path = Path()
    read: dict[str, list[str]] = field(default_factory=dict)

    def inject(self, machine: Shell) -> None:
        self.read["inject"] = steps(self.path)
        self.read["timers"] = timers_on(machine)
        super().inject(machine)

    def heal(self, machine: Shell) -> None:
        self.read["heal"] = steps(self.path)
        super().heal(machine)


@dataclass(frozen=True)
class Harmless(Partition):
    """A partition whose command goes through and does nothing."""

    def inject(self, machine: Shell) -> None:
        super().inject(machine)
        super().heal(machine)


@pytest.fixture
def own(lab: Lab, tmp_path: Path) -> Injector:
    """The lab's injector with a ledger of its own."""
    return replace(lab.safety.injector, ledger=Ledger(lab.name, tmp_path), quarantined=set(), active={})


@pytest.fixture
def rival_table(machine: Machine) -> Iterator[None]:
    """A table of somebody else that cuts the node as a partition does, whatever we heal."""
    rule = f"ip saddr {machine.control_plane_address} drop"
    script = "add table inet rival\nadd chain inet rival in { type filter hook input priority 0; }\n"
    load = ["nft", "-f", "-"]
    machine.run(load, deadline_s=COMMAND_LIMIT_S, stdin=f"{script}add rule inet rival in {rule}\n")
    yield
    machine.run(["nft", "delete", "table", "inet", "rival"], deadline_s=COMMAND_LIMIT_S)


def steps(ledger: Path) -> list[str]:
    return [json.loads(line)["step"] for line in ledger.read_text().splitlines()]


def new_partition(node: str) -> Partition:
    made = FAULTS["partition-both"](node)
    assert isinstance(made, Partition)
    return made


def fired(lab: Lab, fault: Fault) -> bool:
    lines = (lab.dir / "events.jsonl").read_text().splitlines()
    found = (json.loads(line) for line in lines)
    return any(entry["kind"] == "deadman" and entry["id"] == fault.id for entry in found)


def armed(lab: Lab) -> Mapping[str, float]:
    return dict(registry.client(lab.name).status()["armed"])


def timers_on(machine: Shell) -> list[str]:
    """The units of armed dead-man's timers."""
    return machine.run(TIMERS, deadline_s=COMMAND_LIMIT_S).stdout.splitlines()


def bring_in(fault: Fault, machine: Machine) -> None:
    """Inject by hand, without ledger and switch."""
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), FIRED_LIMIT_S)


def nothing(*_args: Json, **_data: Json) -> None:
    """A history that nobody reads."""


@pytest.mark.vm
def test_every_step_is_on_disk_before_it_is_taken(lab: Lab, node: str, own: Injector) -> None:
    plain = new_partition(node)
    fault = Reading(plain.id, node, path=own.ledger.path)
    with own.inject(fault, Declared({node}), nothing):
        during = steps(own.ledger.path)
        assert fault.id in armed(lab)

    timers = 1 if "systemd" in lab.features else 0
    assert [fault.id in unit for unit in fault.read["timers"]] == [True] * timers
    assert timers_on(lab.fleet.machine(node)) == []
    assert fault.read["inject"] == ["planned", "armed", "injecting"]
    assert during == ["planned", "armed", "injecting", "injected"]
    assert fault.read["heal"] == [*during, "healing"]
    assert steps(own.ledger.path) == [*during, "healing", "healed", "closed"]
    assert own.ledger.unfinished() == []
    assert fault.id not in armed(lab)


def test_a_fault_is_healed_when_what_happens_in_it_breaks_off(own: Injector, machine: Machine) -> None:
    fault = new_partition(machine.name)
    with pytest.raises(KeyboardInterrupt), own.inject(fault, Declared({machine.name}), nothing):
        raise KeyboardInterrupt

    assert fault.is_healed(machine)
    assert own.ledger.unfinished() == []


def test_a_fault_that_no_probe_sees_is_healed_and_not_injected(
    lab: Lab, node: str, own: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injecting, "INJECT_LIMIT_S", 2.0)
    fault = Harmless(new_partition(node).id, node)
    with pytest.raises(NotInjected), own.inject(fault, Declared({node}), nothing):
        pytest.fail("nothing was injected")

    taken = ["planned", "armed", "injecting", "unproven", "healing", "healed", "closed"]
    assert steps(own.ledger.path) == taken
    assert fault.id not in armed(lab)
    assert own.quarantined == set()


def test_a_refused_fault_leaves_no_trace(lab: Lab, node: str, own: Injector) -> None:
    fault = new_partition(node)
    with pytest.raises(Refused), own.inject(fault, Declared(set()), nothing):
        pytest.fail("it was refused")

    assert not own.ledger.path.exists()
    assert fault.id not in armed(lab)


def test_a_plan_is_refused_before_its_target_is_spoken_to(node: str, own: Injector) -> None:
    def spoken_to(_name: str) -> Any:
        pytest.fail("nobody may speak to it")

    def nobody_asks(_place: str, _harms: Sequence[str]) -> Any:
        pytest.fail("nobody may ask for it")

    deaf = replace(own, machine=spoken_to, targets=nobody_asks)
    with pytest.raises(Refused), deaf.inject(new_partition(node), Declared(set()), nothing):
        pytest.fail("it was refused")


def test_a_node_that_is_not_proven_healed_counts_as_lost(lab: Lab, node: str, own: Injector) -> None:
    others = set(lab.fleet.node_names()) - {node}
    few = replace(own, quarantined=others)
    with pytest.raises(Refused), few.inject(new_partition(node), Declared({node}), nothing):
        pytest.fail("it was refused")


def test_a_heal_that_no_probe_proves_stays_open_armed_and_quarantined(
    lab: Lab, machine: Machine, own: Injector, rival_table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injecting, "HEAL_LIMIT_S", 2.0)
    fault = new_partition(machine.name)
    with own.inject(fault, Declared({machine.name}), nothing):
        pass

    assert own.quarantined == {machine.name}
    (left,) = own.ledger.unfinished()
    assert (left.fault, left.step) == (dict(fault.to_json()), "unhealed")
    assert fault.id in armed(lab)
    registry.client(lab.name).arm(fault.to_json(), 0)


@dataclass(frozen=True)
class HalfWay(Partition):
    """A partition whose command does the harm and then fails."""

    def inject(self, machine: Shell) -> None:
        super().inject(machine)
        raise MachineError("the original error")


def test_a_fault_that_fails_after_another_one_is_in_heals_both_and_says_why(
    lab: Lab, own: Injector, tmp_path: Path
) -> None:
    first, second, *_others = sorted(lab.fleet.node_names())
    zones = dict.fromkeys([*lab.fleet.node_names(), "spare"], "zone-a")
    roomy = replace(own, record=lambda: replace(lab.safety.record_of_itself(), zones=zones))
    works, fails = new_partition(first), HalfWay(new_partition(second).id, second)
    declared = {first, second}
    with (
        pytest.raises(MachineError, match="the original error"),
        roomy.inject(works, Declared(declared), nothing),
        roomy.inject(fails, Declared(declared), nothing),
    ):
        pytest.fail("the second one failed")

    assert works.is_healed(lab.fleet.machine(first))
    assert fails.is_healed(lab.fleet.machine(second))
    assert (own.ledger.unfinished(), own.quarantined, own.active) == ([], set(), {})
    assert not {works.id, fails.id} & armed(lab).keys()


class FullDisk(Ledger):
    """A ledger that has no room left once a fault is in."""

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        if step in ("healing", "healed", "closed"):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(step, fault)


def test_a_full_disk_keeps_no_fault_in(lab: Lab, machine: Machine, own: Injector, tmp_path: Path) -> None:
    fault = new_partition(machine.name)
    full = replace(own, ledger=FullDisk(lab.name, tmp_path))
    with full.inject(fault, Declared({machine.name}), nothing):
        pass

    assert fault.is_healed(machine)
    assert fault.id not in armed(lab)
    assert [entry.step for entry in full.ledger.unfinished()] == ["injected"]


def test_no_command_of_an_injection_acts_after_the_healing(
    own: Injector, machine: Machine, fault: Fault
) -> None:
    assert_no_late_harm(own, machine, fault)


def test_an_interrupt_during_the_heal_waits_for_it(own: Injector, machine: Machine) -> None:
    said: list[str] = []
    own.say = said.append
    plain = new_partition(machine.name)
    fault = Interrupting(plain.id, plain.node)
    with pytest.raises(KeyboardInterrupt), own.inject(fault, Declared({machine.name}), nothing):
        pass

    assert fault.is_healed(machine)
    assert steps(own.ledger.path)[-2:] == ["healed", "closed"]
    assert fault.id in said[0]
    assert f"dead-man's switch heals it within {injecting.TTL_S:g} s" in said[0]


@dataclass(frozen=True)
class Interrupting(Partition):
    """A partition during whose heal somebody presses Ctrl-C."""

    def heal(self, machine: Shell) -> None:
        signal.raise_signal(signal.SIGINT)
        super().heal(machine)


def test_another_process_heals_what_a_killed_one_left(lab: Lab, machine: Machine, fault_name: str) -> None:
    fault = FAULTS[fault_name](machine.name)
    lab.safety.ledger.write("planned", fault.to_json())
    lab.safety.ledger.write("injecting", fault.to_json())
    bring_in(fault, machine)
    # Less than a guest takes to boot: a switch that fires into the healing would cut its power.
    registry.client(lab.name).arm(fault.to_json(), HELD_OFF_TTL_S)

    other = registry.attach(lab.name)
    try:
        assert other.safety.heal_unfinished() == []
        assert other.safety.heal_unfinished() == []
    finally:
        other.close()
    assert not fired(lab, fault)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert lab.safety.ledger.unfinished() == []
    assert fault.id not in armed(lab)


def test_the_deadman_heals_a_fault_whose_time_is_over_and_says_so(
    kind: Kind, lab: Lab, machine: Machine, fault_name: str
) -> None:
    fault = FAULTS[fault_name](machine.name)
    registry.client(lab.name).arm(fault.to_json(), SHORT_TTL_S)
    fault.inject(machine)

    assert eventually(lambda: fired(lab, fault), FIRED_LIMIT_S)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S + kind.boot_s)
    assert eventually(lambda: fault.id not in armed(lab), FIRED_LIMIT_S)


def test_a_fault_that_needs_another_one_healed_first_heals_by_itself(
    kind: Kind, lab: Lab, machine: Machine
) -> None:
    inner = FAULTS["kubelet-settings" if "systemd" in lab.features else "partition-both"](machine.name)
    outer = FAULTS["power-off"](machine.name)
    bring_in(inner, machine)
    outer.inject(machine)
    registry.client(lab.name).arm(inner.to_json(), SHORT_TTL_S)
    registry.client(lab.name).arm(outer.to_json(), FIRED_LIMIT_S)
    assert eventually(lambda: fired(lab, inner), FIRED_LIMIT_S)
    assert not outer.is_healed(machine)
    assert eventually(lambda: not armed(lab), FIRED_LIMIT_S + HEAL_LIMIT_S + 2 * kind.boot_s)
    both = (inner, outer)
    assert eventually(lambda: all(fault.is_healed(machine) for fault in both), HEAL_LIMIT_S + kind.boot_s)
    for fault in both:
        registry.client(lab.name).arm(fault.to_json(), 0)


def test_a_machine_that_nobody_reaches_heals_by_itself(
    lab: Lab, machine: Machine, undone_inside: str
) -> None:
    fault = FAULTS[undone_inside](machine.name)
    timers = Timers(lab.fleet.machine)
    bring_in(fault, machine)
    timers.arm(fault.to_json(), LONG_TTL_S)
    timers.arm(fault.to_json(), SHORT_TTL_S)
    with silence(lab, machine):
        pause(SHORT_TTL_S + LATE_S + 2.0)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert eventually(lambda: not timers_on(machine), FIRED_LIMIT_S)


# Lazily, as a healing that fails at that very moment runs what is mounted there, which is then busy.
BREAK_NFT = """
mount --bind /bin/false /usr/sbin/nft &&
systemd-run --quiet --collect --on-active="$0" --timer-property=AccuracySec=1s umount --lazy /usr/sbin/nft
"""


@pytest.mark.vm
def test_a_partitioned_machine_that_nobody_reaches_heals_as_soon_as_it_can(
    lab: Lab, machine: Machine
) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd holds the timer")
    fault, fails_until_s = new_partition(machine.name), SHORT_TTL_S + LATE_S + RETRY_S + 1.0
    bring_in(fault, machine)
    fails_until_t = time.monotonic() + fails_until_s
    done = machine.run(["sh", "-c", BREAK_NFT, f"{fails_until_s:g}s"], deadline_s=COMMAND_LIMIT_S)
    assert done.status == 0, done.stderr
    Timers(lab.fleet.machine).arm(fault.to_json(), SHORT_TTL_S)
    with silence(lab, machine):
        fails_for_s = fails_until_t - time.monotonic() - ANSWER_LIMIT_S
        assert throughout(lambda: not machine.reached_from_control_plane(), max(0.1, fails_for_s))
        assert eventually(machine.reached_from_control_plane, FIRED_LIMIT_S)
    assert eventually(lambda: not timers_on(machine), FIRED_LIMIT_S)


def test_a_healing_that_fails_on_the_machine_itself_ends_when_it_is_disarmed(
    lab: Lab, machine: Machine
) -> None:
    if "systemd" not in lab.features:
        pytest.skip("systemd holds the timer")
    fault, timers = new_partition(machine.name), Timers(lab.fleet.machine)
    done = machine.run(["mount", "--bind", "/bin/false", "/usr/sbin/nft"], deadline_s=COMMAND_LIMIT_S)
    assert done.status == 0, done.stderr
    try:
        timers.arm(fault.to_json(), SHORT_TTL_S)
        assert eventually(lambda: any(".service" in unit for unit in timers_on(machine)), FIRED_LIMIT_S)
        timers.arm(fault.to_json(), 0)
        assert timers_on(machine) == []
    finally:
        machine.run(["umount", "--lazy", "/usr/sbin/nft"], deadline_s=COMMAND_LIMIT_S)


def test_a_renewed_or_disarmed_timer_does_not_fire(lab: Lab, machine: Machine, undone_inside: str) -> None:
    fault = FAULTS[undone_inside](machine.name)
    timers = Timers(lab.fleet.machine)
    bring_in(fault, machine)
    timers.arm(fault.to_json(), RENEWED_TTL_S)
    timers.arm(fault.to_json(), LONG_TTL_S)
    assert throughout(lambda: fault.is_injected(machine), RENEWED_TTL_S + LATE_S + 2.0)
    assert len(timers_on(machine)) == 1
    timers.arm(fault.to_json(), 0)
    timers.arm(fault.to_json(), 0)
    assert timers_on(machine) == []
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)


def test_a_renewed_or_disarmed_deadman_does_not_fire(lab: Lab, node: str) -> None:
    renewed, disarmed = new_partition(node), new_partition(node)
    for fault, ttl_s in ((renewed, 60.0), (disarmed, 0.0)):
        registry.client(lab.name).arm(fault.to_json(), SHORT_TTL_S)
        registry.client(lab.name).arm(fault.to_json(), ttl_s)

    assert throughout(lambda: not fired(lab, renewed) and not fired(lab, disarmed), 2 * SHORT_TTL_S)
    assert renewed.id in armed(lab)
    assert disarmed.id not in armed(lab)
    registry.client(lab.name).arm(renewed.to_json(), 0)
