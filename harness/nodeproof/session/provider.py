"""The labs of a worker: how each gets ready for a scenario and ends, and which one a scenario gets."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from nodeproof.artifacts import csi
from nodeproof.cache import Detail
from nodeproof.cluster import workloads
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.published import fewer, watches
from nodeproof.faults import Fault
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import (
    CLEAN_TIMEOUT_S,
    NODES_READY_TIMEOUT_S,
    InUse,
    LabHandle,
    resize,
    with_reasons,
)
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report.rundir import write_fields, write_json
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import NotInjected, Unavailable
from nodeproof.session.markers import FaultFactory, key
from nodeproof.session.options import ANY, Options
from nodeproof.session.sharing import Retries, SharedLab, StartupLock, Throttle
from nodeproof.waiting import retry_on

LAB_ERRORS = (Problem, OutsideError, OSError)
"""What a lab that is unusable or has ended raises."""
_MAX_JOINING = 2
"""Nodes that may join a lab beyond those that it has, for which its memory was sized."""
_WATCHED_COMPONENTS = {"etcd", "kube-apiserver"}
_TIMEOUT_S = 75.0
"""Longer than two of the longest backoffs of a controller."""
_PERIOD_S = 0.5
_AWAY_TIMEOUT_S = 60.0
"""How long a scenario waits for a cluster that does not answer."""


@dataclass(frozen=True)
class LabRequirements:
    """What a scenario requires of the lab that it runs in.

    Args:
        needs: the arguments of its `@needs`.
        size: size of the lab or zone.
        is_alone: whether it needs a lab to itself.
        standing: faults to inject before it begins.
    """

    needs: Needs
    size: Size
    is_alone: bool = False
    standing: Sequence[FaultFactory] = ()


@dataclass(eq=False)
class WorkerLab(ABC):
    """A lab, or a zone of one, that this worker uses for one scenario after another.

    Args:
        handle: the lab, restricted to the zone if it is one.
        size: size of the lab or zone.
        run: the run's folder.
        report: prints a line.
        was_used: whether an earlier user may have left something.
    """

    part: ClassVar[str] = "lab"
    replacement: ClassVar[str] = "starting a new one"
    is_replaceable: ClassVar[bool] = True
    """Whether the run may use another lab instead."""

    handle: LabHandle
    size: Size
    run: Path
    report: Callable[[str], None]
    was_used: bool = False
    is_ready: bool = field(default=False, init=False)
    last_taint_t: float = field(init=False)
    """When a node last got a NoExecute taint (s, monotonic), if only from an earlier user of the zone."""
    _reported_full: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.last_taint_t = time.monotonic() if self.was_used and self.handle.zone else float("-inf")
        self._settling, self._standing = Settling(self.handle), StandingFaults(self.handle)

    def get_ready(self) -> None:
        """Heal what an earlier user left, wait for the nodes, and calibrate the lab. Raises Problem."""
        lab = self.handle
        lab.safety.injector.say = self.report
        unhealed = lab.safety.heal_unfinished() if self.was_used else []
        if unhealed:
            command = lab.safety.heal_command if lab.kind.is_attached else "nodeproof down"
            raise Problem(f"cannot heal: {', '.join(unhealed)}", f"lab {lab.name}", f"run `{command}`")
        self._wait_for_nodes()
        self._prepare()
        calibration = lab.configuration.calibration
        latency_ms = 1000 * calibration.watch_latency_s
        offset_ms = 1000 * max(map(abs, calibration.clock_offset_s.values()), default=0.0)
        measured = f"watch latency {latency_ms:.0f} ms, clock offsets up to {offset_ms:.0f} ms"
        limit = f"slack is limited to {lab.profile.slack_limit_s:g} s"
        self.report(Detail(f"calibrated: {measured}; {limit}"))
        self._write_facts()
        self.is_ready = True

    def resize(self, _size: Size) -> bool:
        """Resize the lab, if it is possible; return whether it was."""
        return False

    def clean(self, requirements: LabRequirements) -> None:
        """Clean up after the scenario before, and check that the lab is fit for the next one.

        Raises:
            Problem, OutsideError, OSError: The lab is unusable.
        """
        self._rest()
        self._settling.end()
        self._standing.end_unless(requirements.standing)
        self.handle.clean(requirements.needs)
        self._check_in_service()

    def begin(self, requirements: LabRequirements) -> None:
        """Inject the standing faults of a scenario. Raises StandingFaultFailed."""
        self._standing.begin(requirements.standing, requirements.needs)
        self._settling.begin(requirements.needs)
        self._report_full()

    def leave(self) -> None:
        """Clean up before this worker uses another lab for a while. Raises Problem, OutsideError, OSError."""
        self._settling.end()
        self._standing.end()
        self.handle.tidy()

    def end(self) -> None:
        """Heal the standing faults and give the lab up; it ends if no other process uses it.

        Raises:
            Problem, OutsideError, OSError: Something failed; the lab is given up all the same.
        """
        try:
            self._standing.end()
            self._write_facts()
            with contextlib.suppress(Problem):
                self._report_full()
        finally:
            self._release()

    def abandon(self) -> None:
        """Give up a lab that is unusable, whatever fails."""
        with contextlib.suppress(*LAB_ERRORS):
            self.handle.fetch_journals()
        with contextlib.suppress(*LAB_ERRORS):
            self.end()

    def _rest(self) -> None:
        """Wait until the eviction rate limiter is full again: 1/E after the last NoExecute taint."""
        due_t = self.last_taint_t + 1 / self.handle.configuration["E"]
        threading.Event().wait(max(0.0, due_t - time.monotonic()))

    def _wait_for_nodes(self) -> None:
        self.handle.wait_nodes_ready()

    def _prepare(self) -> None:
        """Prepare the cluster for scenarios, and calibrate the lab."""
        self.handle.prepare()

    def _check_in_service(self) -> None:
        """Check that all nodes are in service: only this run uses them. Raises Problem."""
        if self.handle.out_of_service:
            nodes = f"out of service: {with_reasons(self.handle.out_of_service)}"
            step = f"see the log of the previous scenario; run `{self.handle.safety.heal_command}`"
            raise Problem(nodes, f"lab {self.handle.name}", step)

    @abstractmethod
    def _release(self) -> None:
        """Give the lab up, with its logs kept where this worker is the last user."""

    def _report_full(self) -> None:
        """Report each full part of the lab's memory once. Raises Problem."""
        for line in self.handle.life.full_parts():
            if line not in self._reported_full:
                self._reported_full.add(line)
                self.report(line)

    def _write_facts(self) -> None:
        """Write the lab's versions, calibration and quarantined nodes, once it is calibrated."""
        lab = self.handle
        if not lab.is_prepared:
            return
        facts = {
            "kubernetes_version": lab.configuration.kubernetes_version,
            "components": lab.configuration.components,
            "node_versions": lab.configuration.node_versions,
            "quarantined": sorted(lab.safety.injector.quarantined),
            "calibration": asdict(lab.configuration.calibration),
        }
        name = "-".join(filter(None, (lab.name, lab.zone)))
        write_json(self.run / "labs" / f"{name}.json", facts)
        write_fields(self.run, lab.configuration.fields)


