"""The project's figures, each beside its anchor measured in the same run. `make bench`, or
`.venv/bin/python infra/bench/bench.py --help`.

Nothing here is a test: a figure beyond its target is printed as missed, and the exit code stays 0.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import re
import shlex
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from harness import proc
from harness.checks.moments import fault_step, pod_gone
from harness.cluster.api import ApiError
from harness.cluster.resources import NAMESPACE, WATCHED
from harness.faults import Partition
from harness.labs import process_lab
from harness.labs.components import DEFAULT_KUBERNETES_VERSION, Components, obtain
from harness.labs.lab import Lab
from harness.labs.process import control_plane
from harness.labs.process.node import INSIDE, ProcessNodes
from harness.labs.process.processes import EventLog, Processes
from harness.labs.process.spec import API_ADDRESS, API_PORT, LabSpec, NodeSpec
from harness.labs.profiles import profile_named
from harness.labs.root import root_prefix
from harness.labs.wire import SupervisorClient
from harness.machines.machine import CommandResult, Machine, MachineError
from harness.model.cluster import LEASE_NAMESPACE
from harness.model.problem import Problem
from harness.model.window import WindowSpec
from harness.recording.recorder import Recording, Setting
from harness.safety.ledger import Ledger

Json = Any
HERE = Path(__file__).resolve().parent
ANNOTATION = "nodeproof.dev/bench"
UP_LIMIT_S = 300.0
EVENTS_PER_S, EVENT_SECONDS, LEASES, WORKERS = 1000, 12.0, 40, 8
WAIT_SECONDS = 30.0
QUIET_SHARE, QUIET_LIMIT_S = 0.25, 20.0
MIB = 1 << 20
_LAB_NAME = re.compile(r"^p-[0-9a-f]{6}$", re.MULTILINE)


@dataclass(frozen=True)
class Figure:
    """One measured figure, its anchor, and what was asked of which of them."""

    name: str
    unit: str
    values: Sequence[float]
    anchor: str = ""
    anchor_values: Sequence[float] = ()
    target: str = ""
    met: bool | None = None
    loads: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def value(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.values)

    @property
    def anchor_value(self) -> float | None:
        """The median of the anchor's repeats."""
        return statistics.median(self.anchor_values) if self.anchor_values else None

    @property
    def ratio(self) -> float | None:
        """The figure by its anchor."""
        return self.value / self.anchor_value if self.anchor_value else None

    def to_json(self) -> Mapping[str, Json]:
        """As written by --json."""
        computed = {"median": self.value, "anchor_median": self.anchor_value, "ratio": self.ratio}
        return {**dataclasses.asdict(self), **computed}


@dataclass(frozen=True)
class Bench:
    """What every figure needs: the components, where to write, and how often to repeat."""

    components: Components
    source: str
    scratch: Path
    repeats: int
    injections: int
    many: int
    failures: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Progress, for people."""
        print(f"bench: {line}", file=sys.stderr, flush=True)


# --- the ground -------------------------------------------------------------------------------------------


def machine_description() -> Mapping[str, str]:
    """The machine that the figures hold for."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": str(os.cpu_count()),
        "processor": models[0] if models else platform.machine(),
        "memory": f"{memory:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load at start": load(),
    }


