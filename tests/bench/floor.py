"""The bare floor: the lab's own command lines in one network namespace, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from nodeproof import proc
from nodeproof.labs.client import starting
from nodeproof.labs.ground import control_plane
from nodeproof.labs.ground.nodes import Ground
from nodeproof.labs.ground.processes import EventLog, Processes
from nodeproof.labs.ground.profiles import profile_named
from nodeproof.labs.ground.spec import API_ADDRESS, API_PORT, LabSpec, NodeSpec
from nodeproof.labs.kinds import PROCESS
from nodeproof.labs.kinds.process import seed
from nodeproof.labs.kinds.process.node import ProcessNodes
from nodeproof.labs.kinds.process.seed import INSIDE
from nodeproof.root import root_prefix
from tests.bench.figure import Bench, Json
from tests.bench.ground import HERE, UP_LIMIT_S


@dataclass(frozen=True)
class Floor:
    """One run of the bare floor."""

    ready_s: float
    end_s: float
    stages: Mapping[str, float]
    processes: Sequence[Mapping[str, Json]]


def bare_floor(bench: Bench, nodes: int, profile: str) -> Floor:
    """Run the bare floor once; certificates, folders and command lines are made before the clock starts."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="np-floor-", dir=memory if memory.is_dir() else None))
    root = root_prefix()
    try:
        plan = folder / "plan.json"
        plan.write_text(json.dumps(_floor_plan(bench, folder, nodes, profile)))
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv = [*root, "unshare", *namespaces, "--", sys.executable, "-I", str(HERE / "bare_floor.py")]
        began = time.monotonic()
        done = json.loads(proc.run([*argv, str(plan)], timeout_s=UP_LIMIT_S[PROCESS.name]).stdout)
        ended = time.monotonic()
    finally:
        proc.run([*root, "rm", "-rf", "--", str(folder)], timeout_s=30)
    at = done["stages"]
    stages = {
        "command to etcd": at["etcd started"] - began,
        "etcd to API ready": at["API ready"] - at["etcd started"],
        "API ready to last kubelet": at["kubelets started"] - at["API ready"],
        "last kubelet to nodes Ready": at["nodes Ready"] - at["kubelets started"],
    }
    return Floor(at["nodes Ready"] - began, ended - done["end"], stages, done["processes"])


def _floor_plan(bench: Bench, folder: Path, nodes: int, profile: str) -> Mapping[str, Json]:
    """The lab's own command lines, with paths that need no mounts."""
    specs = tuple(NodeSpec(f"node-{slot + 1}", slot, "zone-a", uuid.uuid4().hex) for slot in range(nodes))
    spec = _floor_spec(bench, specs, profile)
    credentials = control_plane.issue_credentials(folder / "pki")
    logs = folder / "logs"
    logs.mkdir()
    configs = {}
    for name, pair in (
        ("controller-manager", credentials.controller_manager),
        ("scheduler", credentials.scheduler),
    ):
        configs[name] = folder / f"{name}.kubeconfig"
        configs[name].write_text(control_plane.kubeconfig(pair, credentials.authority.bundle, name))
    first = {
        "etcd": control_plane.etcd(spec, folder / "etcd"),
        "kube-apiserver": control_plane.api_server(spec, credentials, logs),
    }
    rest = {
        "kube-controller-manager": control_plane.controller_manager(
            spec, credentials, configs["controller-manager"]
        ),
        "kube-scheduler": control_plane.scheduler(spec, credentials, configs["scheduler"]),
    }
    none: Mapping[str, str] = {}
    env = {"GOMAXPROCS": "1", **profile_named(profile).kubelet_env}
    kubelets = _floor_kubelets(spec, folder, credentials)
    return {
        "first": {name: {"argv": argv, "env": none} for name, argv in first.items()},
        "rest": {
            **{name: {"argv": argv, "env": none} for name, argv in rest.items()},
            **{name: {"argv": argv, "env": env} for name, argv in kubelets.items()},
        },
        "nodes": nodes,
        "addresses": [f"{API_ADDRESS}/16", *(f"{entry.data_address}/32" for entry in specs)],
        "mounts": _floor_names(folder, specs),
        "logs": str(logs),
        "api": [API_ADDRESS, API_PORT],
        "ca": str(credentials.authority.bundle),
        "cert": str(credentials.admin.cert),
        "key": str(credentials.admin.key),
        "processes": [sys.executable, "-I", str(HERE / "processes.py")],
    }


def _floor_spec(bench: Bench, nodes: tuple[NodeSpec, ...], profile: str) -> LabSpec:
    parts = {role: {"path": str(part.path)} for role, part in bench.components.by_role.items()}
    version = bench.components.kubernetes_version
    return LabSpec(
        "floor",
        os.getuid(),
        os.getgid(),
        version,
        parts,
        True,
        starting.find_sshd(),
        profile,
        nodes,
        True,
        PROCESS.name,
    )


def _floor_names(folder: Path, nodes: Sequence[NodeSpec]) -> list[tuple[str, str]]:
    """Host names resolve, and no name server is asked."""
    hosts = ["127.0.0.1 localhost", *(f"{entry.data_address} {entry.name}" for entry in nodes)]
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    (folder / "resolv.conf").write_text("")
    names = ("hosts", "resolv.conf")
    return [(str(folder / name), f"/etc/{name}") for name in names if Path("/etc", name).exists()]


def _floor_kubelets(
    spec: LabSpec, folder: Path, credentials: control_plane.Credentials
) -> Mapping[str, list[str]]:
    """Each kubelet's seed as the lab writes it, with its real path in place of the one inside a node."""
    (folder / "pki" / "ssh.pub").touch()
    processes = Processes(folder / "logs", EventLog(folder / "events.jsonl"))
    below, events = _Below(spec, folder), EventLog(folder / "events.jsonl")
    nodes = ProcessNodes(Ground(below, PROCESS.kubelet(), folder, credentials.authority, processes, events))
    commands = {}
    for entry in spec.nodes:
        home = folder / "nodes" / entry.name
        seed.write(home, below, entry, credentials.authority, PROCESS.kubelet())
        inside = home / "run" / "node"
        for name in ("kubelet.json", "kubeconfig"):
            text = (inside / name).read_text()
            (inside / name).write_text(text.replace(str(INSIDE), str(inside)))
        started = [part.replace(str(INSIDE), str(inside)) for part in nodes._kubelet(entry)]
        # Nodes have host names of their own, in namespaces that a floor has not.
        commands[f"kubelet-{entry.name}"] = [*started, f"--hostname-override={entry.name}"]
    return commands


class _Below(LabSpec):
    """A lab's spec whose folder is not in /run: a floor is no lab."""

    def __init__(self, spec: LabSpec, folder: Path) -> None:
        super().__init__(**{entry.name: getattr(spec, entry.name) for entry in dataclasses.fields(spec)})
        object.__setattr__(self, "_folder", folder)

    @property
    def dir(self) -> Path:
        """The floor's folder."""
        return cast(Path, object.__getattribute__(self, "_folder"))
