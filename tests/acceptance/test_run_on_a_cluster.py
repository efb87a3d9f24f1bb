"""A run on somebody's own cluster: a lab that is reached by kubeconfig, inventory and ssh_config alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof.cluster.resources import NAMESPACE, POD_NAMESPACE, node
from nodeproof.cluster.workloads import WITNESS_IMAGE
from nodeproof.existing.guards import Abort, Alerts, Command, Hours
from nodeproof.existing.connection import connected
from nodeproof.existing.inspection import inspect_host, refusals, ssh_config
from nodeproof.existing.inventory import read
from nodeproof.existing.marks import ANNOTATION
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
from nodeproof.report import rundir
from nodeproof.safety.deadman import LATE_S, Timer
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import HEAL_TIMEOUT_S, TTL_S
from tests.acceptance.bmc import PASSWORD, PASSWORD_ENV, serving_power
from tests.acceptance.command import nodeproof, start, steps, the_run
from tests.acceptance.stranger import older_systemd_on, owned_by_a_stranger, timers_on
from tests.acceptance.test_own_cluster import FUTURE, write_ssh_files
from tests.plugins import POWER_DRIVER, install
from tests.small_server import Page, serving
from tests.waiting import eventually

Json = Any
RUN_TIMEOUT_S, ENDED_TIMEOUT_S, READY_TIMEOUT_S = 150.0, 20.0, 60.0
FIRES_TIMEOUT_S = TTL_S + LATE_S + 20.0
ABORTED_TIMEOUT_S = 25.0
"""Half of the time in which the scenario would heal its fault by itself."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OWNERS_POD: Json = {
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
"""A stopped kubelet, and a taint, which is not for somebody's own cluster."""

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
def stranger(altered_whole: LabHandle) -> Iterator[LabHandle]:
    """Return a lab that looks like somebody's own cluster."""
    altered_whole.wait_nodes_ready()
    with owned_by_a_stranger(altered_whole):
        yield altered_whole


@contextmanager
def listed(lab: LabHandle, kubeconfig: Path, folder: Path) -> Iterator[str]:
    """Write an inventory of all nodes and a file of scenarios into a folder, and yield the inventory's name.

    Marks are removed when the context ends.
    """
    api, entries = lab.cluster.api, lab.fleet.nodes()
    write_ssh_files(lab, folder, {entry.name: entry.control_address for entry in entries})
    uid = api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    context = yaml.safe_load(kubeconfig.read_text())["current-context"]
    content = {
        "cluster": {"kubeconfig": str(kubeconfig), "context": context, "uid": uid},
        "ssh": {"config": "ssh_config", "known_hosts": "known_hosts"},
        "nodes": {entry.name: {"may": ["unit-down"]} for entry in entries},
    }
    (folder / "cluster.yaml").write_text(json.dumps(content))
    (folder / "test_cluster.py").write_text(SCENARIOS)
    try:
        yield "cluster.yaml"
    finally:
        for entry in entries:
            api.patch(node(entry.name), {"metadata": {"annotations": {ANNOTATION: None}}})


@pytest.fixture
def inventory(stranger: LabHandle, served: Path, tmp_path: Path) -> Iterator[str]:
    """Write an inventory of all nodes and a file of scenarios; return the inventory's name."""
    stranger.wait_nodes_ready()
    with listed(stranger, served, tmp_path) as name:
        yield name


