"""A cluster that is altered without the harness's knowledge while a child pytest runs scenarios on it.

Each alteration must make a claim deviate.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from nodeproof import proc
from nodeproof.catalogue import scenarios_dir
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, node, pods
from nodeproof.cluster.workloads import HOSTNAME_LABEL
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from nodeproof.model.pattern import Json
from nodeproof.report import rundir
from nodeproof.report.digest import verdict_of
from tests.waiting import eventually, pause

RUN_TIMEOUT_S = 600.0
VISIBLE_TIMEOUT_S = 300.0
"""Emulated machines need two minutes before the fault; the end of the scenarios ends every wait."""
COMMAND_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class RunResult:
    """Exit status, output and run folder of a child pytest."""

    status: int
    output: str
    run: Path

    def labels(self, claim: str) -> list[str]:
        """Return the label of each judgment of a claim: `deviates`, `deviates: reported`, `unproven: gap`."""
        return [verdict_of(row).label for row in rundir.read_verdicts(self.run) if row["claim"] == claim]

    def claims(self) -> set[str]:
        """Return the claims that have a verdict."""
        return {str(row["claim"]) for row in rundir.read_verdicts(self.run)}

    def deviating(self) -> set[str]:
        """Return the claims with a judgment that deviates, and not as reported."""
        return {claim for claim in self.claims() if "deviates" in self.labels(claim)}

    def labels_of(self, claims: Iterable[str]) -> set[str]:
        """Return the outcomes and codes of these claims."""
        return {label for claim in claims for label in self.labels(claim)}

    def allure_statuses(self) -> set[str]:
        """Return Allure's statuses of the scenarios."""
        results = (self.run / "allure-results").glob("*-result.json")
        return {str(rundir.read_json(path)["status"]) for path in results}


