"""Whole runs in which a process ends unexpectedly or affects what it must not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.history import Entry
from nodeproof.model.slack import NEAR_S
from nodeproof.report import rundir
from nodeproof.report.digest import verdict_of
from nodeproof.safety.guard import CONTROL_PLANE_LABEL
from nodeproof.safety.injector import TTL_S
from tests.acceptance.altered import Cluster, lab_option
from tests.acceptance.command import (
    PHASE_TIMEOUT_S,
    labs_of,
    nodeproof,
    running,
    steps,
    the_run,
    two_are_injected,
)
from tests.acceptance.conftest import SHORT_HEAL_TIMEOUT, SMALL_SCENARIO, Run
from tests.leftovers import file_of
from tests.waiting import eventually, pause

COMMAND_TIMEOUT_S = 20.0
SUSPENDED_S = 3.0
"""Longer than the slack limit, and short enough to fit into a grace period."""
CLAIMS = ("monitoring.detection-time", "taints.unreachable-noexecute")
FOREIGN_TABLE = """
add table inet rival
add chain inet rival in {{ type filter hook input priority 0; }}
add rule inet rival in ip saddr {api} drop
"""
DELETE_FOREIGN_TABLE = "add table inet rival\ndelete table inet rival\n"
OUTSIDE_RADIUS = SMALL_SCENARIO.replace("partition(node)", "partition(lab.nodes()[1].name)")
THREE_NODES_LOST = SMALL_SCENARIO.replace("faulted=1", "faulted=3")


def foreign_table_cuts_node(cluster: Cluster) -> None:
    """Cut off the node by a foreign nft table, which remains when the fault is healed."""
    cluster.until_recorded('"step":"injected"')
    _cut(cluster.lab, cluster.target)


@contextmanager
def foreign_cut(lab: LabHandle, node: str) -> Iterator[None]:
    """Cut off a node by a foreign nft table until the context ends."""
    _cut(lab, node)
    try:
        yield
    finally:
        _load(lab, node, DELETE_FOREIGN_TABLE)


def watch_packets_are_dropped(cluster: Cluster) -> None:
    """Drop all packets of the harness's connections; no connection is closed."""
    with cluster.node_controller_paused():
        ports = ", ".join(cluster.harness_ports())
        rules = "".join(
            f"add chain inet altered {hook} {{ type filter hook {hook} priority 0; }}\n"
            f"add rule inet altered {hook} tcp {side} {{ {ports} }} drop\n"
            for hook, side in (("input", "dport"), ("output", "sport"))
        )
        cluster.command("nft", "-f", "-", stdin=f"add table inet altered\n{rules}")
        try:
            cluster.until_recorded('"kind":"gap","resource":"nodes"')
        finally:
            cluster.command("nft", "delete", "table", "inet", "altered")


def test_unproven_heal_quarantines_the_node_and_is_still_judged(
    whole_lab: LabHandle, run: Run, tmp_path: Path
) -> None:
    lab = whole_lab
    scenario = tmp_path / "test_small.py"
    second = SMALL_SCENARIO[SMALL_SCENARIO.index("@claims") :].replace("is_noticed", "comes_second")
    second = second.replace("faulted=1", "faulted=2")
    scenario.write_text(f"{SMALL_SCENARIO}\n\n{second}{SHORT_HEAL_TIMEOUT}")
    node = lab.fleet.node_names()[0]
    try:
        result = run(lab, foreign_table_cuts_node, str(scenario))
    finally:
        _load(lab, node, DELETE_FOREIGN_TABLE)

    assert rundir.read_facts(result.run).quarantined == (node,)
    rows = rundir.read_verdicts(result.run)
    first = [verdict_of(row).label for row in rows if "is_noticed" in row["scenario"]]
    after = [row for row in rows if "comes_second" in row["scenario"]]
    assert (len(first), len(after)) == (len(CLAIMS), len(CLAIMS))
    assert set(first) == {"conforms"}
    assert all(row["code"] == "gap" and f"quarantined: {node}" in row["reason"] for row in after)
    assert f"not proven healed or Ready: {node}" in result.output
    assert nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path).status == 0
    assert lab.safety.ledger.unfinished() == []


def lab_memory_is_filled(cluster: Cluster) -> None:
    """Fill the lab's memory file systems while a node is without power."""
    cluster.until_recorded('"fault":"power-off"')
    cluster.until_recorded('"step":"injected"')
    for folder in ("mem", "mem/logs"):
        filler = cluster.lab.dir / folder / "filler"
        assert "No space left" in cluster.command("sh", "-c", f"cat /dev/zero 2>&1 >{filler} || true")


