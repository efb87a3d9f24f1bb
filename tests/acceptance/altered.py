"""A cluster that is altered behind the harness's back while a child pytest runs scenarios on it."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.catalogue import scenarios_dir
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, node, pod, pods
from nodeproof.cluster.workloads import HOSTNAME_LABEL
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from nodeproof.report import rundir
from tests.waiting import eventually

Json = Any
RUN_LIMIT_S = 600.0
SEEN_LIMIT_S = 300.0
"""Emulated machines take two minutes for what comes before; the scenarios' end ends every wait."""
COMMAND_LIMIT_S = 15.0
SERVES_LIMIT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """What a child pytest left: its exit status, its output, and its run's folder."""

    status: int
    output: str
    run: Path

    def labels(self, claim: str) -> list[str]:
        """Outcome and code of each judgment of a claim: `deviates`, `unproven: gap`."""
        rows = [row for row in rundir.read_verdicts(self.run) if row["claim"] == claim]
        return [f"unproven: {row['code']}" if row["code"] else str(row["verdict"]) for row in rows]

    def claims(self) -> set[str]:
        """The claims that have a verdict."""
        return {str(row["claim"]) for row in rundir.read_verdicts(self.run)}

    def allure_statuses(self) -> set[str]:
        """How Allure names the scenarios' outcomes."""
        results = (self.run / "allure-results").glob("*-result.json")
        return {str(rundir.read_json(path)["status"]) for path in results}


