"""Actions, probes, and settings of kubelets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof import actions as node_actions
from nodeproof.actions import (
    OVER_S,
    Action,
    ActionContext,
    create_node,
    delete_pod,
    kubectl,
    run_pod,
    set_cloud_addresses,
    set_cloud_answers,
    wait_podgc_quarantine,
)
from nodeproof.cluster.workloads import Pod, PodSettings
from nodeproof.faults.providers import Cloud
from nodeproof.labs.client.handle import _kubelet_settings
from nodeproof.labs.kinds import EXISTING
from nodeproof.machines.machine import CommandResult, Machine, MachineError, Shell
from nodeproof.model.needs import CLOUD, Needs
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import amount
from nodeproof.probes import (
    acknowledged_in,
    as_numbers,
    counts_in,
    facts,
    last_of,
    mount_of,
    parse_values,
    sections,
    swap_of,
    wall_clock,
)
from nodeproof.scenario import STATIC_PODS, mirror_pod, static_pod
from nodeproof.scenario.lab import Lab
from nodeproof.sources import Journal
from tests.fakes import FakeMachine, fake_lab

# kubectl commands that a scenario may not run, as their output would be in the report


@pytest.mark.parametrize(
    "arguments",
    [
        "get secrets", "get secret/x", "get Secret x", "get pods,secrets", "get secrets.v1. x",
        "get pods/x secrets/y",
        "get --raw /api/v1/secrets", "get --raw=/api/v1/secrets", "create token sa", "config view --raw",
        "get -o yaml -f /x.yaml", "get -f/x.yaml", "get -f=/x.yaml", "get --filename /x.yaml",
        "get --filename=/x.yaml", "get -k /folder", "diff -f x.yaml",
        "apply --dry-run=client -o yaml -f x.yaml",
        "exec p -- env", "exec p -- cat /var/run/secrets/kubernetes.io/serviceaccount/token",
        "-n a exec p -- sh -c env",
        "cp p:/run/x /tmp/x", "debug p -it", "cluster-info dump", "cluster-info -A dump",
    ],
)  # fmt: skip
def test_command_that_may_show_a_secret_is_refused(arguments: str) -> None:
    with pytest.raises(Problem, match="may show a secret"):
        kubectl(*arguments.split())


@pytest.mark.parametrize(
    "arguments",
    [
        "get nodes", "cordon node-1", "delete pod x -n nodeproof --wait=false", "get node node-1 -o yaml",
        "taint node node-1 secret-taint=yes:NoSchedule", "get configmaps -A -o yaml", "cluster-info",
        "drain node-1 --force --ignore-daemonsets", "wait --for=create node/x --timeout=30s",
        "get node node-1 --field-selector=a=b",
    ],
)  # fmt: skip
def test_other_commands_are_carried_out(arguments: str) -> None:
    assert kubectl(*arguments.split()).text == f"kubectl {arguments}"


# Actions and probes on somebody's own cluster


def test_owner_of_a_cluster_allows_pods_on_marked_nodes_and_no_other_action(tmp_path: Path) -> None:
    own: dict[str, Any] = {"kind": EXISTING, "name": "own", "cluster.api": None}
    own["usable_nodes"] = lambda: ["node-1"]
    marked = {"fleet.node_names": lambda: ["node-1"], "pods": PodSettings("pods", "busybox", True)}
    refused: list[tuple[str, dict[str, Any], Action[Any]]] = [
        ("this action is not allowed", marked, create_node("node-9")),
        ("no pods are allowed", {"pods": None}, run_pod(on="node-1")),
        ("node-2 is not marked", marked, run_pod(on="node-2")),
        ("not in the namespace", marked, delete_pod(Pod("kube-system", "coredns", "node-1"))),
    ]
    for reason, parts, action in refused:
        stage = Lab(fake_lab(own | parts), tmp_path, Needs(faulted=1), nullcontext)
        with pytest.raises(Problem, match=reason):
            stage.run(action)
    with pytest.raises(Problem, match="this source is not allowed"):
        stage.collect(Journal("node-1", "kubelet.service"))
    with pytest.raises(Problem, match="node-2 is not marked"):
        wall_clock("node-2").read(fake_lab(own | marked))


# The earliest start of a Node's deletion, given an earlier quarantine


QUEUE = '# TYPE workqueue_retries_total counter\nworkqueue_retries_total{name="%s"} %d\n'
NONE_BEGUN = QUEUE % ("orphaned_pods_nodes", 0)
SOME_BEGUN = QUEUE % ("orphaned_pods_nodes", 3)
ANOTHER = QUEUE % ("deployment", 0)


@dataclass
class Cluster:
    """An API server whose clock advances by a second with each request."""

    metrics: str
    created: Mapping[str, float]
    now: float = 1000.0
    requests: list[float] = field(default_factory=list)

    def text_at(self, _url: str) -> str:
        return self.metrics

    def dry_run(self, _path: str, _body: Any) -> Any:
        self.now += 1.0
        self.requests.append(self.now)
        return node_created_at(self.now)

    def get(self, path: str) -> Any:
        return node_created_at(self.created[path.rpartition("/")[2]])


def node_created_at(t: float) -> Any:
    timestamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"creationTimestamp": timestamp}}


def waited(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *nodes: str) -> Cluster:
    monkeypatch.setattr(node_actions, "_PERIOD_S", 0.001)
    lab = fake_lab({"cluster.api": cluster, "name": "lab-1"})
    wait_podgc_quarantine(*nodes).do(ActionContext(lab, None, lambda _node: None))
    return cluster


def test_action_returns_at_once_if_no_quarantine_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = waited(monkeypatch, Cluster(NONE_BEGUN, {"a": 999.0}), "a")
    assert cluster.requests == []


@pytest.mark.parametrize("metrics", [SOME_BEGUN, ANOTHER, ""], ids=["some", "not-told", "no-metrics"])
@pytest.mark.parametrize(("youngest", "last_request"), [(1001.0 - OVER_S, 1001.0), (990.0, 990.0 + OVER_S)])
def test_quarantine_is_awaited_until_the_youngest_node_is_old(
    monkeypatch: pytest.MonkeyPatch, metrics: str, youngest: float, last_request: float
) -> None:
    cluster = waited(monkeypatch, Cluster(metrics, {"a": 10.0, "b": youngest}), "a", "b")
    assert cluster.requests[-1] == last_request


def test_continually_recreated_node_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anew(Cluster):
        def get(self, _path: str) -> Any:
            return node_created_at(self.now)

    monkeypatch.setattr(node_actions, "_QUARANTINE_TIMEOUT_S", 0.05)
    with pytest.raises(Problem, match=r"after 0[.]05 s, a Node of a is younger than 71 s"):
        waited(monkeypatch, Anew(SOME_BEGUN, {}), "a")


# The file of a static pod, and the name of its mirror pod


def test_mirror_pod_has_the_name_of_its_file_and_node() -> None:
    mirror = mirror_pod("node-1")
    file = static_pod(mirror, {"cpu": "300m"})
    pod = json.loads(file.content)
    assert (file.node, file.path) == ("node-1", f"{STATIC_PODS}/{mirror.name}.json")
    assert f"{pod['metadata']['name']}-node-1" == mirror.name
    assert pod["metadata"]["namespace"] == mirror.namespace
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "300m"}}
    assert "nodeName" not in pod["spec"]


# The fake cloud: its files


def test_only_machines_reported_lost_are_affected() -> None:
    cloud = Cloud({"a": "exists", "b": "shut-down", "c": "gone"}, {"a": {"lab": "x"}})
    assert cloud.affected_nodes == ("b", "c")
    assert set_cloud_answers({"a": "exists", "c": "gone"}).affected_nodes == ("c",)


@dataclass
class Beside:
    """A component whose settings are in a local folder, of a cluster without nodes."""

    folder: Path
    name: str = CLOUD

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        if argv[0] == "kubectl":
            return CommandResult(0, json.dumps({"items": []}), "")
        process = subprocess.run(
            argv, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

    def power(self, _action: str) -> None:
        """Return nothing: it does not exist."""


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    (tmp_path / CLOUD).mkdir()
    return Beside(tmp_path)


def stored(beside: Beside, cloud: Cloud, ending: str) -> Any:
    return json.loads((beside.folder / CLOUD / f"cloud-{cloud.id}.{ending}").read_text())


def doing(beside: Beside, *active: Cloud) -> ActionContext:
    """Return an action's context while these clouds are active."""
    faults = {fault.id: fault for fault in active}
    lab = fake_lab({"safety.injector.active": faults, "fleet.machine": lambda _name: beside})
    return ActionContext(lab, None, lambda _node: None)


