"""The plan of a run: the duration of each scenario, the worker that runs it, and xdist's scheduling by that.

A duration comes from earlier runs with the same kind of lab and profile, else from the shipped times, else
from `duration_s` of the scenario, else from whether the scenario has a fault.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.base.profiles import profile_named, symbols
from nodeproof.model.formula import Term
from nodeproof.model.needs import FAULTED_S, Needs
from nodeproof.model.pattern import Json
from nodeproof.model.plan import (
    NOT_HERE,
    ScenarioEstimate,
    Shard,
    Size,
    WorkerPlan,
    critical,
    divide,
    movable,
    shares,
)
from nodeproof.model.problem import Problem
from nodeproof.report import rundir
from nodeproof.report.plain import duration
from nodeproof.report.rundir import PLAN, TIMES, read_json, write_json
from nodeproof.session import markers, storm
from nodeproof.session.options import Options

START = "start"
"""The key of a lab start among the durations of scenarios."""
ENDED = "nodeproof_ended"
"""Report property: the scenario ran to its end, whatever its verdict."""
WAITED = "nodeproof_waited"
"""Report property: how long (s) the scenario waited for its turn."""
_PHASES = ("setup", "call", "teardown")
SHIPPED = "times.json"
"""File in `scenarios/` with the times (s) of a whole run on two cores, by profile and kind of lab."""
MAX_TIMES = 5
"""Number of the last durations of a scenario that count; older ones say little about it."""
_MAX_RUNS = 50
QUICK, FAULTED, STARTING = Term.of("5"), Term.of(FAULTED_S), Term.of("15")
"""Default durations of a scenario without a fault, of one with faults, and of a lab start."""


class DurationRecorder:
    """A pytest plugin that measures durations, in the process that receives all reports."""

    def __init__(self) -> None:
        self._phases: dict[str, dict[str, float]] = {}
        self._worker: dict[str, str] = {}
        self._ended: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a phase's duration, whatever its outcome."""
        if report.when in _PHASES:
            phases = self._phases.setdefault(report.nodeid, {})
            # Of a retried scenario, keep the first setup, which may include a lab start, and the last call.
            if report.when == "setup":
                waits = (value for name, value in report.user_properties if name == WAITED)
                waited_s = sum(float(str(value)) for value in waits)
                phases.setdefault("setup", report.duration - waited_s)
            else:
                phases[report.when] = report.duration
            self._worker.setdefault(report.nodeid, str(getattr(report, "worker_id", "")))
        if (ENDED, True) in report.user_properties:
            self._ended.add(report.nodeid)

    def durations(self, scenarios: Collection[str]) -> Mapping[str, float]:
        """Return the durations (s) of completed scenarios, and of a lab start.

        The setup of a worker's first scenario includes a lab start, or takes a running lab: the median of
        these setups is the duration of a start.
        """
        complete = {
            name: phases
            for name, phases in self._phases.items()
            if name in scenarios and name in self._ended and len(phases) == len(_PHASES)
        }
        first: dict[str, str] = {}
        for name in self._phases:
            if name in scenarios and "call" in self._phases[name]:
                first.setdefault(self._worker[name], name)
        with_start = set(first.values()) & complete.keys()
        starts = [complete[name]["setup"] for name in with_start]
        durations_s = {START: statistics.median(starts)} if starts else {}
        for name, phases in complete.items():
            durations_s[name] = sum(phases.values()) - (phases["setup"] if name in with_start else 0.0)
        return durations_s


def durations(times: str | None, out: Path, options: Options) -> Mapping[str, float]:
    """Return the durations (s) of scenarios and of a lab start.

    They come from the file `times`; without it from the shipped times, overridden by earlier runs in `out`.

    Raises:
        Problem: No times can be read from the file.
    """
    if not times:
        return {**shipped(options), **earlier(out, options)}
    durations_s = rundir.read_times(Path(times).resolve())
    if not durations_s:
        raise Problem("no durations of scenarios can be read", times, f"use the {TIMES} of a run")
    return durations_s


def earlier(out: Path, options: Options) -> Mapping[str, float]:
    """Return the median durations (s) of scenarios and of a lab start in the last runs of the same kind."""
    durations_s: dict[str, list[float]] = {}
    runs = sorted(out.glob(f"*-{options.planned_name}-{options.kind}-*/{TIMES}"), reverse=True)
    for path in runs[:_MAX_RUNS]:
        for scenario, took_s in rundir.read_times(path.resolve()).items():
            durations_s.setdefault(scenario, []).append(took_s)
    return {scenario: statistics.median(times[:MAX_TIMES]) for scenario, times in durations_s.items()}