def load() -> str:
    """The load averages now."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def settle(bench: Bench, own: str = "") -> str:
    """Wait until others leave the machine alone, at most QUIET_LIMIT_S; gives what is left, for the
    record.
    """
    until = time.monotonic() + QUIET_LIMIT_S
    busy, labs = _others(own)
    while (busy > QUIET_SHARE or labs) and time.monotonic() < until:
        busy, labs = _others(own)
    beside = f", {len(labs)} other labs" if labs else ""
    if busy > QUIET_SHARE or labs:
        bench.say(f"what follows is measured beside other work: {busy:.0%} busy{beside}")
    return f"{load().split()[0]} ({busy:.0%} busy{beside})"


def _others(own: str) -> tuple[float, list[str]]:
    """The busy share of the processor over a second, and the labs that are not ours."""
    return _busy_share(1.0), [name for name in process_lab.running() if name != own]


def _after(own: str) -> str:
    """The load when a figure was done; other labs that came meanwhile spoil it."""
    labs = [name for name in process_lab.running() if name != own]
    return load().split()[0] + (f" ({len(labs)} other labs)" if labs else "")


def _busy_share(seconds: float) -> float:
    before = _ticks()
    threading.Event().wait(seconds)
    after = _ticks()
    return 1 - (after[0] - before[0]) / max(1, after[1] - before[1])


def _ticks() -> tuple[int, int]:
    """Idle and all processor ticks of the machine."""
    fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def processes_of(lab: Lab) -> list[Mapping[str, Json]]:
    """What the processes of a lab use."""
    return cast("list[Mapping[str, Json]]", run_inside(lab, "processes.py", limit_s=60))


def run_inside(lab: Lab, script: str, *arguments: str, limit_s: float) -> Json:
    """Run one of the scripts beside this one in the lab's outer namespaces; gives what it printed as JSON."""
    argv = [sys.executable, "-I", str(HERE / script), *arguments]
    done = lab.supervisor.spawn_command(argv, limit_s)
    if done["status"] != 0:
        raise RuntimeError(f"{script}: {done['stderr'][-2000:]}")
    return json.loads(done["stdout"])


@contextlib.contextmanager
def running_lab(bench: Bench, nodes: int, profile: str) -> Iterator[tuple[Lab, float]]:
    """A lab by `nodeproof up`, and how long (s) that took from the command to Ready nodes."""
    name, took = _command_up(bench, nodes, profile)
    try:
        lab = process_lab.attach(name)
        try:
            yield lab, took
        finally:
            lab.close()
    finally:
        if name in process_lab.running():
            process_lab.down(name)


def _command_up(bench: Bench, nodes: int, profile: str) -> tuple[str, float]:
    """Run `nodeproof up`; when we are interrupted it gets a Ctrl-C and tears its lab down itself."""
    out = bench.scratch / f"up-{uuid.uuid4().hex[:6]}.log"
    argv = [sys.executable, "-m", "harness.cli", "up", f"--nodes={nodes}", f"--profile={profile}"]
    began = time.monotonic()
    child = proc.start([*argv, f"--components={bench.source}"], log=out)
    try:
        status = child.wait(timeout=UP_LIMIT_S)
    except BaseException:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=60)
        raise
    took = time.monotonic() - began
    found = _LAB_NAME.search(out.read_text())
    if status != 0 or not found:
        raise RuntimeError(f"nodeproof up ended with {status}: {out.read_text()[-2000:]}")
    return found.group(), took


# --- 1 and 2: up, beside the bare floor -------------------------------------------------------------------


def ready(bench: Bench, nodes: int, profile: str) -> list[Figure]:
    """`nodeproof up` and the bare floor in turn, and where the difference goes."""
    ours: list[float] = []
    floors: list[float] = []
    stages: list[Mapping[str, float]] = []
    floor_stages: list[Mapping[str, float]] = []
    loads = []
    for _ in range(bench.repeats):
        loads.append(settle(bench))
        began = time.monotonic()
        with running_lab(bench, nodes, profile) as (lab, took):
            stages.append(_stages(lab, began, began + took))
        ours.append(took)
        loads.append(settle(bench))
        floor = bare_floor(bench, nodes, profile)
        floors.append(floor.ready_s)
        floor_stages.append(floor.stages)
        bench.say(f"up {took:.2f} s, bare floor {floor.ready_s:.2f} s")
    ratio = statistics.median(ours) / statistics.median(floors)
    notes = [
        f"{stage}: {_median(stages, stage):.2f} s, bare floor {_median(floor_stages, stage):.2f} s"
        for stage in stages[0]
    ]
    return [
        Figure(
            f"up: control plane and {nodes} nodes Ready ({profile})", "s", ours, "bare floor", floors,
            "ratio <= 1.5", ratio <= 1.5, loads, notes,
        )
    ]  # fmt: skip


