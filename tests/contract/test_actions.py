"""What a scenario does to its cluster: in the history, in the ledger, and gone afterwards."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytest

from nodeproof.actions.ask import ask, kubelet_of, would
from nodeproof.actions.credential import OwnCredential
from nodeproof.actions.exits import try_flags
from nodeproof.actions.join import join
from nodeproof.actions.joined import leave, run_on, start_again, try_kubelet
from nodeproof.actions.kubectl import kubectl
from nodeproof.actions.nodes import keep_alive, make_node
from nodeproof.actions.quarantine import begun
from nodeproof.actions.workloads import (
    LABEL,
    Kind,
    Workload,
    disruption_budget,
    own_namespace,
    service,
    workload,
)
from nodeproof.checks.moments import became, condition_became, made, written
from nodeproof.cluster import api as api_module
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED, pod
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.safety import MARK
from nodeproof.model import window as windows
from nodeproof.model.history import fence
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.probes.configz import kubelet_field
from nodeproof.probes.dbus import dbus_property
from nodeproof.probes.file import file_of
from nodeproof.probes.metric import metric
from nodeproof.scenario.stage import Stage
from tests.contract.conftest import JOINED
from tests.waiting import eventually, pause, told

LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
UP_LIMIT_S = 30.0
RUNNING_LIMIT_S = 120.0
"""A kubelet that misses the start of a container sees it at its next resync (syncFrequency, 1 to 1.5 min)."""
LATE_S = 1.5
COMMAND_LIMIT_S = 20.0
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WHO_AM_I = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
HELD, OTHERS = "nodeproof.dev/held", "example.com/held"


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return Stage(lab, tmp_path, Needs(faulted=1), nullcontext)


def _named() -> dict[str, dict[str, str]]:
    return {"metadata": {"name": f"made-{uuid.uuid4().hex[:8]}"}}


def _is_there(lab: Lab, path: str) -> bool:
    try:
        lab.cluster.api.get(path)
    except ApiError as error:
        assert error.status == 404
        return False
    return True


def test_answers_and_refusals_are_in_the_history_with_their_times(stage: Stage) -> None:
    with stage.record():
        first, second = stage.nodes()[:2]
        refused = stage.do(would("DELETE", f"/api/v1/nodes/{second.name}", by=kubelet_of(first.name)))
        listed = stage.do(kubectl("get", "nodes"))
        failed = stage.do(kubectl("get", "nonsense", may_fail=True))
        with pytest.raises(Problem, match="kubectl get nonsense: "):
            stage.do(kubectl("get", "nonsense"))
    assert refused.value["status"] == 403
    assert first.name in listed.value["stdout"]
    assert (failed.value["status"], bool(failed.value["stderr"])) == (1, True)
    times = [found.t for seen in (refused, listed, failed) if (found := stage.find(seen.came))]
    assert times == sorted(times)
    assert len(times) == 3
    steps = [entry.data["step"] for entry in stage.history().of_kind("action")]
    assert steps == ["begun", "ended"] * 3 + ["begun", "failed"]


def test_looks_show_what_is_so(stage: Stage, lab: Lab) -> None:
    node = stage.target
    info = next(entry for entry in lab.fleet.nodes() if entry.name == node)
    in_zone = {"zone": f":\x00:{info.zone}"}
    with stage.record():
        period = stage.look(kubelet_field(node, "nodeStatusUpdateFrequency"))
        nobody = stage.look(kubelet_field(node, "noSuchField"))
        machine_id = stage.look(file_of(node, "/etc/machine-id"))
        size = stage.look(metric("kube-controller-manager", "node_collector_zone_size", **in_zone))
        pods = stage.look(metric(node, "kubelet_running_pods"))
        requests = stage.look(metric("kube-apiserver", "apiserver_request_total", verb="LIST"))
        nothing = stage.look(metric("kube-scheduler", "no_such_metric"))
    assert period.value == lab.configuration.reported["kubelet"]["nodeStatusUpdateFrequency"]
    assert (nobody.value, nothing.value, machine_id.value) == (None, None, info.machine_id)
    # Of zones that are gone the manager goes on telling.
    assert size.value == sum(entry.zone == info.zone for entry in lab.fleet.nodes())
    assert pods.value is not None
    assert requests.value > 0
    seen = [entry.data["id"] for entry in stage.history().of_kind("observed")]
    assert seen == [each.id for each in (period, nobody, machine_id, size, pods, requests, nothing)]


@pytest.mark.vm
def test_a_node_asks_with_its_own_credential(stage: Stage) -> None:
    first, second = stage.nodes()[:2]
    own = OwnCredential(first.name)
    with stage.record():
        itself = stage.do(ask("GET", f"/api/v1/nodes/{first.name}", by=own))
        other = stage.do(would("DELETE", f"/api/v1/nodes/{second.name}", by=own))
        who = stage.do(would("POST", WHO, WHO_AM_I, by=own))
    assert (itself.value["status"], other.value["status"]) == (200, 403)
    user = who.value["body"]["status"]["userInfo"]
    assert (user["username"], "system:nodes" in user["groups"]) == (f"system:node:{first.name}", True)


def test_a_node_that_was_made_by_hand_lives_while_it_is_kept_alive(stage: Stage, lab: Lab) -> None:
    name = _named()["metadata"]["name"]
    unknown = condition_became(name, "Ready", "Unknown")
    with stage.record():
        stage.do(make_node(name, {"topology.kubernetes.io/zone": "zone-nobody"}))
        alive = keep_alive(name)
        stage.do(alive)
        long = windows.absence(1.5 * lab.configuration["G"])
        stage.wait_for(unknown.never_after(alive.ended, long))
        assert stage.find(unknown) is None
    lab.tidy()
    assert not _is_there(lab, f"/api/v1/nodes/{name}")


def test_what_a_scenario_made_is_gone_when_it_is_over(stage: Stage, lab: Lab) -> None:
    body = _named()
    path = f"{MAPS}/{body['metadata']['name']}"
    assert stage.do(ask("POST", MAPS, body)).value["status"] == 201
    assert _is_there(lab, path)
    lab.tidy()
    assert not _is_there(lab, path)
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("was_made", [True, False], ids=["after it was made", "before it was made"])
def test_a_crash_leaves_no_object_behind(lab: Lab, was_made: bool) -> None:
    body = _named()
    path = f"{MAPS}/{body['metadata']['name']}"
    mark = lab.safety.expect(path)
    if was_made:
        lab.cluster.api.create(MAPS, {"metadata": {**body["metadata"], "annotations": {MARK: mark}}})
    another = registry.attach(lab.name)
    try:
        assert another.safety.heal_unfinished() == []
    finally:
        another.close()
    assert not _is_there(lab, path)
    assert lab.safety.ledger.unfinished() == []


def test_an_object_that_comes_after_nobody_answered_for_it_is_removed(
    stage: Stage, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where etcd stood still, and took the request all the same when it went on."""
    monkeypatch.setattr(api_module, "CALL_LIMIT_S", 1.0)
    body = _named()
    path = f"{MAPS}/{body['metadata']['name']}"
    etcd = lab.fleet.machine("etcd")
    etcd.power("freeze")
    try:
        with pytest.raises(ApiError):
            stage.do(ask("POST", MAPS, body))
    finally:
        etcd.power("thaw")
    (entry,) = lab.safety.ledger.unfinished()
    assert entry.step == "unanswered"
    comes_late = {"metadata": {**body["metadata"], "annotations": {MARK: entry.fault["id"]}}}
    monkeypatch.setattr(api_module, "CALL_LIMIT_S", 15.0)
    assert eventually(lambda: told(lambda: lab.cluster.api.get(MAPS)), UP_LIMIT_S)
    # Where etcd took it, this time, it came at once; what is tested comes later.
    lab.cluster.api.delete(path)

    with ThreadPoolExecutor(1) as pool:
        tidying = pool.submit(lab.tidy)
        pause(LATE_S)
        assert not tidying.done()
        lab.cluster.api.ensure(MAPS, comes_late)
        tidying.result()
    assert not _is_there(lab, path)
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("joined", [True, False], ids=["after it joined", "before it joined"])
def test_a_crash_leaves_no_node_behind(stage: Stage, lab: Lab, joined: bool) -> None:
    before = lab.fleet.node_names()
    if joined:
        stage.do(join(JOINED, registerWithTaints=[]))
        assert lab.fleet.has(JOINED)
        assert eventually(lambda: _is_there(lab, f"/api/v1/nodes/{JOINED}"), UP_LIMIT_S)
    else:
        lab.safety.expect_node(JOINED)
    another = registry.attach(lab.name)
    try:
        assert another.safety.heal_unfinished() == []
    finally:
        another.close()
    assert lab.fleet.node_names() == before
    assert not _is_there(lab, f"/api/v1/nodes/{JOINED}")
    assert lab.safety.ledger.unfinished() == []


