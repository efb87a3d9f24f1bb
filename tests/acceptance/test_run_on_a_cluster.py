"""A run on a user's own cluster: a lab that is reached by kubeconfig, inventory and ssh_config alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeproof.cluster.resources import NAMESPACE, POD_NAMESPACE, node
from nodeproof.cluster.workloads import WITNESS_IMAGE
from nodeproof.existing.connection import connected
from nodeproof.existing.guards import Abort, Alerts, Command, Hours
from nodeproof.existing.inspection import inspect_host, refusals, ssh_config
from nodeproof.existing.inventory import read
from nodeproof.faults import Fault
from nodeproof.faults.fault import succeeds
from nodeproof.faults.machine import Freeze, PowerOff
from nodeproof.faults.partition import Partition
from nodeproof.faults.units import UnitDown
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds.existing.consent import MarkedNodes
from nodeproof.labs.kinds.existing.lock import LEDGER, LOCK, ClusterLock
from nodeproof.machines.machine import STATE_FOLDER
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.history import SENTINEL_ANNOTATION
from nodeproof.safety.deadman import LATE_S, Timer
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import HEAL_TIMEOUT_S, TTL_S
from tests.acceptance.bmc import PASSWORD, PASSWORD_ENV, serving_power
from tests.acceptance.command import CompletedCommand, running, steps, the_run, verdicts_of
from tests.acceptance.own_cluster import (
    INVENTORY,
    OwnCluster,
    older_systemd_on,
    timers_on,
    with_timers_and_flags,
)
from tests.plugins import POWER_DRIVER, install
from tests.small_server import Page, serving
from tests.waiting import eventually

Json = Any
RUN_TIMEOUT_S, ENDED_TIMEOUT_S, READY_TIMEOUT_S = 150.0, 20.0, 60.0
FIRES_TIMEOUT_S = TTL_S + LATE_S + 20.0
ABORTED_TIMEOUT_S = 25.0
"""Half of the time in which the scenario would heal its fault by itself."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
FOREIGN_POD: Json = {
    "metadata": {"name": "runner"},
    "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "nodeproof.local/busybox:1"}]},
}
CLAIMS = {
    "heartbeat.kubelet-stop",
    "monitoring.detection-time",
    "monitoring.unknown-reason",
    "taints.removed-on-recovery",
    "taints.unreachable-noexecute",
}
SCENARIOS = '''
"""A stopped kubelet, and a taint, which is not allowed on a user's own cluster."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE

REASON, MESSAGE = "NodeStatusUnknown", "Kubelet stopped posting node status."


@needs(nodes=2, faulted=1, duration_s="G + 20")
def test_stopped_kubelet_is_noticed(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    no_schedule, no_execute = (node.taint(UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute"))
    with lab.record():
        with lab.inject(faults.unit_down(node)) as fault:
            lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
            claim("monitoring.detection-time").expect_later(
                node.unknown, within=windows.detection(), after=node.last_heartbeat(before=node.unknown)
            )
            unknown = moments.condition_reported(node, "Ready", "Unknown", REASON, MESSAGE)
            claim("monitoring.unknown-reason").expect_later(unknown, after=fault.injected_at)
            claim("taints.unreachable-noexecute").expect(
                no_execute.added, within=windows.taint_pass(), after=node.unknown
            )
        lab.wait_for(node.ready.after(fault.healing_at, windows.recovery()))
        removed = claim("taints.removed-on-recovery")
        removed.expect(no_schedule.removed, within=windows.up_to(2), after=node.ready)
        removed.expect(no_execute.removed, within=windows.monitor_pass(), after=node.ready)
    # The node is Unknown after G - R at the earliest, and then the fault ends.
    silent = windows.formula("negative", "G - 2R - 2", "2", "G - 2R")
    claim("heartbeat.kubelet-stop").expect_later(node.lease_renewal.never_after(fault.injected_at, silent))


@needs(nodes=2, faulted=1)
def test_tainted_node_is_lost(lab: Lab, claim: Expectations) -> None:
    with lab.record(), lab.inject(faults.taint(lab.target, "example.com/out", "NoExecute")) as fault:
        claim("partition.terminating").expect(lab.target.unknown, after=fault.injected_at)
'''
LOSS = SCENARIOS.partition("    # The node is Unknown after")[0]
"""The same without the claim about a stopped kubelet, for other faults by which a node is lost."""
POWER_SCENARIO, PARTITION_SCENARIO = (LOSS.replace("unit_down", word) for word in ("power_off", "partition"))
PARTITION_SCENARIO += """

@needs(nodes=2, faulted=1, duration_s="G + 30")
def test_pod_of_partitioned_node_is_evicted(lab: Lab, claim: Expectations) -> None:
    node, tolerated_s, unreachable = lab.target, 6, lab.target.taint(UNREACHABLE, "NoExecute")
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=tolerated_s))
    with lab.record(), lab.inject(faults.partition(node)) as fault:
        lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
        claim("eviction.toleration-seconds-override").expect(
            pod.deletion, within=windows.toleration(tolerated_s), after=unreachable.added
        )
"""
STOPPED = {**dict.fromkeys(CLAIMS, ("conforms", None)), "partition.terminating": ("unproven", "lab-lacks")}
"""The verdicts on these scenarios."""
LOSS_CLAIMS = CLAIMS - {"heartbeat.kubelet-stop"}
PARTITION_CLAIMS = LOSS_CLAIMS | {"eviction.toleration-seconds-override"}
INPUTS = f"ls {STATE_FOLDER}/nodeproof-heal-* 2>/dev/null || :"