def test_cloud_adds_node_addresses_by_type(beside: Beside) -> None:
    cloud = Cloud({}, {}, initialises_nodes=True)
    cloud.inject(cast("Shell", beside))
    addresses = {"InternalIP": ["10.77.1.1"], "ExternalIP": ["10.78.1.1", "10.78.1.2"]}
    set_cloud_addresses("a", **addresses).do(doing(beside))
    written = [(address["type"], address["address"]) for address in stored(beside, cloud, "addresses")["a"]]
    assert written == [(type_, address) for type_, several in addresses.items() for address in several]


def test_cloud_without_labels_of_a_node_may_not_lose_it(beside: Beside) -> None:
    cloud = Cloud({"a": "exists"}, {"a": {"lab": "x"}})
    cloud.inject(cast("Shell", beside))
    set_cloud_answers({"a": "gone", "b": "exists"}).do(doing(beside, cloud))
    with pytest.raises(Problem, match="labels of b are missing") as caught:
        set_cloud_answers({"b": "gone"}).do(doing(beside, cloud))
    assert caught.value.next_step == "pass them to cloud(..., labels)"


# Values that probes read from the output of machines and components.


TEXT = """\
Name:               node-1
Conditions:
  Type             Status  LastHeartbeatTime
  ----             ------  -----------------
  Ready            True    Mon, 23 Nov 2026
Addresses:
  InternalIP:  10.77.1.1
  Hostname:    node-1
Capacity:
  cpu:                4
Allocatable:
  cpu:                3
System Info:
  Boot ID:                    0c0b
"""