def test_a_node_comes_back_under_its_name_as_another_machine(stage: Stage, lab: Lab) -> None:
    seen = []
    for _ in range(2):
        stage.do(join(JOINED))
        lab.wait_nodes_ready([JOINED])
        seen.append(
            lab.fleet.machine(JOINED).run(["cat", "/etc/machine-id"], deadline_s=COMMAND_LIMIT_S).stdout
        )
        # As `nodeproof heal` does it, in a process of its own.
        another = registry.attach(lab.name)
        assert another.safety.heal_unfinished() == []
        another.close()
    assert len(set(seen)) == len(seen)
    assert lab.safety.ledger.unfinished() == []


def test_a_machine_is_called_otherwise_than_its_node_and_leaves_alone(stage: Stage, lab: Lab) -> None:
    label = {"nodeproof.dev/told": "once"}
    stage.do(join(JOINED, node="called", flags=["--node-labels=nodeproof.dev/told=once"]))
    lab.wait_nodes_ready(["called"])
    assert label.items() <= stage.labels("called").items()
    assert stage.do(run_on(JOINED, "hostname")).value["stdout"] == f"{JOINED}\n"
    with pytest.raises(Problem, match="exists already"):
        stage.do(join("another", node=lab.usable()[0]))

    stage.do(start_again(JOINED, "--node-labels=node.kubernetes.io/instance-type=told"))
    type_ = "node.kubernetes.io/instance-type"
    assert eventually(lambda: stage.labels("called").get(type_) == "told", UP_LIMIT_S)
    assert stage.do(try_kubelet(JOINED, "--node-labels=k8s.io/own=yes")).value["status"] == 1
    stage.do(leave(JOINED))
    assert not lab.fleet.has(JOINED)
    assert _is_there(lab, "/api/v1/nodes/called")
    lab.tidy()
    assert not _is_there(lab, "/api/v1/nodes/called")
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("does", [leave, start_again, run_on, try_kubelet])
def test_only_a_machine_that_joined_is_done_anything_to(stage: Stage, does: Callable[..., Any]) -> None:
    with pytest.raises(Problem, match="was not joined"):
        stage.do(does(stage.target))


