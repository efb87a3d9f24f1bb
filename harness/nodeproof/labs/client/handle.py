"""A running lab for scenarios and the command line, independent of its kind and of who runs it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodeproof import redacted
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import configz, kubelet_configz, read_fields
from nodeproof.cluster.resources import RESOURCES, SENTINEL, WATCHED, node
from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.base.spec import KUBELET_PORT, NodeSpec
from nodeproof.labs.client.safety import MARK, Safety
from nodeproof.labs.kinds.kind import Access, Kind, Limits, RunKubectl
from nodeproof.locks import open_file, try_lock, unlock
from nodeproof.machines.machine import Machine, MachineError, checked
from nodeproof.model.clocks import Reading
from nodeproof.model.cluster import ZONE_LABEL, Calibration, Configuration, flags_of
from nodeproof.model.formula import SYMBOLS, read
from nodeproof.model.needs import Needs
from nodeproof.model.pattern import Json
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.slack import loses_nodes_s
from nodeproof.recording.node_messages import wall_offset_s
from nodeproof.recording.recorder import MachineEvents, Recording, RecordingContext, events_end
from nodeproof.waiting import retry_on, wait_until_empty

MANAGER = "https://127.0.0.1:10257"
SCHEDULER = "https://127.0.0.1:10259"
CLOUD_MANAGER = "https://127.0.0.1:10258"
_OFFSET_TIMEOUT_S = 10.0
_CLOCKS_TIMEOUT_S = 60.0
"""An emulated machine that has just booted on a busy host takes over 10 s to log in."""
_READINGS = 3
_KUBELET_LINE = f"""
pid=$(ss -Hltnp 'sport = :{KUBELET_PORT}' | grep -o 'pid=[0-9]*' | head -n 1)
[ -n "$pid" ] || {{ echo "no process serves port {KUBELET_PORT}" >&2; exit 1; }}
cat "/proc/${{pid#pid=}}/cmdline"
"""
"""Prints the command line of the process that serves the kubelet's port."""
_DROP_INS = "config-dir"
"""The flag for a folder with additional settings."""
_SERVES_TIMEOUT_S = 20.0
"""How long a kubelet that has just restarted may be Ready without serving (503)."""


def _kubelet_settings(machine: Machine) -> Mapping[str, str] | None:
    """Return the flags of a machine's running kubelet and the fields of its configuration file.

    Return None if drop-ins configure it, too: then some settings are unknown. Raises MachineError, also if it
    has no file.
    """
    flags = flags_of(_output(machine, ["sh", "-c", _KUBELET_LINE]).split("\0"))
    if flags.get(_DROP_INS):
        return None
    try:
        fields = json.loads(_output(machine, ["cat", flags["config"]]))
    except (KeyError, ValueError) as error:
        message = f"{machine.name}: its kubelet has no readable configuration file: {error}"
        raise MachineError(message) from error
    return {**flags, **{name: json.dumps(value) for name, value in fields.items()}}


def _output(machine: Machine, argv: Sequence[str]) -> str:
    completed = machine.run(argv, timeout_s=_OFFSET_TIMEOUT_S)
    return checked(completed, f"{machine.name}: cannot read how its kubelet runs")


def _check_symbols(reported: Mapping[str, Json]) -> None:
    """Check that the settings from which windows are computed are reported. Raises Problem."""
    for name, symbol in SYMBOLS.items():
        try:
            read(symbol, reported)
        except (KeyError, TypeError, ValueError) as error:
            message = f"{symbol.component} does not report {symbol.path}, which windows need ({name})"
            raise Problem(message, "/configz", "check the component's version") from error


def read_clock(machine: Machine) -> Reading:
    """Return how far a node's clock is ahead of this host's: the fastest of some readings.

    The connection is warmed up before. Raises MachineError.
    """
    machine.run(["true"], timeout_s=_OFFSET_TIMEOUT_S)
    return min((_reading(machine) for _ in range(_READINGS)), key=lambda reading: reading.error_s)


def _reading(machine: Machine) -> Reading:
    before_t = time.monotonic()
    completed = machine.run(["date", "+%s.%N"], timeout_s=_OFFSET_TIMEOUT_S)
    t = time.monotonic()
    try:
        offset_s = float(completed.stdout) - wall_offset_s() - (before_t + t) / 2
    except ValueError as error:
        raise MachineError(f"{machine.name}: date: {completed.stderr.strip() or 'no answer'}") from error
    return Reading(machine.name, round(t, 6), round(offset_s, 6), round((t - before_t) / 2, 6))