@pytest.fixture
def power_inventory(
    stranger: LabHandle, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Allow a power cut of the first node; mark it and the second one. The third is the switch host."""
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    target, other, host = sorted(stranger.fleet.node_names())
    (tmp_path / "test_cluster.py").write_text(POWER_SCENARIO)
    with serving_power(stranger.name, tmp_path) as driver:
        nodes = {target: {"may": ["power-off"], "power": "bmc"}, other: {"may": ["unit-down"]}}
        add_to(tmp_path / inventory, {"nodes": nodes, "power": {"bmc": {**driver, "switch": host}}})
        mark(inventory, [target, other], tmp_path)
        yield inventory


def add_to(inventory: Path, entries: Json) -> None:
    inventory.write_text(json.dumps(json.loads(inventory.read_text()) | entries))


def mark(inventory: str, names: list[str], folder: Path, until: str = FUTURE) -> None:
    process = nodeproof("mark", "--cluster", inventory, *names, "--until", until, cwd=folder)
    assert process.status == 0, process


@pytest.fixture
def owners_pod(stranger: LabHandle) -> Iterator[None]:
    """Create a pod of the cluster's owner where nodeproof has its own."""
    api = stranger.cluster.api
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    api.create(PODS, OWNERS_POD)
    yield
    api.delete(f"{PODS}/{OWNERS_POD['metadata']['name']}", grace_s=0)


def open_faults(lab: LabHandle) -> list[Json]:
    lease = lab.cluster.api.get(LOCK)
    return list(json.loads(lease["metadata"]["annotations"][LEDGER]))


def check_judged_and_healed(lab: LabHandle, folder: Path, faulted: str) -> None:
    """Check the verdicts of the only run below a folder, and that nothing of its fault is left."""
    run = the_run(folder)
    assert run is not None
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(run)}
    lacking = verdicts.pop("partition.terminating")
    assert verdicts == dict.fromkeys(CLAIMS, ("conforms", None))
    assert lacking == ("unproven", "lab-lacks")
    assert steps(run)[-1] == "closed"
    assert open_faults(lab) == []
    assert timers_on(lab, faulted) == []


@pytest.mark.usefixtures("owners_pod")
def test_stopped_kubelet_is_judged_and_healed(stranger: LabHandle, inventory: str, tmp_path: Path) -> None:
    names = sorted(stranger.fleet.node_names())
    mark(inventory, names[:2], tmp_path)
    run = ("run", "--cluster", inventory, "--no-site", "test_cluster.py")
    process = nodeproof(*run, cwd=tmp_path, timeout_s=RUN_TIMEOUT_S)
    assert process.status == 0, process
    for line in (
        "1 of 2 scenarios can run on this cluster, 1 with faults",
        *(f"unit-down on {names[0]}: {step}" for step in ("injected", "healed")),
    ):
        assert line in process.stderr, process
    check_judged_and_healed(stranger, tmp_path, names[0])
    left = [entry["metadata"] for entry in stranger.cluster.api.get("/api/v1/nodes")["items"]]
    assert not any(SENTINEL_ANNOTATION in metadata["annotations"] for metadata in left)
    pods = stranger.cluster.api.get(PODS)["items"]
    assert [pod["metadata"]["name"] for pod in pods] == [OWNERS_POD["metadata"]["name"]]


def test_abort_heals_at_once_and_proves_nothing(
    stranger: LabHandle, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names, log = sorted(stranger.fleet.node_names()), tmp_path / "log"
    mark(inventory, names[:2], tmp_path)
    with serving(Page()) as page:
        add_to(tmp_path / inventory, {"abort": {"period_s": 1, "conditions": [{"url": page.url}]}})
        run = ("run", "--cluster", inventory, "--no-site", "test_cluster.py", "-k", "stopped")
        child = start(*run, cwd=tmp_path, log=log)
        try:
            folder = eventually(lambda: the_run(tmp_path), RUN_TIMEOUT_S)
            assert folder is not None
            assert eventually(lambda: "injected" in steps(folder), RUN_TIMEOUT_S), log.read_text()
            polls = len(page.paths)
            assert eventually(lambda: len(page.paths) > polls + 1, ABORTED_TIMEOUT_S), log.read_text()
            page.status, failed_t = 503, time.monotonic()
            assert eventually(lambda: "closed" in steps(folder), ABORTED_TIMEOUT_S), log.read_text()
            assert time.monotonic() - failed_t < ABORTED_TIMEOUT_S
            assert child.wait(timeout=RUN_TIMEOUT_S) == 3, log.read_text()
        finally:
            child.kill()
            child.wait(timeout=ENDED_TIMEOUT_S)
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(folder)}
    assert verdicts == dict.fromkeys(CLAIMS, ("unproven", "aborted"))
    assert f"abort condition {page.url}: HTTP 503" in log.read_text()
    assert steps(folder)[-4:] == ["aborted", "healing", "healed", "closed"]
    assert open_faults(stranger) == []
    assert timers_on(stranger, names[0]) == []
    stranger.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


