"""The cluster of an inventory, connected as kubectl connects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import terminal
from nodeproof.cluster import kubeconfig
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.kubeconfig import Access, PacedApi
from nodeproof.cluster.resources import WATCHED
from nodeproof.existing import inventory, marks
from nodeproof.existing.inventory import Inventory
from nodeproof.model.problem import Problem

Json = Any


@dataclass(frozen=True)
class ConnectedCluster:
    """The inventory's cluster, whose UID was compared with the inventory's."""

    inventory: Inventory
    access: Access
    api: Api

    def nodes(self) -> Mapping[str, Json]:
        """Return the Nodes by name. Raises ApiError."""
        return {str(node["metadata"]["name"]): node for node in self.api.get(WATCHED["nodes"])["items"]}


@contextlib.contextmanager
def connected(
    path: Path, user_agent: str, rights: str, per_s: float = kubeconfig.REQUESTS_PER_S
) -> Iterator[ConnectedCluster]:
    """Connect to the cluster of an inventory file.

    Args:
        path: The inventory file.
        user_agent: Name of the client in the audit log.
        rights: What the user must be allowed to do, for the message of a refusal.
        per_s: Most requests per second.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the cluster is another one, or it refuses or
            does not answer.
    """
    content = inventory.read(path)
    access = kubeconfig.load(content.cluster.kubeconfig, content.cluster.context)
    terminal.say(f"context {access.context}, server {access.server}, user {access.user}")
    with contextlib.closing(PacedApi(access, user_agent, per_s)) as api:
        try:
            uid = str(api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
            if not marks.is_same_cluster(content, uid):
                what = f"the inventory is about another cluster: this one has the UID {uid}"
                raise Problem(what, f"{content.path}: cluster.uid", "choose the inventory's context or UID")
            yield ConnectedCluster(content, access, api)
        except ApiError as error:
            if error.status:
                step = f"the user needs {rights}"
                raise Problem(f"the API server refuses: {error}", access.context, step) from error
            step = "check the server's address in the kubeconfig, and any proxy or VPN to it"
            raise Problem(f"the API server does not answer: {error}", access.context, step) from error