class OwnLab(WorkerLab):
    """A lab that this worker started for itself alone."""

    def resize(self, size: Size) -> bool:
        """Let nodes join or leave, which is faster than a lab start; return whether it worked."""
        lab = self.handle
        if lab.safety.injector.quarantined or self.size.spread or size.spread:
            return False
        if size.zones != self.size.zones or size.nodes > self.size.nodes + _MAX_JOINING:
            return False
        with contextlib.suppress(Problem):
            # Do this before nodes leave, as their watches count too.
            self._settling.end()
        self.report(Detail(f"lab {lab.name}: resizing to {size.nodes} nodes"))
        try:
            self._standing.end()
            lab.tidy()
            resize(lab, size.nodes)
            self.get_ready()
        except LAB_ERRORS as problem:
            self.report(f"resizing failed ({problem}); starting a new lab")
            return False
        self.size = size
        return True

    def _release(self) -> None:
        try:
            self.handle.copy_logs(self.run / "labs")
        finally:
            self.handle.down()


@dataclass(eq=False)
class SharedZone(WorkerLab):
    """A zone of the lab that the workers of the run share."""

    part, replacement = "zone", "leasing another"

    shared: SharedLab = field(kw_only=True)

    def _prepare(self) -> None:
        self.handle.prepare(lambda: self.shared.watch_latency_s(self.handle))

    def abandon(self) -> None:
        """Exclude the zone for all workers, and give it up, whatever fails."""
        with contextlib.suppress(*LAB_ERRORS):
            self._exclude()
        super().abandon()

    def _exclude(self) -> None:
        """Exclude the zone, and the whole lab if its control plane died."""
        self.handle.leases.disable_zone()
        try:
            has_control_plane = self.handle.life.has_control_plane()
        except Problem:
            has_control_plane = False
        if not has_control_plane:
            self.shared.forget(self.handle.name)

    def _release(self) -> None:
        with contextlib.suppress(*LAB_ERRORS):
            self.handle.tidy()
        self.shared.give_back(self.handle)


