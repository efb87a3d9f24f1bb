"""Start of a lab under a supervisor; a lab whose nodes do not become Ready is removed.

A topology file lists the lab's machines, with their names, zones, memory, processors and versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from nodeproof import catalogue, hints, proc
from nodeproof.artifacts import csi
from nodeproof.artifacts.build import Version
from nodeproof.artifacts.components import (
    PROXY,
    Components,
    check_skew,
    check_upgrade,
    obtain_others,
    obtain_upgrade,
)
from nodeproof.cache import cache_dir
from nodeproof.catalogue import plain
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api
from nodeproof.hints import BASE, hint_for
from nodeproof.labs.base import autogroup
from nodeproof.labs.base.control_plane import flags
from nodeproof.labs.base.processes import STEP, refusal
from nodeproof.labs.base.profiles import Profile, profile_named
from nodeproof.labs.base.spec import DEFAULT_SHAPE, DRIVER, LabSpec, NodeSpec, Shape, check_node_name
from nodeproof.labs.base.wire import SupervisorClient
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.supervised import supervised
from nodeproof.labs.kinds import DEFAULT_KIND, kind_named
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.overrides import (
    COMPONENTS,
    CONTROL_PLANES_OPTION,
    GATES_OPTION,
    KUBELET,
    NO_OVERRIDES,
    NODE_VERSIONS_OPTION,
    SET_OPTION,
    SOURCE_OPTION,
    UPGRADE_OPTION,
    Overrides,
)
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.root import become_root, root_prefix
from nodeproof.waiting import wait_until

Refuses = Callable[[Mapping[str, Json]], str]
"""Returns why a component refuses flags or fields, in its own words; empty if it takes them."""
_WHERE = f"{GATES_OPTION}, {SET_OPTION}"
_TIMEOUT_S = 60.0
_UNKNOWN_GATE = re.compile(r"unrecognized feature gate: (\w+)")
_UNKNOWN_FIELD = re.compile(r'unknown field \\?"([^"\\]+)')
_ERRORS = re.compile(r"invalid configuration: .*?(?=, invalid configuration: |\]?, path: |\]?$)")
"""The errors in the kubelet's message (pkg/kubelet/apis/config/validation)."""
_ENDS = {PROXY: "--write-config-to=/dev/null"}
"""What ends a component after it took its flags, if not `--version`: kube-proxy ignores gates there."""


def dry_run(overrides: Overrides, components: Components, kind: Kind, profile: Profile) -> Overrides:
    """Return the settings with the gates that each component knows, by dry runs of the executables.

    They themselves know their flags, gates and fields; their help does not list gates that are GA. A control
    plane component parses all flags and gates before it answers `--version`. A kubelet ignores gates there,
    and a field that it does not know in its file. So it gets a file with an invalid port: it logs unknown
    fields and then refuses the file, before it touches the machine (cmd/kubelet/app/server.go).

    Raises:
        Problem: No component knows a gate, or a component refuses a setting; with its message.
    """
    if not overrides.texts:
        return overrides
    if kind.connect is not None or kind.hosts_control_plane:
        message = f"the components of a {kind.name} lab are not started by nodeproof"
        raise Problem(message, f"{_WHERE}, {SOURCE_OPTION}", "leave them out")
    known_gates = {
        component: _known_gates(overrides, component, refuses)
        for component, refuses in _refusals(components, kind, profile).items()
    }
    unknown = [gate for gate in overrides.gates if not any(gate in gates for gates in known_gates.values())]
    if unknown:
        version, gates = components.kubernetes_version, ", ".join(unknown)
        message = f"no component of Kubernetes {version} knows the feature gate {gates}"
        raise Problem(message, GATES_OPTION, "leave it out, or choose another --kubernetes-version")
    return replace(overrides, known_gates=known_gates)


