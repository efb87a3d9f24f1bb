"""A lab, or a zone of one, that a worker uses: how it gets ready for each scenario, and how it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from nodeproof.cache import Detail
from nodeproof.cluster import workloads
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.published import fewer, watches
from nodeproof.faults import Fault
from nodeproof.labs.client.handle import (
    CLEAN_TIMEOUT_S,
    NODES_READY_TIMEOUT_S,
    LabHandle,
    resize,
    with_reasons,
)
from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report.rundir import write_fields, write_json
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import NotInjected, Unavailable
from nodeproof.session.markers import FaultFactory, key
from nodeproof.session.sharing import SharedLab
from nodeproof.waiting import retry_on

LAB_ERRORS = (Problem, OutsideError, OSError)
"""What a lab that is unusable or has ended raises."""
_MAX_JOINING = 2
"""Nodes that may join a lab beyond those that it has, for which its memory was sized."""
_WATCHED_COMPONENTS = {"etcd", "kube-apiserver"}
_TIMEOUT_S = 75.0
"""Longer than two of the longest backoffs of a controller."""
_PERIOD_S = 0.5


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
            raise Problem(f"cannot heal: {', '.join(unhealed)}", f"lab {lab.name}", "run `nodeproof down`")
        self._wait_for_nodes()
        self._prepare()
        calibration = lab.configuration.calibration
        offset = max((abs(value) for value in calibration.clock_offset_s.values()), default=0.0)
        self.report(
            Detail(
                f"calibrated: watch latency {calibration.watch_latency_s * 1000:.0f} ms, clock offsets up to "
                f"{offset * 1000:.0f} ms; slack is limited to {lab.profile.slack_limit_s:g} s"
            )
        )
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
            raise Problem(
                nodes, f"lab {self.handle.name}", "see the log of the previous scenario; run `nodeproof heal`"
            )

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
            missing = fewer(before, watches(self._lab.cluster.api))
        except ApiError as error:
            raise Problem(
                f"no answer by the API server: {error}", where, "see the log of kube-apiserver"
            ) from error
        if missing:
            message = f"controllers do not watch again: {', '.join(missing)}"
            raise Problem(message, where, "see the log of kube-controller-manager")


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
        description = ""
        try:
            for fault in self._faults:
                description = f"{fault.to_json()['fault']} on {self._node}"
                self._active.enter_context(self._lab.safety.injector.inject(fault, declared, _record_nothing))
            self._lab.wait_nodes_ready(self._lab.usable_nodes(), CLEAN_TIMEOUT_S)
        except (NotInjected, Refused, Unavailable, OutsideError, Problem, OSError) as error:
            raise StandingFaultFailed(f"{description}: {error}", "@standing", "see the lab's logs") from error

    def end_unless(self, makes: Sequence[FaultFactory]) -> None:
        """Heal the faults, unless exactly `makes` are wanted and probes confirm them. Raises MachineError."""
        if self._faults and not self._are(makes):
            self.end()

    def end(self) -> None:
        """Heal the faults in reverse order."""
        self._faults = ()
        self._active.close()

    def _are(self, makes: Sequence[FaultFactory]) -> bool:
        if key(makes) != self._key or self._lab.usable_nodes()[:1] != [self._node]:
            return False
        return all(map(self._lab.safety.injector.is_active, self._faults))


def _record_nothing(*_args: object, **_kwargs: object) -> None:
    """Ignore the injector's steps: each recording describes the standing faults when it begins."""
