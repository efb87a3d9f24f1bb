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
from nodeproof.labs.ground.profiles import profile_named
from nodeproof.labs.kinds import kind_named
from nodeproof.model.needs import Needs
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


@dataclass
class LabProvider:
    """One worker's lab: made when the first scenario wants it, gone when the session ends."""

    options: Options
    run: Path
    report: Callable[[str], None]
    lab: Lab | None = None
    last_taint_t: float = field(default=float("-inf"))
    _told_full: set[str] = field(default_factory=set)

    def get(self) -> Lab:
        """The worker's lab, started or attached to. Raises Problem."""
        if self.lab is not None:
            return self.lab
        heal_abandoned(self.options.lab, self.report)
        lab = self._start() if self.options.is_ours else registry.attach(self.options.lab)
        lab.safety.injector.say = self.report
        try:
            lab.life.reserve()
        except Problem:
            lab.close()
            raise
        self.lab = lab
        left = self.lab.safety.heal_unfinished()
        if left:
            raise Problem(f"cannot heal: {', '.join(left)}", f"lab {self.lab.name}", "run `nodeproof down`")
        self.lab.wait_nodes_ready()
        self.lab.prepare()
        calibration = self.lab.configuration.calibration
        offset = max((abs(value) for value in calibration.clock_offset_s.values()), default=0.0)
        self.report(
            f"calibrated: watch latency {calibration.watch_latency_s * 1000:.0f} ms, clock offsets up to "
            f"{offset * 1000:.0f} ms; slack is limited to {self.lab.profile.slack_limit_s:g} s"
        )
        self._note(self.lab)
        return self.lab

    def clean(self, needs: Needs) -> Lab:
        """The worker's lab, fit for a scenario that harms as many nodes as it needs; one of ours that isn't
        is replaced.

        Raises Problem when a new lab is not fit either, or a lab that we were given is not.
        """
        lab = self.get()
        self.rest()
        try:
            lab.clean(needs)
        except (Problem, OutsideError, OSError) as problem:
            if not self.options.is_ours:
                raise
            self.report(f"a new lab takes over: {problem}")
            self.discard()
            lab = self.get()
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
            lab.keep_logs(self.run / "labs")
        finally:
            if self.options.is_ours:
                lab.down()
            else:
                with contextlib.suppress(Problem, OutsideError, OSError):
                    lab.tidy()
                lab.close()

    def discard(self) -> None:
        """Give up a lab that can't be trusted any more; the next scenario gets a new one."""
        with contextlib.suppress(Problem, OutsideError, OSError):
            if self.lab is not None:
                self.lab.fetch_journals()
        with contextlib.suppress(Problem, OutsideError, OSError):
            self.close()

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
        write_json(self.run / "labs" / f"{lab.name}.json", facts)
        write_fields(self.run, lab.configuration.fields)

    def _start(self) -> Lab:
        components = obtain(self.options.components, self.options.kubernetes_version, self.report)
        name = starting.new_name()
        (self.run / "labs" / name).mkdir(parents=True, exist_ok=True)
        registry.sweep()
        asked = starting.Request(
            name, self.options.nodes, self.options.zones, self.options.profile, False, self.options.kind
        )
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
        registry.down(name)
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