GUARDS: dict[str, Json] = {
    "outside of the working hours": {"hours": Hours("UTC", ("Mon",), "00:00", "00:00")},
    "abort condition false: exit code 1": {"abort": Abort((Command(("false",)),))},
    "alerts of http://127.0.0.1:9: no answer": {"alerts": Alerts("prometheus", "http://127.0.0.1:9", ())},
}
"""Guards of an inventory that refuse a fault now, by the reason."""


@pytest.fixture(scope="module")
def cluster_lab(shared_whole_lab: LabHandle) -> Iterator[LabHandle]:
    """Return a lab whose nodes look like those of a user's cluster."""
    shared_whole_lab.wait_nodes_ready()
    with with_timers_and_flags(shared_whole_lab):
        yield shared_whole_lab


@pytest.fixture
def own(
    cluster_lab: LabHandle, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OwnCluster]:
    """Return the cluster with an inventory of all nodes and a file of scenarios."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cluster_lab.wait_nodes_ready()
    with listed(OwnCluster(cluster_lab, tmp_path, served)) as own:
        yield own


@contextmanager
def listed(own: OwnCluster) -> Iterator[OwnCluster]:
    """Write an inventory of all nodes and a file of scenarios; remove marks when the context ends."""
    own.write_ssh_files(own.addresses())
    own.write({name: {"may": ["unit-down"]} for name in own.names})
    (own.folder / "test_cluster.py").write_text(SCENARIOS)
    try:
        yield own
    finally:
        own.remove_marks()


@pytest.fixture
def with_power(own: OwnCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnCluster]:
    """Allow a power cut of the first node; mark it and the second one. The third is the switch host."""
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    target, other, host = own.names
    (own.folder / "test_cluster.py").write_text(POWER_SCENARIO)
    with serving_power(own.lab.name, own.folder) as driver:
        nodes = {target: {"may": ["power-off"], "power": "bmc"}, other: {"may": ["unit-down"]}}
        own.add(nodes=nodes, power={"bmc": {**driver, "switch": host}})
        own.mark(target, other)
        yield own


@pytest.fixture
def with_partition(own: OwnCluster) -> OwnCluster:
    """Allow a partition of the first node, and pods; mark it and the second one."""
    (own.folder / "test_cluster.py").write_text(PARTITION_SCENARIO)
    nodes = {name: {"may": ["partition"]} for name in own.names[:2]}
    own.add(nodes=nodes, pods={"image": WITNESS_IMAGE})
    own.mark(*own.names[:2])
    return own


@pytest.fixture
def foreign_pod(cluster_lab: LabHandle) -> Iterator[None]:
    """Create a pod of the cluster's owner in the namespace of nodeproof."""
    api = cluster_lab.cluster.api
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    api.create(PODS, FOREIGN_POD)
    yield
    api.delete(f"{PODS}/{FOREIGN_POD['metadata']['name']}", grace_s=0)