def shipped(options: Options) -> Mapping[str, float]:
    """Return the shipped durations (s) of scenarios and of a lab start, the same on every machine.

    Raises:
        Problem: The shipped file cannot be read.
    """
    all_times: Mapping[str, Mapping[str, float]] = read_json((scenarios_dir() / SHIPPED).resolve())
    times = all_times.get(f"{options.profile}-{options.kind}", {})
    # Node ids are relative to the checkout, or to the folder `scenarios` of an installation.
    return {**times, **{f"scenarios/{name}": took_s for name, took_s in times.items() if "::" in name}}


def shards(
    scenarios: Sequence[pytest.Item], options: Options, count: int, durations_s: Mapping[str, float]
) -> tuple[tuple[ScenarioEstimate, ...], ...]:
    """Divide all scenarios into shards of about the same length.

    `count` is the number of shards. The known durations (s) must come from a file, not from this machine's
    own runs, so that the result is the same on every machine.
    """
    common = markers.common_size(map(markers.needs, scenarios), options)
    estimates = (estimate(item, options, durations_s, common) for item in scenarios)
    return divide(estimates, count, start_s(options, durations_s))


def zones(worker_plans: Sequence[WorkerPlan], options: Options, common: Size) -> int:
    """Return the number of zones of the shared lab: one per worker that needs one, up to the lab's limit.

    A worker without a free zone starts a lab of its own.
    """
    needed = sum(shares(worker_plan, worker_plans) for worker_plan in worker_plans)
    return min(needed, options.lab_kind.limits.nodes // common.nodes)


def in_use(worker_plans: Iterable[WorkerPlan]) -> int:
    """Return the number of workers with a scenario to run."""
    return sum(any(scenario.runs_here for scenario in worker_plan.scenarios) for worker_plan in worker_plans)


def estimate(
    item: pytest.Item, options: Options, durations_s: Mapping[str, float], common: Size
) -> ScenarioEstimate:
    """Return the estimate of a scenario. One that can't prove anything here takes no time.

    Args:
        item: the scenario.
        options: the options of the run.
        durations_s: known durations (s), by scenario.
        common: size of a lab, or of a zone of the shared lab.
    """
    missing = markers.why_unprovable(item, options)
    if missing is not None:
        return ScenarioEstimate(item.nodeid, 0.0, f"{NOT_HERE}{missing[0]}")
    needs = markers.needs(item)
    term = Term.of(needs.duration_s) if needs.duration_s else FAULTED if needs.faulted else QUICK
    measured = (durations_s[item.nodeid], "measured") if item.nodeid in durations_s else None
    grace_s = _duration_s(Term.of("G"), options.profile)
    faults_s = storm.expected_s(item, grace_s)
    # Earlier storms had other budgets. After the last fault, everything recovers.
    budget = None if faults_s is None else (faults_s + grace_s, "the storm's budget")
    duration_s, source = budget or measured or (_duration_s(term, options.profile), term.text)
    size = markers.size(needs, options) if markers.is_large(needs, options) else common
    affected = (targets(needs, size.nodes), markers.fault_names(item))
    own_size = None if size == common else size
    standing = markers.key(markers.standing(item))
    return ScenarioEstimate(item.nodeid, duration_s, source, needs.is_alone, *affected, own_size, standing)


def targets(needs: Needs, nodes: int) -> str:
    """Describe what a scenario's faults may affect in a lab or zone of `nodes` nodes; empty if nothing."""
    affected_nodes = f"{needs.faulted} of {nodes} nodes" if needs.faulted else ""
    return ", ".join(filter(None, (affected_nodes, *needs.components)))


def _duration_s(term: Term, profile: str) -> float:
    return term.value(symbols(profile_named(profile)).__getitem__)


def start_s(options: Options, durations_s: Mapping[str, float]) -> float:
    """Return how long (s) the start of a lab of this kind is expected to take."""
    return durations_s.get(START, _duration_s(STARTING, options.profile))


def in_order(items: Sequence[pytest.Item], worker_plans: Sequence[WorkerPlan]) -> list[pytest.Item]:
    """Sort items by the plan: those that stay with a worker, movable ones, then tests without claims."""
    moves = movable(worker_plans)
    fixed = [scenario for scenario in _scenarios_of(worker_plans) if scenario not in moves]
    order = {scenario.scenario: number for number, scenario in enumerate([*fixed, *moves])}
    return sorted(items, key=lambda item: order.get(item.nodeid, len(order)))


def in_item_order(items: Sequence[pytest.Item], worker_plan: WorkerPlan) -> tuple[WorkerPlan, ...]:
    """Return the plan of a run without xdist: one worker with the scenarios in the order of the items."""
    by_nodeid = {scenario.scenario: scenario for scenario in worker_plan.scenarios}
    return (WorkerPlan(tuple(by_nodeid[item.nodeid] for item in items if item.nodeid in by_nodeid)),)


def _scenarios_of(worker_plans: Sequence[WorkerPlan]) -> Iterator[ScenarioEstimate]:
    for worker_plan in worker_plans:
        yield from worker_plan.scenarios


def write(run: Path, worker_plans: Sequence[WorkerPlan], start_s: float) -> None:
    """Write the plan into the run's folder, for the scheduler and the comparison at the end."""

    def planned(expected: ScenarioEstimate) -> Mapping[str, Json]:
        return {"scenario": expected.scenario, "lasts_s": round(expected.duration_s, 3)}

    slots = [list(map(planned, worker_plan.scenarios)) for worker_plan in worker_plans]
    moves = [expected.scenario for expected in movable(worker_plans)]
    write_json(run / PLAN, {"start_s": round(start_s, 3), "slots": slots, "moves": moves})


def write_times(run: Path, times: Mapping[str, float]) -> None:
    """Write the measured durations (s) of scenarios and of a lab start into the run's folder."""
    write_json(run / TIMES, {name: round(took_s, 3) for name, took_s in times.items()})


def worker_of(run: Path) -> Mapping[str, str]:
    """Return the worker's name of each scenario that stays with it; empty if the run has no plan.

    Raises:
        Problem: The plan cannot be read.
    """
    plan = _read(run)
    return {
        planned["scenario"]: f"worker {number}"
        for number, worker_plan in enumerate(plan["slots"], 1)
        for planned in worker_plan
        if planned["scenario"] not in plan["moves"]
    }


def planned_s(run: Path) -> Mapping[str, float]:
    """Return the planned duration (s) of each scenario; empty if the run has no plan. Raises Problem."""
    return {
        planned["scenario"]: float(planned["lasts_s"])
        for worker_plan in _read(run)["slots"]
        for planned in worker_plan
    }


def _read(run: Path) -> Mapping[str, Any]:
    """Return the plan in the run's folder; without workers if there is none. Raises Problem."""
    path = run / PLAN
    return read_json(path) if path.exists() else {"start_s": 0.0, "slots": [], "moves": []}


def describe_shard(shard: Shard, last_s: Sequence[float]) -> str:
    """Return a line with this shard's number of scenarios and the expected length (s) of each shard."""
    total, own = sum(map(len, shard.parts)), len(shard.parts[shard.number - 1])
    lengths = ", ".join(f"{shard_s:.0f}" for shard_s in last_s)
    return f"{shard.name}: {own} of {total} scenarios; the shards, with one worker each: {lengths} s"


def describe(
    worker_plans: Sequence[WorkerPlan], options: Options, start_s: float, common: Size, zones_shared: int
) -> Iterator[str]:
    """Yield the plan as text: workers, scenarios, faults, the critical path and the expected end."""
    last = critical(worker_plans)
    for number, worker_plan in enumerate(worker_plans, 1):
        here = [scenario for scenario in worker_plan.scenarios if scenario.runs_here]
        place = _describe_place(here, options, common, zones_shared)
        path = ", the critical path" if worker_plan is last else ""
        yield f"worker {number}: {f'{worker_plan.duration_s:.0f} s in {place}{path}' if here else 'nothing'}"
        yield from _describe_scenarios(here)
    scenarios = list(_scenarios_of(worker_plans))
    for scenario in scenarios:
        if not scenario.runs_here:
            yield f"{NOT_HERE}{scenario.scenario}  ({scenario.source.removeprefix(NOT_HERE)})"
    for fault in sorted({fault for scenario in scenarios for fault in scenario.faults}):
        yield f"{fault}: {markers.fault_summary(fault)}"
    # A lab is resized, not replaced, if only its number of nodes changes.
    sizes = _lab_sizes(last.scenarios, common, zones_shared)
    labs = max(1, len({(size.zones, size.spread) for size in sizes}))
    end_s, total_s = labs * start_s + last.duration_s, sum(scenario.duration_s for scenario in scenarios)
    start = f"({start_s:.0f} s for the start of a lab)"
    yield f"expected end: {end_s:.0f} s {start}; scenarios together: {total_s:.0f} s"


def _describe_place(
    scenarios: Sequence[ScenarioEstimate], options: Options, common: Size, zones_shared: int
) -> str:
    """Describe the labs of a worker, and then its zone of the shared lab."""
    lab = f"{options.kind} lab, profile {options.profile}"
    lab = f"zone of lab {options.lab}, a {lab}" if options.zone else lab
    sizes = _lab_sizes(scenarios, common, zones_shared)
    places = [f"a {lab}, {', then '.join(map(str, sizes))}"] if sizes else []
    if zones_shared and not all(scenario.is_alone for scenario in scenarios):
        places.append(f"a zone of a {lab}, {common.nodes} nodes in each, zones: {zones_shared}")
    return ", then ".join(places)


def _lab_sizes(scenarios: Iterable[ScenarioEstimate], common: Size, zones_shared: int) -> Sequence[Size]:
    """Return the sizes of the labs that a worker does not share, in their order."""
    own = [
        scenario for scenario in scenarios if scenario.runs_here and (scenario.is_alone or not zones_shared)
    ]
    return list(dict.fromkeys(scenario.size or common for scenario in own))


def _describe_scenarios(scenarios: Sequence[ScenarioEstimate]) -> Iterator[str]:
    """Yield lines for a worker's scenarios, with what each may affect and its standing faults."""
    previous = ""
    for scenario in scenarios:
        yield f"{scenario.duration_s:7.1f} s  {scenario.scenario}  ({scenario.source})"
        if scenario.targets:
            yield f"{'':11}affects {scenario.targets}: {', '.join(scenario.faults) or 'see its code'}"
        if scenario.standing:
            is_same = scenario.standing == previous
            faults = "the same" if is_same else ", ".join(markers.describe_faults(scenario.standing))
            yield f"{'':11}injected before it: {faults}"
        previous = scenario.standing


def compare(run: Path, took_s: float) -> str:
    """Describe how long the run took, and how long it was planned to take if it has a plan."""
    took = f"took {duration(took_s)}"
    try:
        plan = _read(run)
    except Problem:
        return took
    if not plan["slots"]:
        return took
    longest_s = max(sum(scenario["lasts_s"] for scenario in worker_plan) for worker_plan in plan["slots"])
    return f"{took}, planned {duration(plan['start_s'] + longest_s)}"


class PlanScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduling by scope, whose scopes are groups: the tests of a group run on one worker, in order.

    The first idle worker takes the next group, in the order of the collection. A test without a group is a
    group of its own. If a worker dies, others continue its groups after the test in which it died.

    Args:
        config: pytest's configuration of the controller.
        read_groups: returns the group of each test that has one, once all workers have collected.
    """

    def __init__(self, config: pytest.Config, read_groups: Callable[[], Mapping[str, str]]) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, Producer("nodeproof", enabled=False))
        self._read_groups = read_groups
        self._group_of: Mapping[str, str] = {}

    @property
    def collection_is_completed(self) -> bool:
        """Whether all workers have collected; a death does not take that back."""
        return self.collection is not None or bool(super().collection_is_completed)

    def schedule(self) -> None:
        """Begin once all workers have collected; later give tests to a replacement that has collected."""
        if self.collection is None:
            self._group_of = self._read_groups()
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the worker died, and let others run the rest of its groups.

        xdist alone would run that test again, and queue groups that have nothing left to run.

        Raises:
            KeyError: The worker died before it was added.
        """
        groups = self.assigned_work[node].items()
        pending = [test for _group, tests in groups for test, has_ended in tests.items() if not has_ended]
        self.registered_collections.pop(node, None)
        rest: dict[str, dict[str, bool]] = {}
        for test in pending[1:]:
            rest.setdefault(self._split_scope(test), {})[test] = False
        self.assigned_work[node] = rest
        super().remove_node(node)
        return pending[0] if pending else None

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of.get(nodeid, nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker more tests, unless it is a replacement that has not collected them yet."""
        if node in self.registered_collections:
            super()._reschedule(node)


def set_current_item(item: pytest.Item) -> None:
    """Let this worker's xdist accept reports of an item that no scheduling sent it, as of a retry.

    xdist has no public interface for it: `WorkerInteractor.pytest_runtest_logreport` (xdist/remote.py)
    compares the reports with the last item that it was sent.
    """
    for plugin in item.config.pluginmanager.get_plugins():
        # In a worker xdist runs this module as a script, so the class differs from the importable one.
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.item_index = item.session.items.index(item)
