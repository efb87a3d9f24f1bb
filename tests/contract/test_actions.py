"""Actions of a scenario: recorded, in the ledger, and undone afterwards."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodeproof.actions import (
    LABEL,
    Kind,
    OwnCredential,
    Workload,
    begun,
    create_node,
    create_pod,
    delete_pod,
    disruption_budget,
    dry_run,
    join,
    keep_alive,
    kubectl,
    kubelet_of,
    leave,
    new_namespace,
    read,
    restart_joined,
    run_cast,
    run_on,
    send_request,
    service,
    try_flags,
    try_kubelet,
    workload,
)
from nodeproof.checks.moments import became, condition_became, created, written
from nodeproof.cluster import api as api_module
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED, pod
from nodeproof.cluster.workloads import Pod, pod_spec, start_pod
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.safety import MARK
from nodeproof.model import window as windows
from nodeproof.model.history import fence
from nodeproof.model.problem import Problem
from nodeproof.probes import dbus_property, file_of, kubelet_field, metric
from nodeproof.scenario.lab import Lab
from tests.contract.conftest import JOINED
from tests.waiting import eventually, first_answer, pause

LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
UP_TIMEOUT_S = 30.0
RUNNING_TIMEOUT_S = 120.0
"""A kubelet that misses a container's start sees it at its next resync (syncFrequency, 1 to 1.5 min)."""
LATE_S = 1.5
COMMAND_TIMEOUT_S = 20.0
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WHO_AM_I = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
HELD, OTHERS = "nodeproof.dev/held", "example.com/held"


def _new_name() -> dict[str, dict[str, str]]:
    return {"metadata": {"name": f"created-{uuid.uuid4().hex[:8]}"}}


def _new_map() -> tuple[str, dict[str, dict[str, str]]]:
    """Return the path of a ConfigMap that is to be created, and its body."""
    body = _new_name()
    return f"{MAPS}/{body['metadata']['name']}", body


def _heal_in_another_process(lab: LabHandle) -> None:
    """Heal like `nodeproof heal` after this process was killed."""
    another = registry.attach(lab.name)
    try:
        assert another.safety.heal_unfinished() == []
    finally:
        another.close()
    assert lab.safety.ledger.unfinished() == []


def _tidy(lab: LabHandle) -> None:
    """Remove all objects of a scenario."""
    lab.tidy()
    assert lab.safety.ledger.unfinished() == []


def _exists(lab: LabHandle, path: str) -> bool:
    try:
        lab.cluster.api.get(path)
    except ApiError as error:
        assert error.status == 404
        return False
    return True


def test_answers_and_refusals_are_recorded_with_their_times(stage: Lab) -> None:
    with stage.record():
        first, second = stage.nodes()[:2]
        refused = stage.run(dry_run("DELETE", f"/api/v1/nodes/{second.name}", by=kubelet_of(first.name)))
        listed = stage.run(kubectl("get", "nodes"))
        failed = stage.run(kubectl("get", "nonsense", may_fail=True))
        with pytest.raises(Problem, match="kubectl get nonsense: "):
            stage.run(kubectl("get", "nonsense"))
    assert refused.value["status"] == 403
    assert first.name in listed.value["stdout"]
    assert (failed.value["status"], bool(failed.value["stderr"])) == (1, True)
    times = [event.t for outcome in (refused, listed, failed) if (event := stage.find(outcome.completed))]
    assert times == sorted(times)
    assert len(times) == 3
    steps = [entry.data["step"] for entry in stage.history().of_kind("action")]
    assert steps == ["begun", "ended"] * 3 + ["begun", "failed"]


def test_probes_observe_the_actual_state(stage: Lab, lab: LabHandle) -> None:
    node = stage.target
    info = next(entry for entry in lab.fleet.nodes() if entry.name == node)
    in_zone = {"zone": f":\x00:{info.zone}"}
    with stage.record():
        period = stage.observe(kubelet_field(node, "nodeStatusUpdateFrequency"))
        missing_field = stage.observe(kubelet_field(node, "noSuchField"))
        machine_id = stage.observe(file_of(node, "/etc/machine-id"))
        size = stage.observe(metric("kube-controller-manager", "node_collector_zone_size", **in_zone))
        pods = stage.observe(metric(node, "kubelet_running_pods"))
        requests = stage.observe(metric("kube-apiserver", "apiserver_request_total", verb="LIST"))
        missing_metric = stage.observe(metric("kube-scheduler", "no_such_metric"))
    assert period.value == lab.configuration.reported["kubelet"]["nodeStatusUpdateFrequency"]
    assert (missing_field.value, missing_metric.value, machine_id.value) == (None, None, info.machine_id)
    # The manager keeps the metrics of removed zones.
    assert size.value == sum(entry.zone == info.zone for entry in lab.fleet.nodes())
    assert pods.value is not None
    assert requests.value > 0
    ids = [entry.data["id"] for entry in stage.history().of_kind("observed")]
    assert ids == [
        observation.id
        for observation in (period, missing_field, machine_id, size, pods, requests, missing_metric)
    ]


