"""Zones of a lab are independent, so that scenarios in different zones do not affect each other.

Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go, `zoneNoExecuteTainter` and `zoneStates`: a
rate limiter and a state for each zone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.checks.judge import unexpected_exit
from nodeproof.checks.moments import find
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import is_running
from nodeproof.faults.fault import COMMAND_TIMEOUT_S
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import InUse, LabHandle
from nodeproof.model.cluster import ZONE_LABEL
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.model.slack import slack_s
from nodeproof.report import rundir
from nodeproof.safety.guard import Refused
from nodeproof.scenario import (
    UNREACHABLE,
    condition_became,
    delete_node,
    join,
    kubectl,
    outage,
    partition,
    run_pod,
    taint_added,
    windows,
    workload,
)
from nodeproof.scenario.lab import Lab
from tests.acceptance.command import nodeproof, the_run
from tests.acceptance.conftest import SMALL_SCENARIO
from tests.contract.kinds import FAULTS
from tests.waiting import eventually

NODES, ZONES = 9, 3
LOST_PER_ZONE = (2, 2, 1)
"""Nodes; in total more than one rate limiter would evict before the last zone's first eviction."""
SWITCH_TTL_S = 60.0
"""Longer than the test: another worker must heal the fault, not its switch."""


@pytest.fixture(scope="module")
def zoned_lab(components: Components) -> Iterator[LabHandle]:
    """Start a process lab with three zones of three nodes."""
    request = starting.LabRequest(starting.new_name(), NODES, ZONES, "fast", False)
    lab = starting.up(request, components, print)
    try:
        lab.prepare()
        yield lab
    finally:
        lab.down()


@pytest.fixture
def own_zone(zoned_lab: LabHandle) -> Iterator[LabHandle]:
    """Attach to the lab as a worker that leases a zone."""
    yield from _lease_zone(zoned_lab)


@pytest.fixture
def other_zone(zoned_lab: LabHandle, own_zone: LabHandle) -> Iterator[LabHandle]:
    """Attach to the lab as another worker."""
    assert own_zone.zone
    yield from _lease_zone(zoned_lab)


@pytest.mark.alone
def test_each_zone_evicts_at_its_own_rate(zoned_lab: LabHandle, tmp_path: Path) -> None:
    lost = _nodes_to_lose(zoned_lab)
    nodes = [entry for zone_nodes in lost for entry in zone_nodes]
    stage = _stage(zoned_lab, tmp_path, nodes=NODES, zones=ZONES, faulted=len(nodes), radius="zone")
    with stage.record(), stage.inject(outage(*nodes)) as cut:
        for entry in nodes:
            unknown = _unknown(entry.name)
            stage.wait_for(unknown.after(cut.injected_at, windows.detection_from_fault()))
            stage.wait_for(
                _tainted(entry.name).after(unknown, windows.up_to(5 / zoned_lab.configuration["E"]))
            )
    history = stage.history()
    period_s, slack = 1 / zoned_lab.configuration["E"], slack_s(history, zoned_lab.configuration)

    assert slack < period_s / 2, "host-too-loaded: nothing can be told apart"
    for zone_nodes in lost:
        names = [entry.name for entry in zone_nodes]
        first, *others = sorted(names, key=lambda name: _t(history, _tainted(name)))
        waited_s = _t(history, _tainted(first)) - _t(history, _unknown(first))
        assert waited_s < zoned_lab.configuration["P"] + slack, "the zone waited for another one"
        for other in others:
            assert _t(history, _tainted(other)) - _t(history, _tainted(first)) > period_s - slack
    zoned_lab.wait_nodes_ready()