@dataclass
class Cluster:
    """A lab as whoever alters it sees it: its API, its processes, and how far the scenario is."""

    lab: Lab
    run: Path
    stopped: list[int] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def target(self) -> str:
        """The node that scenarios harm."""
        return self.lab.fleet.node_names()[0]

    def node(self) -> Json:
        """The target's Node."""
        return self.lab.cluster.api.get(node(self.target))

    def pod(self) -> Json:
        """The scenario's pod, or nothing; what controllers made is none."""
        items = self.lab.cluster.api.get(pods(NAMESPACE))["items"]
        bare = (item for item in items if not item["metadata"].get("ownerReferences"))
        return next((item for item in bare if self._is_ours(item)), None)

    def _is_ours(self, found: Json) -> bool:
        """Whether a pod is the scenario's: bound to a node of ours, or to be bound to one."""
        spec, selected = found["spec"], found["spec"].get("nodeSelector") or {}
        on = spec.get("nodeName") or selected.get(HOSTNAME_LABEL)
        zone = selected.get(ZONE_LABEL, "")
        is_here = on in self.lab.fleet.node_names() if on else zone == self.lab.zone
        return is_here and found["metadata"]["name"] != SENTINEL

    def remove_pod(self, grace_s: int | None = None) -> None:
        """Delete the scenario's pod."""
        self.lab.cluster.api.delete(pod(NAMESPACE, self.pod()["metadata"]["name"]), grace_s)

    def until(self, look: Callable[[], object]) -> None:
        """Wait until something is so; the end of the scenarios is an error."""
        assert eventually(lambda: self.over.is_set() or look(), SEEN_LIMIT_S)
        assert not self.over.is_set(), "the scenarios ended before the cluster could be altered"

    def until_recorded(self, text: str = "begun") -> None:
        """Wait until a recording holds a text."""
        histories = "scenarios/*/history.jsonl"
        self.until(lambda: any(text in path.read_text() for path in self.run.glob(histories)))

    def injected(self, fault: str, scenario: str = "") -> list[str]:
        """The nodes that this fault was injected into, in a scenario whose name holds a text."""
        found = []
        for path in self.run.glob(f"scenarios/*{scenario}*/history.jsonl"):
            lines = (line for line in path.read_text().splitlines() if '"step":"injected"' in line)
            told = (json.loads(line)["fault"] for line in lines)
            found += [str(data.get("on", data["node"])) for data in told if data["fault"] == fault]
        return found

    def until_injected(self, fault: str, scenario: str = "", often: int = 1) -> str:
        """Wait until a fault was injected so many times; the node that it was injected into last."""
        self.until(lambda: len(self.injected(fault, scenario)) >= often)
        return self.injected(fault, scenario)[often - 1]

    def until_unreachable(self) -> None:
        """Wait until the target has its NoExecute taint."""
        self.until(lambda: has_taint(self.node(), UNREACHABLE, "NoExecute"))

    def until_ready(self) -> None:
        """Wait until the target is Ready."""
        self.until(lambda: condition_status(self.node(), "Ready") == "True")

    def until_pod_leaves(self) -> None:
        """Wait until the scenario's pod has its deletion timestamp."""
        self.until(lambda: (self.pod() or {"metadata": {}})["metadata"].get("deletionTimestamp"))

    def until_cordoned(self) -> None:
        """Wait until the target is cordoned and the scenario's pod is there."""
        self.until(lambda: self.node()["spec"].get("unschedulable") and self.pod())

    def pid(self, component: str) -> int:
        """A component's process in the lab; a kubelet's is the child of what entered its node."""
        pid = int(registry.client(self.lab.name).status()["components"][component])
        if not component.startswith("kubelet-"):
            return pid
        return int(self.command("pgrep", "-P", str(pid)).split()[0])

    def pause(self, component: str) -> None:
        """SIGSTOP a component; it goes on at the latest when the scenarios are over."""
        pid = self.pid(component)
        self.stopped.append(pid)
        self.command("kill", "-STOP", str(pid))

    def go_on(self) -> None:
        """SIGCONT all that was paused."""
        while self.stopped:
            self.command("kill", "-CONT", str(self.stopped.pop()))

    @contextmanager
    def undecided(self) -> Iterator[None]:
        """From a fault's injection on the node controller stands still: what happens in here comes before
        it decides about the node, however slow the host is.
        """
        self.until_recorded('"step":"injected"')
        self.pause("kube-controller-manager")
        try:
            yield
        finally:
            self.go_on()

    def ports_from_outside(self) -> list[str]:
        """The ports of the API server's clients outside the lab: of the harness."""
        lines = self.command("ss", "-Htnp", "state", "established", "dport", "=", ":6443").splitlines()
        ports = {line.split()[2].rpartition(":")[2] for line in lines if "users:" not in line}
        assert ports, lines
        return sorted(ports)

    def kill(self, component: str) -> None:
        """SIGKILL a component."""
        self.command("kill", "-KILL", str(self.pid(component)))

    def command(self, *argv: str, stdin: str = "") -> str:
        """Run a command in the lab's own namespaces."""
        done = registry.client(self.lab.name).spawn_command(list(argv), COMMAND_LIMIT_S, stdin)
        assert done["status"] == 0, f"{argv}: {done['stderr']}"
        return str(done["stdout"])

    def in_node(self, *argv: str) -> str:
        """Run a command in the target, without its sshd."""
        entries: Sequence[Mapping[str, Json]] = registry.client(self.lab.name).status()["nodes"]
        pid = next(entry["pid"] for entry in entries if entry["name"] == self.target)
        return self.command("nsenter", f"--target={pid}", "--mount", "--pid", "--", *argv)


Alteration = Callable[[Cluster], None]


def unaltered(_cluster: Cluster) -> None:
    """The cluster as it is."""


def shipped(name: str) -> str:
    """The path of a scenario that comes with nodeproof."""
    return str(scenarios_dir() / name)


def named(lab: Lab) -> str:
    """A lab, or the zone that is ours of it, as `--lab` has it."""
    return f"{lab.name}/{lab.zone}" if lab.zone else lab.name


def run_scenarios(lab: Lab, run: Path, alter: Alteration, scenario: str, *arguments: str) -> Ended:
    """Run a file of scenarios on a lab by a child pytest, while `alter` does its work beside it."""
    cluster = Cluster(lab, run)
    with _beside(cluster, alter):
        done = proc.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull),
                *("--rootdir", str(Path(scenario).parent), "--run", str(run), "--lab", named(lab)),
                *("--profile", lab.profile.name, "--again", "0", scenario, *arguments),
            ],
            timeout_s=RUN_LIMIT_S,
            cwd=run.parent,
            check=False,
        )
        print(done.stdout, done.stderr)
    return Ended(done.status, done.stdout + done.stderr, run)


@contextmanager
def _beside(cluster: Cluster, alter: Alteration) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        altering = pool.submit(alter, cluster)
        try:
            yield
        finally:
            cluster.over.set()
            cluster.go_on()
        altering.result()
        cluster.go_on()