@pytest.mark.night("CI has the lock of a killed holder: tests/contract/test_cluster_lock.py")
def test_killed_run_is_healed_from_elsewhere(
    stranger: LabHandle, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names = sorted(stranger.fleet.node_names())
    mark(inventory, names[:2], tmp_path)
    log = tmp_path / "log"
    run = ("run", "--cluster", inventory, "--no-site", "test_cluster.py", "-k", "stopped")
    child = start(*run, cwd=tmp_path, log=log)
    try:
        folder = eventually(lambda: the_run(tmp_path), RUN_TIMEOUT_S)
        assert folder is not None
        assert eventually(lambda: "injected" in steps(folder), RUN_TIMEOUT_S), log.read_text()
    finally:
        child.kill()
        child.wait(timeout=ENDED_TIMEOUT_S)
    (left,) = open_faults(stranger)
    assert (left["fault"]["fault"], left["fault"]["node"]) == ("unit-down", names[0])
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    # A mark may expire before a colleague heals.
    assert nodeproof("unmark", "--cluster", inventory, names[0], cwd=tmp_path).status == 0
    process = nodeproof("heal", "--cluster", inventory, cwd=tmp_path, env=elsewhere)
    assert process.status == 0, process
    assert open_faults(stranger) == []
    assert timers_on(stranger, names[0]) == []
    stranger.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def test_power_cut_by_the_driver_of_another_package_is_judged_and_healed(
    stranger: LabHandle, power_inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _other, host = sorted(stranger.fleet.node_names())
    before = stranger.fleet.machine(target).boot_id()
    install(tmp_path, "pdu", POWER_DRIVER, group="nodeproof.power", of_module="Pdu")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    options = {"program": str(tmp_path / "bmc.py"), "outlets": str(tmp_path / "bmc")}
    entry = {"driver": "acme-pdu", "options": options, "secret_env": PASSWORD_ENV, "switch": host}
    add_to(tmp_path / power_inventory, {"power": {"bmc": entry}})
    run = ("run", "--cluster", power_inventory, "--no-site", "test_cluster.py")
    process = nodeproof(*run, cwd=tmp_path, timeout_s=RUN_TIMEOUT_S)
    assert process.status == 0, process
    folder = the_run(tmp_path)
    assert folder is not None
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(folder)}
    assert verdicts == dict.fromkeys(LOSS_CLAIMS, ("conforms", None))
    assert steps(folder)[-1] == "closed"
    assert stranger.fleet.machine(target).boot_id() != before
    assert open_faults(stranger) == []
    assert left_on(stranger, host) == []


@pytest.fixture
def partition_inventory(inventory: str, stranger: LabHandle, tmp_path: Path) -> str:
    """Allow a partition of the first node, and pods; mark it and the second one."""
    names = sorted(stranger.fleet.node_names())
    (tmp_path / "test_cluster.py").write_text(PARTITION_SCENARIO)
    nodes = {name: {"may": ["partition"]} for name in names[:2]}
    add_to(tmp_path / inventory, {"nodes": nodes, "pods": {"image": WITNESS_IMAGE}})
    mark(inventory, names[:2], tmp_path)
    return inventory


def tables_on(lab: LabHandle, name: str) -> list[str]:
    """Return the tables of faults in the firewall of a node."""
    return Partition.ids_on(lab.fleet.machine(name))


def has_pods_namespace(lab: LabHandle) -> bool:
    namespaces = lab.cluster.api.get("/api/v1/namespaces")["items"]
    return POD_NAMESPACE in {entry["metadata"]["name"] for entry in namespaces}


def test_partitions_are_judged_and_healed(
    stranger: LabHandle, partition_inventory: str, tmp_path: Path
) -> None:
    run = ("run", "--cluster", partition_inventory, "--no-site", "test_cluster.py")
    process = nodeproof(*run, cwd=tmp_path, timeout_s=2 * RUN_TIMEOUT_S)
    assert process.status == 0, process
    folder = the_run(tmp_path)
    assert folder is not None
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(folder)}
    assert verdicts == dict.fromkeys(PARTITION_CLAIMS, ("conforms", None))
    assert steps(folder)[-1] == "closed"
    assert not has_pods_namespace(stranger)
    target = min(stranger.fleet.node_names())
    assert open_faults(stranger) == []
    assert timers_on(stranger, target) == tables_on(stranger, target) == []


