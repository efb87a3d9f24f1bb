"""A node's own credential: its kubelet's client certificate, as stored on the node."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.cluster.api import Api
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError

Json = Any
_TIMEOUT_S = 10.0
_KUBECONFIGS = ("/run/node/kubeconfig", "/etc/kubernetes/kubeconfig")
"""Those of a process node and of a guest."""


@dataclass(frozen=True)
class OwnCredential:
    """A node's kubelet as the sender of a request, by its own certificate, not by impersonation."""

    node: str

    @property
    def name(self) -> str:
        """The sender's name in a recording."""
        return f"the kubelet of {self.node}"


@contextmanager
def api_of(lab: Lab, node: str) -> Iterator[Api]:
    """Open the lab's API as a node's kubelet, and delete the credential read from the node afterwards.

    Raises:
        MachineError: A file could not be read from the node.
        Problem: The kubeconfig is not safe to use.
    """
    kubeconfig = json.loads(_read(lab, node, *_KUBECONFIGS))
    (user,), (cluster,) = kubeconfig["users"], kubeconfig["clusters"]
    entries = (
        (user["user"], "client-certificate"),
        (user["user"], "client-key"),
        (cluster["cluster"], "certificate-authority"),
    )
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        for owner, name in entries:
            text = _read(lab, node, owner[name])
            owner[name] = str(_put(Path(folder) / name, text))
        yield Api(_put(Path(folder) / "kubeconfig", json.dumps(kubeconfig)), lab.cluster.api.dial)


def _put(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _read(lab: Lab, node: str, *paths: str) -> str:
    """Return the content of the first of these files that exists. Raises MachineError if none does."""
    script = 'for path; do if [ -e "$path" ]; then exec cat "$path"; fi; done; exit 1'
    completed = lab.fleet.machine(node).run(["sh", "-c", script, "read", *paths], deadline_s=_TIMEOUT_S)
    if completed.status != 0:
        raise MachineError(f"{node} has no {paths[-1]}")
    return completed.stdout