def run_scenarios(own: OwnCluster, timeout_s: float = RUN_TIMEOUT_S) -> CompletedCommand:
    process = own.nodeproof("run", "--no-site", "test_cluster.py", timeout_s=timeout_s)
    assert process.status == 0, process
    return process


def kill_run(own: OwnCluster, *options: str) -> Json:
    """Start a run, kill it after its injection, and return the open fault."""
    with running("--cluster", INVENTORY, "test_cluster.py", *options, cwd=own.folder):
        pass
    (left,) = open_faults(own)
    return left["fault"]


def heal(own: OwnCluster, env: Mapping[str, str] | None = None) -> None:
    process = own.nodeproof("heal", env=env)
    assert process.status == 0, process
    assert open_faults(own) == []


def open_faults(own: OwnCluster) -> list[Json]:
    lease = own.lab.cluster.api.get(LOCK)
    return list(json.loads(lease["metadata"]["annotations"][LEDGER]))


def leftovers_on(own: OwnCluster, name: str) -> list[str]:
    """Return the dead-man's timers on a node, and the files that they read."""
    inputs = own.lab.fleet.machine(name).run(["sh", "-c", INPUTS], timeout_s=10).stdout.split()
    return [*timers_on(own.lab, name), *inputs]


def check_judged_and_healed(own: OwnCluster, run: Path | None, verdicts: Json, *places: str) -> None:
    """Check the verdicts of a run, and that its fault left nothing in the cluster and on these machines."""
    assert verdicts_of(run) == verdicts
    assert run is not None
    assert steps(run)[-1] == "closed"
    assert open_faults(own) == []
    assert [left for place in places for left in leftovers_on(own, place)] == []


@pytest.mark.usefixtures("foreign_pod")
def test_stopped_kubelet_is_judged_and_healed(own: OwnCluster) -> None:
    target = own.names[0]
    own.mark(*own.names[:2])
    process = run_scenarios(own)
    for line in (
        "1 of 2 scenarios can run on this cluster, 1 with faults",
        *(f"unit-down on {target}: {step}" for step in ("injected", "healed")),
    ):
        assert line in process.stderr, process
    check_judged_and_healed(own, the_run(own.folder), STOPPED, target)
    left = [entry["metadata"] for entry in own.lab.cluster.api.get("/api/v1/nodes")["items"]]
    assert not any(SENTINEL_ANNOTATION in metadata["annotations"] for metadata in left)
    pods = own.lab.cluster.api.get(PODS)["items"]
    assert [pod["metadata"]["name"] for pod in pods] == [FOREIGN_POD["metadata"]["name"]]


def test_abort_heals_at_once_and_proves_nothing(own: OwnCluster) -> None:
    own.mark(*own.names[:2])
    with serving(Page()) as page:
        own.add(abort={"period_s": 1, "conditions": [{"url": page.url}]})
        options = ("--cluster", INVENTORY, "test_cluster.py", "-k", "stopped")
        with running(*options, cwd=own.folder) as child:
            folder, log, polls = child.folder, child.log, len(page.paths)
            assert eventually(lambda: len(page.paths) > polls + 1, ABORTED_TIMEOUT_S), log.read_text()
            page.status, failed_t = 503, time.monotonic()
            assert eventually(lambda: "closed" in steps(folder), ABORTED_TIMEOUT_S), log.read_text()
            assert time.monotonic() - failed_t < ABORTED_TIMEOUT_S
            assert child.wait() == 3, log.read_text()
    assert f"abort condition {page.url}: HTTP 503" in log.read_text()
    assert steps(folder)[-4:] == ["aborted", "healing", "healed", "closed"]
    check_judged_and_healed(own, folder, dict.fromkeys(CLAIMS, ("unproven", "aborted")), own.names[0])
    own.lab.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