@dataclass(eq=False)
class AttachedLab(WorkerLab):
    """A running lab that the run was given with `--lab NAME`, or a zone of it; it stays."""

    is_replaceable = False
    was_used: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._excluded = ExcludedNodes(self.report)

    def clean(self, requirements: LabRequirements) -> None:
        """Clean up; wait for a cluster that does not answer for a while, as no other replaces it."""
        clean = partial(super().clean, requirements)
        retry_on(clean, OutsideError, timeout_s=_AWAY_TIMEOUT_S, period_s=_PERIOD_S)

    def _wait_for_nodes(self) -> None:
        self._excluded.begin(self.handle)

    def _check_in_service(self) -> None:
        self._excluded.report_new(self.handle)

    def _release(self) -> None:
        try:
            self.handle.copy_logs(self.run / "labs")
        finally:
            with contextlib.suppress(*LAB_ERRORS):
                self.handle.tidy()
            self.handle.close()


@dataclass
class ExcludedNodes:
    """The nodes of a lab that were reported as excluded; `report` prints a line."""

    report: Callable[[str], None]
    _reported: Mapping[str, str] = field(default_factory=dict)

    def begin(self, lab: LabHandle, timeout_s: float = NODES_READY_TIMEOUT_S) -> None:
        """Exclude nodes that were taken out of service, and nodes that are not Ready after `timeout_s`.

        Raises:
            Problem: No node is left.
            ApiError: The API server does not answer.
        """
        lab.update_out_of_service()
        self.report_new(lab)
        awaited = workloads.not_ready(lab.cluster.api, lab.usable_nodes())
        if awaited:
            self.report(f"lab {lab.name}: waits for {with_reasons(awaited)}")
        unready = lab.unready_after(lab.usable_nodes(), timeout_s, workloads.unfit_nodes)
        if unready:
            self.report(f"lab {lab.name}: leaves out {with_reasons(unready)}")
            lab.safety.injector.quarantined |= unready.keys()
        if not lab.usable_nodes():
            raise Problem("no node is in service", f"lab {lab.name}", "see `nodeproof kubectl get nodes`")

    def report_new(self, lab: LabHandle) -> None:
        """Report each excluded node once, with the reason."""
        excluded = {name: why for name, why in lab.out_of_service.items() if self._reported.get(name) != why}
        if excluded:
            self.report(f"lab {lab.name}: leaves out {with_reasons(excluded)}")
        self._reported = lab.out_of_service


