"""The plan of a run: the expected duration of each scenario, and the slot in which it runs.

A duration comes from earlier runs with the same kind of lab and profile, else from the shipped times, else
from `lasts` of the scenario, else from whether the scenario has a fault.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.ground.profiles import Profile, profile_named, symbols
from nodeproof.labs.kinds import kind_named
from nodeproof.model.plan import NOT_HERE, Expected, Size, Slot, critical, divide, movable, pack, shares
from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard
from nodeproof.model.term import Term
from nodeproof.report.rundir import TIMES, read_json, write_json
from nodeproof.report.table import duration
from nodeproof.session import asked, harm
from nodeproof.session.options import Options
from nodeproof.session.times import START

PLAN = "plan.json"
SHIPPED = "times.json"
"""File in `scenarios/` with the times (s) of a whole run on two cores, by profile and kind of lab."""
MOST_TIMES = 5
"""Number of the last durations of a scenario that count; older ones say little about it."""
_MAX_RUNS = 50
QUICK, HARMING, STARTING = Term.of("5"), Term.of("2G + 15"), Term.of("15")
"""Default durations of a scenario without a fault, of one with faults, and of a lab start."""


def durations(times: str | None, out: Path, options: Options) -> Mapping[str, float]:
    """Return the durations (s) of scenarios and of a lab start.

    They come from the file `times`; without it from the shipped times, overridden by earlier runs in `out`.

    Raises:
        Problem: No times can be read from the file.
    """
    return told(Path(times)) if times else {**shipped(options), **earlier(out, options)}


def earlier(out: Path, options: Options) -> Mapping[str, float]:
    """Return the median durations (s) of scenarios and of a lab start in the last runs of the same kind."""
    durations_s: dict[str, list[float]] = {}
    runs = sorted(out.glob(f"*-{options.profile}-{options.kind}-*/{TIMES}"), reverse=True)
    for path in runs[:_MAX_RUNS]:
        for scenario, took_s in _read_times(path).items():
            durations_s.setdefault(scenario, []).append(took_s)
    return {scenario: statistics.median(times[:MOST_TIMES]) for scenario, times in durations_s.items()}


def shipped(options: Options) -> Mapping[str, float]:
    """Return the shipped durations (s) of scenarios and of a lab start, the same on every machine.

    Raises:
        Problem: The shipped file cannot be read.
    """
    all_times: Mapping[str, Mapping[str, float]] = read_json((scenarios_dir() / SHIPPED).resolve())
    times = all_times.get(f"{options.profile}-{options.kind}", {})
    # Node ids are relative to the checkout, or to the folder `scenarios` of an installation.
    return {**times, **{f"scenarios/{name}": took_s for name, took_s in times.items() if "::" in name}}


def _read_times(path: Path) -> Mapping[str, float]:
    """Return the durations (s) in a run's file of times; empty if the file is damaged."""
    try:
        return {str(name): float(took_s) for name, took_s in dict(read_json(path.resolve())).items()}
    except (Problem, TypeError, ValueError):
        return {}


def plan(
    scenarios: Iterable[pytest.Item],
    options: Options,
    slots: int,
    durations_s: Mapping[str, float],
    common: Size,
    shared: bool,
) -> tuple[Slot, ...]:
    """Plan the scenarios. A scenario that can't prove anything here takes no time.

    Args:
        scenarios: the scenarios of the run.
        options: the options of the run.
        slots: number of slots.
        durations_s: known durations (s), by scenario.
        common: size of a lab, or of a zone of the shared lab.
        shared: whether the slots are zones of one lab.
    """
    expected = [_expect(item, options, durations_s, common) for item in scenarios]
    start_s = durations_s.get(START, _duration_s(STARTING, profile_named(options.profile)))
    if not shared:
        expected = [replace(scenario, is_alone=False) for scenario in expected]
    return pack(expected, slots, start_s)


def shards(
    scenarios: Sequence[pytest.Item], options: Options, of: int, durations_s: Mapping[str, float]
) -> tuple[tuple[Expected, ...], ...]:
    """Divide all scenarios into shards of about the same length.

    `of` is the number of shards. The known durations (s) must come from a file, not from this machine's own
    runs, so that the result is the same on every machine.
    """
    common = asked.common_size(map(asked.needs, scenarios), options)
    expected = [_expect(item, options, durations_s, common) for item in scenarios]
    return divide(expected, of, durations_s.get(START, _duration_s(STARTING, profile_named(options.profile))))


