"""A node's kubelet: its configuration and flags, the same for every kind of node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.labs.pki import pair_in
from harness.labs.process.spec import KUBELET_PORT, LabSpec, NodeSpec
from harness.labs.profiles import fixed_kubelet, profile_named

Json = Any


def configuration(lab: LabSpec, node: NodeSpec, folder: Path) -> dict[str, Json]:
    """A KubeletConfiguration; `folder` is where the node finds its credentials."""
    pair = pair_in(folder, "kubelet")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.data_address,
        "port": KUBELET_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder / "ca.crt")},
        },
        "tlsCertFile": str(pair.cert),
        "tlsPrivateKeyFile": str(pair.key),
        **fixed_kubelet(lab.kind),
        **profile_named(lab.profile).kubelet,
    }


def flags(lab: LabSpec, node: NodeSpec) -> list[str]:
    """What a kubelet is told by flags: who it is, and whose."""
    return [
        f"--hostname-override={node.name}",
        f"--node-ip={node.data_address}",
        f"--node-labels=topology.kubernetes.io/zone={node.zone},nodeproof.dev/lab={lab.lab}",
    ]