def _known_gates(overrides: Overrides, component: str, refuses: Refuses) -> Sequence[str]:
    """Return the gates that a component knows. Raises Problem if it refuses anything else."""
    gates = list(overrides.gates)
    while message := refuses(replace(overrides, known_gates={component: gates}).of(component)):
        others = [gate for gate in gates if gate not in _UNKNOWN_GATE.findall(message)]
        if others == gates:
            raise Problem(f"{component} refuses its settings: {message}", _WHERE, "correct the setting")
        gates = others
    return gates


def _refusals(components: Components, kind: Kind, profile: Profile) -> Mapping[str, Refuses]:
    """Return for each component a function that tries settings."""
    own = {**kind.kubelet(), **profile.kubelet}
    others = [component for component in COMPONENTS if component != KUBELET]
    return {
        **{name: partial(_refused_flags, name, str(components.path(name))) for name in others},
        KUBELET: partial(_refused_fields, str(components.path(kind.kubelet_role)), own),
    }


def _refused_flags(component: str, program: str, settings: Mapping[str, Json]) -> str:
    if not settings:
        return ""
    completed = _run([program, *flags(settings), _ENDS.get(component, "--version")])
    return _reason(completed.stderr or completed.stdout) if completed.status else ""


def _refused_fields(program: str, own: Mapping[str, Json], fields: Mapping[str, Json]) -> str:
    """Return why a kubelet refuses fields of its file, apart from what it always refuses here."""
    if not fields:
        return ""
    always, complaints = (_complaints(program, {**own, **added}) for added in ({}, fields))
    return "; ".join(complaint for complaint in complaints if complaint not in always)


def _complaints(program: str, fields: Mapping[str, Json]) -> Sequence[str]:
    """Return what a kubelet says against a file with an invalid port; the cgroups here are not its own."""
    meta = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file = {**meta, "failCgroupV1": False, **fields, "port": -1}
    output = _run([program, "--config=/dev/stdin"], json.dumps(file)).stderr
    unknown = [f"KubeletConfiguration has no field {field}" for field in _UNKNOWN_FIELD.findall(output)]
    return unknown + (_ERRORS.findall(refusal(output)) or [_reason(output)])


def _reason(output: str) -> str:
    """Return a component's own reason for its end, or its last line."""
    return refusal(output) or output.strip().rpartition("\n")[2]


def _run(argv: Sequence[str], stdin: str = "") -> proc.Result:
    try:
        return proc.run(argv, timeout_s=_TIMEOUT_S, stdin=stdin, check=False)
    except proc.CommandFailed as error:
        message = f"{argv[0]} did not exit within {_TIMEOUT_S:g} s when its settings were checked"
        next_step = "try again on an idle machine, or use other executables (--components)"
        raise Problem(message, _WHERE, next_step, error.output) from error


_LIMITS = {"memory_mib": range(768, 65537), "cpus": range(1, 65)}
_SHOWN_CHARACTERS = 80
_EXAMPLES = "examples are in infra/topology"
_KEYS = frozenset({"name", "zone", "kubelet_version", *_LIMITS})
UPGRADED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""The components that faults can upgrade. etcd is none: healing could not downgrade its data."""


@dataclass(frozen=True)
class Entry:
    """One machine of a topology; without a version, its kubelet has that of the control plane."""

    name: str
    zone: str
    shape: Shape = DEFAULT_SHAPE
    kubelet_version: str = ""


@dataclass(frozen=True)
class Topology:
    """The machines of a lab in the order of their addresses; empty if no file lists them.

    `kubernetes_version` is the version of the control plane; empty if options determine it.
    """

    entries: tuple[Entry, ...] = ()
    kubernetes_version: str = ""

    @property
    def spread(self) -> tuple[int, ...]:
        """The number of nodes in each zone, in the order of the zones' names."""
        counts = Counter(entry.zone for entry in self.entries)
        return tuple(counts[zone] for zone in sorted(counts))

    def control_plane_version(self, kubernetes_version: str) -> str:
        """Return the version of the control plane: that of the file, or of `--kubernetes-version`.

        Raises:
            Problem: They differ.
        """
        other = kubernetes_version and str(Version.parse(kubernetes_version))
        if other and self.kubernetes_version not in ("", other):
            message = f"the topology file has kubernetes_version {self.kubernetes_version}"
            next_step = "remove --kubernetes-version, or kubernetes_version from the file"
            raise Problem(message, f"--kubernetes-version {other}", next_step)
        return other or self.kubernetes_version

    def node_versions(self, node_versions: tuple[str, ...], control_plane: str) -> tuple[str, ...]:
        """Return the versions of kubelets: those of the file, or of `--node-versions`.

        Raises:
            Problem: Both set versions, or the control plane does not support one of the file.
        """
        versions = {entry.name: entry.kubelet_version for entry in self.entries if entry.kubelet_version}
        if not versions:
            return node_versions
        if node_versions:
            next_step = f"remove {NODE_VERSIONS_OPTION}, or kubelet_version from the nodes"
            raise Problem("the topology file has versions of kubelets", NODE_VERSIONS_OPTION, next_step)
        for name, version in versions.items():
            check_skew(control_plane, (version,), f"--topology, node {name}")
        return tuple(entry.kubelet_version or control_plane for entry in self.entries)


