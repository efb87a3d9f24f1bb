"""Users of a lab as somebody's own cluster, each with the rights of one role."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.pattern import Json

_GROUP = "rbac.authorization.k8s.io"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_ROLES, _BINDINGS = f"/apis/{_GROUP}/v1/clusterroles", f"/apis/{_GROUP}/v1/clusterrolebindings"


@contextmanager
def account(served: Path, lab: LabHandle, folder: Path, role: Json) -> Iterator[Path]:
    """Write a kubeconfig of a user who has exactly the rights of this ClusterRole, until the context ends."""
    api, name = lab.cluster.api, role["metadata"]["name"]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role_ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
    created = {
        _ACCOUNTS: {"metadata": {"name": name}},
        _ROLES: role,
        _BINDINGS: {"metadata": {"name": name}, "subjects": [subject], "roleRef": role_ref},
    }
    for path, body in created.items():
        api.create(path, body)
    token = api.create(f"{_ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    yield with_user(served, folder / "kubeconfig", {"token": token})
    for path in created:
        api.delete(f"{path}/{name}")


def with_user(served: Path, path: Path, user: Mapping[str, str], server: str = "") -> Path:
    """Write a kubeconfig with another user, and another server if one is given."""
    content = yaml.safe_load(served.read_text())
    content["users"] = [{"name": entry["name"], "user": dict(user)} for entry in content["users"]]
    for entry in content["clusters"]:
        cluster = entry["cluster"]
        cluster["server"] = server or cluster["server"]
        # The lab's folder is not where the file is read, as in a container.
        authority = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path