def test_each_key_is_below_its_heading() -> None:
    headings = sections(TEXT)
    assert headings["Capacity"]["cpu"] == "4"
    assert headings["Allocatable"]["cpu"] == "3"
    assert headings["Conditions"]["Ready"] == "True"
    assert headings["Addresses"] == {"InternalIP": "10.77.1.1", "Hostname": "node-1"}
    assert headings["System Info"]["Boot ID"] == "0c0b"
    assert sections("") == {}


STATS = {
    "node": {"nodeName": "node-1", "swap": {"swapUsageBytes": 3, "swapAvailableBytes": 7}},
    "pods": [
        {"podRef": {"name": "other"}, "swap": {"swapUsageBytes": 9}},
        {
            "podRef": {"name": "paged"},
            "swap": {"swapUsageBytes": 2},
            "containers": [{"name": "main", "swap": {"swapUsageBytes": 1}}, {"name": "none"}],
        },
    ],
}


@pytest.mark.parametrize(
    ("pod", "container", "swap"),
    [
        ("", "", {"swapUsageBytes": 3, "swapAvailableBytes": 7}),
        ("paged", "", {"swapUsageBytes": 2}),
        ("paged", "main", {"swapUsageBytes": 1}),
        *((pod, container, {}) for pod, container in (("gone", "main"), ("gone", ""), ("paged", "none"))),
    ],
)
def test_swap_of_node_pod_and_container_is_read(pod: str, container: str, swap: Mapping[str, int]) -> None:
    assert swap_of(STATS, pod, container) == swap


FOLDER = "/var/lib/kubelet/pods/0c0b/volumes/kubernetes.io~secret"
MOUNTS = f"""\
/dev/vda / ext4 rw,relatime 0 0
tmpfs {FOLDER}/kept tmpfs rw,relatime,size=1259652k,noswap 0 0
tmpfs {FOLDER}/other tmpfs rw,relatime 0 0
"""


@pytest.mark.parametrize(
    ("mounts", "pod", "volume", "lines"),
    [
        (MOUNTS, "0c0b", "kept", ["tmpfs", "rw", "relatime", "size=1259652k", "noswap"]),
        (f"{MOUNTS}none {FOLDER}/kept tmpfs rw 0 0\n", "0c0b", "kept", ["tmpfs", "rw"]),
        (MOUNTS, "beef", "kept", []),
        (MOUNTS, "0c0b", "ept", []),
    ],
    ids=["a volume", "the last mount counts", "another pod", "another volume"],
)
def test_volume_has_a_type_and_options(mounts: str, pod: str, volume: str, lines: list[str]) -> None:
    assert mount_of(mounts, pod, volume).splitlines() == lines


NUMBERS = "1 node-1\n2 node-1\n3 node-2\n"
NODES = ("node-1", "node-2")


def test_each_node_has_its_last_number() -> None:
    assert [last_of(NUMBERS, node) for node in ("node-1", "node-2", "node-3")] == [2, 3, 0]
    assert last_of("1 node-1\n2 node-1", "node-1") == 1