@dataclass
class Cluster:
    """A lab as an alteration sees it: its API, its processes, and the progress of the scenario."""

    lab: LabHandle
    run: Path
    paused_pids: list[int] = field(default_factory=list)
    scenarios_ended: threading.Event = field(default_factory=threading.Event)

    @property
    def target(self) -> str:
        """The node on which scenarios inject faults."""
        return self.lab.fleet.node_names()[0]

    def node(self) -> Json:
        """Return the Node object of the target."""
        return self.lab.cluster.api.get(node(self.target))

    def pod(self) -> Json:
        """Return the scenario's pod, or None; pods of controllers are not considered."""
        items = self.lab.cluster.api.get(pods(NAMESPACE))["items"]
        bare = (item for item in items if not item["metadata"].get("ownerReferences"))
        return next((item for item in bare if self._is_ours(item)), None)

    def _is_ours(self, pod: Json) -> bool:
        """Return whether a pod is bound to one of the lab's nodes, or selects one."""
        spec, selected = pod["spec"], pod["spec"].get("nodeSelector") or {}
        node_name = spec.get("nodeName") or selected.get(HOSTNAME_LABEL)
        zone = selected.get(ZONE_LABEL, "")
        is_in_lab = node_name in self.lab.fleet.node_names() if node_name else zone == self.lab.zone
        return is_in_lab and pod["metadata"]["name"] != SENTINEL

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; the end of the scenarios is an error."""
        assert eventually(lambda: self.scenarios_ended.is_set() or condition(), VISIBLE_TIMEOUT_S)
        assert not self.scenarios_ended.is_set(), "the scenarios ended before the cluster could be altered"

    def until_recorded(self, text: str = "begun") -> None:
        """Wait until a recording contains a text."""
        histories = "scenarios/*/history.jsonl"
        self.until(lambda: any(text in path.read_text() for path in self.run.glob(histories)))

    def injected(self, fault: str) -> list[str]:
        """Return the nodes into which this fault was injected."""
        nodes = []
        for path in self.run.glob("scenarios/*/history.jsonl"):
            lines = (line for line in path.read_text().splitlines() if '"step":"injected"' in line)
            faults = (json.loads(line)["fault"] for line in lines)
            nodes += [str(data.get("on", data["node"])) for data in faults if data["fault"] == fault]
        return nodes

    def until_injected(self, fault: str) -> str:
        """Wait until a fault was injected; return the node of the first injection."""
        self.until(lambda: self.injected(fault))
        return self.injected(fault)[0]

    def until_unreachable(self) -> None:
        """Wait until the target has its NoExecute taint."""
        self.until(lambda: has_taint(self.node(), UNREACHABLE, "NoExecute"))

    def until_ready(self) -> None:
        """Wait until the target is Ready."""
        self.until(lambda: condition_status(self.node(), "Ready") == "True")

    def until_pod_is_terminating(self) -> None:
        """Wait until the scenario's pod has its deletion timestamp."""
        self.until(lambda: (self.pod() or {"metadata": {}})["metadata"].get("deletionTimestamp"))

    def until_cordoned(self) -> None:
        """Wait until the target is cordoned and the scenario's pod exists."""
        self.until(lambda: self.node()["spec"].get("unschedulable") and self.pod())

    def pid(self, component: str) -> int:
        """Return the process of a component; a kubelet is the child of the process that entered its node."""
        pid = int(registry.client(self.lab.name).status().components[component])
        if not component.startswith("kubelet-"):
            return pid
        return int(self.command("pgrep", "-P", str(pid)).split()[0])

    def pause(self, component: str) -> None:
        """Send SIGSTOP to a component; it continues at the latest when the scenarios end."""
        pid = self.pid(component)
        self.paused_pids.append(pid)
        self.command("kill", "-STOP", str(pid))

    def resume(self) -> None:
        """Send SIGCONT to all paused components."""
        while self.paused_pids:
            self.command("kill", "-CONT", str(self.paused_pids.pop()))

    @contextmanager
    def node_controller_paused(self) -> Iterator[None]:
        """Pause the controller manager after a fault's injection, until the context ends.

        Thus the node controller reacts to the node only after the context, however slow the host is.
        """
        self.until_recorded('"step":"injected"')
        self.pause("kube-controller-manager")
        try:
            yield
        finally:
            self.resume()

    def harness_ports(self) -> list[str]:
        """Return the source ports of API clients outside the lab: the harness's."""
        lines = self.command("ss", "-Htnp", "state", "established", "dport", "=", ":6443").splitlines()
        ports = {line.split()[2].rpartition(":")[2] for line in lines if "users:" not in line}
        assert ports, lines
        return sorted(ports)

    def kill(self, component: str) -> None:
        """Send SIGKILL to a component."""
        self.command("kill", "-KILL", str(self.pid(component)))

    def command(self, *argv: str, stdin: str = "") -> str:
        """Run a command in the lab's own namespaces."""
        output = registry.client(self.lab.name).spawn_command(list(argv), COMMAND_TIMEOUT_S, stdin)
        assert output["status"] == 0, f"{argv}: {output['stderr']}"
        return str(output["stdout"])

    def run_on_target(self, *argv: str) -> str:
        """Run a command on the target without its sshd."""
        pid = next(entry.pid for entry in self.lab.fleet.nodes() if entry.name == self.target)
        return self.command("nsenter", f"--target={pid}", "--mount", "--pid", "--", *argv)


Alteration = Callable[[Cluster], None]


def unaltered(_cluster: Cluster) -> None:
    """Leave the cluster as it is."""


def shipped(name: str) -> str:
    """Return the path of a shipped scenario."""
    return str(scenarios_dir() / name)


def lab_option(lab: LabHandle) -> str:
    """Return the value of `--lab` for a lab, or for its one zone."""
    return f"{lab.name}/{lab.zone}" if lab.zone else lab.name


def check_deviations(result: RunResult, claims: Set[str], conforming: Set[str] = frozenset()) -> None:
    """Assert that claims deviate, possibly among others, and that all judgments of `conforming` conform."""
    assert result.deviating() >= claims
    assert result.labels_of(conforming) <= {"conforms"}
    assert conforming <= result.claims()
    assert result.status == 1