@pytest.mark.alone
def test_zone_lease_knows_only_its_own_nodes(
    zoned_lab: LabHandle, own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path
) -> None:
    assert (own_zone.zone, other_zone.zone) == ("zone-a", "zone-b")
    own, other = (set(lab.fleet.node_names()) for lab in (own_zone, other_zone))
    assert (len(own), own & other) == (NODES // ZONES, set())
    foreign_node = min(other)
    with pytest.raises(Problem, match=f"no node '{foreign_node}'"):
        own_zone.fleet.machine(foreign_node)
    stage = _stage(own_zone, tmp_path, faulted=1)
    assert {entry.name for entry in stage.nodes()} == own
    with stage.record(), pytest.raises(Refused, match=foreign_node), stage.inject(partition(foreign_node)):
        pytest.fail("a fault in another zone was not refused")
    assert set(stage.history().begun["nodes"]) == own
    with (
        closing(registry.attach(zoned_lab.name)) as another,
        pytest.raises(InUse, match="others are using its zones"),
    ):
        another.leases.take_lab()


@pytest.mark.alone
def test_machine_may_reuse_a_name_of_another_zone(
    own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path
) -> None:
    for lab, other in ((own_zone, other_zone), (other_zone, own_zone)):
        _stage(lab, tmp_path).run(join("box"))
        assert other.fleet.is_in_other_zone("box")
        assert not lab.fleet.is_in_other_zone("box")
        lab.safety.undo_changes()
        assert not lab.fleet.has("box")


@pytest.mark.alone
def test_heal_and_cleanup_leave_other_zones_alone(
    own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path
) -> None:
    stage, node = _stage(other_zone, tmp_path, faulted=1), other_zone.fleet.node_names()[0]
    with stage.record():
        pod = stage.run(run_pod(on=node))
        daemons = stage.run(workload("DaemonSet").make).value["body"]
        stage.run(kubectl("cordon", node))
        with stage.inject(partition(node)):
            assert own_zone.safety.heal_unfinished() == []
            own_zone.clean(Needs(faulted=1))
            assert not other_zone.fleet.machine(node).reaches_control_plane()
        own_zone.tidy()
        assert is_running(other_zone.cluster.api, pod)
        assert other_zone.cluster.api.get(node_path(node))["spec"]["unschedulable"]
    assert daemons["spec"]["template"]["spec"]["nodeSelector"] == {ZONE_LABEL: other_zone.zone}
    other_zone.tidy()
    assert not other_zone.cluster.api.get(node_path(node))["spec"].get("unschedulable")
    other_zone.wait_nodes_ready()


@pytest.mark.alone
def test_cleanup_leaves_pods_of_a_node_deleted_by_another_worker(
    own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path
) -> None:
    stage, node = _stage(other_zone, tmp_path, faulted=1), other_zone.fleet.node_names()[0]
    with stage.record():
        pod = stage.run(run_pod(on=node))
        with stage.inject(delete_node(node, stage.labels(node))):
            own_zone.tidy()
            assert is_running(other_zone.cluster.api, pod)
    other_zone.tidy()
    other_zone.wait_nodes_ready()


@pytest.mark.alone
def test_fault_of_a_dead_worker_is_healed_by_the_next_user_of_its_zone(
    zoned_lab: LabHandle, own_zone: LabHandle, other_zone: LabHandle
) -> None:
    fault = FAULTS["partition-both"](other_zone.fleet.node_names()[0])
    other_zone.safety.ledger.write("planned", fault.to_json())
    other_zone.safety.switches.arm(fault.to_json(), SWITCH_TTL_S)
    fault.inject(other_zone.fleet.machine(fault.node))
    zone = other_zone.zone
    other_zone.close()

    assert own_zone.safety.heal_unfinished() == []
    with closing(registry.attach(zoned_lab.name)) as later:
        assert later.lease(), "another worker holds the zone"
        assert later.zone == zone
        assert not later.fleet.machine(fault.node).reaches_control_plane()
        assert later.safety.heal_unfinished() == []
        assert later.fleet.machine(fault.node).reaches_control_plane()
        assert later.safety.ledger.unfinished() == []
        later.wait_nodes_ready()


@pytest.mark.alone
def test_node_joins_the_zone_of_its_worker(
    own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path
) -> None:
    names = {lab.zone: f"joiner-{lab.zone}" for lab in (own_zone, other_zone)}
    for lab in (own_zone, other_zone):
        stage = _stage(lab, tmp_path)
        stage.run(join(names[lab.zone]))
        assert names[lab.zone] in lab.fleet.node_names()
    slots = [entry.slot for lab in (own_zone, other_zone) for entry in lab.fleet.nodes()]
    assert len(slots) == len(set(slots))
    taken = _stage(own_zone, tmp_path)
    with pytest.raises(Problem, match="already exists"):
        taken.run(join(names[other_zone.zone]))
    with pytest.raises(Problem, match="is not the scenario's zone"):
        taken.run(join("elsewhere", zone=other_zone.zone))
    own_zone.tidy()
    assert names[own_zone.zone] not in own_zone.fleet.node_names()
    assert names[other_zone.zone] in other_zone.fleet.node_names()
    other_zone.tidy()


ISOLATED_SCENARIO = SMALL_SCENARIO.replace(
    "@needs(nodes=2, faulted=1)", '@needs(nodes=2, faulted=1, isolation="cluster")'
)


@pytest.mark.alone
def test_workers_lease_zones_of_a_running_lab(zoned_lab: LabHandle, tmp_path: Path) -> None:
    for name, scenario in (("one", SMALL_SCENARIO), ("two", SMALL_SCENARIO), ("alone", ISOLATED_SCENARIO)):
        (tmp_path / f"test_{name}.py").write_text(scenario)
    process = nodeproof("run", "--no-site", "--lab", zoned_lab.name, "-n", "2", str(tmp_path), cwd=tmp_path)

    run = the_run(tmp_path)
    assert run is not None, process
    codes = {
        (Path(row["scenario"].partition("::")[0]).name, row["code"]) for row in rundir.read_verdicts(run)
    }
    assert codes == {("test_one.py", None), ("test_two.py", None), ("test_alone.py", "lab-lacks")}
    assert {path.stem for path in (run / "labs").glob("*.json")} == {
        f"{zoned_lab.name}-zone-{z}" for z in "ab"
    }
    assert process.status == 0
    assert zoned_lab.life.has_control_plane()


@pytest.mark.alone
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--lab", "{lab}", "-n", "4"), "too many workers (4) for lab {lab}"),
        (("--lab", "{lab}/zone-a", "-n", "2"), "too many workers (2) for lab {lab}"),
        (("--lab", "{lab}/zone-x"), "lab {lab} has no zone 'zone-x'"),
    ],
)
def test_invalid_zone_options_are_refused(
    zoned_lab: LabHandle, options: Sequence[str], reason: str, tmp_path: Path
) -> None:
    arguments = [option.format(lab=zoned_lab.name) for option in options]
    process = nodeproof("run", *arguments, cwd=tmp_path)
    assert process.status == 2
    assert reason.format(lab=zoned_lab.name) in process.stderr + process.stdout
    assert the_run(tmp_path) is None


