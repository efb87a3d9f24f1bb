"""Pods that write down what happens to them, on their node's disk: it outlives them and a shutdown."""

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
"""Where a node keeps what its pods wrote: a file for each pod and boot."""
HELD, WRITTEN = "/held", "written"
"""Where a witness has the volume of its claim, and the file of it that the numbers are in."""
WRITE_EACH_S = 1

# Only builtins of the shell: under emulation a process for each beat would take the node's CPU. The first
# process of a container gets no signal that it did not ask for, so a trap that goes on is one that is deaf.
_SAY = (
    f"read -r boot </proc/sys/kernel/random/boot_id; "
    f'say() {{ read -r up _ </proc/uptime; echo "$up $1" >>{FOLDER}/$NAME.$boot; }}'
)
# Each number is on the disk before it is told; of one that could not be, that is told.
_WRITE = f"""
(n=$(wc -l <{{file}} 2>/dev/null || echo 0); while :; do
    n=$((n + 1))
    if echo "$n $NODE" | dd of={{file}} oflag=append conv=notrunc,fsync 2>/dev/null
    then say "{WROTE} $n"; else say "{FAILED} $n"; fi
    sleep {WRITE_EACH_S}
done) &
"""
_HOLDS_AFTER_S = 5
"""So late that the pod was seen Running before it may be killed for it."""
_LIVE = f"mkfifo /tmp/never; exec 3<>/tmp/never; while :; do say {BEAT}; read -r -t {BEAT_S} _ <&3; done"


@dataclass(frozen=True)
class Witness:
    """What kind of pod is to tell: its grace period (s), how long its preStop hook takes (s; 0 is none),
    whether SIGTERM ends it, its priority class, its toleration of nodes that are not ready or unreachable
    (s), its resources, whether it has its node's network, which a slow machine starts sooner, how much
    memory (MiB) a second process of it takes a few seconds later and keeps, and the claim of a volume to
    which a second process of it writes numbers, one a second, each with its node and on the disk before the
    next.
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
    """Where a node keeps what a pod wrote in one boot."""
    return f"{FOLDER}/{pod}.{boot_id}"


def run(api: Api, node_name: str, witnesses: Sequence[Witness], limit_s: float) -> list[Pod]:
    """Create pods on a node and wait until all of them are Running. Raises Problem, ApiError."""
    made = [start_pod(api, node_name, _spec(node_name, witness)) for witness in witnesses]
    for pod in made:
        wait_running(api, pod, limit_s)
    return made


def _spec(node_name: str, witness: Witness) -> dict[str, Json]:
    return pod_spec({"nodeName": node_name, **fields(witness)})


def fields(witness: Witness) -> dict[str, Json]:
    """What makes a pod a witness, wherever it runs: fields of its spec."""
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
    heard = f"say {SIGTERM}" if witness.deaf else f"say {SIGTERM}; say {EXITS}; exit 0"
    begins = f"{_SAY}; trap {shlex.quote(heard)} TERM; say {STARTED}; "
    beside = _hold(witness.holds_mib) + (_WRITE.format(file=f"{HELD}/{WRITTEN}") if witness.claim else "")
    container: dict[str, Json] = {
        "name": "main",
        "image": IMAGE,
        "command": _shell(f"{begins}{beside}{_LIVE}"),
        "env": [_told("NAME", "metadata.name"), _told("NODE", "spec.nodeName")],
        "volumeMounts": [{"name": "disk", "mountPath": FOLDER}],
        "resources": dict(witness.resources),
    }
    if witness.claim:
        container["volumeMounts"].append({"name": "held", "mountPath": HELD})
    if witness.pre_stop_s:
        hook = f"{_SAY}; say '{HOOK_BEGAN}'; sleep {witness.pre_stop_s}; say '{HOOK_ENDED}'"
        container["lifecycle"] = {"preStop": {"exec": {"command": _shell(hook)}}}
    return container


def _told(name: str, field_path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def _hold(mib: int) -> str:
    """What takes memory for good: a copy of one block that large, which nobody reads the other end of. Zeroes
    would be no memory: Linux writes none where it splits a huge page (6.12, mm/huge_memory.c).
    """
    if not mib:
        return ""
    copy = f"dd if=/dev/urandom of=/tmp/held bs={mib}M count=1"
    return f"mkfifo /tmp/held; exec 4<>/tmp/held; (sleep {_HOLDS_AFTER_S}; exec {copy}) & "


def _shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]