_UNUSABLE = "out"
"""Content of a zone's file when its nodes cannot be repaired."""


class InUse(Problem):
    """Another process uses the lab, or every zone of it, and heals its own faults."""


class Leases:
    """The lease of one process: nothing, the whole lab, or a zone.

    Leases are locks of files in the lab's folder, which end with their process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lab: int | None = None
        self._zone: int | None = None
        self._is_whole = False

    def take_lab(self) -> None:
        """Lease the whole lab to this process. Raises InUse."""
        descriptor = self._open("in-use")
        if not try_lock(descriptor):
            raise self._in_use(descriptor)
        _write(descriptor, str(os.getpid()))
        self._lab, self._is_whole = descriptor, True

    def take_zone(self, zones: Sequence[str]) -> tuple[str, bool]:
        """Lease the first free, usable zone; return it, and whether it was leased before.

        Raises InUse if there is none.
        """
        shared = self._open("in-use")
        if not try_lock(shared, shared=True):
            raise self._in_use(shared)
        for zone in zones:
            descriptor = self._open(f"in-use-{zone}")
            if try_lock(descriptor) and (holder := _read(descriptor)) != _UNUSABLE:
                _write(descriptor, str(os.getpid()))
                self._lab, self._zone = shared, descriptor
                return zone, bool(holder)
            os.close(descriptor)
        os.close(shared)
        subject = f"zone {zones[0]} is" if len(zones) == 1 else "every zone is"
        raise InUse(f"{subject} in use", f"lab {self._folder.name}", "use fewer workers, or more zones")

    def disable_zone(self) -> None:
        """Mark this process's zone as unusable, so that no process leases it: its nodes are not fit."""
        if self._zone is not None:
            _write(self._zone, _UNUSABLE)

    def is_last(self) -> bool:
        """Return whether no other process has a part of the lab; if so, no other process gets one any more.

        The own zone is released, whatever the answer.
        """
        if self._lab is None:
            return False
        self._close_zone()
        # Unlock first: of two shared holders, neither could get the exclusive lock.
        unlock(self._lab)
        return try_lock(self._lab)

    def close(self) -> None:
        """Release the lease."""
        self._close_zone()
        if self._lab is not None:
            if self._is_whole:
                _write(self._lab, "")
            os.close(self._lab)
            self._lab, self._is_whole = None, False

    def _close_zone(self) -> None:
        if self._zone is not None:
            os.close(self._zone)
            self._zone = None

    def _open(self, name: str) -> int:
        return open_file(self._folder / name)

    def _in_use(self, descriptor: int) -> InUse:
        pid = _read(descriptor)
        os.close(descriptor)
        message = f"process {pid} is using it" if pid else "others are using its zones"
        return InUse(message, f"lab {self._folder.name}", "wait for it, or start another lab")


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 100, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    # If this process is killed in between, the file has too much content, but is never empty.
    os.pwrite(descriptor, text.encode(), 0)
    os.ftruncate(descriptor, len(text.encode()))


NODES_READY_TIMEOUT_S = Limits.nodes_ready_timeout_s
CLEAN_TIMEOUT_S = 60.0
_CALIBRATION_SENTINELS, _CALM_S, _CALIBRATION_TIMEOUT_S = 5, 0.05, 15.0
"""A calibration is a floor under the slack of each recording. What burdened the host while labs started does
not belong in it: sentinels measure what burdens a recording.
"""
TRANSIENT_ERRORS = (ApiError, MachineError)
"""Errors that mean "not ready yet" rather than "nothing left"."""
CLOCK = "clock"
"""The purpose of the connections by which clocks are read."""


class TooFewNodes(Problem):
    """Too many nodes are quarantined or out of service for a scenario."""


@dataclass(frozen=True)
class Cluster:
    """A cluster's API and kubectl, independent of its kind of machines."""

    api: Api
    run_kubectl: RunKubectl


