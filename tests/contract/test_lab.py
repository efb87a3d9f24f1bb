"""What every lab keeps: a real cluster, apart from its host and other labs, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.artifacts.components import ROLES, Components, obtain
from nodeproof.checks import moments
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.configuration import kubelet_configz
from nodeproof.cluster.resources import NAMESPACE, WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import is_running
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.measuring import read_clock
from nodeproof.labs.client.resizing import resize
from nodeproof.labs.ground import autogroup
from nodeproof.labs.ground.logs import LIMIT_BYTES
from nodeproof.labs.ground.spec import KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.labs.ground.stalls import CONTROLLERS
from nodeproof.model.clocks import error_s, offset_s
from nodeproof.model.cluster import condition, is_ready
from nodeproof.model.history import Entry, History
from nodeproof.model.pattern import PRESENT
from nodeproof.model.problem import Problem
from nodeproof.model.schema import unknown
from nodeproof.model.slack import LAB, slack_s
from nodeproof.probes.answering import ANSWERS, kubelet_from_outside
from nodeproof.recording.machine_events import MachineEvents
from nodeproof.recording.recorder import Recording
from nodeproof.recording.stalls import NOTABLE_S, TICK_S
from nodeproof.safety.guard import Declared, Refused, check_plan, check_target
from tests import leftovers
from tests.acceptance.command import nodeproof, start
from tests.contract.kinds import Kind
from tests.waiting import eventually, pause

Json = Any
COMMAND_LIMIT_S = 10.0
NOBODYS = "10.77.254.254"
READY_LIMIT_S = 60.0
EVENTS_LIMIT_S = 20.0
MOST_CLOCK_ERROR_S = 1.0
STOPPED_S = 0.6
RIVALS = 40
OF_THIS_LAB = """
below() {
    for child in $(cat /proc/$1/task/*/children); do
        [ "$child" = $$ ] || echo "$child $(below "$child")"
    done
}
all="$PPID $(below $PPID)"
"""
"""A shell's variable with its parent and all processes below that, but its own."""
BROKEN = """#!/bin/sh
[ "$1" = --version ] && echo "Kubernetes v1.36.3" && exit 0
echo "first words" >&2
echo "Error: no such flag: --nonsense" >&2
exit 1
"""


@pytest.fixture
def second(kind: Kind, components: Components) -> Iterator[Lab]:
    """Another small lab of the same kind, which a test may end in its own way."""
    lab = kind.start(components, 1)
    yield lab
    lab.close()
    if lab.name in registry.running():
        registry.down(lab.name)
    registry.sweep()


@pytest.fixture
def broken_components(components: Components, tmp_path: Path) -> Components:
    """Executables of which the API server ends as soon as it starts."""
    for role in ROLES:
        (tmp_path / role).symlink_to(components.path(role))
    (tmp_path / "kube-apiserver").unlink()
    (tmp_path / "kube-apiserver").write_text(BROKEN)
    (tmp_path / "kube-apiserver").chmod(0o755)
    return obtain(str(tmp_path), components.kubernetes_version, print)


def audit(lab: Lab) -> list[Mapping[str, Json]]:
    lines = (lab.life.logs / "audit.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def as_kubelet(kind: Kind, lab: Lab, name: str, *arguments: str) -> Mapping[str, Json]:
    """Run kubectl with a node's own credential."""
    files = kind.node_files(lab, name)
    argv = [
        str(lab.components.path("kubectl")),
        "--kubeconfig=/dev/null",
        f"--server=https://{lab.fleet.machine(name).control_plane_address}:6443",
        f"--certificate-authority={files / 'ca.crt'}",
        f"--client-certificate={files / 'kubelet.crt'}",
        f"--client-key={files / 'kubelet.key'}",
    ]
    return registry.client(lab.name).spawn_command([*argv, *arguments], COMMAND_LIMIT_S)


@pytest.mark.vm
def test_all_nodes_are_ready(lab: Lab) -> None:
    nodes = {entry["metadata"]["name"]: entry for entry in lab.cluster.api.get(WATCHED["nodes"])["items"]}

    assert set(nodes) == set(lab.fleet.node_names())
    assert all(is_ready(entry) for entry in nodes.values())


@pytest.mark.vm
def test_a_node_is_the_machine_that_the_lab_recorded(lab: Lab, node: str) -> None:
    def info() -> Json:
        return lab.cluster.api.get(node_path(node))["status"]["nodeInfo"]

    assert info()["machineID"] == lab.safety.record_of_itself().machine_ids[node]
    # One that was power-cycled a moment ago is Ready by its last boot's word until it reports.
    assert eventually(lambda: info()["bootID"] == lab.fleet.machine(node).boot_id(), READY_LIMIT_S)


@pytest.mark.vm
def test_a_kubelet_tells_its_configuration_through_its_authenticated_port(lab: Lab, node: str) -> None:
    told = kubelet_configz(lab.cluster.api, node)

    assert told["nodeLeaseDurationSeconds"] == lab.profile.kubelet["nodeLeaseDurationSeconds"]
    assert told["authentication"]["anonymous"]["enabled"] is False


@pytest.mark.vm
def test_a_kubelet_answers_from_outside_of_the_cluster(lab: Lab, node: str) -> None:
    address = lab.fleet.machine(node).data_address
    assert kubelet_from_outside(node, address).read(lab) == ANSWERS
    assert kubelet_from_outside(node, NOBODYS).read(lab) != ANSWERS
    with registry.client(lab.name).dial(address, KUBELET_PORT, COMMAND_LIMIT_S, OUTSIDE_ADDRESS) as made:
        assert made.getsockname()[0] == OUTSIDE_ADDRESS


@pytest.mark.vm
def test_a_kubelet_refuses_whom_it_does_not_know(lab: Lab, node: str) -> None:
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    address = lab.fleet.machine(node).data_address
    with registry.client(lab.name).dial(address, 10250, COMMAND_LIMIT_S) as made:
        made.settimeout(COMMAND_LIMIT_S)
        with context.wrap_socket(made, server_hostname=address) as speaking:
            speaking.sendall(b"GET /configz HTTP/1.0\r\n\r\n")
            assert b" 401 " in speaking.recv(4096).splitlines()[0]


@pytest.mark.vm
def test_kubelets_report_events_of_their_own(lab: Lab, node: str) -> None:
    def reasons() -> set[str]:
        events = lab.cluster.api.get(WATCHED["events"])["items"]
        return {
            event["reason"]
            for event in events
            if event["source"].get("component") == "kubelet" and event["involvedObject"]["name"] == node
        }

    assert eventually(lambda: "Starting" in reasons(), EVENTS_LIMIT_S)


@pytest.mark.vm
def test_a_pod_runs_and_the_audit_log_says_who_made_it(lab: Lab, node: str) -> None:
    pod = lab.cluster.run_pod(node)

    assert is_running(lab.cluster.api, pod)
    made = next(line for line in audit(lab) if line.get("objectRef", {}).get("name") == pod.name)
    assert (made["verb"], made["objectRef"]["resource"]) == ("create", "pods")
    assert made["user"]["username"] == "nodeproof-admin"
    assert made["objectRef"]["namespace"] == NAMESPACE


@pytest.mark.vm
def test_a_kubelets_credential_is_good_for_its_own_node_only(kind: Kind, lab: Lab) -> None:
    one, other = sorted(lab.fleet.node_names())[:2]
    body = json.dumps({"metadata": {"annotations": {"nodeproof.dev/test": "1"}}})
    own = as_kubelet(kind, lab, one, "patch", "node", one, "--patch", body)
    foreign = as_kubelet(kind, lab, one, "patch", "node", other, "--patch", body)

    assert own["status"] == 0, own["stderr"]
    assert foreign["status"] == 1
    assert "forbidden" in foreign["stderr"].lower()


@pytest.mark.vm
def test_a_kubelets_credential_reads_no_secret_that_no_pod_of_its_node_needs(
    kind: Kind, lab: Lab, node: str
) -> None:
    done = as_kubelet(kind, lab, node, "get", "secrets", "--all-namespaces")

    assert done["status"] == 1
    assert "forbidden" in done["stderr"].lower()


@pytest.mark.vm
def test_a_lab_gives_way_to_who_watches_it_and_its_machines_to_its_controllers(kind: Kind, lab: Lab) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("its kernel has no autogroups")
    status = registry.client(lab.name).status()
    harness = autogroup.nice_of()
    assert _nice(lab, status["components"].values()) == {harness + autogroup.LAB}
    nodes = autogroup.LAB if kind.name == "process" else autogroup.MACHINE
    assert _nice(lab, [entry["pid"] for entry in status["nodes"]]) == {harness + nodes}


@pytest.mark.vm
def test_a_lab_tells_when_it_stood_still(lab: Lab, tmp_path: Path) -> None:
    """The harness did not: what a component was late by is seen by nobody else."""
    with lab.record(tmp_path / "history.jsonl", []) as recording:
        stop = f"kill -STOP $PPID; sleep {STOPPED_S}; kill -CONT $PPID"
        registry.client(lab.name).spawn_command(["sh", "-c", stop], COMMAND_LIMIT_S)
        eventually(lambda: _told_by_lab(recording.history()), EVENTS_LIMIT_S)
    late = _told_by_lab(recording.history())
    assert max(late, default=0.0) > STOPPED_S - 2 * TICK_S
    assert slack_s(recording.history(), lab.configuration) > STOPPED_S


def test_a_recording_begins_once_nodes_are_back_that_a_lab_lost_when_it_stood_still(
    kind: Kind, lab: Lab, node: str, tmp_path: Path
) -> None:
    """As a host does that is suspended: with every process. One kubelet goes on once its node is lost, or its
    heartbeat might be faster than the controller's pass. A heartbeat that was under way as everything stopped
    counts from when the controller sees it: the node is lost a whole grace period after that.
    """
    if kind.name != "process":
        pytest.skip("its machines are no processes of its supervisor")
    limits, events = lab.configuration, MachineEvents(lab.dir / "events.jsonl")
    client = registry.client(lab.name)
    entered = str(client.status()["components"][f"kubelet-{node}"])
    kubelet = client.spawn_command(["pgrep", "-P", entered], COMMAND_LIMIT_S)["stdout"].strip()
    stopped = (
        f"kill -STOP $all; sleep {limits['G'] + 1}; kill -CONT $(printf '%s\\n' $all | grep -vx {kubelet})"
    )
    client.spawn_command(["sh", "-c", f"{OF_THIS_LAB}{stopped}"], 3 * limits["G"])
    went_on_t = time.monotonic()
    try:
        lost = eventually(lambda: not is_ready(lab.cluster.api.get(node_path(node))), 2 * limits["G"])
    finally:
        client.spawn_command(["kill", "-CONT", kubelet], COMMAND_LIMIT_S)
    assert lost
    assert eventually(
        lambda: any(told.get("late_s", 0) > limits["G"] for told in events.read()), EVENTS_LIMIT_S
    )
    with lab.record(tmp_path / "history.jsonl", []) as recording:
        pause(limits["P"] + 1)
    history = recording.history()
    (ready,) = (condition(version.object, "Ready") for version in history.versions("nodes", "", node)[:1])
    assert ready is not None
    assert history.from_wall(ready["lastTransitionTime"]) > went_on_t - 1.0, "it was not lost"
    assert moments.find(history, moments.condition_became(node, "Ready", "Unknown")) is None
    assert history.began_t > went_on_t + limits["P"], "a pass of the controller may still have lost it"


def test_a_lab_tells_when_its_controllers_waited_for_a_processor(lab: Lab, tmp_path: Path) -> None:
    """Its own threads did not: the controllers alone are kept to one processor, which others want."""
    manager = registry.client(lab.name).status()["components"][CONTROLLERS[0]]
    one = min(os.sched_getaffinity(0))
    busy = f"timeout {STOPPED_S} taskset -c {one} sh -c 'while :; do :; done' &"
    crowd = (
        f"was=$(taskset -p {manager} | sed 's/.* //'); taskset -acp {one} {manager}; {busy * RIVALS} wait; "
        f"taskset -ap $was {manager}"
    )
    with lab.record(tmp_path / "history.jsonl", []) as recording:

        def told_in_a_crowd() -> list[Entry]:
            # Controllers that have nothing to do just then wait for nothing.
            registry.client(lab.name).spawn_command(["sh", "-c", crowd], COMMAND_LIMIT_S)
            return [told for told in _waited(recording.history()) if told.data["late_s"] > NOTABLE_S]

        assert eventually(told_in_a_crowd, EVENTS_LIMIT_S)
    history = recording.history()
    told = max(_waited(history), key=lambda entry: float(entry.data["late_s"]))
    assert told.data["waited_s"] >= told.data["late_s"]
    assert slack_s(history, lab.configuration) > told.data["late_s"]


def _waited(history: History) -> list[Entry]:
    return [entry for entry in history.of_kind("stall") if "waited_s" in entry.data]


def _nice(lab: Lab, pids: Iterable[int]) -> set[int]:
    files = [f"/proc/{pid}/autogroup" for pid in pids]
    said = registry.client(lab.name).spawn_command(["cat", *files], COMMAND_LIMIT_S)["stdout"]
    return {int(line.rpartition(" ")[2]) for line in said.splitlines()}


def _told_by_lab(history: History) -> list[float]:
    return [entry.data["late_s"] for entry in history.of_kind("stall") if entry.data.get("by") == LAB]


def test_a_labs_folder_is_its_owners_alone(lab: Lab) -> None:
    status = lab.dir.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.getuid())
    for name in ("lock", "s", "record.json", "pki/admin.key", "pki/ssh"):
        assert stat.S_IMODE((lab.dir / name).stat().st_mode) & 0o077 == 0, name


def test_a_component_that_says_too_much_keeps_its_last_words_only(lab: Lab) -> None:
    log, inside = lab.life.logs / "etcd.log", lab.dir / "mem" / "logs" / "etcd.log"
    flood = ["sh", "-c", f"head -c {LIMIT_BYTES + 1} /dev/zero >>{inside}"]
    assert registry.client(lab.name).spawn_command(flood, COMMAND_LIMIT_S)["status"] == 0
    assert eventually(lambda: log.stat().st_size < LIMIT_BYTES, EVENTS_LIMIT_S)
    assert log.with_name("etcd.log.1").stat().st_size > LIMIT_BYTES
    registry.client(lab.name).spawn_command(["rm", f"{inside}.1"], COMMAND_LIMIT_S)


def test_any_program_runs_in_the_labs_network(lab: Lab, tmp_path: Path) -> None:
    kubectl = str(lab.components.path("kubectl"))
    done = nodeproof("exec", "--lab-name", lab.name, "--", kubectl, "get", "nodes", cwd=tmp_path)
    assert done.status == 0, done
    assert all(name in done.stdout for name in lab.fleet.node_names())
    assert nodeproof("exec", "--lab-name", lab.name, "--", "sh", "-c", "exit 7", cwd=tmp_path).status == 7


def test_the_labs_api_is_on_loopback_as_long_as_somebody_wants_it(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start("proxy", "--lab-name", lab.name, cwd=tmp_path, log=log)
    try:
        assert eventually(lambda: "export KUBECONFIG=" in log.read_text(), EVENTS_LIMIT_S), log.read_text()
        config = Path(log.read_text().partition("KUBECONFIG=")[2].split()[0])
        assert config.stat().st_mode & 0o077 == 0
        argv = [str(lab.components.path("kubectl")), f"--kubeconfig={config}", "get", "nodes", "-o", "name"]
        for _ in range(2):
            told = proc.run(argv, timeout_s=COMMAND_LIMIT_S).stdout.split()
            assert told == [f"node/{name}" for name in sorted(lab.fleet.node_names())]
    finally:
        child.send_signal(signal.SIGINT)
        status = child.wait(timeout=COMMAND_LIMIT_S)
    assert status == 0
    assert not config.exists()


def test_root_leaves_no_compiled_files_where_the_package_is(lab: Lab) -> None:
    mine = [entry.command for entry in leftovers.family(lab.name) if "-m nodeproof.labs" in entry.command]
    assert mine
    assert all(" -B " in command for command in mine if "python" in command)


def test_every_word_names_fields_that_the_api_has(lab: Lab, node: str) -> None:
    words = [
        moments.condition_said(node, "Ready", "False", "reason", "message"),
        moments.taint_added(node, "key", "NoExecute"),
        moments.cordoned(node),
        moments.conditions_changed(node),
        moments.boot_id_changed(node),
        moments.pod_deletion(NAMESPACE, "pod"),
        moments.pod_bound(NAMESPACE, "pod"),
        moments.pod_unschedulable(NAMESPACE, "pod"),
        moments.pod_marked(NAMESPACE, "pod", "reason", "message"),
        moments.event_reported("reason", "Node", node, "message"),
        moments.became("leases", node, {"spec": {"renewTime": PRESENT}}),
    ]
    for moment in words:
        for resource, paths in moments.paths(moment).items():
            assert unknown(paths, lab.configuration.fields[resource]) == []
    assert unknown(["spec.taint[].key"], lab.configuration.fields["nodes"]) == ["spec.taint[].key"]


def test_clocks_are_measured_for_each_recording_and_after_each_boot_in_it(
    lab: Lab, node: str, tmp_path: Path
) -> None:
    with lab.record(tmp_path / "history.jsonl", {node}) as recording:
        lab.fleet.machine(node).power("off")
        lab.fleet.machine(node).power("on")
        booted_t = eventually(lambda: [entry.t for entry in booted(recording, node)], EVENTS_LIMIT_S)[0]
        eventually(lambda: offset_s(recording.history(), node, booted_t) is not None, READY_LIMIT_S)
        early = offset_s(recording.history(), node, booted_t - 0.001)
    assert early is not None
    history = recording.history()
    told = [entry.t for entry in history.of_kind("clock") if entry.data["node"] == node]
    assert [t for t in told if t < booted_t]
    assert [t for t in told if t > booted_t]
    error = error_s(history)
    assert error is not None
    assert error < MOST_CLOCK_ERROR_S


def test_a_node_that_is_said_to_have_the_hosts_clock_has_it(kind: Kind, lab: Lab, node: str) -> None:
    if kind.name != "process":
        pytest.skip("its machines have clocks of their own")
    asked = read_clock(lab.fleet.machine(node))
    assert abs(asked.offset_s) <= asked.error_s
    assert (lab.read_clock(node).offset_s, lab.read_clock(node).error_s) == (0.0, 0.0)


def booted(recording: Recording, node: str) -> list[Entry]:
    return [
        entry
        for entry in recording.history().of_kind("machine")
        if entry.data["node"] == node and entry.data["step"] == "booted"
    ]


def test_nodes_join_and_leave_while_the_lab_runs(lab: Lab, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_LIMIT_S)
    assert lab.fleet.machine(joined).reaches_control_plane()
    assert (
        lab.cluster.api.get(node_path(joined))["metadata"]["labels"]["topology.kubernetes.io/zone"]
        == "zone-a"
    )
    (target,) = lab.safety.injector.targets(joined, [joined])
    check_plan(joined, ("node",), [joined], lab.safety.record_of_itself(), Declared({joined}), set(), set)
    check_target(target, lab.safety.record_of_itself())

    lab.leave(joined)
    assert joined not in lab.fleet.node_names()
    with pytest.raises(ApiError, match="not found"):
        lab.cluster.api.get(node_path(joined))
    with pytest.raises(Refused, match="not a node of lab"):
        check_plan(joined, ("node",), [joined], lab.safety.record_of_itself(), Declared({joined}), set(), set)
    lab.wait_nodes_ready()


def test_two_labs_with_the_same_addresses_do_not_meet(lab: Lab, node: str, second: Lab) -> None:
    ours, theirs = lab.fleet.machine(node), second.fleet.machine(node)
    assert (ours.data_address, ours.control_plane_address) == (
        theirs.data_address,
        theirs.control_plane_address,
    )

    identity = [
        str(at.run(["cat", "/etc/machine-id"], deadline_s=COMMAND_LIMIT_S).stdout) for at in (ours, theirs)
    ]
    assert identity[0] != identity[1]
    assert lab.safety.record_of_itself().kube_system_uid != second.safety.record_of_itself().kube_system_uid
    assert sorted(second.fleet.node_names()) == [node]
    ours.power("off")
    try:
        assert theirs.reaches_control_plane()
        assert theirs.reached_from_control_plane()
    finally:
        ours.power("on")
        assert eventually(ours.reaches_control_plane, READY_LIMIT_S)


def _by_down(lab: Lab, _seen: leftovers.Footprint) -> None:
    lab.down()


def _by_name(lab: Lab, _seen: leftovers.Footprint) -> None:
    lab.close()
    registry.down(lab.name)


def _by_name_once_killed(lab: Lab, seen: leftovers.Footprint) -> None:
    lab.close()
    leftovers.kill(seen.supervisor)
    assert eventually(lambda: lab.name not in registry.running(), READY_LIMIT_S)
    registry.down(lab.name)


def _by_its_init(_lab: Lab, seen: leftovers.Footprint) -> None:
    leftovers.kill(seen.init)


@pytest.mark.alone
@pytest.mark.parametrize(
    "end", [_by_down, _by_name, _by_name_once_killed, pytest.param(_by_its_init, marks=pytest.mark.vm)]
)
def test_a_lab_that_ends_leaves_nothing(
    kind: Kind, second: Lab, end: Callable[[Lab, leftovers.Footprint], None]
) -> None:
    second.prepare()
    second.cluster.run_pod("node-1")
    seen = leftovers.footprint(second.name)
    assert len(seen.namespaces) >= kind.namespaces

    end(second, seen)
    assert leftovers.leftovers(seen) == []


@pytest.mark.alone
def test_a_lab_whose_supervisor_is_killed_ends_and_a_sweep_removes_its_folder(second: Lab, lab: Lab) -> None:
    seen = leftovers.footprint(second.name)
    leftovers.kill(seen.supervisor)

    assert eventually(lambda: second.name not in registry.running(), READY_LIMIT_S)
    assert second.name in registry.sweep()
    assert leftovers.leftovers(seen) == []
    assert lab.name in registry.running()


@pytest.mark.alone
def test_a_component_that_dies_on_start_is_one_problem_with_its_last_words(
    kind: Kind, broken_components: Components
) -> None:
    before, tables = set(registry.running()), leftovers.host_tables()
    with pytest.raises(Problem) as caught:
        kind.start(broken_components, 1)

    assert "kube-apiserver" in caught.value.what
    assert caught.value.detail.splitlines()[-2:] == ["first words", "Error: no such flag: --nonsense"]
    name = caught.value.where.removeprefix("lab ")
    assert name not in before
    assert leftovers.leftovers_of(name, tables) == []


def test_a_lab_is_made_larger_and_smaller(lab: Lab) -> None:
    had = lab.fleet.node_names()
    resize(lab, len(had) + 1)
    (grown,) = set(lab.fleet.node_names()) - set(had)
    assert is_ready(lab.cluster.api.get(node_path(grown)))
    assert lab.safety.record_of_itself().machine_ids.keys() == {*had, grown}
    resize(lab, len(had))
    assert lab.fleet.node_names() == had
    with pytest.raises(ApiError, match="404"):
        lab.cluster.api.get(node_path(grown))