def test_full_lab_memory_is_reported_healed_and_costs_no_earlier_verdict(
    own_lab: LabHandle, run: Run, tmp_path: Path
) -> None:
    scenario = tmp_path / "test_small.py"
    second = (
        SMALL_SCENARIO[SMALL_SCENARIO.index("@claims") :]
        .replace("is_noticed", "has_no_power")
        .replace("(partition(", "(power_off(")
    )
    scenario.write_text(f"{SMALL_SCENARIO.replace('partition,', 'partition, power_off,')}\n\n{second}")
    result = run(own_lab, lab_memory_is_filled, str(scenario))

    rows = rundir.read_verdicts(result.run)
    earlier = [verdict_of(row).label for row in rows if "is_noticed" in row["scenario"]]
    later = [verdict_of(row).outcome for row in rows if "has_no_power" in row["scenario"]]
    assert earlier == ["conforms"] * len(CLAIMS)
    assert len(later) == len(CLAIMS)
    assert "deviates" not in later
    assert f"lab {own_lab.name}: its memory is full" in result.output
    assert f"lab {own_lab.name}: its memory for logs is full" in result.output
    assert own_lab.safety.ledger.unfinished() == []
    assert rundir.read_facts(result.run).quarantined == ()
    assert own_lab.fleet.machine(own_lab.fleet.node_names()[0]).is_powered()


def test_second_interrupt_during_a_heal_waits_for_it(
    lab: LabHandle, small_scenario: str, tmp_path: Path
) -> None:
    node = lab.fleet.node_names()[0]
    with running("--lab", lab_option(lab), small_scenario, cwd=tmp_path) as child:
        run, log, process = child.folder, child.log, child.process
        with foreign_cut(lab, node):
            process.send_signal(signal.SIGINT)
            assert eventually(lambda: "healing" in steps(run), PHASE_TIMEOUT_S), log.read_text()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
                process.send_signal(number)
                pause(0.3)
            assert process.poll() is None
        status = child.wait()

    output = log.read_text()
    assert status == 2, output
    assert steps(run)[-3:] == ["healing", "healed", "closed"], output
    assert lab.safety.ledger.unfinished() == []
    assert f"partition on {node}" in output
    assert f"dead-man's switch heals it within {TTL_S:g} s of this process's end" in output
    assert "Traceback" not in output


@pytest.mark.night("contract tests prove that such a fault stays armed; a second interrupt names it in CI")
def test_interrupted_unproven_heal_names_the_fault_and_its_switch(
    lab: LabHandle, small_scenario: str, tmp_path: Path
) -> None:
    node = lab.fleet.node_names()[0]
    Path(small_scenario).write_text(SMALL_SCENARIO + SHORT_HEAL_TIMEOUT)
    with running("--lab", lab_option(lab), small_scenario, cwd=tmp_path) as child, foreign_cut(lab, node):
        child.process.send_signal(signal.SIGINT)
        status = child.wait()

    (entry,) = lab.safety.ledger.unfinished()
    assert status == 2
    fault = f"partition on {node} ({entry.fault['id']})"
    assert f"no probe proves that {fault} is healed; its dead-man's switch" in child.log.read_text()
    assert lab.safety.heal_unfinished() == []


def test_run_suspended_for_longer_than_its_switch_proves_nothing(
    lab: LabHandle, small_scenario: str, tmp_path: Path
) -> None:
    with running("--lab", lab_option(lab), small_scenario, cwd=tmp_path) as child:
        child.process.send_signal(signal.SIGSTOP)
        events = lab.dir / "events.jsonl"
        open_faults = {entry.fault["id"] for entry in lab.safety.ledger.unfinished()}
        assert eventually(lambda: _has_fired(events, open_faults), TTL_S + PHASE_TIMEOUT_S)
        child.process.send_signal(signal.SIGCONT)
        status = child.wait()

    run, log = child.folder, child.log
    fired = [entry.data["id"] for entry in _entries(run) if entry.kind == "deadman"]
    injected = {entry.data["id"] for entry in _entries(run) if entry.kind == "fault"}
    assert fired == list(injected), log.read_text()
    assert {row["code"] for row in rundir.read_verdicts(run)} == {"not-injected"}, log.read_text()
    assert status == 3
    assert lab.safety.ledger.unfinished() == []
    armed_switches = registry.client(lab.name).status().not_disarmed
    assert [entry for entry in armed_switches if entry["node"] in lab.fleet.node_names()] == []


def test_run_suspended_while_nothing_was_pending_keeps_its_verdicts(
    lab: LabHandle, small_scenario: str, tmp_path: Path
) -> None:
    with running("--lab", lab_option(lab), small_scenario, cwd=tmp_path) as child:
        pause(NEAR_S + 1.0)
        child.process.send_signal(signal.SIGSTOP)
        pause(SUSPENDED_S)
        child.process.send_signal(signal.SIGCONT)
        status = child.wait()

    assert max(_measurements(child.folder)) > lab.profile.slack_limit_s
    labels = [verdict_of(row).label for row in rundir.read_verdicts(child.folder)]
    assert labels == ["conforms"] * len(CLAIMS), child.log.read_text()
    assert status == 0