@pytest.mark.night("CI has the lock of a killed holder: tests/contract/test_cluster_lock.py")
def test_killed_run_is_healed_from_elsewhere(own: OwnCluster, tmp_path: Path) -> None:
    target = own.names[0]
    own.mark(*own.names[:2])
    left = kill_run(own, "-k", "stopped")
    assert (left["fault"], left["node"]) == ("unit-down", target)
    # A mark may expire before a colleague heals.
    assert own.nodeproof("unmark", target).status == 0
    heal(own, {"XDG_STATE_HOME": str(tmp_path / "elsewhere")})
    assert timers_on(own.lab, target) == []
    own.lab.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def test_power_cut_by_the_driver_of_another_package_is_judged_and_healed(
    with_power: OwnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, folder = with_power, with_power.folder
    target, _other, host = own.names
    before = own.lab.fleet.machine(target).boot_id()
    install(folder, "pdu", POWER_DRIVER, group="nodeproof.power", of_module="Pdu")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    options = {"program": str(folder / "bmc.py"), "outlets": str(folder / "bmc")}
    entry = {"driver": "acme-pdu", "options": options, "secret_env": PASSWORD_ENV, "switch": host}
    own.add(power={"bmc": entry})
    run_scenarios(own)
    check_judged_and_healed(own, the_run(folder), dict.fromkeys(LOSS_CLAIMS, ("conforms", None)), host)
    assert own.lab.fleet.machine(target).boot_id() != before


def tables_on(own: OwnCluster, name: str) -> list[str]:
    """Return the tables of faults in the firewall of a node."""
    return Partition.ids_on(own.lab.fleet.machine(name))


def has_pods_namespace(own: OwnCluster) -> bool:
    namespaces = own.lab.cluster.api.get("/api/v1/namespaces")["items"]
    return POD_NAMESPACE in {entry["metadata"]["name"] for entry in namespaces}


def test_partitions_are_judged_and_healed(with_partition: OwnCluster) -> None:
    own, target = with_partition, with_partition.names[0]
    run_scenarios(own, 2 * RUN_TIMEOUT_S)
    verdicts = dict.fromkeys(PARTITION_CLAIMS, ("conforms", None))
    check_judged_and_healed(own, the_run(own.folder), verdicts, target)
    assert not has_pods_namespace(own)
    assert tables_on(own, target) == []


@pytest.mark.night("CI has the timer of another fault: test_switch_host_restores_the_power_of_a_killed_run")
def test_node_ends_the_partition_of_a_killed_run(with_partition: OwnCluster) -> None:
    own, target = with_partition, with_partition.names[0]
    kill_run(own, "-k", "pod")
    machine = own.lab.fleet.machine(target)
    assert not machine.reaches_control_plane()
    assert eventually(lambda: tables_on(own, target) == [], FIRES_TIMEOUT_S)
    assert machine.reaches_control_plane()
    assert has_pods_namespace(own)
    heal(own)
    assert not has_pods_namespace(own)
    own.lab.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def killed_with_power_off(own: OwnCluster) -> Timer:
    """Start a run, kill it when the power is off and the switch is armed, and return the switch's timer."""
    target, _other, host = own.names
    left, machine = kill_run(own), own.lab.fleet.machine(host)
    assert (left["fault"], left["node"]) == ("power-off", target)
    assert not own.lab.fleet.machine(target).is_powered()
    _timer, secret = leftovers_on(own, host)
    completed = machine.run(["stat", "-c%a %U", secret], timeout_s=10)
    assert completed.stdout == "600 root\n"
    return Timer(machine, host, left["id"])


@pytest.mark.night("CI has the switch host, which restores the power of a killed run by itself")
def test_power_of_a_killed_run_is_restored_from_elsewhere(with_power: OwnCluster, tmp_path: Path) -> None:
    own, elsewhere = with_power, {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    target, _other, host = own.names
    killed_with_power_off(own).disarm()
    process = own.nodeproof("heal", env={**elsewhere, PASSWORD_ENV: ""})
    assert process.status == 2, process
    assert f"the environment variable {PASSWORD_ENV} must have" in process.stderr
    assert not own.lab.fleet.machine(target).is_powered()
    heal(own, elsewhere)
    assert own.lab.fleet.machine(target).is_powered()
    assert leftovers_on(own, host) == []
    own.lab.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def test_switch_host_restores_the_power_of_a_killed_run(with_power: OwnCluster) -> None:
    own = with_power
    target, _other, host = own.names
    killed_with_power_off(own)
    machine = own.lab.fleet.machine(target)
    assert eventually(machine.is_powered, FIRES_TIMEOUT_S)
    assert eventually(lambda: leftovers_on(own, host) == [], ENDED_TIMEOUT_S)
    own.lab.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)
    heal(own)


def test_heal_does_not_touch_another_machine(own: OwnCluster) -> None:
    addresses, fleet = own.addresses(), own.lab.fleet
    name, other, _ = own.names
    fault = UnitDown(name)
    ledger = ClusterLock(own.lab.cluster.api, "killed run", INVENTORY, print)
    ledger.take()
    ledger.write("injected", fault.to_json())
    ledger.release()
    healed_file = f"{STATE_FOLDER}/{fault.id}.over"
    own.write_ssh_files({**addresses, name: addresses[other]})
    process = own.nodeproof("heal")
    assert process.status == 2, process
    assert f"not proven healed: unit-down on {name} ({fault.id})" in process.stderr
    assert [left["fault"]["id"] for left in open_faults(own)] == [fault.id]
    assert not succeeds(fleet.machine(other), "test", "-e", healed_file)
    own.write_ssh_files(addresses)
    heal(own)
    assert succeeds(fleet.machine(name), "test", "-e", healed_file)


def test_systemd_before_254_is_refused(own: OwnCluster) -> None:
    new, old, _ = own.names
    nodes = own.lab.cluster.api.get("/api/v1/nodes")["items"]
    by_name = {entry["metadata"]["name"]: entry for entry in nodes}
    with older_systemd_on(own.lab, old), ssh_config(read(own.folder / INVENTORY)) as ssh:
        reasons = {
            name: list(refusals("unit-down", by_name[name], inspect_host(OpenSsh(name, ssh))))
            for name in (new, old)
        }
    assert reasons[new] == []
    (reason,) = reasons[old]
    assert "no systemd 254 or newer" in reason


def test_unmarked_nodes_are_refused(own: OwnCluster) -> None:
    marked, unmarked, _ = own.names
    own.mark(marked)
    process = own.nodeproof("run", "--no-site", "test_cluster.py")
    assert process.status == 2, process
    assert "1 marked node may be harmed, a run needs 2" in process.stderr
    assert f"{unmarked}: it is not marked" in process.stderr
    assert the_run(own.folder) is None


def test_fault_needs_consent_at_its_time(own: OwnCluster) -> None:
    target, other, unmarked = own.names
    until = datetime.now(UTC) + timedelta(seconds=HEAL_TIMEOUT_S + 60)
    own.mark(target, other, until=until.isoformat())
    fault, api = UnitDown(target), own.lab.cluster.api
    with connected(own.folder / INVENTORY, "test", "all") as cluster, ssh_config(cluster.inventory) as ssh:
        owner = MarkedNodes(cluster, "own cluster", ssh)
        owner.permit(fault, Declared([target]))
        refused: dict[str, tuple[Fault, Declared]] = {
            "its mark expires": (fault, Declared([target], lasts_s=90)),
            "it is not marked": (UnitDown(unmarked), Declared([unmarked])),
            "no fault for somebody's own cluster": (Freeze(target), Declared([target])),
            "the inventory does not allow partition": (Partition(target), Declared([target])),
            "the inventory does not allow power-off": (PowerOff(target), Declared([target])),
            "unit-down with unit is no fault": (UnitDown(target, "containerd.service"), Declared([target])),
        }
        for reason, (refused_fault, declared) in refused.items():
            with pytest.raises(Refused, match=reason):
                owner.permit(refused_fault, declared)
        for reason, guards in GUARDS.items():
            guarded = replace(cluster, inventory=replace(cluster.inventory, **guards))
            with pytest.raises(Refused, match=reason):
                MarkedNodes(guarded, "own cluster", ssh).permit(fault, Declared([target]))
        api.patch(node(other), {"spec": {"unschedulable": True}})
        try:
            with pytest.raises(Refused, match=f"{other} is away already: cordoned"):
                owner.permit(fault, Declared([target]))
        finally:
            api.patch(node(other), {"spec": {"unschedulable": None}})