class LabHandle:
    """One running cluster that may be disturbed: its Kubernetes, machines, safety and life cycle.

    It creates the recordings and provides the configuration that verdicts use. In a process that leases a
    zone, its nodes are that zone's.

    Attributes:
        zone: The leased zone; empty if the lab is not shared.
        out_of_service: The nodes that are out of service, and why.
        upgrade_version: The version that faults upgrade the control plane to; empty for none.
        pods: How the pods of scenarios run; None if none may.

    Raises:
        Problem: The profile is unknown.
    """

    def __init__(self, kind: Kind, access: Access) -> None:
        self.kind, self.dir, self.features = kind, access.dir, access.features
        self.profile = profile_named(access.profile)
        self.components, self.upgrade_version = access.components, access.upgrade_version
        self.cluster, self.pods = Cluster(access.api, access.kubectl), access.pods
        self.fleet, self.life = access.fleet, access.life
        self.safety, self.leases = Safety(access), Leases(access.dir)
        self.zone = ""
        self.out_of_service: Mapping[str, str] = {}
        self._configuration: Configuration | None = None
        self._read_configuration = access.read_configuration or self._read_components
        self._machine_events = MachineEvents(self._events)

    @property
    def name(self) -> str:
        """The lab's name, by which people and processes find it."""
        return self.dir.name

    def lease(self, zone: str = "") -> bool:
        """Lease `zone`, or any zone, until the lab is closed; return whether it was leased before.

        Raises InUse, Problem.
        """
        leased, was_leased = self.leases.take_zone([zone] if zone else self.fleet.zones())
        self.restrict_to_zone(leased)
        return was_leased

    def restrict_to_zone(self, zone: str) -> None:
        """Restrict the lab to one zone from now on."""
        self.zone = zone
        self.fleet.restrict_to_zone(zone)
        self.safety.restrict_to_zone(zone)

    def usable_nodes(self) -> list[str]:
        """Return the nodes that faults may affect: not quarantined, and in service."""
        unusable = self.safety.injector.quarantined | self.out_of_service.keys()
        return [name for name in self.fleet.node_names() if name not in unusable]

    def update_out_of_service(self) -> Mapping[str, str]:
        """Update which nodes are out of service, and return the reason for each. Raises ApiError, Problem."""
        self.out_of_service = workloads.out_of_service_nodes(self.cluster.api, self.fleet.node_names())
        return self.out_of_service

    @property
    def placement(self) -> Mapping[str, str]:
        """The labels of the nodes that pods of a scenario may be on."""
        return {ZONE_LABEL: self.zone} if self.zone else {}

    def wait_nodes_ready(
        self,
        names: Sequence[str] | None = None,
        timeout_s: float = NODES_READY_TIMEOUT_S,
        unready: Callable[[Api, Sequence[str]], Mapping[str, str]] = workloads.unfit_nodes,
    ) -> None:
        """Wait until `unready` returns no node: all are Ready, untainted, uncordoned, with renewed Leases.

        Raises:
            Problem: nodes are still unready after `timeout_s`, or a component has died; with the last lines
                of a log.
        """
        node_names = names if names is not None else self.fleet.node_names()
        reasons = self.unready_after(node_names, timeout_s, unready)
        if reasons:
            lines = self.life.last_lines(f"kubelet-{next(iter(reasons))}")
            message = f"nodes not ready after {timeout_s:g} s: {with_reasons(reasons)}"
            raise Problem(message, f"lab {self.name}", "its last log lines follow", lines)

    def unready_after(
        self,
        names: Sequence[str],
        timeout_s: float,
        unready: Callable[[Api, Sequence[str]], Mapping[str, str]],
    ) -> Mapping[str, str]:
        """Wait until `unready` returns no node; return those left after `timeout_s`, and why.

        Raises Problem as soon as a component has died.
        """

        def unready_nodes() -> Mapping[str, str]:
            self.life.check_alive()
            return unready(self.cluster.api, names)

        return wait_until_empty(unready_nodes, *TRANSIENT_ERRORS, timeout_s=timeout_s)

    def prepare(self, measure_watch_latency_s: Callable[[], float] | None = None) -> None:
        """Prepare the cluster for scenarios, and find out how exactly events can be timed here.

        Args:
            measure_watch_latency_s: returns the lab's watch latency, which others may have measured already;
                None to measure it.
        """
        workloads.prepare(self.cluster.api)
        watch_latency_s = (measure_watch_latency_s or self.measure_watch_latency_s)()
        calibration = Calibration(watch_latency_s, self.read_clock_offsets_s())
        self._configuration = self._read_configuration(calibration)

    def _read_components(self, calibration: Calibration) -> Configuration:
        """Return the configuration that the components of a lab report; one node represents all kubelets.

        Raises ApiError, MachineError, Problem.
        """
        api, names = self.cluster.api, self._nodes_to_query()
        control_plane, machine = self.components.kubernetes_version, self.fleet.machine(names[0])
        kubelet = retry_on(
            lambda: kubelet_configz(api, machine.name), ApiError, timeout_s=_SERVES_TIMEOUT_S, period_s=0.5
        )
        reported = {
            "kube-controller-manager": configz(api, MANAGER),
            "kube-scheduler": configz(api, SCHEDULER),
            "kubelet": kubelet,
            "kube-apiserver": {"DefaultTolerationSeconds": workloads.default_tolerations_s(api)},
        }
        _check_symbols(reported)
        versions = workloads.kubelet_versions(api, names).items()
        node_versions = {name: version for name, version in versions if version not in ("", control_plane)}
        flags = {name: flags_of(argv) for name, argv in self.fleet.command_lines().items()}
        settings = retry_on(lambda: _kubelet_settings(machine), MachineError, timeout_s=_SERVES_TIMEOUT_S)
        return Configuration(
            kubernetes_version=control_plane,
            lab=self.kind.name,
            profile=self.profile.name,
            slack_limit_s=self.profile.slack_limit_s,
            negative_wait_s=self.profile.negative_wait_s,
            calibration=calibration,
            tested_kubelet=self.kind.runs_tested_kubelet(self.components),
            components={role: part.to_json() for role, part in self.components.by_role.items()},
            reported=reported,
            flags_set=flags if settings is None else {**flags, "kubelet": settings},
            fields=read_fields(api, WATCHED),
            node_versions=node_versions,
            kubelet_version=node_versions.get(machine.name, ""),
        )

    @property
    def is_prepared(self) -> bool:
        """Whether the running configuration is known."""
        return self._configuration is not None

    @property
    def configuration(self) -> Configuration:
        """The running configuration, as read when the lab was prepared."""
        if self._configuration is None:
            self.prepare()
        assert self._configuration is not None  # noqa: S101  set by prepare()
        return self._configuration

    def measure_watch_latency_s(self) -> float:
        """Return the worst watch latency (s) of a few calm sentinels in a row."""
        carrier = self._nodes_to_query()[-1]
        context = RecordingContext((), carrier, self.read_clock, self._events, sentinel_period_s=0.1)
        path = self.dir / f"calibration-{uuid.uuid4().hex[:8]}.jsonl"
        try:
            with Recording(self.cluster.api, path, context) as recording:
                return recording.calmest_latency_s(_CALIBRATION_SENTINELS, _CALM_S, _CALIBRATION_TIMEOUT_S)
        finally:
            path.unlink(missing_ok=True)

    def read_clock_offsets_s(self) -> dict[str, float]:
        """Return how far each node's clock is ahead of the harness's (s)."""

        def offset_s(name: str) -> float:
            reading = retry_on(lambda: self.read_clock(name), MachineError, timeout_s=_CLOCKS_TIMEOUT_S)
            return reading.offset_s

        names = self._nodes_to_query()
        with ThreadPoolExecutor(4) as pool:
            return dict(zip(names, pool.map(offset_s, names), strict=True))

    def _nodes_to_query(self) -> list[str]:
        """Return the usable nodes, or all if none is usable."""
        return self.usable_nodes() or self.fleet.node_names()

    def read_clock(self, name: str) -> Reading:
        """Return how far a node's clock is ahead of this host's. Raises MachineError, Problem."""
        if self.kind.has_host_clock:
            return Reading(name, round(time.monotonic(), 6), 0.0, 0.0)
        return read_clock(self.fleet.machine(name, CLOCK))

    @contextmanager
    def record(
        self, path: Path, targets: Collection[str], extra_resources: Collection[str] = ()
    ) -> Iterator[Recording]:
        """Record everything until the context ends, then fence the recording.

        Args:
            path: the file of the recording.
            targets: nodes that faults will affect; another one carries the sentinel.
            extra_resources: additional resources to record.

        Raises:
            Problem: a resource cannot be recorded.
        """
        self._add_resources(extra_resources)
        self._settle()
        if self.fleet.control_planes():
            # A connection to a control plane that lost its power since is dead, and no write is repeated.
            self.cluster.api.close()
        # Read before the check: a later death shows in the check or in the recorded events.
        events_at = events_end(self._events)
        self.life.check_alive()
        names = self.fleet.node_names()
        context = RecordingContext(
            tuple(names),
            sentinel_node(names, list(targets)),
            self.read_clock,
            self._events,
            events_at,
            is_in_other_zone=self.fleet.is_in_other_zone,
            resources=(*WATCHED, *extra_resources),
        )
        with (
            Recording(self.cluster.api, path, context) as recording,
            self.safety.injector.standing(recording.append),
        ):
            yield recording

    def _settle(self) -> None:
        """Wait for nodes that were lost because the lab stalled since the last recording.

        They are lost at a pass of the node lifecycle controller. Raises HostTooLoaded.
        """
        max_stall_s = loses_nodes_s(self.configuration)
        stalls = [event for event in self._machine_events.read() if event["kind"] == "stall"]
        ends = [event["t"] for event in stalls if event["late_s"] > max_stall_s]
        if not ends:
            return
        _sleep_until(ends[-1] + 2 * self.configuration["P"])

        def lost_nodes() -> Sequence[str]:
            return workloads.lost(self.cluster.api, self.usable_nodes())

        if lost := wait_until_empty(lost_nodes, *TRANSIENT_ERRORS, timeout_s=CLEAN_TIMEOUT_S):
            names = ", ".join(lost)
            message = f"nodes lost while the lab stalled are not back after {CLEAN_TIMEOUT_S:g} s: {names}"
            raise HostTooLoaded(message, f"lab {self.name}", "run the scenario again on an idle host")
        # Let the eviction rate limiter refill after their taints.
        _sleep_until(time.monotonic() + 1 / self.configuration["E"])

    def _add_resources(self, extra_resources: Collection[str]) -> None:
        """Create the sentinels of additional resources, and read the fields of their objects."""
        if not extra_resources:
            return
        for name in extra_resources:
            if name not in RESOURCES or name in WATCHED or list(extra_resources).count(name) > 1:
                available = ", ".join(sorted(RESOURCES.keys() - WATCHED.keys()))
                what = f"cannot record {name!r} besides {', '.join(WATCHED)}"
                raise Problem(what, "record(extra_resources=...)", f"use one of: {available}")
            resource = RESOURCES[name]
            if resource.body is not None:
                # Other processes of a shared lab use the sentinel, too: there it stays as long as the lab.
                annotations = {} if self.zone else {MARK: self.safety.register_object(resource.sentinel(""))}
                meta = {"name": SENTINEL, "annotations": annotations}
                self.cluster.api.ensure(resource.home, {**resource.body, "metadata": meta})
        schema = self.configuration.fields
        fields = read_fields(self.cluster.api, [name for name in extra_resources if name not in schema])
        self._configuration = replace(self.configuration, fields={**schema, **fields})

    def tidy(self) -> None:
        """Remove what scenarios and interrupted calibrations left.

        Raises ApiError, Problem, OSError.
        """
        for path in self.dir.glob("calibration-*.jsonl"):
            path.unlink(missing_ok=True)
        if self.kind.is_attached:
            # Pods and labels of such names may be the owner's, and open changes another user's.
            self.life.check_alive()
            self.safety.undo_changes()
            return
        self.safety.undo_changes()
        # Pods and labels are ours by their names; in a whole lab, wherever they are.
        nodes = self.fleet.node_names() if self.zone else None
        workloads.sweep_pods(self.cluster.api, nodes, self.fleet.is_in_other_zone)
        workloads.remove_labels(self.cluster.api, nodes)

    def clean(self, needs: Needs) -> None:
        """Check and clean up between scenarios, and wait until the usable nodes are Ready.

        Raises:
            Problem: a component has died, something cannot be cleaned up, or too few nodes are usable for
                `needs`.
        """
        self.life.check_alive()
        self.tidy()
        self.update_out_of_service()
        quarantined, usable = self.safety.injector.quarantined, self.usable_nodes()
        broken = ", ".join(sorted(quarantined - set(self.fleet.node_names())))
        if broken:
            next_step = f"run `{self.safety.heal_command}`"
            raise Problem(f"not proven healed: {broken}", f"lab {self.name}", next_step)
        if len(usable) < needs.faulted + (needs.radius != "cluster"):
            nodes = ", ".join(sorted(quarantined)) or "none"
            raise self._too_few("too few usable nodes", f"quarantined: {nodes}")
        if self.out_of_service and (needs.radius or len(usable) < needs.nodes):
            needed = "every node of its zone" if needs.radius else f"{needs.nodes} nodes"
            raise self._too_few(f"the scenario needs {needed}", "put the nodes back into service")
        self.wait_nodes_ready(usable, CLEAN_TIMEOUT_S)

    def _too_few(self, problem: str, next_step: str) -> TooFewNodes:
        reasons = f"; left out: {with_reasons(self.out_of_service)}" if self.out_of_service else ""
        return TooFewNodes(f"{problem}{reasons}", f"lab {self.name}", next_step)

    def join(self, name: str, zone: str, slot: int) -> None:
        """Let a node join while the lab runs. Raises Problem."""
        self.fleet.join(NodeSpec(name, slot, zone))
        self._configuration = None

    def leave(self, name: str) -> None:
        """Power a node off for good and delete its Node. Raises Problem, ApiError."""
        self.fleet.leave(name)
        self.cluster.api.delete(node(name))
        self._configuration = None

    @property
    def journals(self) -> Path:
        """The folder of `fetch_journals`."""
        return self.dir / "journals"

    def fetch_journals(self) -> None:
        """Fetch the present boot's journals from machines with systemd; skip those that do not answer."""
        if "systemd" in self.features:
            self.fleet.fetch_journals(self.journals)

    def copy_logs(self, into: Path) -> None:
        """Copy component logs, audit log and machine events to a run's folder, with secrets redacted."""
        target = into / self.name
        for folder in (self.life.logs, *filter(Path.exists, [self.journals])):
            with contextlib.suppress(shutil.Error):
                # A file may be created or removed meanwhile; all others are copied anyway.
                shutil.copytree(folder, target, copy_function=redacted.copy, dirs_exist_ok=True)
        for name in ("init.log", "events.jsonl"):
            with contextlib.suppress(OSError):
                redacted.copy(self.dir / name, target / name)

    def close(self) -> None:
        """Close all connections; the lab stays."""
        self.fleet.close()
        self.cluster.api.close()
        self.life.close()
        self.leases.close()

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        self.fleet.close()
        self.cluster.api.close()
        self.life.down()
        # Another thread may have opened connections meanwhile.
        self.fleet.close()
        self.leases.close()
        self.safety.ledger.forget()

    @property
    def _events(self) -> Path:
        """The log in which a lab's processes record what happens to machines and components."""
        return self.dir / "events.jsonl"


