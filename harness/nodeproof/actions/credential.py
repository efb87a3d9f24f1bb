"""A node's own credential: its kubelet's client certificate, as it lies on the node."""

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
_LIMIT_S = 10.0
_KUBECONFIGS = ("/run/node/kubeconfig", "/etc/kubernetes/kubeconfig")
"""Of a process node, and of a guest."""


@dataclass(frozen=True)
class OwnCredential:
    """Who asks is a node's kubelet, by the certificate that it has itself, and not by impersonation."""

    node: str

    @property
    def name(self) -> str:
        """What it is called in a recording."""
        return f"the kubelet of {self.node}"


@contextmanager
def api_of(lab: Lab, node: str) -> Iterator[Api]:
    """The lab's API as a node's kubelet; what was read from the node is gone afterwards. Raises MachineError,
    Problem.
    """
    found = json.loads(_read(lab, node, *_KUBECONFIGS))
    (user,), (cluster,) = found["users"], found["clusters"]
    places = (
        (user["user"], "client-certificate"),
        (user["user"], "client-key"),
        (cluster["cluster"], "certificate-authority"),
    )
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        for owner, name in places:
            text = _read(lab, node, owner[name])
            owner[name] = str(_put(Path(folder) / name, text))
        yield Api(_put(Path(folder) / "kubeconfig", json.dumps(found)), lab.cluster.api.dial)


def _put(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _read(lab: Lab, node: str, *paths: str) -> str:
    """The first of these files that is there. Raises MachineError where none is."""
    script = 'for path; do if [ -e "$path" ]; then exec cat "$path"; fi; done; exit 1'
    done = lab.fleet.machine(node).run(["sh", "-c", script, "read", *paths], deadline_s=_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{node} has no {paths[-1]}")
    return done.stdout