@pytest.mark.alone
def test_zone_in_use_is_refused(zoned_lab: LabHandle, own_zone: LabHandle, tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SMALL_SCENARIO)
    lab_and_zone = f"{zoned_lab.name}/{own_zone.zone}"
    process = nodeproof("run", "--no-site", "--lab", lab_and_zone, str(tmp_path), cwd=tmp_path)
    assert process.status == 2
    assert f"zone {own_zone.zone} is in use" in process.stderr + process.stdout


@pytest.mark.alone
def test_death_in_another_zone_is_ignored(own_zone: LabHandle, other_zone: LabHandle, tmp_path: Path) -> None:
    """This test is the last one of the lab, because it kills a kubelet."""
    kubelet = f"kubelet-{other_zone.fleet.node_names()[0]}"
    client = registry.client(own_zone.name)
    entered = str(client.status().components[kubelet])
    pid = client.spawn_command(["pgrep", "-P", entered], COMMAND_TIMEOUT_S)["stdout"].split()[0]
    with (
        own_zone.record(tmp_path / "own.jsonl", []) as own,
        other_zone.record(tmp_path / "other.jsonl", []) as other,
    ):
        client.spawn_command(["kill", "-9", pid], COMMAND_TIMEOUT_S)
        assert eventually(lambda: unexpected_exit(other.history()), COMMAND_TIMEOUT_S)
    assert unexpected_exit(own.history()) is None
    own_zone.life.check_alive()
    with pytest.raises(Problem, match=kubelet):
        other_zone.life.check_alive()
    assert other_zone.life.has_control_plane()


def _lease_zone(lab: LabHandle) -> Iterator[LabHandle]:
    with closing(registry.attach(lab.name)) as leased:
        leased.lease()
        leased.prepare()
        yield leased


def _nodes_to_lose(lab: LabHandle) -> list[list[NodeInfo]]:
    """Return the nodes of each zone that the test makes unreachable."""
    nodes = sorted(lab.fleet.nodes(), key=lambda entry: entry.zone)
    zones = itertools.groupby(nodes, key=lambda entry: entry.zone)
    return [list(zone_nodes)[:count] for (_zone, zone_nodes), count in zip(zones, LOST_PER_ZONE, strict=True)]


def _stage(lab: LabHandle, folder: Path, **needs: Any) -> Lab:
    """Return the stage of a scenario with these needs."""
    return Lab(lab, folder, Needs(**needs), nullcontext)


def _unknown(node: str) -> Moment:
    return condition_became(node, "Ready", "Unknown")


def _tainted(node: str) -> Moment:
    return taint_added(node, UNREACHABLE, "NoExecute")


def _t(history: History, moment: Moment) -> float:
    event = find(history, moment)
    assert event is not None, moment
    return event.t