@pytest.mark.vm
def test_node_sends_requests_with_its_own_credential(stage: Lab) -> None:
    first, second = stage.nodes()[:2]
    own = OwnCredential(first.name)
    with stage.record():
        itself = stage.run(send_request("GET", f"/api/v1/nodes/{first.name}", by=own))
        other = stage.run(dry_run("DELETE", f"/api/v1/nodes/{second.name}", by=own))
        who = stage.run(dry_run("POST", WHO, WHO_AM_I, by=own))
    assert (itself.value["status"], other.value["status"]) == (200, 403)
    user = who.value["body"]["status"]["userInfo"]
    assert (user["username"], "system:nodes" in user["groups"]) == (f"system:node:{first.name}", True)


def test_manual_node_stays_ready_while_it_is_kept_alive(stage: Lab, lab: LabHandle) -> None:
    name = _new_name()["metadata"]["name"]
    unknown = condition_became(name, "Ready", "Unknown")
    with stage.record():
        stage.run(create_node(name, {"topology.kubernetes.io/zone": "zone-without-kubelets"}))
        keeping_alive = keep_alive(name)
        stage.run(keeping_alive)
        long = windows.absence(1.5 * lab.configuration["G"])
        stage.wait_for(unknown.never_after(keeping_alive.ended, long))
        assert stage.find(unknown) is None
    lab.tidy()
    assert not _exists(lab, f"/api/v1/nodes/{name}")


def test_pod_of_a_node_without_kubelet_is_removed_when_its_scenario_ends(stage: Lab, lab: LabHandle) -> None:
    name = _new_name()["metadata"]["name"]
    stage.run(create_node(name))
    bound = Pod(NAMESPACE, name, name)
    stage.run(create_pod(bound))
    assert _exists(lab, bound.path)
    _tidy(lab)
    assert not _exists(lab, bound.path)


def test_objects_of_a_scenario_are_removed_when_it_ends(stage: Lab, lab: LabHandle) -> None:
    path, body = _new_map()
    assert stage.run(send_request("POST", MAPS, body)).value["status"] == 201
    assert _exists(lab, path)
    _tidy(lab)
    assert not _exists(lab, path)


@pytest.mark.parametrize("has_name", [True, False], ids=["after its creation", "before its creation"])
def test_crash_leaves_no_object_behind(lab: LabHandle, has_name: bool) -> None:
    path, body = _new_map()
    mark = lab.safety.register_object(path)
    if has_name:
        lab.cluster.api.create(MAPS, {"metadata": {**body["metadata"], "annotations": {MARK: mark}}})
    _heal_in_another_process(lab)
    assert not _exists(lab, path)