@pytest.mark.parametrize(
    ("text", "flaws"),
    [
        (NUMBERS, {"written": 3}),
        ("", {"written": 0}),
        ("1 node-1\n3\n3 node-2\n3 node-1\n", {"written": 3, "lost": [2], "doubled": [3], "torn": ["3\n"]}),
        ("1 node-1\n2 nod", {"written": 1, "torn": ["2 nod"]}),
        ("1 node-1\n2 node-2", {"written": 1, "torn": ["2 node-2"]}),
        ("1 node-1\n2 nod3 node-2\n", {"written": 1, "torn": ["2 nod3 node-2\n"]}),
        ("1 node-1\n2 nod\n", {"written": 1, "torn": ["2 nod\n"]}),
        ("1 node-1\n\n", {"written": 1, "torn": ["\n"]}),
    ],
)
def test_lost_doubled_and_torn_numbers_are_reported(text: str, flaws: Mapping[str, Any]) -> None:
    assert counts_in(text, NODES) == {"lost": [], "doubled": [], "torn": [], **flaws}


def test_last_acknowledged_number_is_the_highest_of_all_boots() -> None:
    assert acknowledged_in("9.1 beat\n9.2 wrote 7\n5.0 started\n5.5 wrote 3\n5.9 failed to write 8\n") == 7
    assert acknowledged_in("9.1 beat\n") == 0


OUTPUT = """\
kernel=6.12.118+deb13-cloud-amd64
os=Linux
processor=x86_64
distribution=Debian GNU/Linux 13 (trixie)
runtime=1.7.24~ds1
kubelet=Kubernetes v1.36.3
command=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.json --node-labels=a=b,c=d
machine_id=6a50d8ee438547a4b53412667e730888
system_uuid=01e4cd9d-24f9-5907-94c7-4325229d258d
boot_id=ee2ca64a-4330-4d44-b3d2-83f11fd8fb79
hostname=node-2
addresses=10.77.1.2 10.78.1.2
cpus=1
memory_kib=1247680
"""


def test_machine_facts_have_the_names_of_node_fields() -> None:
    values = facts(parse_values(OUTPUT))
    assert (values["os"], values["architecture"]) == ("linux", "amd64")
    assert (values["runtime"], values["kubelet"]) == ("1.7.24", "v1.36.3")
    assert values["addresses"] == ["10.77.1.2", "10.78.1.2"]
    assert (values["cpus"], values["memory"]) == (1, 1247680 * 1024)
    assert values["command"].endswith("--node-labels=a=b,c=d")


def test_resources_are_numbers() -> None:
    resources = {"cpu": "950m", "memory": "1145280Ki", "pods": "110", "ephemeral-storage": "7605865255"}
    has = {"cpu": 950, "memory": 1145280 * 1024, "pods": 110, "ephemeral-storage": 7605865255}
    assert as_numbers(resources) == has
    assert as_numbers({"cpu": "1", "memory": "2G"}) == {"cpu": 1000, "memory": 2_000_000_000}
    assert amount("1.5Gi") == 3 << 29
    for wrong in ("", "Ki", "1Q", "-1"):
        with pytest.raises(ValueError, match="not a quantity"):
            amount(wrong)
    with pytest.raises(ValueError, match="not a whole number"):
        as_numbers({"memory": "1500m"})


# Settings of a kubelet: read from its command line and file, or unknown.


FILE = '{"failSwapOn": false}'


def kubelet(*argv: str, file: str = FILE) -> Machine:
    """Return a machine whose kubelet was started with these arguments."""
    return cast("Machine", FakeMachine(lambda command: file if command[0] == "cat" else "\0".join(argv)))


def test_flags_and_configuration_fields_are_read() -> None:
    node = kubelet("kubelet", "--config=/etc/kubelet", "--node-ip=10.0.0.1")
    assert _kubelet_settings(node) == {"config": "/etc/kubelet", "node-ip": "10.0.0.1", "failSwapOn": "false"}


def test_kubelet_with_drop_ins_is_unknown() -> None:
    argv = ("kubelet", "--config=/etc/kubelet")
    assert _kubelet_settings(kubelet(*argv, "--config-dir=/etc/kubelet.d")) is None
    assert _kubelet_settings(kubelet(*argv, "--config-dir=")) is not None


@pytest.mark.parametrize(
    "node", [kubelet("kubelet"), kubelet("kubelet", "--config=/etc/kubelet", file="{torn")]
)
def test_kubelet_without_a_readable_file_is_an_error(node: Machine) -> None:
    with pytest.raises(MachineError, match="no readable configuration file"):
        _kubelet_settings(node)