@pytest.mark.parametrize("of", ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"])
def test_a_workload_goes_with_its_pods(stage: Stage, lab: Lab, of: Kind) -> None:
    made = workload(of)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{of.lower()}s/{made.name}"
    with stage.record():
        assert stage.do(made.make).value["status"] == 201
        running = written("pods", {**made.pods, "status": {"phase": "Running"}})
        stage.wait_for(running.after(made.make.begun, windows.prompt(RUNNING_LIMIT_S)))
        assert stage.find(running) is not None, _told_of_pods(lab)
        assert stage.do(disruption_budget(made)).value["status"] == 201
    lab.tidy()
    assert not _is_there(lab, path)
    assert eventually(lambda: not _pods_of(lab, made), UP_LIMIT_S)
    assert lab.safety.ledger.unfinished() == []


def test_a_namespace_of_a_scenarios_own_goes_with_all_that_is_in_it(stage: Stage, lab: Lab) -> None:
    own = own_namespace()
    made = workload("Deployment", namespace=own.name)
    inside = f"/api/v1/namespaces/{own.name}"
    with stage.record():
        assert stage.do(own.make).value["status"] == 201
        assert stage.do(made.make).value["status"] == 201
        assert stage.do(service(made)).value["status"] == 201
        running = written("pods", {**made.pods, "status": {"phase": "Running"}})
        stage.wait_for(running.after(made.make.begun, windows.prompt(RUNNING_LIMIT_S)))
        assert stage.find(running) is not None, _told_of_pods(lab)
        assert eventually(lambda: _endpoints(lab, made), UP_LIMIT_S)
    # As another process does it where this one was killed.
    another = registry.attach(lab.name)
    assert another.safety.heal_unfinished() == []
    another.close()
    assert not _is_there(lab, inside)
    assert lab.safety.ledger.unfinished() == []


def _endpoints(lab: Lab, made: Workload) -> list[object]:
    """Where its Service leads."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{made.namespace}/endpointslices"
    slices = lab.cluster.api.get(path, {"labelSelector": f"kubernetes.io/service-name={made.name}"})["items"]
    return [endpoint for each in slices for endpoint in each["endpoints"] or ()]


def test_how_a_component_ends_is_in_the_history(stage: Stage) -> None:
    with stage.record():
        refused = stage.do(try_flags("kube-scheduler", "--no-such-flag=1"))
        taken = stage.do(try_flags("kube-scheduler", "--leader-elect=false"))
        with pytest.raises(Problem, match="unknown component 'kube-nothing'"):
            stage.do(try_flags("kube-nothing"))
    assert (refused.value["status"], taken.value["status"]) == (1, 0)
    assert "unknown flag: --no-such-flag" in refused.value["stderr"]
    seen = [entry.data["id"] for entry in stage.history().of_kind("observed")]
    assert seen == [refused.id, taken.id]


@pytest.mark.vm
def test_a_property_on_a_nodes_bus_is_looked_at(stage: Stage, lab: Lab, node: str) -> None:
    if "systemd" not in lab.features:
        pytest.skip("it needs systemd")
    with stage.record():
        delay = stage.look(dbus_property(node, *LOGIND, "InhibitDelayMaxUSec"))
        shutting_down = stage.look(dbus_property(node, *LOGIND, "PreparingForShutdown"))
    assert delay.value > 0
    assert shutting_down.value is False


def _told_of_pods(lab: Lab) -> str:
    """What the cluster says of our pods, for whoever reads a failure."""
    told = (
        lab.cluster.run_kubectl(["--namespace", NAMESPACE, *arguments], COMMAND_LIMIT_S, "")["stdout"]
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
    return "\n".join([*told, *(f"{name}:\n{lab.life.last_lines(name)}" for name in components)])


def _pods_of(lab: Lab, made: Workload) -> list[object]:
    found = lab.cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", {"labelSelector": f"{LABEL}={made.name}"}
    )
    return list(found["items"])


@pytest.mark.parametrize("asked", [True, False], ids=["the POST was refused", "a crash before the POST"])
def test_an_object_that_was_there_before_is_left_alone(stage: Stage, lab: Lab, asked: bool) -> None:
    body = _named()
    path = f"{MAPS}/{body['metadata']['name']}"
    lab.cluster.api.create(MAPS, body)
    if asked:
        assert stage.do(ask("POST", MAPS, body)).value["status"] == 409
    else:
        lab.safety.expect(path)
    lab.tidy()
    assert _is_there(lab, path)
    assert lab.safety.ledger.unfinished() == []
    lab.cluster.api.delete(path)


def test_an_object_that_cannot_be_removed_yet_keeps_nothing_else_from_it(stage: Stage, lab: Lab) -> None:
    other, held = _named(), _named()
    path = f"{MAPS}/{held['metadata']['name']}"
    stage.do(ask("POST", MAPS, other))
    stage.do(ask("POST", MAPS, {"metadata": {**held["metadata"], "finalizers": [HELD, OTHERS]}}))
    with pytest.raises(Problem, match=f"not undone: {path}"):
        lab.tidy()
    assert not _is_there(lab, f"{MAPS}/{other['metadata']['name']}")
    assert lab.cluster.api.get(path)["metadata"]["finalizers"] == [OTHERS]
    lab.cluster.api.patch(path, {"metadata": {"finalizers": None}})
    lab.tidy()
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("asked_for_deletion", [False, True], ids=["as it was made", "on its way out"])
def test_what_a_scenario_held_by_a_finalizer_goes_when_it_is_healed(
    stage: Stage, lab: Lab, asked_for_deletion: bool
) -> None:
    """Whoever put it on was killed, and takes it off no more."""
    held = _named()
    path = f"{MAPS}/{held['metadata']['name']}"
    stage.do(ask("POST", MAPS, {"metadata": {**held["metadata"], "finalizers": [HELD]}}))
    if asked_for_deletion:
        stage.do(ask("DELETE", path))
        assert _is_there(lab, path)
    assert lab.safety.heal_unfinished() == []
    assert not _is_there(lab, path)
    assert lab.safety.ledger.unfinished() == []


def test_a_secret_that_is_asked_for_is_not_in_the_history(stage: Stage) -> None:
    secrets, value = f"/api/v1/namespaces/{NAMESPACE}/secrets", uuid.uuid4().hex
    body = {**_named(), "stringData": {"key": value}}
    with stage.record():
        seen = [
            stage.do(ask("POST", secrets, body)),
            stage.do(ask("GET", f"{secrets}/{body['metadata']['name']}")),
            stage.do(ask("GET", secrets)),
        ]
    assert [answer.value["status"] for answer in seen] == [201, 200, 200]
    told = "".join(entry.to_json() for entry in stage.history().entries)
    assert value not in told
    assert base64.b64encode(value.encode()).decode() not in told


@pytest.mark.parametrize("path", [f"{MAPS}?dryRun=None", f"{MAPS}#x"])
def test_a_query_in_a_path_is_refused(stage: Stage, path: str) -> None:
    for action in (ask("POST", path, _named()), would("POST", path, _named())):
        with pytest.raises(Problem, match="a path with a query"):
            stage.do(action)


def test_a_failure_is_observed_where_a_request_may_fail(stage: Stage) -> None:
    """A Node without an address is one whose kubelet the API server cannot reach."""
    name = _named()["metadata"]["name"]
    path = f"{WATCHED['nodes']}/{name}/proxy/healthz"
    stage.do(make_node(name))
    with stage.record():
        with pytest.raises(ApiError, match="address"):
            stage.do(ask("GET", path))
        seen = stage.do(ask("GET", path, may_fail=True))
    assert seen.value["status"] >= 500
    assert "address" in seen.value["body"]
    assert [entry.data["value"] for entry in stage.history().of_kind("observed")] == [seen.value]


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_what_changes_something_may_not_fail(method: Literal["POST", "PATCH", "DELETE"]) -> None:
    with pytest.raises(Problem, match="only a GET changes nothing"):
        ask(method, f"{MAPS}/any", {}, may_fail=True)


def test_an_object_without_a_name_is_not_made(stage: Stage) -> None:
    with pytest.raises(Problem, match="an object without a name"):
        stage.do(ask("POST", MAPS, {"metadata": {"generateName": "made-"}}))


UNLABELLED = {"metadata": {"labels": {"nodeproof.dev/noted": None}}}
ALSO = tuple(sorted(RESOURCES.keys() - WATCHED.keys()))


def test_every_resource_that_can_be_recorded_is_watched_and_fenced(stage: Stage, lab: Lab) -> None:
    body, labels = _named(), {"metadata": {"labels": {"nodeproof.dev/noted": "yes"}}}
    labelled = became("namespaces", NAMESPACE, labels)
    with stage.record(also=ALSO):
        stage.do(ask("POST", RESOURCES["csinodes"].path, {**body, "spec": {"drivers": []}}))
        asked = stage.do(ask("PATCH", f"{RESOURCES['namespaces'].path}/{NAMESPACE}", labels))
        stage.wait_for(labelled.after(asked.came, windows.prompt(10)))
    stage.do(ask("PATCH", f"{RESOURCES['namespaces'].path}/{NAMESPACE}", UNLABELLED))
    assert stage.find(labelled) is not None
    assert stage.find(made("csinodes", body["metadata"]["name"])) is not None
    assert fence(stage.history(), ALSO).passed
    lab.tidy()
    assert [
        name for name in ALSO if RESOURCES[name].body and _is_there(lab, RESOURCES[name].sentinel(""))
    ] == []


def test_what_cannot_be_recorded_is_refused_with_what_can(stage: Stage) -> None:
    with pytest.raises(Problem, match="there are: csinodes, "), stage.record(also=("secrets",)):
        pass


def test_the_collector_tells_that_it_has_put_a_node_into_quarantine(lab: Lab) -> None:
    """Else each scenario about it would wait, in a fresh lab, too."""
    api = lab.cluster.api
    before = begun(api)
    assert before is not None
    orphan = lab.cluster.bound_pod(_named()["metadata"]["name"])
    try:
        assert eventually(lambda: (begun(api) or 0.0) > before, windows.POD_GC_S + 10.0)
    finally:
        api.delete(pod(orphan.namespace, orphan.name), 0)
