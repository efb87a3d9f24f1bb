"""Provide the labs of a session, and write the run's facts at its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.artifacts import csi
from nodeproof.artifacts.components import obtain
from nodeproof.kept import Detail
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.healing import heal_abandoned, heal_whole
from nodeproof.labs.client.lab import Lab, with_reasons
from nodeproof.labs.client.leases import InUse
from nodeproof.labs.client.resizing import resize
from nodeproof.labs.ground.profiles import profile_named
from nodeproof.labs.kinds import kind_named
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report import shards
from nodeproof.report.rundir import (
    Row,
    RunFacts,
    create,
    merge_verdicts,
    point_latest,
    read_json,
    write_facts,
    write_fields,
    write_json,
)
from nodeproof.session.asked import Make
from nodeproof.session.gate import Gate
from nodeproof.session.options import ANY, Options
from nodeproof.session.service import InService
from nodeproof.session.settling import Settling
from nodeproof.session.sharing import Shared, give_back
from nodeproof.session.standing import Standing

_MAX_JOINING = 2
"""Nodes that may join a lab beyond those it started with, for which its memory was sized."""


def _no_wait() -> None:
    """Return at once."""


@dataclass
class LabProvider:
    """The lab of one worker, or its zone of the shared lab, from its first scenario to the session's end."""

    options: Options
    run: Path
    report: Callable[[str], None]
    common: Size
    """Size of a zone of the shared lab."""
    zones_shared: int = 0
    slots: int = 0
    """Number of slots that begin with a lab start, which takes processors from all others."""
    lab_start: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    """Holds back the scenarios of other workers during a lab start, after the first labs are up."""
    leave: Callable[[], None] = _no_wait
    """Reports that this worker runs no scenario; a lab start of another worker waits for it."""
    lab: Lab | None = None
    last_taint_t: float = field(default=float("-inf"))
    _standing: Standing | None = None
    _settling: Settling = field(default_factory=Settling)
    _size: Size | None = None
    _gate: Gate = field(init=False)
    _was_alone: bool = False
    _reserved: tuple[Lab, bool] | None = None
    _reported_full: set[str] = field(default_factory=set)
    _in_service: InService = field(init=False)

    def __post_init__(self) -> None:
        self._gate = Gate(self.run / "labs", self.slots)
        self._in_service = InService(self.report)

    def get(self, size: Size, is_alone: bool) -> Lab:
        """Return the worker's lab of this size: start it, attach to it, or lease a zone of it.

        `is_alone` says whether the scenario needs a whole lab.

        Raises:
            Problem: There is no such lab, and none can be started.
        """
        is_left, self._was_alone = self._was_alone and not is_alone and self.zones_shared > 0, is_alone
        if self.lab is not None and not is_left:
            if self._size == size and not (is_alone and self.lab.zone):
                return self.lab
            with contextlib.suppress(Problem):
                # Do this before nodes leave, as their watches count too.
                self._settling.end(self.lab)
            if self._resize(self.lab, size):
                return self.lab
        if self.lab is not None:
            try:
                self.close()
            except (Problem, OutsideError, OSError) as problem:
                self.report(f"a lab could not be shut down cleanly: {problem}")
        heal_abandoned(self.options.lab, self.report)
        if self.options.zone:
            heal_whole(self.options.lab)
        self._size = size
        with self._gate.alone():
            lab = self._open(size, is_alone)
        self._gate.wait(self.report)
        return lab

    def _open(self, size: Size, is_alone: bool) -> Lab:
        """Open a lab or a zone and calibrate it, while no other lab starts."""
        self.lab, was_used = self._open_lab(size) if is_alone or not self.zones_shared else self._open_zone()
        # A previous user may just have used the zone's rate limiter.
        self.last_taint_t = time.monotonic() if was_used and self.lab.zone else float("-inf")
        try:
            self._make_fit(self.lab, was_used)
        except (Problem, OutsideError, OSError) as problem:
            if not self.lab.zone or not self.options.is_ours:
                raise
            self.report(f"zone unusable ({problem}); starting a dedicated lab")
            self.discard()
            self.lab, was_used = self._open_lab(size)
            self._make_fit(self.lab, was_used)
        return self.lab

    def _resize(self, lab: Lab, size: Size) -> bool:
        """Resize a lab of this run, as nodes join faster than a lab starts; return whether it worked."""
        if lab.zone or not self.options.is_ours or lab.safety.injector.quarantined or self._size is None:
            return False
        if self._size.zones != size.zones or self._size.spread or size.spread:
            return False
        if size.nodes > self._size.nodes + _MAX_JOINING:
            return False
        self.report(Detail(f"lab {lab.name}: resizing to {size.nodes} nodes"))
        try:
            self._end_standing()
            lab.tidy()
            resize(lab, size.nodes)
            self._make_fit(lab, was_used=False)
        except (Problem, OutsideError, OSError) as problem:
            self.report(f"resizing failed ({problem}); starting a new lab")
            return False
        self._size = size
        return True

    def _open_lab(self, size: Size) -> tuple[Lab, bool]:
        """Open a lab for this worker alone, or a zone of a running lab; return whether it was used before."""
        lab = self._start(size) if self.options.is_ours else registry.attach(self.options.lab)
        try:
            if self.options.zone:
                lab.lease("" if self.options.zone == ANY else self.options.zone)
            else:
                lab.leases.take_lab()
        except Problem:
            lab.close()
            raise
        return lab, not self.options.is_ours

    def reserve(self) -> None:
        """Lease a zone for later scenarios, so that the shared lab starts before anything is measured.

        Raises:
            Problem: The shared lab cannot be started.
        """
        if self.zones_shared and self.lab is None and self._reserved is None:
            with contextlib.suppress(InUse), self._gate.alone():
                self._reserved = self._shared.lease()

    def _open_zone(self) -> tuple[Lab, bool]:
        """Lease a zone of the shared lab, else start a lab; return whether it was used before."""
        if self._reserved is not None:
            reserved, self._reserved = self._reserved, None
            return reserved
        try:
            return self._shared.lease()
        except InUse as problem:
            self.report(f"{problem.what} ({problem.where}); starting a dedicated lab")
            return self._open_lab(self.common)

    @property
    def _shared(self) -> Shared:
        zones = self.zones_shared
        return Shared(self.run / "labs", lambda: self._start(Size(zones * self.common.nodes, zones)))

    def _make_fit(self, lab: Lab, was_used: bool) -> None:
        """Heal the faults that a previous user left, and calibrate the lab. Raises Problem."""
        lab.safety.injector.say = self.report
        unhealed = lab.safety.heal_unfinished() if was_used else []
        if unhealed:
            raise Problem(f"cannot heal: {', '.join(unhealed)}", f"lab {lab.name}", "run `nodeproof down`")
        if self.options.is_ours:
            lab.wait_nodes_ready()
        else:
            self._in_service.begin(lab)
        lab.prepare()
        calibration = lab.configuration.calibration
        offset = max((abs(value) for value in calibration.clock_offset_s.values()), default=0.0)
        self.report(
            Detail(
                f"calibrated: watch latency {calibration.watch_latency_s * 1000:.0f} ms, clock offsets up to "
                f"{offset * 1000:.0f} ms; slack is limited to {lab.profile.slack_limit_s:g} s"
            )
        )
        self._write_facts(lab)

    def _check_in_service(self, lab: Lab) -> None:
        """Check that all nodes of a lab of this run are in service, and report others. Raises Problem."""
        if lab.left_out and self.options.is_ours:
            nodes = f"out of service: {with_reasons(lab.left_out)}"
            raise Problem(nodes, f"lab {lab.name}", "see the scenario before")
        self._in_service.say(lab)

    def clean(
        self,
        needs: Needs,
        size: Size,
        is_alone: bool,
        standing: Sequence[Make] = (),
        enter: Callable[[], None] = _no_wait,
    ) -> Lab:
        """Return the worker's lab, cleaned for a scenario; replace a lab of this run that can't be cleaned.

        Args:
            needs: what the scenario needs of its lab.
            size: size of the lab or zone.
            is_alone: whether the scenario needs a whole lab.
            standing: faults to inject before the scenario.
            enter: waits for the scenario's turn, once there is a lab.

        Raises:
            Problem: The replacement cannot be cleaned either, or a lab that the run attached to cannot.
            DoesNotStand: A fault of `standing` could not be injected.
        """
        if ATTACHER in needs.components:
            csi.obtain(self.report)
        lab = self.get(size, is_alone)
        enter()
        self.rest()
        try:
            self._settling.end(lab)
            self._end_standing(lambda active: not active.is_fit(standing))
            lab.clean(needs)
            self._check_in_service(lab)
        except (Problem, OutsideError, OSError) as problem:
            if not self.options.is_ours:
                raise
            place, replacement = ("zone", "leasing another") if lab.zone else ("lab", "starting a new one")
            self.report(f"{place} unusable ({problem}); {replacement}")
            self.discard()
            lab = self.get(size, is_alone)
            enter()
            self.rest()
            lab.clean(needs)
        if standing and self._standing is None:
            self._standing = Standing(lab)
            self._standing.begin(standing, needs)
        self._settling.begin(lab, needs)
        self._report_full(lab)
        return lab

    def _end_standing(self, is_over: Callable[[Standing], bool] = lambda _active: True) -> None:
        """Heal the standing faults, if they are no longer needed."""
        if self._standing is not None and is_over(self._standing):
            active, self._standing = self._standing, None
            active.end()

    def _report_full(self, lab: Lab) -> None:
        for line in lab.life.full():
            if line not in self._reported_full:
                self._reported_full.add(line)
                self.report(line)

    def end(self) -> None:
        """End the worker's lab, and give a reserved zone back."""
        try:
            self.close()
        finally:
            if self._reserved is not None:
                (lab, _was_used), self._reserved = self._reserved, None
                give_back(lab, self._keep_logs)

    def close(self) -> None:
        """Keep the lab's logs, and end the lab if this run started it, else leave it."""
        if self.lab is None:
            return
        lab, self.lab = self.lab, None
        try:
            self._end_standing()
            self._write_facts(lab)
            with contextlib.suppress(Problem):
                self._report_full(lab)
            if not lab.zone or not self.options.is_ours:
                self._keep_logs(lab)
        finally:
            self._end(lab)

    def _end(self, lab: Lab) -> None:
        if lab.zone or not self.options.is_ours:
            with contextlib.suppress(Problem, OutsideError, OSError):
                lab.tidy()
        if not self.options.is_ours:
            lab.close()
        elif lab.zone:
            give_back(lab, self._keep_logs)
        else:
            lab.down()

    def _keep_logs(self, lab: Lab) -> None:
        lab.keep_logs(self.run / "labs")

    def discard(self) -> None:
        """Give up an unusable lab or zone; the next scenario gets another.

        The worker reports first that no scenario runs: another may hold the shared lab's lock until then.
        """
        self.leave()
        with contextlib.suppress(Problem, OutsideError, OSError):
            if self.lab is not None:
                self.lab.fetch_journals()
        with contextlib.suppress(Problem, OutsideError, OSError):
            if self.lab is not None and self.lab.zone and self.options.is_ours:
                self._give_up_zone(self.lab)
        with contextlib.suppress(Problem, OutsideError, OSError):
            self.close()

    def _give_up_zone(self, lab: Lab) -> None:
        """Exclude a zone of the shared lab, or the whole lab if its control plane died."""
        lab.leases.give_up_zone()
        try:
            has_control_plane = lab.life.has_control_plane()
        except Problem:
            has_control_plane = False
        if not has_control_plane:
            self._shared.forget(lab.name)

    def rest(self) -> None:
        """Wait until the zone's rate limiter is full again: 1/E after its last NoExecute taint."""
        if self.lab is None:
            return
        due = self.last_taint_t + 1 / self.lab.configuration["E"]
        threading.Event().wait(max(0.0, due - time.monotonic()))

    def _write_facts(self, lab: Lab) -> None:
        """Write the lab's versions, calibration and quarantined nodes, once it is calibrated."""
        if not lab.is_prepared:
            return
        facts = {
            "kubernetes_version": lab.configuration.kubernetes_version,
            "components": lab.configuration.components,
            "quarantined": sorted(lab.safety.injector.quarantined),
            "calibration": asdict(lab.configuration.calibration),
        }
        name = "-".join(filter(None, (lab.name, lab.zone)))
        write_json(self.run / "labs" / f"{name}.json", facts)
        write_fields(self.run, lab.configuration.fields)

    def _start(self, size: Size) -> Lab:
        with self.lab_start() if self._gate.is_open else contextlib.nullcontext():
            return self._start_now(size)

    def _start_now(self, size: Size) -> Lab:
        components = obtain(self.options.components, self.options.kubernetes_version, self.report)
        name = starting.new_name()
        (self.run / "labs" / name).mkdir(parents=True, exist_ok=True)
        registry.sweep()
        for folder in registry.unswept():
            self.report(f"a killed start left files that only root can remove: sudo rm -rf {folder}")
        run = (self.options.profile, False, self.options.kind)
        request = starting.Request(name, size.nodes, size.zones, *run, size.spread, self.options.entries)
        return starting.up(request, components, self.report)


def write_run(
    run: Path, options: Options, began: datetime, command: str, selected: Sequence[str], reason: str
) -> tuple[Row, ...]:
    """Merge the workers' verdicts, write the run's facts, and return all rows."""
    create(run)
    rows = merge_verdicts(run)
    shard = shards.read(run)
    labs = [read_json(path) for path in sorted((run / "labs").glob("*.json"))]
    facts = RunFacts(
        run=run.name,
        began=began.isoformat(),
        ended=datetime.now(UTC).isoformat(),
        lab=options.kind,
        profile=options.profile,
        kubernetes_version=labs[0]["kubernetes_version"] if labs else options.kubernetes_version,
        command=command,
        components=labs[0]["components"] if labs else {},
        settings=tuple(kind_named(options.kind).settings(profile_named(options.profile))),
        quarantined=tuple(sorted({node for lab in labs for node in lab.get("quarantined", ())})),
        selected=tuple(selected),
        exit_reason=reason,
        shard=shard.to_json() if shard else None,
    )
    write_facts(run, facts)
    point_latest(run.parent, run)
    return rows
