"""The configuration and flags of a node's kubelet, the same for every kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof.labs.base.pki import pair_in
from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.base.spec import KUBELET_PORT, LabSpec, NodeSpec
from nodeproof.model.overrides import KUBELET

Json = Any


def configuration(
    lab: LabSpec, node: NodeSpec, folder: Path, settings: Mapping[str, Json]
) -> dict[str, Json]:
    """Return a KubeletConfiguration.

    Args:
        lab: the lab of the node.
        node: the node; its `kubelet` fields take precedence over everything else.
        folder: where the node finds its credentials.
        settings: the fields that the kind of lab sets.

    Raises:
        Problem: The user sets one of the lab's own fields.
    """
    pair = pair_in(folder, "kubelet")
    own = {
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
    }
    lab.overrides.refuse_own(KUBELET, own)
    return {
        **own,
        **settings,
        **profile_named(lab.profile).kubelet,
        **lab.overrides.of(KUBELET),
        **node.kubelet,
    }


def flags(lab: LabSpec, node: NodeSpec) -> list[str]:
    """Return the kubelet's flags: its identity, its labels and the node's own flags.

    If a flag is repeated, the last value counts; labels add up.
    """
    return [
        f"--hostname-override={node.node_name}",
        f"--node-ip={node.data_address}",
        f"--node-labels=topology.kubernetes.io/zone={node.zone},nodeproof.dev/lab={lab.lab}",
        *node.flags,
    ]