class Settling:
    """Waits for controllers to watch the API server again after a scenario that restarted it.

    A new API server refuses requests until it has its RBAC rules, and controllers retry with a backoff of up
    to 30 s (client-go, tools/cache/reflector.go). A controller that sees no Leases meanwhile takes nodes for
    lost. So the number of watches per resource is counted before a scenario that may break watches.

    The minimum over the lab's scenarios counts: for minutes, the API server also counts the watches of a
    machine that has left, and these do not come back.
    """

    def __init__(self, lab: LabHandle) -> None:
        self._lab = lab
        self._fewest: Mapping[str, int] = {}
        self._before: Mapping[str, int] = {}

    def begin(self, needs: Needs) -> None:
        """Count the watches; `end` waits only after a scenario that may break them."""
        self._before = {}
        if self._lab.zone:
            return
        with contextlib.suppress(ApiError):
            counts = watches(self._lab.cluster.api)
            fewest = self._fewest or counts
            self._fewest = {name: min(count, fewest.get(name, 0)) for name, count in counts.items()}
        if _WATCHED_COMPONENTS & set(needs.components):
            self._before = self._fewest

    def end(self) -> None:
        """Wait until there are as many watches as before.

        Raises:
            Problem: There are fewer watches after the time limit, or the API server does not answer.
        """
        before, self._before = self._before, {}
        if before:
            retry_on(lambda: self._check(before), Problem, timeout_s=_TIMEOUT_S, period_s=_PERIOD_S)

    def _check(self, before: Mapping[str, int]) -> None:
        where = f"lab {self._lab.name}"
        try:
            missing = ", ".join(fewer(before, watches(self._lab.cluster.api)))
        except ApiError as error:
            message = f"no answer by the API server: {error}"
            raise Problem(message, where, "see the log of kube-apiserver") from error
        if missing:
            message, next_step = "controllers do not watch again", "see the log of kube-controller-manager"
            raise Problem(f"{message}: {missing}", where, next_step)


class StandingFaultFailed(Problem):
    """A standing fault could not be injected."""


class StandingFaults:
    """The standing faults of a lab, on the target of its scenarios; none before `begin`.

    They are injected before the first of several scenarios, and healed when a scenario needs others.
    """

    def __init__(self, lab: LabHandle) -> None:
        self._lab = lab
        self._key, self._node = "", ""
        self._faults: Sequence[Fault] = ()
        self._active = ExitStack()

    def begin(self, makes: Sequence[FaultFactory], needs: Needs) -> None:
        """Inject the faults, unless they stand already, and wait until nodes are Ready.

        Raises:
            StandingFaultFailed: A fault could not be injected; those before it stay until `end`.
        """
        if self._faults or not makes:
            return
        self._key, self._node = key(makes), self._lab.usable_nodes()[0]
        self._faults = [make(self._node) for make in makes]
        declared = Declared((self._node,), needs.components, needs.radius)
        injector = self._lab.safety.injector
        description = ""
        try:
            for fault in self._faults:
                description = f"{fault.to_json()['fault']} on {self._node}"
                # Each recording describes the standing faults when it begins.
                self._active.enter_context(injector.inject(fault, declared, lambda *_args, **_kwargs: None))
            self._lab.wait_nodes_ready(self._lab.usable_nodes(), CLEAN_TIMEOUT_S)
        except (NotInjected, Refused, Unavailable, OutsideError, Problem, OSError) as error:
            raise StandingFaultFailed(f"{description}: {error}", "@standing", "see the lab's logs") from error

    def end_unless(self, makes: Sequence[FaultFactory]) -> None:
        """Heal the faults, unless exactly `makes` are wanted and probes confirm them. Raises MachineError."""
        if not self._faults:
            return
        is_same = key(makes) == self._key and self._lab.usable_nodes()[:1] == [self._node]
        if not (is_same and all(map(self._lab.safety.injector.is_active, self._faults))):
            self.end()

    def end(self) -> None:
        """Heal the faults in reverse order."""
        self._faults = ()
        self._active.close()


