"""The permissions that an audit needs, as a ClusterRole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

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
