"""No fault outlives its run: killed harnesses, torn and lost ledgers, silent machines."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import paramiko
import pytest

from nodeproof import catalogue, proc
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import condition_became
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import Fault
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import PROCESS
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.machines.ssh import SshMachine
from nodeproof.model.cluster import condition_status
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.recording.recorder import Recording, RecordingContext
from nodeproof.report import rundir
from nodeproof.safety.deadman import Timers
from nodeproof.safety.guard import Declared
from nodeproof.safety.injector import RENEW_PERIOD_S, TTL_S
from nodeproof.scenario import windows
from tests.acceptance.altered import run_scenarios, shipped, unaltered
from tests.acceptance.command import TOP, nodeproof, start, steps
from tests.acceptance.conftest import SMALL_SCENARIO
from tests.contract.kinds import FAULTS, KINDS
from tests.contract.silence import end_silence, silence, start_silence
from tests.contract.victim import DIED, HOLD
from tests.lab_snapshot import TIMERS
from tests.leftovers import file_of
from tests.waiting import eventually

SELF_HEAL_TIMEOUT_S = TTL_S + 10.0
HEAL_TIMEOUT_S = 10.0
ON_DEMAND_TIMEOUT_S = TTL_S - RENEW_PERIOD_S - 5.0
"""Before a switch renewed one period ago can fire."""
INJECTED_TIMEOUT_S = 120.0
LOST_TIMEOUT_S = 25.0
RECORDED_TIMEOUT_S = 15.0
COMMAND_TIMEOUT_S = 10.0
CALL_TIMEOUT_S, LATE_S = 2.0, 1.0
SAME_FOR_EVERY_FAULT = pytest.mark.night(
    "the switch heals every fault alike: CI has a partition and a loss of power"
)
POINTS = (
    *("after planned", "before armed", "after armed", "after injecting", "before injected", "after injected"),
    *("after healing", "before healed", "after healed", "before closed", "after closed"),
)
"""Before and after each action; nothing happens between `after armed` and `before injecting`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests with the steps of the safety protocol, on slower labs with one, and with faults.

    CI has one of the faults on virtual machines and two in a process lab.
    """
    chosen = metafunc.config.getoption("contract_lab")
    if "point" in metafunc.fixturenames:
        metafunc.parametrize("point", POINTS if chosen == PROCESS.name else ["after injected"])
    if "fault_without_ledger" in metafunc.fixturenames:
        names = [name for name in FAULTS if name not in KINDS[chosen].lacks]
        marks = {"partition-both": [pytest.mark.vm], "power-off": []}
        cases = [pytest.param(name, marks=marks.get(name, [SAME_FOR_EVERY_FAULT])) for name in names]
        metafunc.parametrize("fault_without_ledger", cases)


@dataclass(frozen=True)
class LabState:
    """The known faults of a lab, and the state of its machines."""

    ledger: bytes
    armed: Mapping[str, float]
    not_disarmed: list[Mapping[str, Json]]
    tables: Mapping[str, frozenset[str]]
    timers: Mapping[str, str]


def state_of(lab: LabHandle) -> LabState:
    status = registry.client(lab.name).status()
    ledger = file_of(lab.safety.ledger).read_bytes() if file_of(lab.safety.ledger).exists() else b""
    tables = {name: _tables(lab.fleet.machine(name)) for name in lab.fleet.node_names()}
    timers = {name: _timers(lab, lab.fleet.machine(name)) for name in lab.fleet.node_names()}
    return LabState(ledger, status.armed, list(status.not_disarmed), tables, timers)


def is_restored(lab: LabHandle, initial_state: LabState) -> bool:
    """Return whether no fault is known and every machine is unchanged."""
    current = state_of(lab)
    leftovers = current.armed or current.not_disarmed or lab.safety.ledger.unfinished()
    return not leftovers and (current.tables, current.timers) == (initial_state.tables, initial_state.timers)


@pytest.fixture
def initial_state(lab: LabHandle) -> LabState:
    """Return the state of the lab before any fault."""
    assert lab.safety.heal_unfinished() == []
    return state_of(lab)


@pytest.fixture
def partition_fault(node: str) -> Fault:
    """Return a partition of the node, not injected."""
    return FAULTS["partition-both"](node)


@pytest.fixture
def killed_holder(lab: LabHandle, initial_state: LabState, partition_fault: Fault, tmp_path: Path) -> Fault:
    """Return an active partition whose harness was killed."""
    _hold_and_kill(lab, partition_fault, tmp_path / "victim.log")
    return partition_fault


@pytest.fixture
def killed_run(lab: LabHandle, initial_state: LabState, tmp_path: Path) -> float:
    """Kill a whole pytest during a partition; return the time (s, monotonic)."""
    scenario, run = tmp_path / "test_small.py", tmp_path / "killed"
    scenario.write_text(SMALL_SCENARIO)
    arguments = ("--no-site", "--lab", lab.name, "--run", str(run), str(scenario))
    child = start("run", *arguments, cwd=tmp_path, log=tmp_path / "log")
    try:
        assert eventually(lambda: "injected" in steps(run), INJECTED_TIMEOUT_S), (
            tmp_path / "log"
        ).read_text()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=COMMAND_TIMEOUT_S)
    return time.monotonic()


@pytest.mark.vm
def test_node_of_a_killed_run_heals_by_itself(
    lab: LabHandle, initial_state: LabState, killed_run: float, machine: Machine
) -> None:
    assert not machine.reaches_control_plane()
    assert eventually(machine.reaches_control_plane, SELF_HEAL_TIMEOUT_S)
    took_s = time.monotonic() - killed_run
    assert took_s < SELF_HEAL_TIMEOUT_S
    print(f"healed by itself {took_s:.1f} s after the kill")
    (entry,) = lab.safety.ledger.unfinished()
    assert entry.step == "injected"
    assert lab.safety.heal_unfinished() == []
    assert is_restored(lab, initial_state)


@pytest.mark.core
def test_killed_run_is_healed_at_once_on_demand(
    lab: LabHandle, initial_state: LabState, killed_run: float, machine: Machine, tmp_path: Path
) -> None:
    assert not machine.reaches_control_plane()
    began = time.monotonic()
    process = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    took_s = time.monotonic() - began
    assert process.status == 0, process
    assert took_s < ON_DEMAND_TIMEOUT_S
    print(f"`nodeproof heal` took {took_s:.1f} s")
    assert machine.reaches_control_plane()
    assert is_restored(lab, initial_state)


@pytest.fixture
def full_logs(lab: LabHandle) -> Iterator[None]:
    """Return a lab in which no component can write to its log."""
    filler = lab.dir / "mem" / "logs" / "filler"
    fill = ["sh", "-c", f"cat /dev/zero >{filler}"]
    error = registry.client(lab.name).spawn_command(fill, COMMAND_TIMEOUT_S)["stderr"]
    assert "No space left" in error
    yield
    registry.client(lab.name).spawn_command(["rm", str(filler)], COMMAND_TIMEOUT_S)
    assert lab.life.full_parts() == []


@pytest.mark.usefixtures("full_logs")
def test_full_log_memory_is_reported_and_costs_no_verdict(
    lab: LabHandle, initial_state: LabState, tmp_path: Path
) -> None:
    scenario = tmp_path / "test_small.py"
    scenario.write_text(SMALL_SCENARIO)
    run = tmp_path / "run"
    process = nodeproof("run", "--no-site", "--lab", lab.name, "--run", str(run), str(scenario), cwd=tmp_path)
    assert process.status == 0, process
    assert f"lab {lab.name}: its memory for logs is full" in process.stdout + process.stderr
    assert "conforms 2" in process.stdout
    assert is_restored(lab, initial_state)


def test_next_run_heals_a_killed_one_before_its_first_scenario(
    lab: LabHandle, node: str, initial_state: LabState, killed_run: float, tmp_path: Path
) -> None:
    (entry,) = lab.safety.ledger.unfinished()
    assert eventually(lambda: not _is_ready(lab, node), LOST_TIMEOUT_S)
    result = run_scenarios(lab, tmp_path / "run", unaltered, shipped("cordon/test_cordon.py"))

    assert result.claims() == {
        "cordon.blocks-new-pods",
        "cordon.display",
        "cordon.not-a-condition",
        "cordon.taint",
    }
    assert is_restored(lab, initial_state)
    (scenario,) = rundir.read_scenarios(result.run)
    (begun,) = scenario.history().of_kind("begun")
    healed_at = [line for line in _ledger_entries(lab) if line["fault"] == entry.fault][-1]
    assert healed_at["step"] == "closed"
    assert healed_at["at"] < begun.t + begun.data["wall_offset_s"]
    assert str(entry.fault["id"]) not in (lab.dir / "events.jsonl").read_text()


@pytest.mark.vm
def test_crash_at_any_step_is_healed_and_healing_is_idempotent(
    lab: LabHandle, initial_state: LabState, partition_fault: Fault, point: str, tmp_path: Path
) -> None:
    died = proc.run(_victim(lab, partition_fault, point), timeout_s=INJECTED_TIMEOUT_S, cwd=TOP, check=False)
    assert died.status == DIED, died

    process = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    assert process.status == 0, process
    assert is_restored(lab, initial_state)
    healed = state_of(lab)
    other = registry.attach(lab.name)
    try:
        assert other.safety.heal_unfinished() == []
    finally:
        other.close()
    assert state_of(lab) == healed


def test_fault_with_a_torn_last_ledger_line_is_healed(
    lab: LabHandle, initial_state: LabState, killed_holder: Fault, machine: Machine
) -> None:
    whole = file_of(lab.safety.ledger).read_bytes()
    file_of(lab.safety.ledger).write_bytes(whole[:-9])

    assert lab.safety.heal_unfinished() == []
    assert killed_holder.is_healed(machine)
    assert is_restored(lab, initial_state)


def test_fault_with_a_lost_ledger_is_healed(
    lab: LabHandle, initial_state: LabState, machine: Machine, fault_without_ledger: str, tmp_path: Path
) -> None:
    fault = FAULTS[fault_without_ledger](machine.name)
    _hold_and_kill(lab, fault, tmp_path / "victim.log")
    file_of(lab.safety.ledger).unlink()

    process = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    assert process.status == 0, process
    assert fault.is_healed(machine)
    assert is_restored(
        lab, _after_boot(initial_state, machine.name) if fault.ends_components else initial_state
    )


def test_fault_unknown_to_ledger_and_switch_is_swept_by_its_tag(
    lab: LabHandle, initial_state: LabState, machine: Machine, fault_with_leftovers: str
) -> None:
    fault = FAULTS[fault_with_leftovers](machine.name)
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECTED_TIMEOUT_S)

    assert lab.safety.heal_unfinished() == []
    assert machine.reaches_control_plane()
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    assert is_restored(lab, initial_state)


CALLS: dict[str, Callable[[Machine], object]] = {
    "open_session": lambda machine: machine.run(["true"], timeout_s=CALL_TIMEOUT_S),
    "exec_command": lambda machine: machine.run(["true"], timeout_s=CALL_TIMEOUT_S),
    "sendall": lambda machine: machine.run(["cat"], timeout_s=CALL_TIMEOUT_S, stdin="x" * 2**24),
    "shutdown_write": lambda machine: machine.run(["sleep", "60"], timeout_s=CALL_TIMEOUT_S),
}


@pytest.mark.parametrize("moment", CALLS)
def test_call_on_a_silent_machine_ends_within_its_timeout(
    lab: LabHandle, initial_state: LabState, node: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = registry.attach(lab.name).fleet.machine(node)
    machine.run(["true"], timeout_s=COMMAND_TIMEOUT_S)
    with _silence_at(lab, machine, moment, monkeypatch) as silent:
        began = time.monotonic()
        with pytest.raises(MachineError):
            CALLS[moment](machine)
        assert time.monotonic() - began < CALL_TIMEOUT_S + LATE_S
        assert silent
        began = time.monotonic()
        with pytest.raises(MachineError):
            machine.run(["true"], timeout_s=CALL_TIMEOUT_S)
        assert time.monotonic() - began < CALL_TIMEOUT_S + LATE_S
    assert machine.run(["echo", "back"], timeout_s=COMMAND_TIMEOUT_S).stdout == "back\n"
    machine.close()


@pytest.mark.parametrize("what", ["the probe from inside", "arming its timer", "disarming it", "a heal"])
def test_harness_requests_to_a_silent_machine_end_in_time(
    lab: LabHandle, initial_state: LabState, node: str, partition_fault: Fault, what: str
) -> None:
    machine = registry.attach(lab.name).fleet.machine(node)
    timers = Timers(lambda _name: machine)
    requests: dict[str, Callable[[], object]] = {
        "the probe from inside": machine.reaches_control_plane,
        "arming its timer": lambda: timers.arm(partition_fault.to_json(), TTL_S),
        "disarming it": lambda: timers.arm(partition_fault.to_json(), 0),
        "a heal": lambda: partition_fault.heal(machine),
    }
    machine.run(["true"], timeout_s=COMMAND_TIMEOUT_S)
    with silence(lab, machine):
        began = time.monotonic()
        with pytest.raises(MachineError) if what != "disarming it" else contextlib.nullcontext():
            requests[what]()
        assert time.monotonic() - began < COMMAND_TIMEOUT_S + LATE_S
    machine.close()


EXPIRED = "too old resource version: 1 (2)"


@pytest.mark.parametrize("how", ["an event", "a status"])
def test_expired_watch_is_a_gap_and_is_listed_again(
    lab: LabHandle, initial_state: LabState, node: str, partition_fault: Fault, how: str, tmp_path: Path
) -> None:
    # Read before the partition, which blocks the nodes' answers.
    configuration = lab.configuration
    api = Expiring(lab.cluster.api, how)
    context = RecordingContext(
        tuple(lab.fleet.node_names()), lab.fleet.node_names()[-1], lab.read_clock, lab.dir / "events.jsonl"
    )
    unknown = condition_became(node, "Ready", "Unknown")
    recording = Recording(api, tmp_path / "history.jsonl", context)
    with recording, lab.safety.injector.inject(partition_fault, Declared({node}), recording.append) as held:
        assert eventually(lambda: recording.history().of_kind("sentinel"), RECORDED_TIMEOUT_S)
        api.expire()
        check = unknown.after(held.injected_at, windows.detection_from_fault())
        recording.wait_for(check, configuration)
    history = recording.history()

    gaps = history.of_kind("gap")
    assert sorted(entry.data["resource"] for entry in gaps) == sorted(WATCHED)
    assert all(EXPIRED in entry.data["reason"] for entry in gaps)
    listed = [entry.data["resource"] for entry in history.of_kind("listed")]
    assert sorted(listed) == sorted([*WATCHED, *WATCHED])
    verdict = judge(catalogue.load()["monitoring.detection-time"], check, history, configuration)
    assert (verdict.outcome, verdict.code) == ("unproven", "gap"), verdict


class Expiring(Api):
    """A lab's API that expires every watch at once, by an ERROR event or by an HTTP status."""

    def __init__(self, real: Api, how: str) -> None:
        self.__dict__.update(real.__dict__)
        self._how = how
        self._expired: set[str] = set()

    def expire(self) -> None:
        """Expire each watch at its next event."""
        self._expired = set(WATCHED.values())

    @contextmanager
    def watch(self, path: str, rv: str, silence_timeout_s: float) -> Iterator[Iterator[bytes]]:
        with super().watch(path, rv, silence_timeout_s) as lines:
            yield self._until_expired(path, lines)

    def _until_expired(self, path: str, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            if path in self._expired:
                self._expired.discard(path)
                if self._how == "a status":
                    raise ApiError(410, EXPIRED)
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": EXPIRED}
                yield json.dumps({"type": "ERROR", "object": status}).encode()
            yield line


def test_unauthenticated_cluster_is_refused(lab: LabHandle, tmp_path: Path) -> None:
    config = json.loads((lab.dir / "pki" / "admin.kubeconfig").read_text())
    insecure, exposed = tmp_path / "insecure", tmp_path / "exposed"
    cluster = {"server": config["clusters"][0]["cluster"]["server"], "insecure-skip-tls-verify": True}
    insecure.write_text(json.dumps({**config, "clusters": [{"name": "lab", "cluster": cluster}]}))
    with pytest.raises(Problem, match="insecure-skip-tls-verify"):
        Api(insecure, registry.client(lab.name).dial)

    user = config["users"][0]["user"]
    key = tmp_path / "admin.key"
    key.write_bytes(Path(user["client-key"]).read_bytes())
    key.chmod(0o644)
    users = [{"name": config["users"][0]["name"], "user": {**user, "client-key": str(key)}}]
    exposed.write_text(json.dumps({**config, "users": users}))
    with pytest.raises(Problem, match="others may read"):
        Api(exposed, registry.client(lab.name).dial)
    key.chmod(0o600)
    assert Api(exposed, registry.client(lab.name).dial).get("/version")


def test_key_readable_by_others_is_refused(lab: LabHandle, machine: Machine, tmp_path: Path) -> None:
    assert isinstance(machine, SshMachine)
    access = machine._access
    for mode in (0o640, 0o604, 0o644):
        key = tmp_path / f"key-{mode:o}"
        key.write_bytes(access.key.read_bytes())
        key.chmod(mode)
        other = SshMachine(replace(access, key=key), registry.client(lab.name).dial, machine._host)
        with pytest.raises(Problem, match=f"others may read this private key .mode 0{mode:o}"):
            other.run(["true"], timeout_s=COMMAND_TIMEOUT_S)


@contextmanager
def _silence_at(
    lab: LabHandle, machine: Machine, moment: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """Drop packets to a node's `control` address from one call of paramiko on."""
    silent: list[str] = []
    owner = paramiko.Transport if moment == "open_session" else paramiko.Channel
    real = getattr(owner, moment)

    def silent_step(*args: Json, **options: Json) -> Json:
        if not silent:
            silent.append(moment)
            start_silence(lab, machine)
        return real(*args, **options)

    monkeypatch.setattr(owner, moment, silent_step)
    try:
        yield silent
    finally:
        monkeypatch.setattr(owner, moment, real)
        end_silence(lab)


def _hold_and_kill(lab: LabHandle, fault: Fault, log: Path) -> None:
    """Kill a harness while its fault is active."""
    child = proc.start(_victim(lab, fault, HOLD), log=log, cwd=TOP)
    try:
        assert eventually(lambda: _step(lab) == "injected", INJECTED_TIMEOUT_S), log.read_text()
    finally:
        child.kill()
        child.wait(timeout=COMMAND_TIMEOUT_S)


def _victim(lab: LabHandle, fault: Fault, point: str) -> list[str]:
    return [sys.executable, "-m", "tests.contract.victim", lab.name, json.dumps(fault.to_json()), point]


def _tables(machine: Machine) -> frozenset[str]:
    return frozenset(machine.run(["nft", "list", "tables"], timeout_s=COMMAND_TIMEOUT_S).stdout.splitlines())


def _after_boot(initial_state: LabState, node: str) -> LabState:
    """Return the same state after a boot: pod tables are lost with the power."""
    own = frozenset(table for table in initial_state.tables[node] if "nodeproof" in table)
    return replace(initial_state, tables={**initial_state.tables, node: own})


def _timers(lab: LabHandle, machine: Machine) -> str:
    """Return the dead-man's switches in a machine's systemd, if it has one."""
    if "systemd" not in lab.features:
        return ""
    return machine.run(TIMERS, timeout_s=COMMAND_TIMEOUT_S).stdout


def _ledger_entries(lab: LabHandle) -> list[Mapping[str, Json]]:
    return [json.loads(line) for line in file_of(lab.safety.ledger).read_text().splitlines()]


def _is_ready(lab: LabHandle, node: str) -> bool:
    return condition_status(lab.cluster.api.get(node_path(node)), "Ready") == "True"


def _step(lab: LabHandle) -> str:
    unfinished = lab.safety.ledger.unfinished()
    return unfinished[-1].step if unfinished else ""
