"""Provide a worker with the lab that each of its scenarios requires."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nodeproof.artifacts import csi
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.leases import InUse
from nodeproof.model.needs import ATTACHER
from nodeproof.model.plan import Size
from nodeproof.model.problem import Problem
from nodeproof.session.options import ANY, Options
from nodeproof.session.sharing import Retries, SharedLab, StartupLock, Throttle
from nodeproof.session.worker_lab import (
    LAB_ERRORS,
    AttachedLab,
    LabRequirements,
    OwnLab,
    SharedZone,
    WorkerLab,
)


@dataclass(frozen=True)
class RunLabs:
    """The labs of a run.

    Args:
        options: the options of the run.
        run: the run's folder.
        common: size of a zone of the shared lab.
        zones_shared: number of zones of the shared lab; 0 if there is none.
        workers: number of workers that begin with a lab start, which takes processors from all others.
    """

    options: Options
    run: Path
    common: Size
    zones_shared: int = 0
    workers: int = 0


class LabOpener:
    """Opens labs for a worker: starts one, attaches to a running one, or leases a zone of the shared one.

    Labs start and are calibrated one at a time, and no scenario begins before every worker has its first lab.
    A lab that starts later holds back the scenarios of all workers.

    Args:
        labs: the labs of the run.
        throttle: holds scenarios back.
        report: prints a line.
    """

    def __init__(self, labs: RunLabs, throttle: Throttle, report: Callable[[str], None]) -> None:
        self._labs, self._throttle, self._report = labs, throttle, report
        self._startup_lock = StartupLock(labs.run / "labs", labs.workers)
        zones = labs.zones_shared
        self.has_zones = zones > 0
        """Whether the workers share the zones of a lab."""
        self._shared = SharedLab(
            labs.run / "labs", lambda: self._start(Size(zones * labs.common.nodes, zones))
        )

    def open(self, size: Size) -> WorkerLab:
        """Start a lab for this worker alone, or attach to the lab of the options or to one of its zones.

        Raises:
            Problem: The lab cannot be started, or there is none to attach to.
        """
        self._heal_leftovers()
        options, run = self._labs.options, self._labs.run
        with self._startup_lock.alone():
            handle = self._start(size) if options.starts_lab else registry.attach(options.lab)
            try:
                if options.zone:
                    handle.lease("" if options.zone == ANY else options.zone)
                else:
                    handle.leases.take_lab()
            except Problem:
                handle.close()
                raise
        return (OwnLab if options.starts_lab else AttachedLab)(handle, size, run, self._report)

    def lease_zone(self) -> WorkerLab:
        """Lease a zone of the shared lab, which is started if there is none yet.

        Raises:
            InUse: No zone is free.
            Problem: The shared lab cannot be started.
        """
        self._heal_leftovers()
        with self._startup_lock.alone():
            handle, was_used = self._shared.lease_zone()
        labs = self._labs
        return SharedZone(handle, labs.common, labs.run, self._report, was_used, shared=self._shared)

    def get_ready(self, lab: WorkerLab) -> None:
        """Heal and calibrate an opened lab. Raises Problem, OutsideError, OSError."""
        with self._startup_lock.alone():
            lab.get_ready()
        self._startup_lock.wait(self._report)

    def _heal_leftovers(self) -> None:
        """Heal what earlier runs left in unused labs. Raises Problem."""
        options = self._labs.options
        registry.heal_abandoned(options.lab, self._report)
        if options.zone:
            registry.heal_unzoned(options.lab)

    def _start(self, size: Size) -> LabHandle:
        """Start a lab; after the first labs of all workers, while no scenario runs. Raises Problem."""
        with self._throttle.lab_start() if self._startup_lock.has_waited else contextlib.nullcontext():
            return self._start_now(size)

    def _start_now(self, size: Size) -> LabHandle:
        options = self._labs.options
        components = options.obtain(self._report)
        name = starting.new_name()
        # At its end the run tears down the labs that have a folder here.
        (self._labs.run / "labs" / name).mkdir(parents=True, exist_ok=True)
        registry.sweep()
        for folder in registry.unswept_folders():
            self._report(f"a killed start left files that only root can remove: sudo rm -rf {folder}")
        request = starting.LabRequest(
            name, size.nodes, size.zones, options.profile, keep=False, kind=options.kind, spread=size.spread,
            topology=options.topology, overrides=options.overrides,
        )  # fmt: skip
        return starting.up(request, components, self._report)


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