@pytest.mark.night("CI has the timer of another fault: test_switch_host_restores_the_power_of_a_killed_run")
def test_node_ends_the_partition_of_a_killed_run(
    stranger: LabHandle, partition_inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    target, log = min(stranger.fleet.node_names()), tmp_path / "log"
    run = ("run", "--cluster", partition_inventory, "--no-site", "test_cluster.py", "-k", "pod")
    child = start(*run, cwd=tmp_path, log=log)
    try:
        folder = eventually(lambda: the_run(tmp_path), RUN_TIMEOUT_S)
        assert folder is not None
        assert eventually(lambda: "injected" in steps(folder), RUN_TIMEOUT_S), log.read_text()
    finally:
        child.kill()
        child.wait(timeout=ENDED_TIMEOUT_S)
    machine = stranger.fleet.machine(target)
    assert not machine.reaches_control_plane()
    assert eventually(lambda: tables_on(stranger, target) == [], FIRES_TIMEOUT_S)
    assert machine.reaches_control_plane()
    assert has_pods_namespace(stranger)
    process = nodeproof("heal", "--cluster", partition_inventory, cwd=tmp_path)
    assert process.status == 0, process
    assert open_faults(stranger) == []
    assert not has_pods_namespace(stranger)
    stranger.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def killed_with_power_off(stranger: LabHandle, inventory: str, folder: Path) -> Timer:
    """Start a run, kill it when the power is off and the switch is armed, and return the switch's timer."""
    target, _other, host = sorted(stranger.fleet.node_names())
    log = folder / "log"
    child = start("run", "--cluster", inventory, "--no-site", "test_cluster.py", cwd=folder, log=log)
    try:
        run = eventually(lambda: the_run(folder), RUN_TIMEOUT_S)
        assert run is not None
        assert eventually(lambda: "injected" in steps(run), RUN_TIMEOUT_S), log.read_text()
    finally:
        child.kill()
        child.wait(timeout=ENDED_TIMEOUT_S)
    (left,) = open_faults(stranger)
    assert (left["fault"]["fault"], left["fault"]["node"]) == ("power-off", target)
    assert not stranger.fleet.machine(target).is_powered()
    _timer, secret = left_on(stranger, host)
    completed = stranger.fleet.machine(host).run(["stat", "-c%a %U", secret], timeout_s=10)
    assert completed.stdout == "600 root\n"
    return Timer(stranger.fleet.machine(host), host, left["fault"]["id"])


def left_on(lab: LabHandle, name: str) -> list[str]:
    """Return the timers on a node, and the files that they read."""
    inputs = lab.fleet.machine(name).run(["sh", "-c", INPUTS], timeout_s=10).stdout.split()
    return [*timers_on(lab, name), *inputs]


@pytest.mark.night("CI has the switch host, which restores the power of a killed run by itself")
def test_power_of_a_killed_run_is_restored_from_elsewhere(
    stranger: LabHandle, power_inventory: str, tmp_path: Path
) -> None:
    target, _other, host = sorted(stranger.fleet.node_names())
    killed_with_power_off(stranger, power_inventory, tmp_path).disarm()
    heal = ("heal", "--cluster", power_inventory)
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    process = nodeproof(*heal, cwd=tmp_path, env={**elsewhere, PASSWORD_ENV: ""})
    assert process.status == 2, process
    assert f"the environment variable {PASSWORD_ENV} must have" in process.stderr
    assert not stranger.fleet.machine(target).is_powered()
    process = nodeproof(*heal, cwd=tmp_path, env=elsewhere)
    assert process.status == 0, process
    assert stranger.fleet.machine(target).is_powered()
    assert open_faults(stranger) == []
    assert left_on(stranger, host) == []
    stranger.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)


