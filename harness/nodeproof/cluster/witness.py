"""Pods that record what happens to them on their node's disk, which outlives them and a shutdown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeproof.cluster.api import Api
from nodeproof.cluster.workloads import Pod, pod_spec, start_pod, tolerates, wait_running
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.testimony import (
    BEAT,
    BEAT_S,
    EXITS,
    FAILED,
    HOOK_BEGAN,
    HOOK_ENDED,
    SIGTERM,
    STARTED,
    WROTE,
)

Json = Any
IMAGE = "nodeproof.local/busybox:1"
FOLDER = "/var/lib/nodeproof/witness"
"""The folder on a node for what its pods wrote: a file for each pod and boot."""
HELD, WRITTEN = "/held", "written"
"""Mount path of the volume of a witness's claim, and the name of the file with its numbers."""
WRITE_EACH_S = 1

# Only builtins of the shell: under emulation a process for each beat would use up the node's CPU. The first
# process of a container only gets signals that it handles, so it is deaf if its trap continues.
_SAY = (
    f"read -r boot </proc/sys/kernel/random/boot_id; "
    f'say() {{ read -r up _ </proc/uptime; echo "$up $1" >>{FOLDER}/$NAME.$boot; }}'
)
# Each number is synced before it is reported; a failed write is reported, too.
_WRITE = f"""
(n=$(wc -l <{{file}} 2>/dev/null || echo 0); while :; do
    n=$((n + 1))
    if echo "$n $NODE" | dd of={{file}} oflag=append conv=notrunc,fsync 2>/dev/null
    then say "{WROTE} $n"; else say "{FAILED} $n"; fi
    sleep {WRITE_EACH_S}
done) &
"""
_HOLDS_AFTER_S = 5
"""Delay until the pod was seen Running, before it may be killed for its memory (s)."""
_LIVE = f"mkfifo /tmp/never; exec 3<>/tmp/never; while :; do say {BEAT}; read -r -t {BEAT_S} _ <&3; done"


@dataclass(frozen=True)
class Witness:
    """A pod that records what happens to it.

    Attributes:
        grace_s: Its grace period (s).
        pre_stop_s: How long its preStop hook takes (s); 0 is no hook.
        deaf: Whether it survives SIGTERM.
        priority_class: Its priority class.
        tolerates_s: Its toleration of nodes that are not ready or unreachable (s).
        resources: Its resources.
        host_network: Whether it uses its node's network, with which a slow machine starts it sooner.
        holds_mib: How much memory a second process of it allocates a few seconds later and keeps (MiB).
        claim: The claim of a volume to which a second process of it writes numbers, one a second, each with
            its node and synced before the next.
    """

    grace_s: int = 1
    pre_stop_s: int = 0
    deaf: bool = False
    priority_class: str = ""
    tolerates_s: int | None = None
    resources: Mapping[str, Json] = field(default_factory=dict)
    host_network: bool = False
    holds_mib: int = 0
    claim: str = ""


def file_of(pod: str, boot_id: str) -> str:
    """Return the path on a node of the file that a pod wrote in one boot."""
    return f"{FOLDER}/{pod}.{boot_id}"


def run(api: Api, node_name: str, witnesses: Sequence[Witness], limit_s: float) -> list[Pod]:
    """Create pods on a node and wait until all of them are Running. Raises Problem, ApiError."""
    pods = [start_pod(api, node_name, _spec(node_name, witness)) for witness in witnesses]
    for pod in pods:
        wait_running(api, pod, limit_s)
    return pods


def _spec(node_name: str, witness: Witness) -> dict[str, Json]:
    return pod_spec({"nodeName": node_name, **fields(witness)})


def fields(witness: Witness) -> dict[str, Json]:
    """Return the fields of a pod's spec that make it a witness on any node."""
    spec: dict[str, Json] = {
        "terminationGracePeriodSeconds": witness.grace_s,
        "volumes": [{"name": "disk", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}],
        "containers": [_container(witness)],
    }
    if witness.claim:
        spec["volumes"].append({"name": "held", "persistentVolumeClaim": {"claimName": witness.claim}})
    if witness.priority_class:
        spec["priorityClassName"] = witness.priority_class
    if witness.host_network:
        spec["hostNetwork"] = True
    if witness.tolerates_s is not None:
        spec["tolerations"] = [tolerates(key, witness.tolerates_s) for key in (NOT_READY, UNREACHABLE)]
    return spec


def _container(witness: Witness) -> dict[str, Json]:
    on_sigterm = f"say {SIGTERM}" if witness.deaf else f"say {SIGTERM}; say {EXITS}; exit 0"
    begins = f"{_SAY}; trap {shlex.quote(on_sigterm)} TERM; say {STARTED}; "
    background = _hold(witness.holds_mib) + (_WRITE.format(file=f"{HELD}/{WRITTEN}") if witness.claim else "")
    container: dict[str, Json] = {
        "name": "main",
        "image": IMAGE,
        "command": _shell(f"{begins}{background}{_LIVE}"),
        "env": [_downward("NAME", "metadata.name"), _downward("NODE", "spec.nodeName")],
        "volumeMounts": [{"name": "disk", "mountPath": FOLDER}],
        "resources": dict(witness.resources),
    }
    if witness.claim:
        container["volumeMounts"].append({"name": "held", "mountPath": HELD})
    if witness.pre_stop_s:
        hook = f"{_SAY}; say '{HOOK_BEGAN}'; sleep {witness.pre_stop_s}; say '{HOOK_ENDED}'"
        container["lifecycle"] = {"preStop": {"exec": {"command": _shell(hook)}}}
    return container


def _downward(name: str, field_path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def _hold(mib: int) -> str:
    """Return a command that keeps memory allocated: it copies one block into a pipe that nobody reads.

    Zeroes would not do: Linux does not write them when it splits a huge page (6.12, mm/huge_memory.c).
    """
    if not mib:
        return ""
    copy = f"dd if=/dev/urandom of=/tmp/held bs={mib}M count=1"
    return f"mkfifo /tmp/held; exec 4<>/tmp/held; (sleep {_HOLDS_AFTER_S}; exec {copy}) & "


def _shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]