def test_object_created_after_a_timed_out_request_is_removed(
    stage: Lab, lab: LabHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen etcd executes the request after its timeout."""
    monkeypatch.setattr(api_module, "CALL_TIMEOUT_S", 1.0)
    path, body = _new_map()
    etcd = lab.fleet.machine("etcd")
    etcd.power("freeze")
    try:
        with pytest.raises(ApiError):
            stage.run(send_request("POST", MAPS, body))
    finally:
        etcd.power("thaw")
    (entry,) = lab.safety.ledger.unfinished()
    assert entry.step == "unanswered"
    late_object = {"metadata": {**body["metadata"], "annotations": {MARK: entry.fault["id"]}}}
    monkeypatch.setattr(api_module, "CALL_TIMEOUT_S", 15.0)
    assert eventually(lambda: first_answer(lambda: lab.cluster.api.get(MAPS)), UP_TIMEOUT_S)
    # If etcd has stored the object already, create it again later.
    lab.cluster.api.delete(path)

    with ThreadPoolExecutor(1) as pool:
        tidying = pool.submit(lab.tidy)
        pause(LATE_S)
        assert not tidying.done()
        lab.cluster.api.ensure(MAPS, late_object)
        tidying.result()
    assert not _exists(lab, path)
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("joined", [True, False], ids=["after it joined", "before it joined"])
def test_crash_leaves_no_node_behind(stage: Lab, lab: LabHandle, joined: bool) -> None:
    before = lab.fleet.node_names()
    if joined:
        stage.run(join(JOINED, registerWithTaints=[]))
        assert lab.fleet.has(JOINED)
        assert eventually(lambda: _exists(lab, f"/api/v1/nodes/{JOINED}"), UP_TIMEOUT_S)
    else:
        lab.safety.register_node(JOINED)
    _heal_in_another_process(lab)
    assert lab.fleet.node_names() == before
    assert not _exists(lab, f"/api/v1/nodes/{JOINED}")


def test_rejoined_node_is_another_machine_under_the_same_name(stage: Lab, lab: LabHandle) -> None:
    identities = []
    for _ in range(2):
        stage.run(join(JOINED))
        lab.wait_nodes_ready([JOINED])
        identities.append(
            lab.fleet.machine(JOINED).run(["cat", "/etc/machine-id"], timeout_s=COMMAND_TIMEOUT_S).stdout
        )
        _heal_in_another_process(lab)
    assert len(set(identities)) == len(identities)


def test_machine_may_have_another_name_than_its_node(stage: Lab, lab: LabHandle) -> None:
    label = {"nodeproof.dev/told": "once"}
    stage.run(join(JOINED, node="called", flags=["--node-labels=nodeproof.dev/told=once"]))
    lab.wait_nodes_ready(["called"])
    assert label.items() <= stage.labels("called").items()
    assert stage.run(run_on(JOINED, "hostname")).value["stdout"] == f"{JOINED}\n"
    with pytest.raises(Problem, match="already exists"):
        stage.run(join("another", node=lab.usable_nodes()[0]))

    stage.run(restart_joined(JOINED, "--node-labels=node.kubernetes.io/instance-type=told"))
    type_ = "node.kubernetes.io/instance-type"
    assert eventually(lambda: stage.labels("called").get(type_) == "told", UP_TIMEOUT_S)
    assert stage.run(try_kubelet(JOINED, "--node-labels=k8s.io/own=yes")).value["status"] == 1
    stage.run(leave(JOINED))
    assert not lab.fleet.has(JOINED)
    assert _exists(lab, "/api/v1/nodes/called")
    _tidy(lab)
    assert not _exists(lab, "/api/v1/nodes/called")


@pytest.mark.parametrize("does", [leave, restart_joined, run_on, try_kubelet])
def test_machine_actions_are_refused_on_a_machine_that_did_not_join(
    stage: Lab, does: Callable[..., Any]
) -> None:
    with pytest.raises(Problem, match="did not join"):
        stage.run(does(stage.target))


@pytest.mark.parametrize("of", ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"])
def test_workload_is_removed_with_its_pods(stage: Lab, lab: LabHandle, of: Kind) -> None:
    deployed = workload(of)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{of.lower()}s/{deployed.name}"
    with stage.record():
        assert stage.run(deployed.make).value["status"] == 201
        _wait_running(stage, lab, deployed)
        assert stage.run(disruption_budget(deployed)).value["status"] == 201
    _tidy(lab)
    assert not _exists(lab, path)
    assert eventually(lambda: not _pods_of(lab, deployed), UP_TIMEOUT_S)


def test_cast_is_removed_by_another_process(stage: Lab, lab: LabHandle) -> None:
    """One of its pods is in kube-system, where only the ledger knows it."""
    first, second, *_ = sorted(lab.fleet.node_names())
    cast = stage.run(run_cast(on=first, namesake_on=second))
    _heal_in_another_process(lab)
    left = [
        member for member in (*cast.pods, cast.namesake) if _exists(lab, pod(member.namespace, member.name))
    ]
    assert left == []


def test_own_namespace_is_removed_with_its_content(stage: Lab, lab: LabHandle) -> None:
    own = new_namespace()
    deployed = workload("Deployment", namespace=own.name)
    inside = f"/api/v1/namespaces/{own.name}"
    with stage.record():
        assert stage.run(own.make).value["status"] == 201
        assert stage.run(deployed.make).value["status"] == 201
        assert stage.run(service(deployed)).value["status"] == 201
        _wait_running(stage, lab, deployed)
        assert eventually(lambda: _endpoints(lab, deployed), UP_TIMEOUT_S)
    _heal_in_another_process(lab)
    assert not _exists(lab, inside)


def _endpoints(lab: LabHandle, deployed: Workload) -> list[object]:
    """Return the endpoints of its Service."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{deployed.namespace}/endpointslices"
    slices = lab.cluster.api.get(path, {"labelSelector": f"kubernetes.io/service-name={deployed.name}"})[
        "items"
    ]
    return [endpoint for entry in slices for endpoint in entry["endpoints"] or ()]


def test_end_of_a_component_is_recorded(stage: Lab) -> None:
    with stage.record():
        refused = stage.run(try_flags("kube-scheduler", "--no-such-flag=1"))
        taken = stage.run(try_flags("kube-scheduler", "--leader-elect=false"))
        with pytest.raises(Problem, match="unknown component 'kube-nothing'"):
            stage.run(try_flags("kube-nothing"))
    assert (refused.value["status"], taken.value["status"]) == (1, 0)
    assert "unknown flag: --no-such-flag" in refused.value["stderr"]
    ids = [entry.data["id"] for entry in stage.history().of_kind("observed")]
    assert ids == [refused.id, taken.id]


@pytest.mark.vm
def test_dbus_property_of_a_node_is_observed(stage: Lab, lab: LabHandle, node: str) -> None:
    if "systemd" not in lab.features:
        pytest.skip("it needs systemd")
    with stage.record():
        delay = stage.observe(dbus_property(node, *LOGIND, "InhibitDelayMaxUSec"))
        shutting_down = stage.observe(dbus_property(node, *LOGIND, "PreparingForShutdown"))
    assert delay.value > 0
    assert shutting_down.value is False


def _wait_running(stage: Lab, lab: LabHandle, deployed: Workload) -> None:
    """Wait until a pod of a workload runs."""
    running = written("pods", {**deployed.pods, "status": {"phase": "Running"}})
    stage.wait_for(running.after(deployed.make.begun, windows.up_to(RUNNING_TIMEOUT_S)))
    assert stage.find(running) is not None, _describe_pods(lab)


def _describe_pods(lab: LabHandle) -> str:
    """Describe our pods, for the message of a failure."""
    output = (
        lab.cluster.run_kubectl(["--namespace", NAMESPACE, *arguments], COMMAND_TIMEOUT_S, "")["stdout"]
        for arguments in (
            ["describe", "replicasets,pods"],
            ["get", "events"],
            ["get", "nodes", "--output=yaml"],
        )
    )
    components = [
        "kube-controller-manager",
        "kube-scheduler",
        *(f"kubelet-{n}" for n in lab.fleet.node_names()),
    ]
    return "\n".join([*output, *(f"{name}:\n{lab.life.last_lines(name)}" for name in components)])


def _pods_of(lab: LabHandle, deployed: Workload) -> list[object]:
    pods = lab.cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", {"labelSelector": f"{LABEL}={deployed.name}"}
    )
    return list(pods["items"])