def _median(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def _stages(lab: Lab, began: float, ended: float) -> Mapping[str, float]:
    """How long (s) each part of `up` took, by when processes started."""
    started: dict[str, list[float]] = {}
    for process in processes_of(lab):
        started.setdefault(process["name"], []).append(process["started"])
    etcd, manager = min(started["etcd"]), min(started["kube-controller-manager"])
    kubelets = max(started["hollow-kubelet"])
    return {
        "command to etcd": etcd - began,
        "etcd to API ready": manager - etcd,
        "API ready to last kubelet": kubelets - manager,
        "last kubelet to nodes Ready": ended - kubelets,
    }


@dataclass(frozen=True)
class Floor:
    """One run of the bare floor."""

    ready_s: float
    end_s: float
    stages: Mapping[str, float]
    processes: Sequence[Mapping[str, Json]]


def bare_floor(bench: Bench, nodes: int, profile: str) -> Floor:
    """Run the bare floor once; certificates, folders and command lines are made before the clock starts."""
    memory = Path("/dev/shm")  # noqa: S108  a tmpfs, as a lab's files are on one
    folder = Path(tempfile.mkdtemp(prefix="np-floor-", dir=memory if memory.is_dir() else None))
    root = root_prefix()
    try:
        plan = folder / "plan.json"
        plan.write_text(json.dumps(_floor_plan(bench, folder, nodes, profile)))
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv = [*root, "unshare", *namespaces, "--", sys.executable, "-I", str(HERE / "bare_floor.py")]
        began = time.monotonic()
        done = json.loads(proc.run([*argv, str(plan)], timeout_s=UP_LIMIT_S).stdout)
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
    env = {"GOMAXPROCS": "2", **profile_named(profile).kubelet_env}
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
        "floor", os.getuid(), os.getgid(), version, parts, True, process_lab.find_sshd(), profile, nodes, True
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
    nodes = ProcessNodes(
        _Below(spec, folder), folder, credentials.authority, processes, EventLog(folder / "events.jsonl")
    )
    commands = {}
    for entry in spec.nodes:
        nodes._write_seed(entry)
        inside = folder / "nodes" / entry.name / "run" / "node"
        for name in ("kubelet.json", "kubeconfig"):
            text = (inside / name).read_text()
            (inside / name).write_text(text.replace(str(INSIDE), str(inside)))
        commands[f"kubelet-{entry.name}"] = [
            part.replace(str(INSIDE), str(inside)) for part in nodes._kubelet(entry)
        ]
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


def many(bench: Bench, nodes: int) -> list[Figure]:
    """Many nodes in the documented profile: Ready, memory, what waiting costs, tear-down."""
    loads = [settle(bench)]
    floor = bare_floor(bench, nodes, "documented")
    loads.append(settle(bench))
    began = time.monotonic()
    with running_lab(bench, nodes, "documented") as (lab, took):
        stages = _stages(lab, began, began + took)
        bench.say(f"{nodes} nodes: up {took:.1f} s, bare floor {floor.ready_s:.1f} s")
        memory = _memory(processes_of(lab), floor.processes, nodes, _after(lab.name))
        waiting = waiting_cpu(bench, lab, nodes)
        gone = time.monotonic()
        process_lab.down(lab.name)
        down = time.monotonic() - gone
    notes = [
        f"{stage}: {value:.2f} s, bare floor {floor.stages[stage]:.2f} s" for stage, value in stages.items()
    ]
    return [
        Figure(
            f"up: control plane and {nodes} nodes Ready (documented)", "s", [took], "bare floor",
            [floor.ready_s], "as measured", None, loads, notes,
        ),
        *memory,
        Figure(
            f"tear-down of {nodes} nodes", "s", [down], "the floor's PID namespace", [floor.end_s],
            "as measured", None, [_after("")],
        ),
        *waiting,
    ]  # fmt: skip


def _memory(
    ours: Sequence[Mapping[str, Json]], floor: Sequence[Mapping[str, Json]], nodes: int, now: str
) -> list[Figure]:
    """Memory of a node: its kubelet, its sshd, and the two wrappers that entered the namespaces."""
    parts = ("hollow-kubelet", "sshd", "unshare", "nsenter")

    def per_node(processes: Sequence[Mapping[str, Json]], kind: str, names: Sequence[str]) -> float:
        return sum(float(entry[kind]) for entry in processes if _kind(entry) in names) / nodes / MIB

    notes = [
        ", ".join(f"{part} {per_node(ours, kind, [part]):.1f}" for part in parts) + f" MiB {kind.upper()}"
        for kind in ("pss", "rss", "private")
    ]
    control = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    notes.append(
        "control plane: "
        + ", ".join(f"{part} {per_node(ours, 'rss', [part]) * nodes:.0f}" for part in control)
        + " MiB RSS"
    )
    return [
        Figure(
            f"memory of a node, {kind.upper()}, of {nodes}", "MiB", [per_node(ours, kind, parts)],
            "a bare kubelet", [per_node(floor, kind, parts)], "as measured", None, [now],
            notes if kind == "pss" else (),
        )
        for kind in ("pss", "rss")
    ]  # fmt: skip


def _kind(process: Mapping[str, Json]) -> str:
    name = str(process["name"])
    return "sshd" if name.startswith("sshd") else name


# --- 5: what waiting costs --------------------------------------------------------------------------------


def waiting_cpu(bench: Bench, lab: Lab, nodes: int) -> list[Figure]:
    """The harness's processor time while a recording waits for what does not come."""
    lab.prepare()
    loads = [settle(bench, lab.name)]
    watch = _watch_setting(lab, tuple(WATCHED.values()), WAIT_SECONDS)
    path = bench.scratch / "waiting.jsonl"
    check = pod_gone(NAMESPACE, "nobody").never_after(
        fault_step("bench", "injected"), WindowSpec("absence", {"wait_s": WAIT_SECONDS})
    )
    before = {entry["pid"]: entry for entry in processes_of(lab)}
    with ThreadPoolExecutor(1) as pool, lab.record(path, [lab.node_names()[0]]) as recording:
        raw = pool.submit(run_inside, lab, "raw_watch.py", json.dumps(watch), limit_s=WAIT_SECONDS + 60)
        recording.append("fault", id="bench", step="injected", node=lab.node_names()[0], fault={})
        began, cpu = time.monotonic(), time.process_time()
        lab.wait_for(recording, check)
        used, took = time.process_time() - cpu, time.monotonic() - began
        entries = len(recording.history().entries)
        anchor = raw.result()
    path.unlink()
    loads.append(_after(lab.name))
    share, bare = 100 * used / took, 100 * anchor["cpu_s"] / anchor["took_s"]
    notes = [
        f"waited {took:.1f} s, {entries} entries recorded, {threading.active_count()} threads",
        "meanwhile: " + _shares(before, processes_of(lab), time.monotonic() - began),
    ]
    return [
        Figure(
            f"processor time of the harness while it waits, {nodes} nodes", "% of a core", [share],
            "raw watches of the same lists", [bare], "<= 5 % of a core", share <= 5, loads, notes,
        )
    ]  # fmt: skip


def _shares(
    before: Mapping[int, Mapping[str, Json]], after: Sequence[Mapping[str, Json]], seconds: float
) -> str:
    """The cores that each component used in between (a process counts from its start), largest first."""
    used: dict[str, float] = {}
    for entry in after:
        earlier = before.get(entry["pid"], {}).get("cpu_s", 0.0)
        used[_kind(entry)] = used.get(_kind(entry), 0.0) + entry["cpu_s"] - earlier
    largest = sorted(used.items(), key=lambda item: -item[1])[:6]
    return ", ".join(f"{name} {100 * value / seconds:.0f} %" for name, value in largest) + " of a core"


def _watch_setting(lab: Lab, paths: Sequence[str], seconds: float) -> Mapping[str, Json]:
    pki = lab.dir / "pki"
    return {
        "api": [API_ADDRESS, API_PORT],
        "ca": str(pki / "ca.crt"),
        "cert": str(pki / "admin.crt"),
        "key": str(pki / "admin.key"),
        "paths": list(paths),
        "seconds": seconds,
        "annotation": ANNOTATION,
    }


# --- 3: from the command to the first dropped packet ------------------------------------------------------


@dataclass
class Marks:
    """When the parts of one injection were done."""

    spent: dict[str, float] = field(default_factory=dict)
    command_t: float = 0.0
    script: str = ""

    @contextlib.contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Book the context's time on a part, as long as the command is not sent."""
        began = time.monotonic()
        try:
            yield
        finally:
            if not self.command_t:
                self.spent[part] = self.spent.get(part, 0.0) + time.monotonic() - began


class ClockedMachine:
    """A machine that notes when the rules are handed to it."""

    def __init__(self, machine: Machine, marks: Marks) -> None:
        self._machine = machine
        self._marks = marks

    def __getattr__(self, name: str) -> Json:
        return getattr(self._machine, name)

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command; the first nft script is the injection."""
        if stdin and not self._marks.command_t:
            self._marks.command_t = time.monotonic()
            self._marks.script = stdin
        with self._marks.spending("available"):
            return self._machine.run(argv, deadline_s=deadline_s, stdin=stdin)


class ClockedLedger(Ledger):
    """A ledger that books its time."""

    def __init__(self, lab: str, marks: Marks) -> None:
        super().__init__(lab)
        self._marks = marks

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Append a step."""
        with self._marks.spending("ledger"):
            super().write(step, fault)


class ClockedDeadman:
    """A supervisor's dead-man's switch that books its time."""

    def __init__(self, supervisor: SupervisorClient, marks: Marks) -> None:
        self._supervisor = supervisor
        self._marks = marks

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm, renew or disarm."""
        with self._marks.spending("deadman"):
            self._supervisor.arm(fault, ttl_s)


def first_drop(bench: Bench, lab: Lab) -> list[Figure]:
    """Inject partitions under a stream of packets, by the injector and by a bare nft in turn."""
    target = next(entry for entry in lab.nodes() if entry.name == lab.node_names()[0])
    pid = next(entry["pid"] for entry in lab.supervisor.status()["nodes"] if entry["name"] == target.name)
    stop = bench.scratch / f"stop-{uuid.uuid4().hex[:6]}"
    loads = [settle(bench, lab.name)]
    injected: list[tuple[float, float, Marks]] = []
    bare: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(
            run_inside, lab, "probe.py", "send", target.data_address, str(pid), str(stop), limit_s=300
        )
        try:
            lab.machine(target.name).run(["true"], deadline_s=10)
            for _ in range(bench.injections):
                injected.append(_inject(lab, target.name))
                bare.append(_bare_nft(lab, int(pid), injected[-1][2].script))
        finally:
            stop.touch()
        probe = stream.result()
        stop.unlink()
    loads.append(_after(lab.name))
    return _drop_figures(probe, injected, bare, loads)


def _inject(lab: Lab, name: str) -> tuple[float, float, Marks]:
    """One injection: when it was entered, when it was proven, and its marks."""
    marks = Marks()
    given = lab.injector

    def target(node_name: str) -> Json:
        with marks.spending("guard"):
            return given.target(node_name)

    injector = dataclasses.replace(
        given,
        machine=lambda node_name: cast(Machine, ClockedMachine(lab.machine(node_name), marks)),
        target=target,
        ledger=ClockedLedger(lab.name, marks),
        deadman=ClockedDeadman(lab.supervisor, marks),
    )
    entered = time.monotonic()
    fault = Partition(f"bench{uuid.uuid4().hex[:8]}", name)
    with injector.inject(fault, [name], lambda *_arguments, **_data: None):
        proven = time.monotonic()
    return entered, proven, marks


def _bare_nft(lab: Lab, pid: int, script: str) -> float:
    """The same transaction without SSH and without protocol; gives when it was sent."""
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "nft", "-f", "-"]
    sent = time.monotonic()
    lab.supervisor.spawn_command(enter, 10, script)
    threading.Event().wait(0.1)
    lab.supervisor.spawn_command(enter, 10, "\n".join(script.splitlines()[:2]) + "\n")
    threading.Event().wait(0.1)
    return sent


def _drop_figures(
    probe: Mapping[str, Json], injected: Sequence[tuple[float, float, Marks]], bare: Sequence[float],
    loads: Sequence[str],
) -> list[Figure]:  # fmt: skip
    sent: list[float] = probe["sent"]
    arrived = set(probe["arrived"])
    lost = [t for number, t in enumerate(sent) if number not in arrived]

    def until_lost(t: float) -> float:
        return 1000 * (next(when for when in lost if when >= t) - t)

    ours = [until_lost(marks.command_t) for _entered, _proven, marks in injected]
    anchors = [until_lost(t) for t in bare]
    before = [1000 * (marks.command_t - entered) for entered, _proven, marks in injected]
    proof = [1000 * (proven - marks.command_t) for _entered, proven, marks in injected]
    parts = {
        part: statistics.median(1000 * marks.spent.get(part, 0.0) for _entered, _proven, marks in injected)
        for part in ("guard", "available", "ledger", "deadman")
    }
    period = statistics.median(later - earlier for earlier, later in pairwise(sent))
    notes = [
        f"slowest of {len(ours)}: {max(ours):.1f} ms; a packet each {1000 * period:.2f} ms, {len(sent)} sent",
        f"command sent to harm proven by the probes: {statistics.median(proof):.0f} ms",
    ]
    met = statistics.median(ours) <= 50
    return [
        Figure(
            "nft command sent to first dropped packet", "ms", ours, "bare nft through nsenter", anchors,
            "<= 50 ms", met, loads, notes,
        ),
        Figure(
            "what the protocol adds before the command", "ms", before, "the drop itself", ours, "as measured",
            None, loads, [", ".join(f"{part} {value:.1f} ms" for part, value in parts.items())],
        ),
    ]  # fmt: skip


# --- 4: recorder lag --------------------------------------------------------------------------------------


class ClockedRecording(Recording):
    """A recording that also notes when an entry was on disk and could be judged."""

    def __init__(self, lab: Lab, path: Path) -> None:
        names = lab.node_names()
        super().__init__(lab.api, path, Setting(tuple(names), names[-1], {}, lab.dir / "events.jsonl"))
        self.kept: list[tuple[float, float]] = []

    def __enter__(self) -> ClockedRecording:
        super().__enter__()
        return self

    def append(self, kind: str, t: float | None = None, **data: Json) -> None:
        """Write one entry."""
        super().append(kind, t, **data)
        stamp = _stamp(data) if kind == "watch" else 0.0
        if stamp:
            self.kept.append((stamp, time.monotonic()))

    def received(self) -> list[tuple[float, float]]:
        """When each stamped event was sent and received."""
        found = ((_stamp(entry.data), entry.t) for entry in self.history().of_kind("watch"))
        return [pair for pair in found if pair[0]]


def _stamp(data: Mapping[str, Json]) -> float:
    return float((data["object"]["metadata"].get("annotations") or {}).get(ANNOTATION, 0))


def recorder_lag(bench: Bench, lab: Lab, rate: int) -> list[Figure]:
    """One stream of changes, received by a Recording and by a raw watch at once."""
    lab.prepare()
    paths = [f"{WATCHED['leases']}/bench-{number}" for number in range(LEASES)]
    for path in paths:
        _make_lease(lab, path)
    loads = [settle(bench, lab.name)]
    setting = _watch_setting(lab, (WATCHED["leases"],), EVENT_SECONDS + 4)
    generator = {**setting, "paths": paths, "rate": rate, "seconds": EVENT_SECONDS, "workers": WORKERS}
    before = {entry["pid"]: entry for entry in processes_of(lab)}
    with ThreadPoolExecutor(2) as pool, ClockedRecording(lab, bench.scratch / "lag.jsonl") as recording:
        watching = pool.submit(run_inside, lab, "raw_watch.py", json.dumps(setting), limit_s=90)
        threading.Event().wait(1.5)
        began, cpu = time.monotonic(), time.process_time()
        made = pool.submit(run_inside, lab, "load.py", json.dumps(generator), limit_s=90).result()
        used, took = time.process_time() - cpu, time.monotonic() - began
        shares = _shares(before, processes_of(lab), took)
        raw = watching.result()
    loads.append(_after(lab.name))
    for path in paths:
        lab.api.delete(path)
    return _lag_figures(recording, raw, made, (used, took, shares), loads, rate)


def _make_lease(lab: Lab, path: str) -> None:
    meta = {"name": path.rpartition("/")[2], "namespace": LEASE_NAMESPACE}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lab.api.ensure(WATCHED["leases"], {**kind, "metadata": meta, "spec": {"holderIdentity": "bench"}})


def _lag_figures(
    recording: ClockedRecording, raw: Mapping[str, Json], made: Mapping[str, Json],
    harness: tuple[float, float, str], loads: Sequence[str], rate: int,
) -> list[Figure]:  # fmt: skip
    used, took, shares = harness
    reached = made["patched"] / made["took_s"]
    ours = _lags(recording.received())
    kept, bare = _lags(recording.kept), _lags(raw["came"])
    per_event = used / max(1, len(ours))
    notes = [
        f"{rate} events/s asked for, {reached:.0f} reached for {made['took_s']:.0f} s; "
        f"{len(ours)} recorded, {len(bare)} by the raw watch, {made['patched']} made",
        f"on disk and visible to checks: p50 {_at(kept, 50):.1f} ms, p99 {_at(kept, 99):.1f} ms",
        f"harness: {100 * used / took:.0f} % of a core, {1e6 * per_event:.0f} us an event, "
        f"so at most {1 / per_event:.0f} events/s in one process",
        f"raw watch {100 * raw['cpu_s'] / made['took_s']:.0f} %, generator "
        f"{100 * made['cpu_s'] / made['took_s']:.0f} % of a core; {shares}",
    ]
    return [
        Figure(
            f"recorder lag at {rate} events/s, p{share}", "ms", [_at(ours, share)], "raw HTTP watch",
            [_at(bare, share)], "as measured", None, loads, notes if share == 50 else (),
        )
        for share in (50, 99)
    ]  # fmt: skip


def _lags(pairs: Sequence[Sequence[float]]) -> list[float]:
    """Milliseconds from sent to received, sorted."""
    return sorted(1000 * (received - sent) for sent, received in pairs)


def _at(values: Sequence[float], percent: int) -> float:
    return values[min(len(values) - 1, len(values) * percent // 100)]


# --- 6: whole commands ------------------------------------------------------------------------------------


def command(bench: Bench, line: str) -> list[Figure]:
    """Time a command line, and name its longest silences: between which lines of its output the time went."""
    loads = [settle(bench)]
    began = time.monotonic()
    seen: list[tuple[float, str]] = [(began, "start")]
    failed = ""
    try:
        proc.stream_lines(
            shlex.split(line), lambda text: seen.append((time.monotonic(), text)), timeout_s=3600
        )
    except proc.CommandFailed as error:
        failed = f"ended with status {error.status}"
    took = time.monotonic() - began
    seen.append((time.monotonic(), "end"))
    gaps = sorted(
        ((later[0] - earlier[0], earlier, later) for earlier, later in pairwise(seen)),
        key=lambda gap: -gap[0],
    )[:12]
    notes = [
        f"{gap:6.2f} s  from {earlier[0] - began:6.2f} s: {_short(earlier[1])} -> {_short(later[1])}"
        for gap, earlier, later in sorted(gaps, key=lambda gap: gap[1][0])
    ]
    notes = [failed, *notes] if failed else notes
    is_run = line == "make run"
    target, met = ("<= 90 s", took <= 90) if is_run else ("as measured", None)
    return [Figure(f"`{line}`", "s", [took], target=target, met=met, loads=[*loads, _after("")], notes=notes)]


def _short(text: str) -> str:
    return repr(text.strip()[:60])


# --- the report -------------------------------------------------------------------------------------------


def table(machine: Mapping[str, str], figures: Sequence[Figure]) -> str:
    """The figures as plain text."""
    header = ("figure", "measured", "anchor", "ratio", "target", "n", "load")
    rows = [header, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()), ""]
    notes: Sequence[Sequence[str]] = [(), *(figure.notes for figure in figures)]
    for row, below in zip(rows, notes, strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        lines += [f"    {note}" for note in below]
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    met = {None: "", True: ": met", False: ": MISSED"}[figure.met]
    anchor, ratio = figure.anchor_value, figure.ratio
    spread = f" [{min(figure.values):.3g}..{max(figure.values):.3g}]" if len(figure.values) > 1 else ""
    return (
        figure.name,
        f"{figure.value:.3g} {figure.unit}{spread}",
        f"{anchor:.3g} {figure.unit} ({figure.anchor})" if anchor is not None else "-",
        f"{ratio:.2f}" if ratio is not None else "-",
        figure.target + met,
        str(len(figure.values)),
        ", ".join(figure.loads),
    )


def measure(bench: Bench, wanted: Sequence[str], commands: Sequence[str]) -> Iterator[Figure]:
    """All wanted figures, each as soon as it is there; one that breaks off does not take the others along."""
    parts: list[Callable[[], Iterable[Figure]]] = []
    if "up" in wanted:
        parts.append(lambda: ready(bench, 8, "fast"))
    if "many" in wanted:
        parts.append(lambda: many(bench, bench.many))
    if {"drop", "lag"} & set(wanted):
        parts.append(lambda: small_lab(bench, wanted))
    parts += [lambda line=line: command(bench, line) for line in commands]  # type: ignore[misc]
    for part in parts:
        try:
            yield from part()
        except (RuntimeError, Problem, proc.CommandFailed, ApiError, MachineError) as error:
            bench.failures.append(f"{type(error).__name__}: {error}")
            bench.say(f"broke off: {bench.failures[-1]}")


def small_lab(bench: Bench, wanted: Sequence[str]) -> Iterator[Figure]:
    """The figures that need two nodes."""
    with running_lab(bench, 2, "fast") as (lab, _took):
        if "drop" in wanted:
            yield from first_drop(bench, lab)
        if "lag" in wanted:
            yield from recorder_lag(bench, lab, EVENTS_PER_S // 4)
            yield from recorder_lag(bench, lab, EVENTS_PER_S)


def main() -> None:
    """Measure what was asked for, print the table, and write JSON where wanted."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    machine = dict(machine_description())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="np-bench-") as scratch:
        bench = _bench(options, Path(scratch))
        machine["kubernetes"] = bench.components.kubernetes_version
        failures = bench.failures
        try:
            for figure in measure(bench, options.only, options.command):
                figures.append(figure)
                bench.say(" | ".join(_row(figure)))
        except KeyboardInterrupt as interrupt:
            failures.append(f"interrupted {interrupt}")
    print(table(machine, figures))
    for failure in failures:
        print(f"broke off: {failure}")
    if options.json:
        found = {
            "machine": machine,
            "figures": [figure.to_json() for figure in figures],
            "failures": failures,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if failures:
        sys.exit(1)


def _bench(options: argparse.Namespace, scratch: Path) -> Bench:
    def say(line: str) -> None:
        print(line, file=sys.stderr)

    components = obtain(options.components, options.kubernetes_version, say)
    return Bench(components, options.components, scratch, options.repeats, options.injections, options.many)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    every = ("up", "many", "drop", "lag")
    parser.add_argument("--only", nargs="*", choices=every, default=every, help="which figures")
    parser.add_argument("--command", action="append", default=[], help="time a command line as well")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--repeats", type=int, default=3, help="of `up` and the bare floor each")
    parser.add_argument("--injections", type=int, default=24)
    parser.add_argument("--many", type=int, default=64, help="nodes of the large lab")
    parser.add_argument("--components", default="build", help="as for nodeproof")
    parser.add_argument("--kubernetes-version", default=DEFAULT_KUBERNETES_VERSION)
    return parser


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    main()
