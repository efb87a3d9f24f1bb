"""The command `nodeproof audit`: from its options to its output and exit code, and its ClusterRole."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodeproof import catalogue, terminal
from nodeproof.audit import running
from nodeproof.audit.dangers import Danger, dangers
from nodeproof.audit.running import Cluster
from nodeproof.cluster import kubeconfig
from nodeproof.cluster.api import Api
from nodeproof.cluster.kubeconfig import PacedApi
from nodeproof.existing import settings
from nodeproof.existing.settings import Evidence, Setting, Tolerations, read_tolerations
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.recording.bookmarks import FENCE_S
from nodeproof.report import digest, junit, rundir, tables
from nodeproof.report.plain import aligned, counted, wrapped

NAME = "nodeproof-audit"


@dataclass(frozen=True)
class Rule:
    """A rule of a ClusterRole, with a comment."""

    comment: str
    group: str
    resource: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        fields = {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}
        lines = [f"{name}: {json.dumps(names)}" for name, names in fields.items()]
        return f"# {self.comment}\n- " + "\n  ".join(lines)


def rules(*, reads_settings: bool, reads_kubelets: bool) -> Iterator[Rule]:
    """Yield the rules of an audit.

    Args:
        reads_settings: The audit also reads the flags of static pods, and sends a dry run of a pod.
        reads_kubelets: The audit also reads the configuration of kubelets through nodes/proxy.
    """
    yield Rule("state and heartbeats of nodes", "", "nodes", ("list", "watch"))
    comment = "heartbeats; the audit reads only namespace kube-node-lease, this rule allows all"
    yield Rule(comment, "coordination.k8s.io", "leases", ("list", "watch"))
    if reads_settings:
        comment = "flags of static pods; the audit reads only namespace kube-system, this rule allows all"
        yield Rule(comment, "", "pods", ("list",))
        yield Rule("a dry run in namespace default, for the default tolerations", "", "pods", ("create",))
    if reads_kubelets:
        comment = "/configz of kubelets; this permission gives access to all pods"
        yield Rule(comment, "", "nodes/proxy", ("get",))


def cluster_role(*, reads_settings: bool, reads_kubelets: bool) -> str:
    """Return the ClusterRole as YAML.

    Without the permission of a rule, claims that need it are `unproven` with code `settings-unknown`. The
    rules for nodes and Leases are required.
    """
    header = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {NAME}\nrules:"
    rule_texts = map(str, rules(reads_settings=reads_settings, reads_kubelets=reads_kubelets))
    return "\n".join([header, *rule_texts])


def run(arguments: argparse.Namespace) -> int:
    """Audit a cluster, print the verdicts and return the exit code.

    Raises:
        Problem: The kubeconfig cannot be used, the server refuses or does not answer, or a claim is unknown.
        ApiError: The server failed during the observation.
    """
    claims = catalogue.load()
    selected = _selected(arguments.claim, claims)
    reads_settings = not arguments.claim or bool({running.TOLERATIONS, running.MAX_PODS} & selected)
    reads_kubelets = reads_settings and arguments.allow_nodes_proxy
    if arguments.rbac:
        terminal.put(cluster_role(reads_settings=reads_settings, reads_kubelets=reads_kubelets))
        return digest.CONFORMS
    access = kubeconfig.load(arguments.kubeconfig, arguments.context)
    terminal.say(f"context {access.context}, server {access.server}, user {access.user}")
    with contextlib.closing(PacedApi(access)) as api, _folder(arguments.run) as folder:
        began = datetime.now(UTC)
        cluster = running.look(api)
        evidence = Evidence((), (), Tolerations(None, "not selected"))
        if reads_settings:
            evidence = _evidence(api, cluster, reads_kubelets=reads_kubelets)
        seconds = running.observed_s(cluster)
        api.watch_for(int(seconds) + 1 + FENCE_S)
        nodes = counted(len(cluster.nodes), "node")
        terminal.say(f"Kubernetes {cluster.version}, {nodes}: observing for {seconds:.0f} s")
        history, subjects = running.record(api, cluster, evidence, seconds, folder)
        subjects = list(running.select(subjects, selected))
        rows = running.write_run(folder, began, subjects, history, claims, cluster)
        facts = rundir.read_facts(folder)
        absent = sorted(selected - set(facts.selected))
        if absent:
            terminal.say(f"not judged, as no node has the state that they are about: {', '.join(absent)}")
        shown = list(settings.settings(evidence, claims, cluster.version)) if reads_settings else []
        warnings = list(dangers(evidence, claims, cluster.version))
        _print(arguments, folder, claims, shown, warnings)
    return digest.exit_code(rows, arguments.claim, facts.selected)


def _selected(names: Sequence[str], claims: Mapping[str, Claim]) -> frozenset[str]:
    """Return the selected claims. Raises Problem if one does not exist or needs more than an observation."""
    for name in names:
        if catalogue.find(name, claims).id not in running.CLAIMS:
            choices = ", ".join(sorted(running.CLAIMS))
            raise Problem(f"an observation cannot decide {name}", "--claim", f"choose from: {choices}")
    return frozenset(names or running.CLAIMS)


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Make the run's folder; without `path` a temporary one. Raises Problem if the folder exists."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="nodeproof-audit-") as name:
            yield rundir.create(Path(name))
        return
    if path.exists():
        raise Problem("the folder exists", str(path), "name a new folder with --run")
    yield rundir.create(path)


def _evidence(api: Api, cluster: Cluster, *, reads_kubelets: bool) -> Evidence:
    nodes, leases = (list(objects.values()) for objects in (cluster.nodes, cluster.leases))
    return settings.read(api, nodes, leases, read_tolerations(api), configz=reads_kubelets)


def _print(
    arguments: argparse.Namespace,
    folder: Path,
    claims: Mapping[str, Claim],
    shown: Sequence[Setting],
    warnings: Sequence[Danger],
) -> None:
    rows = rundir.read_verdicts(folder)
    if arguments.format == "json":
        content = {
            "verdicts": rows,
            "settings": [{**asdict(entry), "value": entry.value or None} for entry in shown],
            "warnings": [asdict(entry) for entry in warnings],
        }
        terminal.document(f"{json.dumps(content, indent=1)}\n")
    elif arguments.format == "junit":
        terminal.document(junit.render(digest.read(folder, claims)))
    else:
        for line in (*_setting_lines(shown), *_danger_lines(warnings)):
            terminal.put(line)
        kept = str(folder) if arguments.run else "not kept (--run DIR)"
        terminal.put(tables.render(digest.read(folder, claims), kept, {}))


def _setting_lines(entries: Sequence[Setting]) -> Iterator[str]:
    if not entries:
        return
    cells = [(entry.name, entry.value, entry.source) for entry in entries if entry.value]
    yield from aligned([("setting", "value", "source"), *cells])
    yield ""
    unknown: dict[str, list[str]] = {}
    for entry in entries:
        if not entry.value:
            unknown.setdefault(entry.source, []).append(entry.name)
    for reason, names in unknown.items():
        yield f"unproven: settings-unknown: {reason}"
        yield from wrapped(", ".join(names))
        yield ""


def _danger_lines(entries: Sequence[Danger]) -> Iterator[str]:
    for entry in entries:
        yield f"warning: {entry.what}"
        yield from wrapped(f"{entry.claim}: {entry.statement}")
        yield from wrapped(f"finding: {entry.finding}")
        yield ""