def told(path: Path) -> Mapping[str, float]:
    """Return the durations (s) in a file of times.

    Raises:
        Problem: No times can be read from the file.
    """
    times = _read_times(path)
    if not times:
        raise Problem("no durations of scenarios can be read", str(path), f"use the {TIMES} of a run")
    return times


def zones(slots: Sequence[Slot], options: Options, common: Size) -> int:
    """Return the number of zones of the shared lab: one for each slot that needs one, up to the lab's limit.

    A slot without a free zone starts a lab of its own.
    """
    needed = sum(shares(slot, slots) for slot in slots)
    return min(needed, kind_named(options.kind).limits.nodes // common.nodes)


def in_use(slots: Iterable[Slot]) -> int:
    """Return the number of slots with a scenario to run."""
    return sum(any(scenario.runs_here for scenario in slot.scenarios) for slot in slots)


def _expect(item: pytest.Item, options: Options, durations_s: Mapping[str, float], common: Size) -> Expected:
    missing = asked.lacks(item, options)
    if missing is not None:
        return Expected(item.nodeid, 0.0, f"{NOT_HERE}{missing[0]}")
    needs = asked.needs(item)
    term = Term.of(needs.lasts) if needs.lasts else HARMING if needs.faulted else QUICK
    measured = (durations_s[item.nodeid], "earlier runs") if item.nodeid in durations_s else None
    lasts_s, known_from = measured or (_duration_s(term, profile_named(options.profile)), term.text)
    size = asked.size(needs, options) if asked.is_large(needs, options) else common
    place = (harm.targets(needs, size.nodes), harm.faults(item), None if size == common else size)
    return Expected(item.nodeid, lasts_s, known_from, needs.is_alone, *place, asked.key(asked.standing(item)))


def _duration_s(term: Term, profile: Profile) -> float:
    return term.value(symbols(profile).__getitem__)


def starts_s(options: Options, durations_s: Mapping[str, float]) -> float:
    """Return how long (s) a lab start is expected to take; 0 on a running lab."""
    if not options.is_ours:
        return 0.0
    return durations_s.get(START, _duration_s(STARTING, profile_named(options.profile)))


def in_order(items: Sequence[pytest.Item], slots: Sequence[Slot]) -> list[pytest.Item]:
    """Sort items by the plan: first those fixed to a slot, then movable ones, then tests without claims."""
    moves = movable(slots)
    fixed = [scenario for scenario in _scenarios_of(slots) if scenario not in moves]
    order = {scenario.scenario: number for number, scenario in enumerate([*fixed, *moves])}
    return sorted(items, key=lambda item: order.get(item.nodeid, len(order)))


def as_they_come(items: Sequence[pytest.Item], slot: Slot) -> tuple[Slot, ...]:
    """Return the plan of a run without workers: one slot with the scenarios in the order of the items."""
    order = {item.nodeid: number for number, item in enumerate(items)}
    ordered = sorted(slot.scenarios, key=lambda scenario: order[scenario.scenario])
    return (replace(slot, scenarios=tuple(ordered)),)


def _scenarios_of(slots: Sequence[Slot]) -> Iterator[Expected]:
    for slot in slots:
        yield from slot.scenarios


def write(run: Path, slots: Sequence[Slot], start_s: float) -> None:
    """Write the plan into the run's folder, for the scheduler and the comparison at the end."""
    planned = [
        [
            {"scenario": expected.scenario, "lasts_s": round(expected.lasts_s, 3)}
            for expected in slot.scenarios
        ]
        for slot in slots
    ]
    moves = [expected.scenario for expected in movable(slots)]
    write_json(run / PLAN, {"start_s": round(start_s, 3), "slots": planned, "moves": moves})


def write_times(run: Path, times: Mapping[str, float]) -> None:
    """Write the measured durations (s) of scenarios and of a lab start into the run's folder."""
    write_json(run / TIMES, {name: round(took_s, 3) for name, took_s in times.items()})


def slot_of(run: Path) -> Mapping[str, str]:
    """Return the slot name of each scenario that is fixed to a slot; empty if the run has no plan.

    Raises:
        Problem: The plan cannot be read.
    """
    path = run / PLAN
    plan = read_json(path) if path.exists() else {"slots": [], "moves": []}
    slots = [[planned["scenario"] for planned in slot] for slot in plan["slots"]]
    names = {scenario: f"slot {number}" for number, slot in enumerate(slots, 1) for scenario in slot}
    return {scenario: name for scenario, name in names.items() if scenario not in plan["moves"]}


def planned_s(run: Path) -> Mapping[str, float]:
    """Return the planned duration (s) of each scenario; empty if the run has no plan. Raises Problem."""
    path = run / PLAN
    slots = read_json(path)["slots"] if path.exists() else []
    return {planned["scenario"]: float(planned["lasts_s"]) for slot in slots for planned in slot}


def describe_shard(shard: Shard, last_s: Sequence[float]) -> Iterator[str]:
    """Yield a line with this shard's number of scenarios and the expected length (s) of each shard."""
    total = sum(map(len, shard.parts))
    lengths = ", ".join(f"{shard_s:.0f}" for shard_s in last_s)
    own = len(shard.parts[shard.number - 1])
    yield f"{shard.name}: {own} of {total} scenarios; the shards, in one slot each: {lengths} s"


def describe(
    slots: Sequence[Slot], options: Options, start_s: float, common: Size, zones_shared: int
) -> Iterator[str]:
    """Yield the plan as text: slots, scenarios, faults, the critical path and the expected end."""
    lab = f"{options.kind} lab, profile {options.profile}"
    lab = f"zone of lab {options.lab}, a {lab}" if options.zone else lab
    shared = f"a zone of a {lab}, {common.nodes} nodes in each, zones: {zones_shared}"
    last, labs = critical(slots), 0
    for number, slot in enumerate(slots, 1):
        here = [scenario for scenario in slot.scenarios if scenario.runs_here]
        own = [scenario for scenario in here if scenario.is_alone or not zones_shared]
        sizes = dict.fromkeys(scenario.size or common for scenario in own)
        places = [f"a {lab}, {', then '.join(map(str, sizes))}"] if sizes else []
        place = ", then ".join([*places, *([shared] if len(own) < len(here) else [])])
        path = ", the critical path" if slot is last else ""
        yield f"slot {number}: {slot.lasts_s:.0f} s in {place}{path}" if here else f"slot {number}: nothing"
        # A lab is resized, not replaced, if only its number of nodes changes.
        labs = max(1, len({(size.zones, size.spread) for size in sizes})) if slot is last else labs
        yield from _describe_scenarios(here)
    for scenario in _scenarios_of(slots):
        if not scenario.runs_here:
            yield f"{NOT_HERE}{scenario.scenario}  ({scenario.known_from.removeprefix(NOT_HERE)})"
    for fault in sorted({fault for scenario in _scenarios_of(slots) for fault in scenario.faults}):
        yield f"{fault}: {harm.inverse(fault)}"
    total_s = sum(slot.lasts_s for slot in slots)
    yield (
        f"expected end: {labs * start_s + last.lasts_s:.0f} s ({start_s:.0f} s for the start of a lab); "
        f"scenarios together: {total_s:.0f} s"
    )


def _describe_scenarios(scenarios: Sequence[Expected]) -> Iterator[str]:
    """Yield lines for a slot's scenarios, with what each may affect and its standing faults."""
    previous = ""
    for scenario in scenarios:
        yield f"{scenario.lasts_s:7.1f} s  {scenario.scenario}  ({scenario.known_from})"
        if scenario.targets:
            yield f"{'':11}affects {scenario.targets}: {', '.join(scenario.faults) or 'see its code'}"
        if scenario.standing:
            is_same = scenario.standing == previous
            faults = "the same" if is_same else ", ".join(asked.described(scenario.standing))
            yield f"{'':11}injected before it: {faults}"
        previous = scenario.standing


def compare(run: Path, took_s: float) -> str:
    """Describe how long the run took, and how long it was planned to take if it has a plan."""
    took = f"took {duration(took_s)}"
    path = run / PLAN
    if not path.exists():
        return took
    try:
        plan = read_json(path)
    except Problem:
        return took
    longest_s = max(sum(scenario["lasts_s"] for scenario in slot) for slot in plan["slots"])
    return f"{took}, planned {duration(plan['start_s'] + longest_s)}"