@pytest.mark.parametrize(
    "is_recorded", [True, False], ids=["the POST was refused", "a crash before the POST"]
)
def test_existing_object_is_left_alone(stage: Lab, lab: LabHandle, is_recorded: bool) -> None:
    path, body = _new_map()
    lab.cluster.api.create(MAPS, body)
    if is_recorded:
        assert stage.run(send_request("POST", MAPS, body)).value["status"] == 409
    else:
        lab.safety.register_object(path)
    _tidy(lab)
    assert _exists(lab, path)
    lab.cluster.api.delete(path)


def test_object_that_cannot_be_removed_yet_does_not_block_others(stage: Lab, lab: LabHandle) -> None:
    other, (path, held) = _new_name(), _new_map()
    stage.run(send_request("POST", MAPS, other))
    stage.run(send_request("POST", MAPS, {"metadata": {**held["metadata"], "finalizers": [HELD, OTHERS]}}))
    with pytest.raises(Problem, match=f"not undone: {path}"):
        lab.tidy()
    assert not _exists(lab, f"{MAPS}/{other['metadata']['name']}")
    assert lab.cluster.api.get(path)["metadata"]["finalizers"] == [OTHERS]
    lab.cluster.api.patch(path, {"metadata": {"finalizers": None}})
    _tidy(lab)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["as it was made", "on its way out"])
def test_object_held_by_a_finalizer_is_removed_on_heal(stage: Lab, lab: LabHandle, is_deleted: bool) -> None:
    """The process that created the object was killed."""
    path, held = _new_map()
    stage.run(send_request("POST", MAPS, {"metadata": {**held["metadata"], "finalizers": [HELD]}}))
    if is_deleted:
        stage.run(send_request("DELETE", path))
        assert _exists(lab, path)
    assert lab.safety.heal_unfinished() == []
    assert not _exists(lab, path)
    assert lab.safety.ledger.unfinished() == []