def test_killed_worker_ends_its_scenario_as_broken_and_the_run_in_order(tmp_path: Path) -> None:
    """Later scenarios run and parallel ones are judged as usual."""
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(SMALL_SCENARIO)
    with running("-n", "2", str(tmp_path), cwd=tmp_path, until=two_are_injected) as child:
        run = child.folder
        names = labs_of(run)
        os.kill(int((RUNTIME_ROOT / names[0] / "in-use-zone-a").read_text()), signal.SIGKILL)
        status = child.wait()

    rows = rundir.read_verdicts(run)
    assert status == 3, child.log.read_text()
    lost = [row for row in rows if row["scenario"].endswith("(its worker died)")]
    assert sorted((row["claim"], row["code"]) for row in lost) == [(claim, "gap") for claim in CLAIMS]
    others = [row for row in rows if row not in lost]
    assert len(others) == 3 * len(CLAIMS)
    assert {row["claim"] for row in others} == set(CLAIMS)
    assert {row["code"] for row in others} == {None}
    statuses = [rundir.read_json(path)["status"] for path in (run / "allure-results").glob("*-result.json")]
    assert "broken" in statuses
    assert labs_of(run) == names, "a zone needs no other lab"
    assert not set(labs_of(run)) & set(registry.running())
    assert not any((RUNTIME_ROOT / name).exists() for name in labs_of(run))


def test_fault_outside_the_declared_radius_is_refused_before_contact(
    lab: LabHandle, run: Run, tmp_path: Path
) -> None:
    scenario = tmp_path / "test_beyond.py"
    scenario.write_text(OUTSIDE_RADIUS)
    ledger_before = file_of(lab.safety.ledger).read_bytes() if file_of(lab.safety.ledger).exists() else b""
    result = run(lab, lambda _cluster: None, str(scenario))

    first, second = lab.fleet.node_names()[:2]
    assert f"Refused: {second} is outside the declared blast radius: {first}" in result.output
    assert "fault" not in {entry.kind for entry in _entries(result.run)}
    assert (
        file_of(lab.safety.ledger).read_bytes() if file_of(lab.safety.ledger).exists() else b""
    ) == ledger_before
    assert [result.labels(claim) for claim in CLAIMS] == [["unproven: gap"]] * 2
    assert result.status == 1


def test_fault_on_the_last_control_plane_node_is_refused(
    lab: LabHandle, run: Run, small_scenario: str
) -> None:
    node = lab.fleet.node_names()[0]
    lab.cluster.api.patch(node_path(node), {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})
    try:
        result = run(lab, lambda _cluster: None, small_scenario)
    finally:
        lab.cluster.api.patch(node_path(node), {"metadata": {"labels": {CONTROL_PLANE_LABEL: None}}})

    assert f"Refused: {node} is the last control-plane node" in result.output
    assert "fault" not in {entry.kind for entry in _entries(result.run)}
    assert result.status == 1


def test_plan_that_may_disrupt_a_zone_is_refused_beforehand(lab: LabHandle, tmp_path: Path) -> None:
    (tmp_path / "test_wide.py").write_text(THREE_NODES_LOST)
    process = nodeproof("run", "--lab", lab_option(lab), str(tmp_path / "test_wide.py"), cwd=tmp_path)

    assert process.status == 2
    assert "faults on 3 nodes may count as a disruption of their zone" in process.stdout + process.stderr
    assert the_run(tmp_path) is None


def test_silent_watches_are_a_gap_and_are_listed_again(
    whole_lab: LabHandle, run: Run, small_scenario: str
) -> None:
    result = run(whole_lab, watch_packets_are_dropped, small_scenario)

    (scenario,) = rundir.read_scenarios(result.run)
    gaps = scenario.history().of_kind("gap")
    assert any("timed out" in entry.data["reason"].lower() for entry in gaps), gaps
    assert result.labels("monitoring.detection-time") == ["unproven: gap"]
    assert "deviates" not in result.labels("taints.unreachable-noexecute")
    assert result.status == 1


def _has_fired(events: Path, faults: Set[str]) -> bool:
    """Return whether the switch of one of these faults has fired; other zones may have others."""
    entries = map(json.loads, filter(lambda line: line.endswith("}"), events.read_text().splitlines()))
    return any(entry["kind"] == "deadman" and entry["id"] in faults for entry in entries)


def _measurements(run: Path) -> list[float]:
    """Return the recorded wake-up and sentinel delays of the harness (s)."""
    (path,) = run.glob("scenarios/*/history.jsonl")
    entries = [Entry.from_json(line) for line in path.read_text().splitlines() if line.endswith("}")]
    delays_s = [float(entry.data["late_s"]) for entry in entries if entry.kind == "stall"]
    return delays_s + [
        max(entry.data["latency_s"].values(), default=0.0) for entry in entries if entry.kind == "sentinel"
    ]


def _load(lab: LabHandle, node: str, script: str) -> None:
    """Load an nft script in a node, without its sshd."""
    pid = next(entry.pid for entry in lab.fleet.nodes() if entry.name == node)
    argv = ["nsenter", f"--target={pid}", "--net", "--mount", "--", "nft", "-f", "-"]
    output = registry.client(lab.name).spawn_command(argv, COMMAND_TIMEOUT_S, script)
    assert output["status"] == 0, output


def _cut(lab: LabHandle, node: str) -> None:
    _load(lab, node, FOREIGN_TABLE.format(api=lab.fleet.machine(node).control_plane_addresses[0]))


def _entries(run: Path) -> Sequence[Entry]:
    (scenario,) = rundir.read_scenarios(run)
    return scenario.history().entries
