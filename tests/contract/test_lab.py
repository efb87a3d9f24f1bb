"""Properties of every lab: a real cluster, isolated from its host and other labs, and removed completely."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts.components import ROLES, Components, obtain
from nodeproof.checks import moments
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.published import kubelet_configz
from nodeproof.cluster.resources import NAMESPACE, WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import is_running, run_pod
from nodeproof.labs.base import autogroup
from nodeproof.labs.base.processes import LIMIT_BYTES
from nodeproof.labs.base.spec import KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.labs.base.stalls import CONTROLLERS
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle, read_clock, resize
from nodeproof.model.clocks import error_s, offset_s
from nodeproof.model.cluster import condition, is_ready
from nodeproof.model.history import Entry, History
from nodeproof.model.pattern import PRESENT, Json, unknown
from nodeproof.model.problem import Problem
from nodeproof.model.slack import LAB, slack_s
from nodeproof.probes import ANSWERS, kubelet_from_outside
from nodeproof.recording.node_messages import NOTABLE_S, TICK_S
from nodeproof.recording.recorder import MachineEvents, Recording
from nodeproof.safety.guard import Declared, Refused, check_plan, check_target
from tests import leftovers
from tests.acceptance.command import nodeproof, start
from tests.contract.kinds import Kind
from tests.fakes import executable
from tests.waiting import eventually, pause

COMMAND_TIMEOUT_S = 10.0
UNUSED_ADDRESS = "10.77.254.254"
READY_TIMEOUT_S = 60.0
EVENTS_TIMEOUT_S = 20.0
MOST_CLOCK_ERROR_S = 1.0
SUSPENDED_S = 0.6
LOOPS = 40
LIST_PROCESSES = """
below() {
    for child in $(cat /proc/$1/task/*/children); do
        [ "$child" = $$ ] || echo "$child $(below "$child")"
    done
}
all="$PPID $(below $PPID)"
"""
"""A shell's variable with the processes of the lab: its parent and all descendants except its own."""
FAILING_PROGRAM = """
[ "$1" = --version ] && echo "Kubernetes v1.36.3" && exit 0
echo "first words" >&2
echo "Error: no such flag: --nonsense" >&2
exit 1
"""


@pytest.fixture
def second_lab(kind: Kind, components: Components) -> Iterator[LabHandle]:
    """Start another small lab of the same kind, which a test may end in any way."""
    lab = kind.start(components, 1)
    yield lab
    lab.close()
    if lab.name in registry.running():
        registry.down(lab.name)
    registry.sweep()


@pytest.fixture
def broken_components(components: Components, tmp_path: Path) -> Components:
    """Return executables whose API server exits on start."""
    for role in ROLES:
        (tmp_path / role).symlink_to(components.path(role))
    (tmp_path / "kube-apiserver").unlink()
    executable(tmp_path / "kube-apiserver", FAILING_PROGRAM)
    return obtain(str(tmp_path), components.kubernetes_version, print)


def in_lab(lab: LabHandle, *argv: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command in a lab's namespaces and return its output."""
    return str(registry.client(lab.name).spawn_command([*argv], timeout_s)["stdout"])


def as_kubelet(kind: Kind, lab: LabHandle, name: str, *arguments: str) -> Mapping[str, Json]:
    """Run kubectl with a node's own credential."""
    files = kind.node_files(lab, name)
    argv = [
        str(lab.components.path("kubectl")),
        "--kubeconfig=/dev/null",
        f"--server=https://{lab.fleet.machine(name).control_plane_addresses[0]}:6443",
        f"--certificate-authority={files / 'ca.crt'}",
        f"--client-certificate={files / 'kubelet.crt'}",
        f"--client-key={files / 'kubelet.key'}",
    ]
    return registry.client(lab.name).spawn_command([*argv, *arguments], COMMAND_TIMEOUT_S)


@pytest.mark.vm
def test_node_is_the_machine_in_the_lab_record(lab: LabHandle, node: str) -> None:
    def info() -> Json:
        return lab.cluster.api.get(node_path(node))["status"]["nodeInfo"]

    assert info()["machineID"] == lab.safety.lab_record().machine_ids[node]
    # After a power cycle a node stays Ready by its last boot's status until it reports.
    assert eventually(lambda: info()["bootID"] == lab.fleet.machine(node).boot_id(), READY_TIMEOUT_S)


@pytest.mark.vm
def test_kubelet_serves_its_configuration_on_the_authenticated_port(lab: LabHandle, node: str) -> None:
    configz = kubelet_configz(lab.cluster.api, node)

    assert configz["nodeLeaseDurationSeconds"] == lab.profile.kubelet["nodeLeaseDurationSeconds"]
    assert configz["authentication"]["anonymous"]["enabled"] is False


@pytest.mark.vm
def test_kubelet_answers_from_outside_the_cluster(lab: LabHandle, node: str) -> None:
    address = lab.fleet.machine(node).data_address
    assert kubelet_from_outside(node, address).read(lab) == ANSWERS
    assert kubelet_from_outside(node, UNUSED_ADDRESS).read(lab) != ANSWERS
    client = registry.client(lab.name)
    with client.dial(address, KUBELET_PORT, COMMAND_TIMEOUT_S, OUTSIDE_ADDRESS) as connection:
        assert connection.getsockname()[0] == OUTSIDE_ADDRESS


@pytest.mark.vm
def test_kubelet_refuses_unknown_clients(lab: LabHandle, node: str) -> None:
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    address = lab.fleet.machine(node).data_address
    with registry.client(lab.name).dial(address, 10250, COMMAND_TIMEOUT_S) as connection:
        connection.settimeout(COMMAND_TIMEOUT_S)
        with context.wrap_socket(connection, server_hostname=address) as speaking:
            speaking.sendall(b"GET /configz HTTP/1.0\r\n\r\n")
            assert b" 401 " in speaking.recv(4096).splitlines()[0]


@pytest.mark.vm
def test_kubelets_report_their_own_events(lab: LabHandle, node: str) -> None:
    def reasons() -> set[str]:
        events = lab.cluster.api.get(WATCHED["events"])["items"]
        return {
            event["reason"]
            for event in events
            if event["source"].get("component") == "kubelet" and event["involvedObject"]["name"] == node
        }

    assert eventually(lambda: "Starting" in reasons(), EVENTS_TIMEOUT_S)


@pytest.mark.vm
def test_pod_runs_and_the_audit_log_names_its_creator(lab: LabHandle, node: str) -> None:
    pod = run_pod(lab.cluster.api, node)

    assert is_running(lab.cluster.api, pod)
    log = (lab.life.logs / "audit.jsonl").read_text().splitlines(keepends=True)
    lines = [json.loads(line) for line in log if line.endswith("\n")]
    request = next(line for line in lines if line.get("objectRef", {}).get("name") == pod.name)
    assert (request["verb"], request["objectRef"]["resource"]) == ("create", "pods")
    assert request["user"]["username"] == "nodeproof-admin"
    assert request["objectRef"]["namespace"] == NAMESPACE


@pytest.mark.vm
def test_kubelet_credential_is_limited_to_its_own_node(kind: Kind, lab: LabHandle) -> None:
    one, other = sorted(lab.fleet.node_names())[:2]
    body = json.dumps({"metadata": {"annotations": {"nodeproof.dev/test": "1"}}})
    own = as_kubelet(kind, lab, one, "patch", "node", one, "--patch", body)
    foreign = as_kubelet(kind, lab, one, "patch", "node", other, "--patch", body)

    assert own["status"] == 0, own["stderr"]
    assert foreign["status"] == 1
    assert "forbidden" in foreign["stderr"].lower()


@pytest.mark.vm
def test_kubelet_credential_cannot_read_unrelated_secrets(kind: Kind, lab: LabHandle, node: str) -> None:
    output = as_kubelet(kind, lab, node, "get", "secrets", "--all-namespaces")

    assert output["status"] == 1
    assert "forbidden" in output["stderr"].lower()


@pytest.mark.vm
def test_lab_yields_cpu_to_the_harness_and_machines_to_the_controllers(kind: Kind, lab: LabHandle) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("its kernel has no autogroups")
    status = registry.client(lab.name).status()
    harness = autogroup.nice_of()
    assert _nice(lab, status.components.values()) == {harness + autogroup.LAB}
    nodes = autogroup.LAB if kind.name == "process" else autogroup.MACHINE
    assert _nice(lab, [entry.pid for entry in status.nodes if entry.pid]) == {harness + nodes}


@pytest.mark.vm
def test_lab_reports_that_it_was_suspended(lab: LabHandle, tmp_path: Path) -> None:
    """The harness was not suspended: only the lab can measure a component's delay."""
    with lab.record(tmp_path / "history.jsonl", []) as recording:
        in_lab(lab, "sh", "-c", f"kill -STOP $PPID; sleep {SUSPENDED_S}; kill -CONT $PPID")
        eventually(lambda: _lab_delays(recording.history()), EVENTS_TIMEOUT_S)
    late = _lab_delays(recording.history())
    assert max(late, default=0.0) > SUSPENDED_S - 2 * TICK_S
    assert slack_s(recording.history(), lab.configuration) > SUSPENDED_S


def test_recording_waits_for_nodes_lost_by_a_suspended_lab(
    kind: Kind, lab: LabHandle, node: str, tmp_path: Path
) -> None:
    """Stop every process, as a suspended host does.

    One kubelet goes on once its node is lost, or its heartbeat might be faster than the controller's pass. A
    heartbeat that was under way as everything stopped counts from when the controller sees it: the node is
    lost a whole grace period after that.
    """
    if kind.name != "process":
        pytest.skip("its machines are no processes of its supervisor")
    limits, events = lab.configuration, MachineEvents(lab.dir / "events.jsonl")
    entered = registry.client(lab.name).status().components[f"kubelet-{node}"]
    kubelet = in_lab(lab, "pgrep", "-P", str(entered)).strip()
    suspend = (
        f"kill -STOP $all; sleep {limits['G'] + 1}; kill -CONT $(printf '%s\\n' $all | grep -vx {kubelet})"
    )
    in_lab(lab, "sh", "-c", f"{LIST_PROCESSES}{suspend}", timeout_s=3 * limits["G"])
    resumed_t = time.monotonic()
    try:
        lost = eventually(lambda: not is_ready(lab.cluster.api.get(node_path(node))), 2 * limits["G"])
    finally:
        in_lab(lab, "kill", "-CONT", kubelet)
    assert lost
    assert eventually(
        lambda: any(event.get("late_s", 0) > limits["G"] for event in events.read()), EVENTS_TIMEOUT_S
    )
    with lab.record(tmp_path / "history.jsonl", []) as recording:
        pause(limits["P"] + 1)
    history = recording.history()
    (ready,) = (condition(version.object, "Ready") for version in history.versions("nodes", "", node)[:1])
    assert ready is not None
    assert history.from_wall(ready["lastTransitionTime"]) > resumed_t - 1.0, "the node was not lost"
    assert moments.find(history, moments.condition_became(node, "Ready", "Unknown")) is None
    assert history.began_t > resumed_t + limits["P"], "the recording began before the controller's next pass"


def test_lab_reports_cpu_waits_of_its_controllers(lab: LabHandle, tmp_path: Path) -> None:
    """Only the controllers are limited to one CPU, which they share with busy processes."""
    manager = registry.client(lab.name).status().components[CONTROLLERS[0]]
    one = min(os.sched_getaffinity(0))
    busy = f"timeout {SUSPENDED_S} taskset -c {one} sh -c 'while :; do :; done' &"
    busy_controller = (
        f"was=$(taskset -p {manager} | sed 's/.* //'); taskset -acp {one} {manager}; {busy * LOOPS} wait; "
        f"taskset -ap $was {manager}"
    )
    with lab.record(tmp_path / "history.jsonl", []) as recording:

        def long_waits() -> list[Entry]:
            # Idle controllers do not wait.
            in_lab(lab, "sh", "-c", busy_controller)
            return [entry for entry in _cpu_waits(recording.history()) if entry.data["late_s"] > NOTABLE_S]

        assert eventually(long_waits, EVENTS_TIMEOUT_S)
    history = recording.history()
    longest = max(_cpu_waits(history), key=lambda entry: float(entry.data["late_s"]))
    assert longest.data["waited_s"] >= longest.data["late_s"]
    assert slack_s(history, lab.configuration) > longest.data["late_s"]


def _cpu_waits(history: History) -> list[Entry]:
    return [entry for entry in history.of_kind("stall") if "waited_s" in entry.data]


def _nice(lab: LabHandle, pids: Iterable[int]) -> set[int]:
    files = [f"/proc/{pid}/autogroup" for pid in pids]
    output = registry.client(lab.name).spawn_command(["cat", *files], COMMAND_TIMEOUT_S)["stdout"]
    return {int(line.rpartition(" ")[2]) for line in output.splitlines()}


def _lab_delays(history: History) -> list[float]:
    return [entry.data["late_s"] for entry in history.of_kind("stall") if entry.data.get("by") == LAB]


def test_lab_folder_is_private_to_its_owner(lab: LabHandle) -> None:
    status = lab.dir.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.getuid())
    for name in ("lock", "s", "record.json", "pki/admin.key", "pki/ssh"):
        assert stat.S_IMODE((lab.dir / name).stat().st_mode) & 0o077 == 0, name


def test_log_of_a_verbose_component_is_truncated(lab: LabHandle) -> None:
    log, inside = lab.life.logs / "etcd.log", lab.dir / "mem" / "logs" / "etcd.log"
    in_lab(lab, "sh", "-c", f"head -c {LIMIT_BYTES + 1} /dev/zero >>{inside}")
    assert eventually(lambda: log.stat().st_size < LIMIT_BYTES, EVENTS_TIMEOUT_S)
    assert log.with_name("etcd.log.1").stat().st_size > LIMIT_BYTES
    in_lab(lab, "rm", f"{inside}.1")


def test_any_program_runs_in_the_lab_network(lab: LabHandle, tmp_path: Path) -> None:
    kubectl = str(lab.components.path("kubectl"))
    process = nodeproof("exec", "--lab-name", lab.name, "--", kubectl, "get", "nodes", cwd=tmp_path)
    assert process.status == 0, process
    assert all(name in process.stdout for name in lab.fleet.node_names())
    assert nodeproof("exec", "--lab-name", lab.name, "--", "sh", "-c", "exit 7", cwd=tmp_path).status == 7


def test_lab_api_is_on_loopback_while_the_command_runs(lab: LabHandle, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start("proxy", "--lab-name", lab.name, cwd=tmp_path, log=log)
    try:
        assert eventually(lambda: "export KUBECONFIG=" in log.read_text(), EVENTS_TIMEOUT_S), log.read_text()
        config = Path(log.read_text().partition("KUBECONFIG=")[2].split()[0])
        assert config.stat().st_mode & 0o077 == 0
        argv = [str(lab.components.path("kubectl")), f"--kubeconfig={config}", "get", "nodes", "-o", "name"]
        for _ in range(2):
            output = proc.run(argv, timeout_s=COMMAND_TIMEOUT_S).stdout.split()
            assert output == [f"node/{name}" for name in sorted(lab.fleet.node_names())]
    finally:
        child.send_signal(signal.SIGINT)
        status = child.wait(timeout=COMMAND_TIMEOUT_S)
    assert status == 0
    assert not config.exists()


def test_root_leaves_no_compiled_files_in_the_package(lab: LabHandle) -> None:
    mine = [command for command in leftovers.commands(lab.name) if "-m nodeproof.labs" in command]
    assert mine
    assert all(" -B " in command for command in mine if "python" in command)


def test_every_moment_names_fields_of_the_api(lab: LabHandle, node: str) -> None:
    words = [
        moments.condition_reported(node, "Ready", "False", "reason", "message"),
        moments.taint_added(node, "key", "NoExecute"),
        moments.cordoned(node),
        moments.conditions_changed(node),
        moments.boot_id_changed(node),
        moments.pod_deletion(NAMESPACE, "pod"),
        moments.pod_bound(NAMESPACE, "pod"),
        moments.pod_unschedulable(NAMESPACE, "pod"),
        moments.pod_failed(NAMESPACE, "pod", "reason", "message"),
        moments.event_reported("reason", "Node", node, "message"),
        moments.became("leases", node, {"spec": {"renewTime": PRESENT}}),
    ]
    for moment in words:
        for resource, paths in moments.paths(moment).items():
            assert unknown(paths, lab.configuration.fields[resource]) == []
    assert unknown(["spec.taint[].key"], lab.configuration.fields["nodes"]) == ["spec.taint[].key"]


def test_clocks_are_measured_for_each_recording_and_after_each_boot(
    lab: LabHandle, node: str, tmp_path: Path
) -> None:
    with lab.record(tmp_path / "history.jsonl", {node}) as recording:
        lab.fleet.machine(node).power("off")
        lab.fleet.machine(node).power("on")
        booted_t = eventually(lambda: [entry.t for entry in booted(recording, node)], EVENTS_TIMEOUT_S)[0]
        eventually(lambda: offset_s(recording.history(), node, booted_t) is not None, READY_TIMEOUT_S)
        early = offset_s(recording.history(), node, booted_t - 0.001)
    assert early is not None
    history = recording.history()
    times = [entry.t for entry in history.of_kind("clock") if entry.data["node"] == node]
    assert [t for t in times if t < booted_t]
    assert [t for t in times if t > booted_t]
    error = error_s(history)
    assert error is not None
    assert error < MOST_CLOCK_ERROR_S


def test_node_with_the_host_clock_has_no_offset(kind: Kind, lab: LabHandle, node: str) -> None:
    if kind.name != "process":
        pytest.skip("its machines have clocks of their own")
    reading = read_clock(lab.fleet.machine(node))
    assert abs(reading.offset_s) <= reading.error_s
    assert (lab.read_clock(node).offset_s, lab.read_clock(node).error_s) == (0.0, 0.0)


def booted(recording: Recording, node: str) -> list[Entry]:
    return [
        entry
        for entry in recording.history().of_kind("machine")
        if entry.data["node"] == node and entry.data["step"] == "booted"
    ]


def test_nodes_join_and_leave_while_the_lab_runs(lab: LabHandle, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)
    assert lab.fleet.machine(joined).reaches_control_plane()
    labels = lab.cluster.api.get(node_path(joined))["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "zone-a"
    (target,) = lab.safety.injector.targets(joined, [joined])
    check_plan(joined, ("node",), [joined], lab.safety.lab_record(), Declared({joined}), set(), set)
    check_target(target, lab.safety.lab_record())

    lab.leave(joined)
    assert joined not in lab.fleet.node_names()
    with pytest.raises(ApiError, match="not found"):
        lab.cluster.api.get(node_path(joined))
    with pytest.raises(Refused, match="not a node of lab"):
        check_plan(joined, ("node",), [joined], lab.safety.lab_record(), Declared({joined}), set(), set)
    lab.wait_nodes_ready()


def test_labs_with_the_same_addresses_are_isolated(lab: LabHandle, node: str, second_lab: LabHandle) -> None:
    machine, twin = lab.fleet.machine(node), second_lab.fleet.machine(node)
    assert machine.data_address == twin.data_address
    assert machine.control_plane_addresses == twin.control_plane_addresses
    own, other = (
        at.run(["cat", "/etc/machine-id"], timeout_s=COMMAND_TIMEOUT_S).stdout for at in (machine, twin)
    )
    assert own != other
    assert lab.safety.lab_record().kube_system_uid != second_lab.safety.lab_record().kube_system_uid
    assert sorted(second_lab.fleet.node_names()) == [node]
    machine.power("off")
    try:
        assert twin.reaches_control_plane()
        assert twin.reached_from_control_plane()
    finally:
        machine.power("on")
        assert eventually(machine.reaches_control_plane, READY_TIMEOUT_S)


def _end_by_down(lab: LabHandle, _footprint: leftovers.Footprint) -> None:
    lab.down()


def _end_by_name(lab: LabHandle, _footprint: leftovers.Footprint) -> None:
    lab.close()
    registry.down(lab.name)


def _kill_supervisor(lab: LabHandle, footprint: leftovers.Footprint) -> None:
    leftovers.kill(footprint.supervisor)
    assert eventually(lambda: lab.name not in registry.running(), READY_TIMEOUT_S)


def _end_by_name_after_kill(lab: LabHandle, footprint: leftovers.Footprint) -> None:
    lab.close()
    _kill_supervisor(lab, footprint)
    registry.down(lab.name)


def _end_by_init_kill(_lab: LabHandle, footprint: leftovers.Footprint) -> None:
    leftovers.kill(footprint.init)


@pytest.mark.alone
@pytest.mark.parametrize(
    "end",
    [
        _end_by_down,
        _end_by_name,
        _end_by_name_after_kill,
        pytest.param(_end_by_init_kill, marks=pytest.mark.vm),
    ],
)
def test_ended_lab_leaves_nothing(
    kind: Kind, second_lab: LabHandle, end: Callable[[LabHandle, leftovers.Footprint], None]
) -> None:
    second_lab.prepare()
    run_pod(second_lab.cluster.api, "node-1")
    footprint = leftovers.footprint(second_lab.name)
    assert len(footprint.namespaces) >= kind.namespaces

    end(second_lab, footprint)
    assert leftovers.leftovers(footprint) == []


@pytest.mark.alone
def test_lab_ends_with_its_killed_supervisor_and_is_swept(second_lab: LabHandle, lab: LabHandle) -> None:
    footprint = leftovers.footprint(second_lab.name)
    _kill_supervisor(second_lab, footprint)
    assert second_lab.name in registry.sweep()
    assert leftovers.leftovers(footprint) == []
    assert lab.name in registry.running()


@pytest.mark.alone
def test_component_failing_on_start_is_one_problem_with_its_last_lines(
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


def test_lab_is_resized_up_and_down(lab: LabHandle) -> None:
    names = lab.fleet.node_names()
    resize(lab, len(names) + 1)
    (added,) = set(lab.fleet.node_names()) - set(names)
    assert is_ready(lab.cluster.api.get(node_path(added)))
    assert lab.safety.lab_record().machine_ids.keys() == {*names, added}
    resize(lab, len(names))
    assert lab.fleet.node_names() == names
    with pytest.raises(ApiError, match="404"):
        lab.cluster.api.get(node_path(added))