def test_requested_secret_is_not_in_the_history(stage: Lab) -> None:
    secrets, value = f"/api/v1/namespaces/{NAMESPACE}/secrets", uuid.uuid4().hex
    body = {**_new_name(), "stringData": {"key": value}}
    with stage.record():
        outcomes = [
            stage.run(send_request("POST", secrets, body)),
            stage.run(send_request("GET", f"{secrets}/{body['metadata']['name']}")),
            stage.run(read(secrets)),
        ]
    assert [answer.value["status"] for answer in outcomes] == [201, 200, 200]
    text = "".join(entry.to_json() for entry in stage.history().entries)
    assert value not in text
    assert base64.b64encode(value.encode()).decode() not in text


@pytest.mark.parametrize("path", [f"{MAPS}?dryRun=None", f"{MAPS}#x"])
def test_query_in_a_path_is_refused(stage: Lab, path: str) -> None:
    for action in (send_request("POST", path, _new_name()), dry_run("POST", path, _new_name())):
        with pytest.raises(Problem, match="the path has a query"):
            stage.run(action)


def test_failed_read_is_observed(stage: Lab) -> None:
    """The API server cannot reach the kubelet of a Node without an address."""
    name = _new_name()["metadata"]["name"]
    path = f"{WATCHED['nodes']}/{name}/proxy/healthz"
    stage.run(create_node(name))
    with stage.record():
        with pytest.raises(ApiError, match="address"):
            stage.run(send_request("GET", path))
        outcome = stage.run(read(path))
    assert outcome.value["status"] >= 500
    assert "address" in outcome.value["body"]
    assert [entry.data["value"] for entry in stage.history().of_kind("observed")] == [outcome.value]


def test_only_pods_of_scenarios_are_deleted(stage: Lab) -> None:
    with pytest.raises(Problem, match="not in the namespace of the scenario's pods"):
        stage.run(delete_pod(Pod("kube-system", "coredns", stage.target)))


def test_object_without_a_name_is_not_created(stage: Lab) -> None:
    with pytest.raises(Problem, match="the object has no name"):
        stage.run(send_request("POST", MAPS, {"metadata": {"generateName": "made-"}}))


UNLABELLED = {"metadata": {"labels": {"nodeproof.dev/noted": None}}}
UNWATCHED = tuple(sorted(RESOURCES.keys() - WATCHED.keys()))


def test_every_recordable_resource_is_watched_and_fenced(stage: Lab, lab: LabHandle) -> None:
    body, labels = _new_name(), {"metadata": {"labels": {"nodeproof.dev/noted": "yes"}}}
    labelled = became("namespaces", NAMESPACE, labels)
    with stage.record(extra_resources=UNWATCHED):
        stage.run(send_request("POST", RESOURCES["csinodes"].path, {**body, "spec": {"drivers": []}}))
        request = stage.run(send_request("PATCH", f"{RESOURCES['namespaces'].path}/{NAMESPACE}", labels))
        stage.wait_for(labelled.after(request.completed, windows.up_to(10)))
    stage.run(send_request("PATCH", f"{RESOURCES['namespaces'].path}/{NAMESPACE}", UNLABELLED))
    assert stage.find(labelled) is not None
    assert stage.find(created("csinodes", body["metadata"]["name"])) is not None
    assert fence(stage.history(), UNWATCHED).passed
    lab.tidy()
    assert [
        name for name in UNWATCHED if RESOURCES[name].body and _exists(lab, RESOURCES[name].sentinel(""))
    ] == []


def test_unrecordable_resource_is_refused_with_the_alternatives(stage: Lab) -> None:
    with (
        pytest.raises(Problem, match="use one of: component-leases, "),
        stage.record(extra_resources=("secrets",)),
    ):
        pass


def test_podgc_quarantine_is_visible_in_the_metrics(lab: LabHandle) -> None:
    """Without this metric each scenario about it would wait, even in a new lab."""
    api = lab.cluster.api
    before = begun(api)
    assert before is not None
    absent = _new_name()["metadata"]["name"]
    orphan = start_pod(api, absent, pod_spec({"nodeName": absent}))
    try:
        assert eventually(lambda: (begun(api) or 0.0) > before, windows.POD_GC_S + 10.0)
    finally:
        api.delete(pod(orphan.namespace, orphan.name), 0)
