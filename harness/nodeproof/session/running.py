"""What a session runs on: where its run folder is, which lab, and what is written down when it ends."""

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

_MOST_MORE = 2
"""Nodes that may join a lab whose memory was sized for those that it started with."""


def _at_once() -> None:
    """Wait for nobody."""


@dataclass
class LabProvider:
    """One worker's lab, or its zone of the lab that the run's workers share: made when the first scenario
    wants it, gone when the session ends.
    """

    options: Options
    run: Path
    report: Callable[[str], None]
    common: Size
    """Of a zone of the shared lab."""
    zones_shared: int = 0
    slots: int = 0
    """As many begin with a lab that takes processors from the others when it starts."""
    lab_start: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    """Holds scenarios back while a lab starts, once the first ones are up."""
    leave: Callable[[], None] = _at_once
    """Says that no scenario of this worker runs any more: who starts a lab waits for that."""
    lab: Lab | None = None
    last_taint_t: float = field(default=float("-inf"))
    _standing: Standing | None = None
    _settling: Settling = field(default_factory=Settling)
    _size: Size | None = None
    _gate: Gate = field(init=False)
    _was_alone: bool = False
    _reserved: tuple[Lab, bool] | None = None
    _told_full: set[str] = field(default_factory=set)
    _in_service: InService = field(init=False)

    def __post_init__(self) -> None:
        self._gate = Gate(self.run / "labs", self.slots)
        self._in_service = InService(self.report)

    def get(self, size: Size, is_alone: bool) -> Lab:
        """The worker's lab of a size, started or attached to: all of it where the scenario `is_alone`, else
        maybe a zone. Raises Problem.
        """
        leaves, self._was_alone = self._was_alone and not is_alone and self.zones_shared > 0, is_alone
        if self.lab is not None and not leaves:
            if self._size == size and not (is_alone and self.lab.zone):
                return self.lab
            with contextlib.suppress(Problem):
                # Before nodes leave, whose watches are counted, too.
                self._settling.end(self.lab)
            if self._is_resized(self.lab, size):
                return self.lab
        if self.lab is not None:
            try:
                self.close()
            except (Problem, OutsideError, OSError) as problem:
                self.report(f"a lab could not be ended in order: {problem}")
        heal_abandoned(self.options.lab, self.report)
        if self.options.zone:
            heal_whole(self.options.lab)
        self._size = size
        with self._gate.alone():
            lab = self._begin(size, is_alone)
        self._gate.wait(self.report)
        return lab

    def _begin(self, size: Size, is_alone: bool) -> Lab:
        """A lab, or a zone, and what can be said of how well time is told in it while no other starts."""
        self.lab, was_used = self._own(size) if is_alone or not self.zones_shared else self._zone()
        # Whoever had it before may have taken of its rate limiter just now.
        self.last_taint_t = time.monotonic() if was_used and self.lab.zone else float("-inf")
        try:
            self._make_fit(self.lab, was_used)
        except (Problem, OutsideError, OSError) as problem:
            if not self.lab.zone or not self.options.is_ours:
                raise
            self.report(f"a lab for one worker takes over: {problem}")
            self.discard()
            self.lab, was_used = self._own(size)
            self._make_fit(self.lab, was_used)
        return self.lab

    def _is_resized(self, lab: Lab, size: Size) -> bool:
        """Whether a lab of ours could be made that large by nodes that join or leave: faster than another."""
        if lab.zone or not self.options.is_ours or lab.safety.injector.quarantined or self._size is None:
            return False
        if self._size.zones != size.zones or self._size.spread or size.spread:
            return False
        if size.nodes > self._size.nodes + _MOST_MORE:
            return False
        self.report(Detail(f"lab {lab.name}: from now on {size.nodes} nodes"))
        try:
            self._end_standing()
            lab.tidy()
            resize(lab, size.nodes)
            self._make_fit(lab, was_used=False)
        except (Problem, OutsideError, OSError) as problem:
            self.report(f"a new lab takes over: {problem}")
            return False
        self._size = size
        return True

    def _own(self, size: Size) -> tuple[Lab, bool]:
        """A lab for this worker alone, or its zone of one that runs, and whether somebody may have had it
        before.
        """
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
        """Lease a zone for what comes later, so that the shared lab starts before anything is measured.
        Raises Problem.
        """
        if self.zones_shared and self.lab is None and self._reserved is None:
            with contextlib.suppress(InUse), self._gate.alone():
                self._reserved = self._shared.lease()

    def _zone(self) -> tuple[Lab, bool]:
        """A zone of the shared lab, a lab of its own where none is free; and whether somebody had it."""
        if self._reserved is not None:
            reserved, self._reserved = self._reserved, None
            return reserved
        try:
            return self._shared.lease()
        except InUse as problem:
            self.report(f"a lab for one worker: {problem}")
            return self._own(self.common)

    @property
    def _shared(self) -> Shared:
        zones = self.zones_shared
        return Shared(self.run / "labs", lambda: self._start(Size(zones * self.common.nodes, zones)))

    def _make_fit(self, lab: Lab, was_used: bool) -> None:
        """Heal what was left, where somebody may have left something, and measure. Raises Problem."""
        lab.safety.injector.say = self.report
        left = lab.safety.heal_unfinished() if was_used else []
        if left:
            raise Problem(f"cannot heal: {', '.join(left)}", f"lab {lab.name}", "run `nodeproof down`")
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
        self._note(lab)

    def _check_in_service(self, lab: Lab) -> None:
        """Of a lab of ours nobody else takes nodes out of service: it is not as it was. Raises Problem."""
        if lab.left_out and self.options.is_ours:
            said = f"out of service: {with_reasons(lab.left_out)}"
            raise Problem(said, f"lab {lab.name}", "see the scenario before")
        self._in_service.say(lab)

    def clean(
        self,
        needs: Needs,
        size: Size,
        is_alone: bool,
        standing: Sequence[Make] = (),
        enter: Callable[[], None] = _at_once,
    ) -> Lab:
        """The worker's lab of a size, maybe a zone where it is not `is_alone`, fit for a scenario that harms
        as many nodes as it needs, with what is `standing` before it; one of ours that isn't is replaced.

        `enter` waits for the scenario's turn, once there is a lab.
        Raises Problem when a new lab is not fit either, or a lab that we were given is not, DoesNotStand.
        """
        if ATTACHER in needs.components:
            csi.obtain(self.report)
        lab = self.get(size, is_alone)
        enter()
        self.rest()
        try:
            self._settling.end(lab)
            self._end_standing(lambda stands: not stands.is_fit(standing))
            lab.clean(needs)
            self._check_in_service(lab)
        except (Problem, OutsideError, OSError) as problem:
            if not self.options.is_ours:
                raise
            self.report(f"{'another zone' if lab.zone else 'a new lab'} takes over: {problem}")
            self.discard()
            lab = self.get(size, is_alone)
            enter()
            self.rest()
            lab.clean(needs)
        if standing and self._standing is None:
            self._standing = Standing(lab)
            self._standing.begin(standing, needs)
        self._settling.begin(lab, needs)
        self._say_what_is_full(lab)
        return lab

    def _end_standing(self, is_over: Callable[[Standing], bool] = lambda _stands: True) -> None:
        """Heal what stands, where nobody asks for it any more."""
        if self._standing is not None and is_over(self._standing):
            stands, self._standing = self._standing, None
            stands.end()

    def _say_what_is_full(self, lab: Lab) -> None:
        for line in lab.life.full():
            if line not in self._told_full:
                self._told_full.add(line)
                self.report(line)

    def end(self) -> None:
        """Close what the worker has, at its end."""
        try:
            self.close()
        finally:
            if self._reserved is not None:
                (lab, _had), self._reserved = self._reserved, None
                give_back(lab, self._keep_logs)

    def close(self) -> None:
        """Keep the logs and end the lab, if it is ours to end."""
        if self.lab is None:
            return
        lab, self.lab = self.lab, None
        try:
            self._end_standing()
            self._note(lab)
            with contextlib.suppress(Problem):
                self._say_what_is_full(lab)
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
        """Give up a lab, or a zone, that can't be trusted any more; the next scenario gets another.

        The worker leaves first: another may hold the shared lab's lock until no scenario runs.
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
        """Of a shared lab the zone is out, and where a component died that all need, the lab."""
        lab.leases.give_up_zone()
        try:
            lives = lab.life.has_control_plane()
        except Problem:
            lives = False
        if not lives:
            self._shared.forget(lab.name)

    def rest(self) -> None:
        """Wait until the zone's rate limiter is full again: 1/E since its last NoExecute taint."""
        if self.lab is None:
            return
        due = self.last_taint_t + 1 / self.lab.configuration["E"]
        threading.Event().wait(max(0.0, due - time.monotonic()))

    def _note(self, lab: Lab) -> None:
        """Write down what the lab ran and which nodes could not be proven healed, once that is known."""
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
            return self._started(size)

    def _started(self, size: Size) -> Lab:
        components = obtain(self.options.components, self.options.kubernetes_version, self.report)
        name = starting.new_name()
        (self.run / "labs" / name).mkdir(parents=True, exist_ok=True)
        registry.sweep()
        for folder in registry.unswept():
            self.report(f"a killed start left what only root may remove: sudo rm -rf {folder}")
        run = (self.options.profile, False, self.options.kind)
        asked = starting.Request(name, size.nodes, size.zones, *run, size.spread, self.options.entries)
        return starting.up(asked, components, self.report)


def write_run(
    run: Path, options: Options, began: datetime, command: str, selected: Sequence[str], reason: str
) -> tuple[Row, ...]:
    """Merge the workers' verdicts and write the run's facts; gives all rows."""
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