def run_scenarios(lab: LabHandle, run: Path, alter: Alteration, scenario: str, *arguments: str) -> RunResult:
    """Run scenarios on a lab in a child pytest while `alter` changes the cluster."""
    cluster = Cluster(lab, run)
    with _in_background(cluster, alter):
        process = proc.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull),
                *("--rootdir", str(Path(scenario).parent), "--run", str(run), "--lab", lab_option(lab)),
                *("--profile", lab.profile.name, "--again", "0", scenario, *arguments),
            ],
            timeout_s=RUN_TIMEOUT_S,
            cwd=run.parent,
            check=False,
        )
        print(process.stdout, process.stderr)
    return RunResult(process.status, process.stdout + process.stderr, run)


@contextmanager
def _in_background(cluster: Cluster, alter: Alteration) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        alteration = pool.submit(alter, cluster)
        try:
            yield
        finally:
            cluster.scenarios_ended.set()
            cluster.resume()
        alteration.result()
        cluster.resume()


# Alterations


LATE_S = 4.0
LATE_TAINT = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
SLACK_S = 1.5
ETCD = ("127.0.0.1", 2379)
ANSWER_TIMEOUT_S = 10.0


def lease_renewal_is_late(cluster: Cluster) -> None:
    cluster.until_recorded()
    pause(LATE_S)
    cluster.pause(f"kubelet-{cluster.target}")
    pause(LATE_S)
    cluster.resume()


def scheduler_is_paused(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-scheduler")


def controller_manager_is_paused(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-controller-manager")


def pod_is_deleted_in_etcd(cluster: Cluster) -> None:
    """Delete the scenario's pod in etcd, bypassing the API server."""
    cluster.until_cordoned()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    key = f"/registry/pods/{NAMESPACE}/{cluster.pod()['metadata']['name']}".encode()
    with closing(HTTPConnection(*ETCD)) as connection:
        connection.sock = registry.client(cluster.lab.name).dial(*ETCD, ANSWER_TIMEOUT_S)
        connection.request("POST", "/v3/kv/deleterange", json.dumps({"key": b64encode(key).decode()}))
        answer = json.load(connection.getresponse())
    assert answer.get("deleted") == "1", answer


@contextmanager
def requests_denied(
    cluster: Cluster, rules: Sequence[Json], conditions: Sequence[Json] = ()
) -> Iterator[None]:
    """Deny matching requests by a ValidatingAdmissionPolicy."""
    api, policies = cluster.lab.cluster.api, "/apis/admissionregistration.k8s.io/v1"
    name = f"altered-{uuid.uuid4().hex[:8]}"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": list(rules)},
            "matchConditions": list(conditions),
            "validations": [{"expression": "false", "message": "altered"}],
        },
    }
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    api.create(f"{policies}/validatingadmissionpolicies", policy)
    api.create(f"{policies}/validatingadmissionpolicybindings", binding)
    try:
        yield
    finally:
        api.delete(f"{policies}/validatingadmissionpolicybindings/{name}")
        api.delete(f"{policies}/validatingadmissionpolicies/{name}")


def node_creation_is_denied(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
    with requests_denied(cluster, [rule]):
        cluster.scenarios_ended.wait()


def startup_taints_are_reconciled(cluster: Cluster) -> None:
    """Taint two nodes as if their kubelets reconciled startup taints: a restarted one, a recreated one."""
    api, taint = cluster.lab.cluster.api, {"spec": {"taints": [LATE_TAINT]}}
    name = cluster.until_injected("kubelet-settings")
    pause(SLACK_S)
    api.patch(node(name), taint)
    cluster.until_injected("node-deleted")
    cluster.until(lambda: api.get(node(name)))
    # One watch delivers the creation and the taint, so their order is certain.
    api.patch(node(name), taint)
    cluster.scenarios_ended.wait()
    api.patch(node(name), {"spec": {"taints": None}})


def combined(*alterations: Alteration) -> Alteration:
    """Return an alteration that runs several ones in parallel."""

    def alter_all(cluster: Cluster) -> None:
        with ThreadPoolExecutor(len(alterations)) as pool:
            for alteration in [pool.submit(alter, cluster) for alter in alterations]:
                alteration.result()

    alter_all.__name__ = ", ".join(alter.__name__ for alter in alterations)
    return alter_all
