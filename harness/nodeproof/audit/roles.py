"""The rights that an audit needs, as a ClusterRole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

NAME = "nodeproof-audit"


@dataclass(frozen=True)
class Rule:
    """A rule of a ClusterRole, with a remark."""

    remark: str
    group: str
    resource: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        fields = {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}
        lines = [f"{name}: {json.dumps(names)}" for name, names in fields.items()]
        return f"# {self.remark}\n- " + "\n  ".join(lines)


def rules(*, reads_settings: bool, reads_kubelets: bool) -> Iterator[Rule]:
    """Yield the rules of an audit, with or without the settings of control plane and kubelets."""
    yield Rule("state and heartbeats of nodes", "", "nodes", ("list", "watch"))
    yield Rule("only those in kube-node-lease", "coordination.k8s.io", "leases", ("list", "watch"))
    if reads_settings:
        yield Rule("flags of static pods; only those in kube-system", "", "pods", ("list",))
        yield Rule("a dry run in namespace default, for the default tolerations", "", "pods", ("create",))
    if reads_kubelets:
        yield Rule("/configz of kubelets; this right gives access to all pods", "", "nodes/proxy", ("get",))


def cluster_role(*, reads_settings: bool, reads_kubelets: bool) -> str:
    """Return the ClusterRole as YAML.

    What a rule without its right would have shown is `settings-unknown`, except for nodes and Leases.
    """
    head = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {NAME}\nrules:"
    parts = rules(reads_settings=reads_settings, reads_kubelets=reads_kubelets)
    return "\n".join([head, *map(str, parts)])