NO_TOPOLOGY = Topology()


def read_topology(file: str) -> Topology:
    """Read a topology file; an empty name is an empty topology. Raises Problem."""
    if not file:
        return NO_TOPOLOGY
    path = Path(file)
    try:
        topology = plain(catalogue.read(path), file)
    except OSError as error:
        message = f"cannot read the topology: {error.strerror}"
        raise Problem(message, str(path), _EXAMPLES) from error
    except Problem as problem:
        raise Problem(f"cannot read the topology: {problem.what}", problem.where, _EXAMPLES) from problem
    has_keys = isinstance(topology, dict) and {"nodes"} <= set(topology) <= {"nodes", "kubernetes_version"}
    nodes = topology["nodes"] if has_keys else None
    if not isinstance(nodes, list) or not nodes:
        message = "a topology must be a list of `nodes`, with a `kubernetes_version` or without"
        raise Problem(message, str(path), _EXAMPLES)
    entries = tuple(_entry(node, f"{path}, node {number}") for number, node in enumerate(nodes, 1))
    for name, count in Counter(entry.name for entry in entries).items():
        if count > 1:
            raise Problem(f"{count} nodes are called {name}", str(path), "give each node a different name")
    return Topology(entries, _version(topology, "kubernetes_version", str(path)))


def _entry(entry: Json, where: str) -> Entry:
    if not isinstance(entry, dict) or not {"name", "zone"} <= set(entry) <= _KEYS:
        message = f"{repr(entry)[:_SHOWN_CHARACTERS]} is not a node"
        raise Problem(message, where, f"it needs name and zone, and allows only {sorted(_KEYS)}")
    for key in ("name", "zone"):
        check_node_name(str(entry[key]))
    numbers: dict[str, Json] = {key: _number(entry, key, where) for key in _LIMITS if key in entry}
    version = _version(entry, "kubelet_version", where)
    return Entry(str(entry["name"]), str(entry["zone"]), Shape(**numbers), version)


def _version(entry: Mapping[str, Json], key: str, where: str) -> str:
    if key not in entry:
        return ""
    return str(Version.parse(str(entry[key])[:_SHOWN_CHARACTERS], f"{where}, {key}"))


def _number(entry: Mapping[str, Json], key: str, where: str) -> int:
    value, limits = entry[key], _LIMITS[key]
    if type(value) is not int or value not in limits:
        message = f"{key} is {repr(value)[:_SHOWN_CHARACTERS]}"
        raise Problem(message, where, f"use a whole number from {limits[0]} to {limits[-1]}")
    return int(value)


END_TIMEOUT_S = 30.0
_NICE_TIMEOUT_S = 20.0
_SSH_TIMEOUT_S = 20.0
_RESTARTED = """
[ "$(systemctl show --property=NRestarts --value kubelet.service)" -ge 2 ] || exit 0
journalctl --unit=kubelet.service --boot --output=cat --no-pager --lines=100
"""
"""Prints the log of a kubelet that ended twice: once may be the machine's fault."""