@dataclass
class LabOpener:
    """Opens labs for a worker: starts one, attaches to a running one, or leases a zone of the shared one.

    Labs start and are calibrated one at a time, and no scenario begins before every worker has its first lab.
    A lab that starts later holds back the scenarios of all workers.

    Args:
        options: the options of the run.
        run: the run's folder.
        common: size of a zone of the shared lab.
        zones_shared: number of zones of the shared lab; 0 if there is none.
        workers: number of workers that begin with a lab start, which takes processors from all others.
        throttle: holds scenarios back.
        report: prints a line.
        notify: is called with the steps of faults, as the injector's `notify`.
    """

    options: Options
    run: Path
    common: Size
    zones_shared: int
    workers: int
    throttle: Throttle
    report: Callable[[str], None]
    notify: Callable[[str, Fault], None]

    def __post_init__(self) -> None:
        self._labs, zones = self.run / "labs", self.zones_shared
        self._startup_lock = StartupLock(self._labs, self.workers)
        size = Size(zones * self.common.nodes, zones)
        self._shared = SharedLab(self._labs, lambda: self._start(size))

    @property
    def has_zones(self) -> bool:
        """Whether the workers share the zones of a lab."""
        return self.zones_shared > 0

    def open(self, size: Size) -> WorkerLab:
        """Start a lab for this worker alone, or attach to the lab of the options or to one of its zones.

        Raises:
            Problem: The lab cannot be started, or there is none to attach to.
        """
        self._heal_leftovers()
        options = self.options
        with self._startup_lock.alone():
            if options.starts_lab:
                handle = self._start(size)
            elif options.cluster:
                handle = starting.attach(options.kind, options.lab)
            else:
                handle = registry.attach(options.lab)
            try:
                if options.zone:
                    handle.lease("" if options.zone == ANY else options.zone)
                else:
                    handle.leases.take_lab()
            except Problem:
                handle.close()
                raise
        return (OwnLab if options.starts_lab else AttachedLab)(handle, size, self.run, self.report)

    def lease_zone(self) -> WorkerLab:
        """Lease a zone of the shared lab, which is started if there is none yet.

        Raises:
            InUse: No zone is free.
            Problem: The shared lab cannot be started.
        """
        self._heal_leftovers()
        with self._startup_lock.alone():
            handle, was_used = self._shared.lease_zone()
        return SharedZone(handle, self.common, self.run, self.report, was_used, shared=self._shared)

    def get_ready(self, lab: WorkerLab) -> None:
        """Heal and calibrate an opened lab. Raises Problem, OutsideError, OSError."""
        lab.handle.safety.injector.notify = self._announce if lab.handle.kind.is_attached else self.notify
        with self._startup_lock.alone():
            lab.get_ready()
        self._startup_lock.wait(self.report)

    def _announce(self, step: str, fault: Fault) -> None:
        """Also print the step of a fault on somebody's own cluster."""
        self.report(f"{fault.name} on {fault.node}: {step}")
        self.notify(step, fault)

    def _heal_leftovers(self) -> None:
        """Heal what earlier runs left in unused labs. Raises Problem."""
        options = self.options
        if options.cluster:
            return
        registry.heal_abandoned(options.lab, self.report)
        if options.zone:
            registry.heal_unzoned(options.lab)

    def _start(self, size: Size) -> LabHandle:
        """Start a lab; after the first labs of all workers, while no scenario runs. Raises Problem."""
        options, name = self.options, starting.new_name()
        with self.throttle.lab_start() if self._startup_lock.has_waited else contextlib.nullcontext():
            components = options.obtain(self.report)
            # At its end the run tears down the labs that have a folder here.
            (self._labs / name).mkdir(parents=True, exist_ok=True)
            registry.sweep()
            for folder in registry.unswept_folders():
                self.report(f"a killed start left files that only root can remove: sudo rm -rf {folder}")
            request = starting.LabRequest(
                name, size.nodes, size.zones, options.profile, keep=False, kind=options.kind,
                spread=size.spread, topology=options.topology, overrides=options.overrides,
            )  # fmt: skip
            return starting.up(request, components, self.report)


