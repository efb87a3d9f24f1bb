"""What a session runs on: where its run folder is, which lab, and what is written down when it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.artifacts.components import obtain
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.healing import heal_abandoned
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.leases import InUse
from nodeproof.labs.ground.profiles import profile_named
from nodeproof.labs.kinds import kind_named
from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import OutsideError, Problem
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
from nodeproof.session.options import Options
from nodeproof.session.sharing import Shared, give_back


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
    lab: Lab | None = None
    last_taint_t: float = field(default=float("-inf"))
    _size: Size | None = None
    _told_full: set[str] = field(default_factory=set)

    def get(self, size: Size, is_alone: bool) -> Lab:
        """The worker's lab of a size, started or attached to: all of it where the scenario `is_alone`, else
        maybe a zone. Raises Problem.
        """
        if self.lab is not None:
            if self._size == size and not (is_alone and self.lab.zone):
                return self.lab
            try:
                self.close()
            except (Problem, OutsideError, OSError) as problem:
                self.report(f"a lab could not be ended in order: {problem}")
        heal_abandoned(self.options.lab, self.report)
        self._size = size
        self.lab, was_used = self._own(size) if is_alone or not self.zones_shared else self._zone()
        # Whoever had it before may have taken of its rate limiter just now.
        self.last_taint_t = time.monotonic() if was_used and self.lab.zone else float("-inf")
        try:
            self._make_fit(self.lab, was_used)
        except (Problem, OutsideError, OSError) as problem:
            if not self.lab.zone:
                raise
            self.report(f"a lab for one worker takes over: {problem}")
            self.discard()
            self.lab, was_used = self._own(size)
            self._make_fit(self.lab, was_used)
        return self.lab

    def _own(self, size: Size) -> tuple[Lab, bool]:
        """A lab for this worker alone, and whether somebody may have had it before."""
        lab = self._start(size) if self.options.is_ours else registry.attach(self.options.lab)
        try:
            lab.leases.take_lab()
        except Problem:
            lab.close()
            raise
        return lab, not self.options.is_ours

    def _zone(self) -> tuple[Lab, bool]:
        """A zone of the shared lab, a lab of its own where none is free; and whether somebody had it."""
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
        lab.wait_nodes_ready()
        lab.prepare()
        calibration = lab.configuration.calibration
        offset = max((abs(value) for value in calibration.clock_offset_s.values()), default=0.0)
        self.report(
            f"calibrated: watch latency {calibration.watch_latency_s * 1000:.0f} ms, clock offsets up to "
            f"{offset * 1000:.0f} ms; slack is limited to {lab.profile.slack_limit_s:g} s"
        )
        self._note(lab)

    def clean(self, needs: Needs, size: Size, is_alone: bool) -> Lab:
        """The worker's lab of a size, maybe a zone where it is not `is_alone`, fit for a scenario that harms
        as many nodes as it needs; one of ours that isn't is replaced.

        Raises Problem when a new lab is not fit either, or a lab that we were given is not.
        """
        lab = self.get(size, is_alone)
        self.rest()
        try:
            lab.clean(needs)
        except (Problem, OutsideError, OSError) as problem:
            if not self.options.is_ours:
                raise
            self.report(f"{'another zone' if lab.zone else 'a new lab'} takes over: {problem}")
            self.discard()
            lab = self.get(size, is_alone)
            self.rest()
            lab.clean(needs)
        self._say_what_is_full(lab)
        return lab

    def _say_what_is_full(self, lab: Lab) -> None:
        for line in lab.life.full():
            if line not in self._told_full:
                self._told_full.add(line)
                self.report(line)

    def close(self) -> None:
        """Keep the logs and end the lab, if it is ours to end."""
        if self.lab is None:
            return
        lab, self.lab = self.lab, None
        try:
            self._note(lab)
            with contextlib.suppress(Problem):
                self._say_what_is_full(lab)
            if not lab.zone:
                self._keep_logs(lab)
        finally:
            self._end(lab)

    def _end(self, lab: Lab) -> None:
        if lab.zone or not self.options.is_ours:
            with contextlib.suppress(Problem, OutsideError, OSError):
                lab.tidy()
        if lab.zone:
            give_back(lab, self._keep_logs)
        elif self.options.is_ours:
            lab.down()
        else:
            lab.close()

    def _keep_logs(self, lab: Lab) -> None:
        lab.keep_logs(self.run / "labs")

    def discard(self) -> None:
        """Give up a lab, or a zone, that can't be trusted any more; the next scenario gets another."""
        with contextlib.suppress(Problem, OutsideError, OSError):
            if self.lab is not None:
                self.lab.fetch_journals()
        with contextlib.suppress(Problem, OutsideError, OSError):
            if self.lab is not None and self.lab.zone:
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
        components = obtain(self.options.components, self.options.kubernetes_version, self.report)
        name = starting.new_name()
        (self.run / "labs" / name).mkdir(parents=True, exist_ok=True)
        registry.sweep()
        asked = starting.Request(name, size.nodes, size.zones, self.options.profile, False, self.options.kind)
        return starting.up(asked, components, self.report)


def end_labs(run: Path, options: Options) -> list[str]:
    """Tear down labs of this run that outlived their worker; one attached to is not ours. Gives their
    names.
    """
    if not options.is_ours:
        return []
    mine = (
        {path.name for path in (run / "labs").iterdir() if path.is_dir()}
        if (run / "labs").is_dir()
        else set()
    )
    left = sorted(mine & set(registry.running()))
    for name in left:
        # Whoever was to keep them is gone.
        with (
            contextlib.suppress(Problem, OutsideError, OSError),
            contextlib.closing(registry.attach(name)) as lab,
        ):
            lab.keep_logs(run / "labs")
        registry.down(name)
    Shared.remove_files(run / "labs")
    return left


def write_run(
    run: Path, options: Options, began: datetime, command: str, selected: Sequence[str], reason: str
) -> tuple[Row, ...]:
    """Merge the workers' verdicts and write the run's facts; gives all rows."""
    create(run)
    rows = merge_verdicts(run)
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
    )
    write_facts(run, facts)
    point_latest(run.parent, run)
    return rows