@dataclass(frozen=True)
class LabRequest:
    """The requested lab.

    `keep` lets it outlive the requesting process. `spread` is the number of nodes in each zone if it is
    uneven. A `topology` with entries describes the nodes. `overrides` passed their dry run.
    """

    lab: str
    nodes: int
    zones: int
    profile: str
    keep: bool
    kind: str = DEFAULT_KIND.name
    spread: tuple[int, ...] = ()
    topology: Topology = NO_TOPOLOGY
    overrides: Overrides = NO_OVERRIDES

    @property
    def node_entries(self) -> Sequence[Entry]:
        """The topology entry of each node, in the order of their slots."""
        default = [Entry(f"node-{slot + 1}", zone) for slot, zone in enumerate(self._zone_of_slots)]
        return self.topology.entries or default

    @property
    def _zone_of_slots(self) -> Sequence[str]:
        names = [f"zone-{chr(ord('a') + number)}" for number in range(self.zones)]
        if not self.spread:
            return [names[slot % self.zones] for slot in range(self.nodes)]
        return [name for name, nodes in zip(names, self.spread, strict=True) for _node in range(nodes)]


def new_name() -> str:
    """Return a name for a new lab."""
    return f"p-{uuid.uuid4().hex[:6]}"


def check(request: LabRequest) -> None:
    """Check that a lab can meet the request. Raises Problem."""
    kind = kind_named(request.kind)
    kind.check_nodes(request.nodes)
    if not 1 <= request.zones <= request.nodes:
        message = f"{request.zones} zones for {request.nodes} nodes"
        raise Problem(message, "--zones", "use 1 to as many zones as nodes")
    if any(entry.shape != DEFAULT_SHAPE for entry in request.topology.entries) and not kind.has_shapes:
        message = f"memory and processors of a {kind.name} lab's nodes cannot be set"
        raise Problem(message, "--topology", "omit memory_mib and cpus, or choose another --lab")
    for name in sorted({entry.name for entry in request.node_entries} & set(kind.other_machines)):
        message = f"{name} is the name of another machine of a {kind.name} lab"
        raise Problem(message, "--topology", "give the node another name")
    if profile_named(request.profile) != kind.default_profile and kind.hosts_control_plane:
        message = f"a {kind.name} lab has upstream's timing"
        raise Problem(message, f"--profile {request.profile}", "leave it out")


def check_versions(kind: Kind, api_server: str, overrides: Overrides) -> None:
    """Check that a lab of this kind may have what `overrides` requests. Raises Problem."""
    if overrides.node_versions and not kind.has_node_versions:
        message = f"versions of a {kind.name} lab's nodes cannot be set"
        raise Problem(message, NODE_VERSIONS_OPTION, "leave it out, or choose another --lab")
    if overrides.control_planes > 1 and not kind.has_control_planes:
        message = f"a {kind.name} lab has one control plane"
        raise Problem(message, CONTROL_PLANES_OPTION, "leave it out, or choose another --lab")
    if overrides.upgrade_to and kind.hosts_control_plane:
        message = f"the control plane of a {kind.name} lab cannot be upgraded"
        raise Problem(message, UPGRADE_OPTION, "leave it out, or choose another --lab")
    check_skew(api_server, overrides.node_versions)
    check_upgrade(api_server, overrides.upgrade_to, overrides.node_versions)


def attach(kind: str, name: str) -> LabHandle:
    """Use a lab that no supervisor of nodeproof runs. Raises Problem."""
    lab_kind = kind_named(kind)
    if lab_kind.connect is None:
        raise Problem(f"a {kind} lab is started, not attached", "--lab", "leave out --cluster")
    return LabHandle(lab_kind, lab_kind.connect(name))