class LabProvider:
    """Provides a worker's lab from its first scenario to the session's end.

    A worker holds at most two labs: its own lab and a zone of the shared lab. It uses one at a time.

    Args:
        opener: opens labs.
        throttle: holds back the scenarios of the run.
        retries: the scenarios to retry.
        report: prints a line.
    """

    def __init__(
        self, opener: LabOpener, throttle: Throttle, retries: Retries, report: Callable[[str], None]
    ) -> None:
        self._opener, self._throttle, self._retries, self._report = opener, throttle, retries, report
        self._own: WorkerLab | None = None
        self._zone: WorkerLab | None = None
        """A zone of the shared lab; if there was none, a lab of this worker in its place."""
        self.lab: WorkerLab | None = None
        """The lab in use: one of these two."""

    def prepare(self, requirements: LabRequirements, wait_for_turn: Callable[[], None]) -> WorkerLab:
        """Return a lab that is ready for a scenario; replace a lab of this run that can't be cleaned.

        Args:
            requirements: what the scenario requires.
            wait_for_turn: waits for the scenario's turn, once there is a lab.

        Raises:
            Problem: The replacement cannot be cleaned either, or a lab that the run attached to cannot.
            StandingFaultFailed: A standing fault could not be injected.
        """
        if ATTACHER in requirements.needs.components:
            csi.obtain(self._report)
        lab = self.get(requirements)
        wait_for_turn()
        try:
            lab.clean(requirements)
        except LAB_ERRORS as problem:
            if not lab.is_replaceable:
                raise
            self._report(f"{lab.part} unusable ({problem}); {lab.replacement}")
            self.discard()
            lab = self.get(requirements)
            wait_for_turn()
            lab.clean(requirements)
        lab.begin(requirements)
        return lab

    def get(self, requirements: LabRequirements) -> WorkerLab:
        """Return a lab of the required size, or a zone of the shared lab.

        Raises:
            Problem: There is no such lab, and none can be started.
        """
        size = requirements.size
        is_own = requirements.is_alone or not self._opener.has_zones
        self.lab = lab = self._get_own(size) if is_own else self._get_zone(size)
        if lab.is_ready:
            return lab
        try:
            self._opener.get_ready(lab)
        except LAB_ERRORS as problem:
            if not isinstance(lab, SharedZone):
                raise
            self._report(f"zone unusable ({problem}); starting a dedicated lab")
            self.discard()
            self.lab = self._zone = lab = self._opener.open(size)
            self._opener.get_ready(lab)
        return lab

    def reserve_zone(self) -> None:
        """Lease a zone for later scenarios, so that the shared lab starts before anything is measured.

        Raises:
            Problem: The shared lab cannot be started.
        """
        if self._opener.has_zones and self._own is None and self._zone is None:
            with contextlib.suppress(InUse):
                self._zone = self._opener.lease_zone()

    def discard(self) -> None:
        """Give up the lab in use, which is unusable; the next scenario gets another."""
        # Another worker may hold the shared lab's lock until no scenario runs.
        self._throttle.end_scenario()
        if self.lab is not None:
            self._forget(self.lab).abandon()

    def end(self) -> None:
        """End the worker's labs, each even if the other cannot be ended. Raises what the last one raises."""
        with ExitStack() as ends:
            for lab in (self._zone, self._own):
                if lab is not None:
                    ends.callback(self._forget(lab).end)

    def _get_own(self, size: Size) -> WorkerLab:
        """Return the worker's own lab, resized or replaced if necessary."""
        if self._own is None and isinstance(self._zone, OwnLab):
            # It was started in place of a zone.
            self._own, self._zone = self._zone, None
        if self.lab is not None and self.lab is self._zone:
            with contextlib.suppress(*LAB_ERRORS):
                self.lab.leave()
        if self._own is not None and (self._own.size == size or self._own.resize(size)):
            return self._own
        if self._own is not None:
            self._end(self._own)
        self._own = self._opener.open(size)
        return self._own

    def _get_zone(self, size: Size) -> WorkerLab:
        """Return the worker's zone of the shared lab, or a lab in its place."""
        if self.lab is not None and self.lab is self._own:
            self._leave_own(self.lab)
        if self._zone is not None:
            return self._zone
        try:
            self._zone = self._opener.lease_zone()
        except InUse as problem:
            self._report(f"{problem.what} ({problem.where}); starting a dedicated lab")
            self._zone = self._opener.open(size)
        return self._zone

    def _leave_own(self, lab: WorkerLab) -> None:
        """End the own lab, or keep it for a retry: a new start would hold back all workers."""
        if self._retries.needs_dedicated_lab:
            with contextlib.suppress(*LAB_ERRORS):
                lab.leave()
                return
        self._end(lab)

    def _end(self, lab: WorkerLab) -> None:
        try:
            self._forget(lab).end()
        except LAB_ERRORS as problem:
            self._report(f"a lab could not be shut down cleanly: {problem}")

    def _forget(self, lab: WorkerLab) -> WorkerLab:
        """Hold a lab no longer, and return it."""
        self._own = None if self._own is lab else self._own
        self._zone = None if self._zone is lab else self._zone
        self.lab = None if self.lab is lab else self.lab
        return lab