def test_switch_host_restores_the_power_of_a_killed_run(
    stranger: LabHandle, power_inventory: str, tmp_path: Path
) -> None:
    target, _other, host = sorted(stranger.fleet.node_names())
    killed_with_power_off(stranger, power_inventory, tmp_path)
    machine = stranger.fleet.machine(target)
    assert eventually(machine.is_powered, FIRES_TIMEOUT_S)
    assert eventually(lambda: left_on(stranger, host) == [], ENDED_TIMEOUT_S)
    stranger.wait_nodes_ready(timeout_s=READY_TIMEOUT_S)
    process = nodeproof("heal", "--cluster", power_inventory, cwd=tmp_path)
    assert process.status == 0, process
    assert open_faults(stranger) == []


def test_heal_leaves_a_machine_alone_that_is_not_the_nodes(
    stranger: LabHandle, inventory: str, tmp_path: Path
) -> None:
    addresses = {entry.name: entry.control_address for entry in stranger.fleet.nodes()}
    name, other, _ = sorted(addresses)
    fault = UnitDown(name)
    ledger = ClusterLock(stranger.cluster.api, "killed run", inventory, print)
    ledger.take()
    ledger.write("injected", fault.to_json())
    ledger.release()
    over = f"{STATE_FOLDER}/{fault.id}.over"
    write_ssh_files(stranger, tmp_path, {**addresses, name: addresses[other]})
    process = nodeproof("heal", "--cluster", inventory, cwd=tmp_path)
    assert process.status == 2, process
    assert f"not proven healed: unit-down on {name} ({fault.id})" in process.stderr
    assert [left["fault"]["id"] for left in open_faults(stranger)] == [fault.id]
    assert not succeeds(stranger.fleet.machine(other), "test", "-e", over)
    write_ssh_files(stranger, tmp_path, addresses)
    process = nodeproof("heal", "--cluster", inventory, cwd=tmp_path)
    assert process.status == 0, process
    assert open_faults(stranger) == []
    assert succeeds(stranger.fleet.machine(name), "test", "-e", over)


def test_systemd_before_254_is_refused(stranger: LabHandle, inventory: str, tmp_path: Path) -> None:
    new, old, _ = sorted(stranger.fleet.node_names())
    nodes = stranger.cluster.api.get("/api/v1/nodes")["items"]
    by_name = {entry["metadata"]["name"]: entry for entry in nodes}
    with older_systemd_on(stranger, old), ssh_config(read(tmp_path / inventory)) as ssh:
        reasons = {
            name: list(refusals("unit-down", by_name[name], inspect_host(OpenSsh(name, ssh))))
            for name in (new, old)
        }
    assert reasons[new] == []
    (reason,) = reasons[old]
    assert "no systemd 254 or newer" in reason


def test_unmarked_nodes_are_refused(stranger: LabHandle, inventory: str, tmp_path: Path) -> None:
    names = sorted(stranger.fleet.node_names())
    mark(inventory, names[:1], tmp_path)
    process = nodeproof("run", "--cluster", inventory, "--no-site", "test_cluster.py", cwd=tmp_path)
    assert process.status == 2, process
    assert "1 marked node may be harmed, a run needs 2" in process.stderr
    assert f"{names[1]}: it is not marked" in process.stderr
    assert the_run(tmp_path) is None


def test_fault_needs_consent_at_its_time(stranger: LabHandle, inventory: str, tmp_path: Path) -> None:
    target, other, unmarked = sorted(stranger.fleet.node_names())
    until = datetime.now(UTC) + timedelta(seconds=HEAL_TIMEOUT_S + 60)
    mark(inventory, [target, other], tmp_path, until.isoformat())
    fault, api = UnitDown(target), stranger.cluster.api
    with connected(tmp_path / inventory, "test", "all") as cluster, ssh_config(cluster.inventory) as ssh:
        owner = MarkedNodes(cluster, "stranger", ssh)
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
                MarkedNodes(guarded, "stranger", ssh).permit(fault, Declared([target]))
        api.patch(node(other), {"spec": {"unschedulable": True}})
        try:
            with pytest.raises(Refused, match=f"{other} is away already: cordoned"):
                owner.permit(fault, Declared([target]))
        finally:
            api.patch(node(other), {"spec": {"unschedulable": None}})