def up(request: LabRequest, components: Components, report: Callable[[str], None]) -> LabHandle:
    """Start a lab, or connect to one that exists, and wait until its nodes are Ready.

    Raises Problem; a lab that did not start is removed.
    """
    check(request)
    kind = kind_named(request.kind)
    if kind.connect is not None:
        lab = attach(request.kind, request.lab)
        lab.wait_nodes_ready(unready=workloads.not_ready)
        return lab
    prefix = root_prefix()
    check_versions(kind, components.kubernetes_version, request.overrides)
    spec = _spec(request, components, report)
    report(f"lab {spec.lab}: {request.nodes} nodes in {request.zones} zones, profile {request.profile}")
    # -P: root must not import modules from the caller's working folder; -B: nor write a __pycache__ beside
    # what it imports.
    argv = [*prefix, sys.executable, "-P", "-B", "-m", "nodeproof.labs.supervisor.supervisor"]
    # It has no name, so a killed process leaves no file.
    with tempfile.TemporaryFile() as startup:
        child = proc.start([*argv, spec.to_json()], log=startup.fileno(), own_session=True)
        lab = _wait_up(spec, components, child, startup, report)
    with contextlib.suppress(Problem, OSError, ValueError):
        # The lab is up, even if the details of its start cannot be read.
        for line in kind.start_messages(SupervisorClient(spec.dir / "s").status(), _events(spec)):
            report(line)
    return lab


def raise_priority() -> None:
    """Move this process to its own session, with priority over labs and other programs.

    A process that leads a process group cannot leave its session; it stays unchanged, as does one that cannot
    become root.
    """
    with contextlib.suppress(OSError, Problem, proc.CommandFailed):
        os.setsid()
        # Only root may do this, and this process may not be root.
        argv = [*become_root(), sys.executable, "-P", "-B", "-m", autogroup.__name__]
        proc.run([*argv, str(autogroup.HARNESS), str(os.getpid())], timeout_s=_NICE_TIMEOUT_S)


def _events(spec: LabSpec) -> list[Mapping[str, Json]]:
    """Read the events of the lab's machines so far. Raises OSError, ValueError."""
    return [json.loads(line) for line in (spec.dir / "events.jsonl").read_text().splitlines()]


def find_sshd() -> str:
    """Return the sshd for nodes: the system's, or the one that set-up unpacked. Raises Problem."""
    for path in (Path("/usr/sbin/sshd"), cache_dir() / "sshd" / "usr/sbin/sshd"):
        if path.exists():
            # Resolve links: sshd re-executes itself per connection and must stay at one version.
            return str(path.resolve())
    raise Problem("no sshd", "process lab", hint_for(BASE))


def _spec(request: LabRequest, components: Components, report: Callable[[str], None]) -> LabSpec:
    """Obtain what the nodes boot and other versions of components; return the lab's specification."""
    kind = kind_named(request.kind)
    others = obtain_others(request.overrides.node_versions, kind.kubelet_role, components, report)
    upgrade = obtain_upgrade(request.overrides.upgrade_to, report)
    entries = enumerate(request.node_entries)
    kind.check_host()
    return LabSpec(
        lab=request.lab,
        owner_uid=os.getuid(),
        owner_gid=os.getgid(),
        kubernetes_version=components.kubernetes_version,
        components={role: part.to_json() for role, part in components.by_role.items()},
        hollow_from_tree=components.hollow_from_tree,
        sshd=find_sshd(),
        profile=request.profile,
        nodes=tuple(NodeSpec(entry.name, slot, entry.zone, shape=entry.shape) for slot, entry in entries),
        keep=request.keep,
        kind=request.kind,
        guest=kind.boot_files(components, report),
        volumes={csi.ATTACHER: str(csi.entry_path() / csi.ATTACHER), DRIVER: str(csi.python_path())},
        harness_nice=autogroup.nice_of(),
        overrides=request.overrides,
        kubelets={version: str(other.path(kind.kubelet_role)) for version, other in others.items()},
        upgrade_version=upgrade.kubernetes_version if upgrade else "",
        upgrades={role: str(upgrade.path(role)) for role in UPGRADED} if upgrade else {},
        guests={version: kind.boot_files(other, report) for version, other in others.items()},
    )