def with_reasons(nodes: Mapping[str, str]) -> str:
    """Format nodes with the reason for each, for messages."""
    return ", ".join(f"{name} ({why})" for name, why in nodes.items())


def _sleep_until(t: float) -> None:
    threading.Event().wait(max(0.0, t - time.monotonic()))


def sentinel_node(nodes: Sequence[str], targets: Sequence[str]) -> str:
    """Return a node for the sentinel that is not a target of the scenario's faults.

    If all are targets, return the first: only the API server handles the sentinel's objects.
    """
    return next((name for name in nodes if name not in targets), nodes[0])


def resize(lab: LabHandle, nodes: int) -> None:
    """Remove nodes, last slot first, or add nodes, evenly over the zones, until the lab has `nodes`.

    Then wait until all are Ready. Raises Problem, ApiError.
    """
    current = sorted(lab.fleet.nodes(), key=lambda entry: entry.slot)
    for entry in reversed(current[nodes:]):
        lab.leave(entry.name)
    zones = lab.fleet.zones()
    for number in range(len(current), nodes):
        slot = lab.fleet.free_slot()
        lab.join(f"node-{slot + 1}", zones[number % len(zones)], slot)
    lab.wait_nodes_ready()
    count = len(lab.fleet.nodes())
    if count != nodes:
        message = f"the lab has {count} nodes after resizing, not {nodes}"
        raise Problem(message, f"lab {lab.name}", "nothing to do: a dedicated lab is used instead")