def _wait_up(
    spec: LabSpec,
    components: Components,
    child: proc.Process,
    startup: IO[bytes],
    report: Callable[[str], None],
) -> LabHandle:
    """Wait from the start of the supervisor to Ready nodes; on any error, end the lab."""
    hold = None
    try:
        _wait_socket(spec, child, startup)
        client = SupervisorClient(spec.dir / "s")
        hold = client.hold()
        limits = kind_named(spec.kind).limits
        _wait_phase(spec, client, limits.ready_timeout_s, report)
        lab = supervised(spec.dir, components, hold)
        # Scenarios wait for renewed Leases later: that takes up to ten seconds with `documented`.
        unready = partial(_unready, lab) if spec.overrides.texts else workloads.not_ready
        lab.wait_nodes_ready(timeout_s=limits.nodes_ready_timeout_s, unready=unready)
        return lab
    except BaseException:
        if hold is not None:
            hold.close()
        _end(spec, child)
        raise


def _unready(lab: LabHandle, api: Api, names: Sequence[str]) -> Mapping[str, str]:
    """Return the nodes that are not Ready, and why.

    Raises:
        Problem: systemd restarted a kubelet that ends at each start; with its message.
        ApiError, MachineError: no answer.
    """
    unready = workloads.not_ready(api, names)
    for name in list(unready)[:1] if "systemd" in lab.features else ():
        log = lab.fleet.machine(name).run(["sh", "-c", _RESTARTED], timeout_s=_SSH_TIMEOUT_S).stdout
        if reason := refusal(log):
            message = f"{KUBELET} of {name} does not start: {reason}"
            raise Problem(message, f"lab {lab.name}", "correct the setting")
    return unready


def _end(spec: LabSpec, child: proc.Process) -> None:
    """End the supervisor of a lab that did not start, whatever its state."""
    if child.poll() is not None:
        return
    try:
        SupervisorClient(spec.dir / "s").down()
    except Problem:
        # Only root may signal what sudo started.
        proc.run([*root_prefix(), "kill", str(child.pid)], timeout_s=10, check=False)
    try:
        child.wait(timeout=END_TIMEOUT_S)
    except proc.TimeoutExpired as error:
        raise Problem("the supervisor did not end", f"lab {spec.lab}", "run `nodeproof down`") from error


def _wait_socket(spec: LabSpec, child: proc.Process, startup: IO[bytes]) -> None:
    def has_socket() -> bool:
        if child.poll() is not None:
            startup.seek(0)
            tail = "\n".join(startup.read().decode(errors="replace").splitlines()[-5:])
            raise Problem("the supervisor died on start", f"lab {spec.lab}", "its last lines follow", tail)
        return (spec.dir / "s").is_socket()

    _poll(has_socket, 20, f"lab {spec.lab} has no socket")


def _wait_phase(
    spec: LabSpec, client: SupervisorClient, timeout_s: float, report: Callable[[str], None]
) -> None:
    """Wait until a lab is ready, and report its steps meanwhile. Raises Problem."""
    reported = 0

    def is_ready() -> bool:
        nonlocal reported
        status = client.status()
        with contextlib.suppress(OSError, ValueError):
            steps = [entry["text"] for entry in _events(spec) if entry["kind"] == STEP]
            for text in steps[reported:]:
                report(text)
            reported = len(steps)
        if status.phase == "failed":
            failure, _newline, detail = status.failure.partition("\n")
            page = hints.page("docs/how-to/when-a-lab-does-not-start.md")
            raise Problem(failure, f"lab {status.lab}", f"see {page}", detail)
        return status.phase == "ready"

    _poll(is_ready, timeout_s, "the control plane is not ready")


def _poll(condition: Callable[[], bool], timeout_s: float, problem: str) -> None:
    if not wait_until(condition, timeout_s, 0.05):
        next_step = "check whether the host is overloaded, and try again"
        raise Problem(f"{problem} after {timeout_s:g} s", "lab", next_step)
