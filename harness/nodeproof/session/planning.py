"""The plan of a run: how long each scenario is expected to last, in which slot it runs, what was kept of it.

Durations come from earlier runs in the same lab and profile, or else from the run whose times are shipped, or
else from what the scenario says it lasts, or else from whether it harms a node.
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
"""Below `scenarios/`: the times (s) of one whole run on two cores, by profile and lab."""
MOST_TIMES = 5
"""So many of the last times of a scenario tell: what it took long ago is no measure of it."""
_MOST_RUNS = 50
QUICK, HARMING, STARTING = Term.of("5"), Term.of("2G + 15"), Term.of("15")
"""Of a scenario without a fault, of one with faults, and of a lab, where nothing else is known."""


def durations(times: str | None, out: Path, options: Options) -> Mapping[str, float]:
    """How long (s) scenarios, and the start of a lab, take: by the file of times that somebody names, else as
    shipped, and as earlier runs in `out` say. Raises Problem.
    """
    return told(Path(times)) if times else {**shipped(options), **earlier(out, options)}


def earlier(out: Path, options: Options) -> Mapping[str, float]:
    """How long (s) scenarios, and the start of a lab, took in the last runs of the same kind: the medians."""
    told: dict[str, list[float]] = {}
    runs = sorted(out.glob(f"*-{options.profile}-{options.kind}-*/{TIMES}"), reverse=True)
    for path in runs[:_MOST_RUNS]:
        for scenario, took_s in _times(path).items():
            told.setdefault(scenario, []).append(took_s)
    return {scenario: statistics.median(times[:MOST_TIMES]) for scenario, times in told.items()}


def shipped(options: Options) -> Mapping[str, float]:
    """How long (s) scenarios, and the start of a lab, took in the run whose times are shipped: the same for
    all who plan by them. Raises Problem.
    """
    told: Mapping[str, Mapping[str, float]] = read_json((scenarios_dir() / SHIPPED).resolve())
    times = told.get(f"{options.profile}-{options.kind}", {})
    # In a checkout pytest names scenarios from its top on, else from their own folder.
    return {**times, **{f"scenarios/{name}": took_s for name, took_s in times.items() if "::" in name}}


def _times(path: Path) -> Mapping[str, float]:
    """What one run kept; a damaged file tells nothing."""
    try:
        return {str(name): float(took_s) for name, took_s in dict(read_json(path.resolve())).items()}
    except (Problem, TypeError, ValueError):
        return {}


def plan(
    scenarios: Iterable[pytest.Item],
    options: Options,
    slots: int,
    known: Mapping[str, float],
    common: Size,
    shared: bool,
) -> tuple[Slot, ...]:
    """The plan for scenarios, whose slots are zones of one lab where it is `shared`, each of a `common` size:
    what cannot be proven here takes no time.
    """
    expected = [_expected(item, options, known, common) for item in scenarios]
    start_s = known.get(START, _value(STARTING, profile_named(options.profile)))
    return pack(expected if shared else [replace(each, is_alone=False) for each in expected], slots, start_s)


def shards(
    scenarios: Sequence[pytest.Item], options: Options, of: int, known: Mapping[str, float]
) -> tuple[tuple[Expected, ...], ...]:
    """All scenarios, in shards of the same length as far as that goes. The same on every machine that is told
    the same: `known` is a file's, never what this machine's own runs took.
    """
    common = asked.common_size(map(asked.needs, scenarios), options)
    expected = [_expected(item, options, known, common) for item in scenarios]
    return divide(expected, of, known.get(START, _value(STARTING, profile_named(options.profile))))


def told(path: Path) -> Mapping[str, float]:
    """How long (s) scenarios took by a file that somebody names. Raises Problem where it tells nothing."""
    times = _times(path)
    if not times:
        raise Problem("no times of scenarios can be read", str(path), f"name the {TIMES} of a run")
    return times


def zones(slots: Sequence[Slot], options: Options, common: Size) -> int:
    """How many zones the lab has that slots share: one for each that needs one, as far as a lab may be as
    large; whoever finds none has a lab of its own.
    """
    needed = sum(shares(slot, slots) for slot in slots)
    return min(needed, kind_named(options.kind).limits.nodes // common.nodes)


def in_use(slots: Iterable[Slot]) -> int:
    """How many have something to run."""
    return sum(any(each.runs_here for each in slot.scenarios) for slot in slots)


def _expected(item: pytest.Item, options: Options, known: Mapping[str, float], common: Size) -> Expected:
    lacks = asked.lacks(item, options)
    if lacks is not None:
        return Expected(item.nodeid, 0.0, f"{NOT_HERE}{lacks[0]}")
    needs = asked.needs(item)
    term = Term.of(needs.lasts) if needs.lasts else HARMING if needs.faulted else QUICK
    timed = (known[item.nodeid], "earlier runs") if item.nodeid in known else None
    lasts_s, known_from = timed or (_value(term, profile_named(options.profile)), term.text)
    size = asked.size(needs, options) if asked.is_large(needs, options) else common
    told = (harm.targets(needs, size.nodes), harm.faults(item), None if size == common else size)
    return Expected(item.nodeid, lasts_s, known_from, needs.is_alone, *told, asked.key(asked.standing(item)))


def _value(term: Term, profile: Profile) -> float:
    return term.value(symbols(profile).__getitem__)


def starts_s(options: Options, known: Mapping[str, float]) -> float:
    """How long (s) a lab is expected to take until its first scenario begins; none where one runs already."""
    if not options.is_ours:
        return 0.0
    return known.get(START, _value(STARTING, profile_named(options.profile)))


def in_order(items: Sequence[pytest.Item], slots: Sequence[Slot]) -> list[pytest.Item]:
    """The items as the plan has them: each slot's own, then what moves, then what is no scenario."""
    moves = movable(slots)
    own = [each for each in _all(slots) if each not in moves]
    order = {each.scenario: number for number, each in enumerate([*own, *moves])}
    return sorted(items, key=lambda item: order.get(item.nodeid, len(order)))


def as_they_come(items: Sequence[pytest.Item], slot: Slot) -> tuple[Slot, ...]:
    """The plan of a run without workers: its scenarios in the order of the items."""
    number = {item.nodeid: place for place, item in enumerate(items)}
    return (replace(slot, scenarios=tuple(sorted(slot.scenarios, key=lambda each: number[each.scenario]))),)


def _all(slots: Sequence[Slot]) -> Iterator[Expected]:
    for slot in slots:
        yield from slot.scenarios


def write(run: Path, slots: Sequence[Slot], start_s: float) -> None:
    """Keep the plan with its run: for the scheduler, and for the comparison at the end."""
    planned = [
        [{"scenario": each.scenario, "lasts_s": round(each.lasts_s, 3)} for each in slot.scenarios]
        for slot in slots
    ]
    moves = [each.scenario for each in movable(slots)]
    write_json(run / PLAN, {"start_s": round(start_s, 3), "slots": planned, "moves": moves})


def write_times(run: Path, times: Mapping[str, float]) -> None:
    """Keep how long (s) scenarios, and the start of a lab, took."""
    write_json(run / TIMES, {name: round(took_s, 3) for name, took_s in times.items()})


def slot_of(run: Path) -> Mapping[str, str]:
    """The slot of each scenario that stays in one, as a name; nothing where the run has no plan. Raises
    Problem.
    """
    path = run / PLAN
    plan = read_json(path) if path.exists() else {"slots": [], "moves": []}
    slots = [[each["scenario"] for each in slot] for slot in plan["slots"]]
    named = {each: f"slot {number}" for number, slot in enumerate(slots, 1) for each in slot}
    return {each: slot for each, slot in named.items() if each not in plan["moves"]}


def planned_s(run: Path) -> Mapping[str, float]:
    """How long (s) each scenario was to take; nothing where the run has no plan. Raises Problem."""
    path = run / PLAN
    slots = read_json(path)["slots"] if path.exists() else []
    return {each["scenario"]: float(each["lasts_s"]) for slot in slots for each in slot}


def describe_shard(shard: Shard, last_s: Sequence[float]) -> Iterator[str]:
    """One line for people: how much of all this is, and how long each shard is expected to last."""
    total = sum(map(len, shard.parts))
    lengths = ", ".join(f"{each_s:.0f}" for each_s in last_s)
    own = len(shard.parts[shard.number - 1])
    yield f"{shard.name}: {own} of {total} scenarios; the shards, in one slot each: {lengths} s"


def describe(
    slots: Sequence[Slot], options: Options, start_s: float, common: Size, zones_shared: int
) -> Iterator[str]:
    """The plan for people: a line for each slot and scenario, the expected end and the critical path."""
    lab = f"{options.kind} lab, profile {options.profile}"
    lab = f"zone of lab {options.lab}, a {lab}" if options.zone else lab
    shared = f"a zone of a {lab}, {common.nodes} nodes in each, zones: {zones_shared}"
    last, labs = critical(slots), 0
    for number, slot in enumerate(slots, 1):
        here = [each for each in slot.scenarios if each.runs_here]
        own = [each for each in here if each.is_alone or not zones_shared]
        sizes = dict.fromkeys(each.size or common for each in own)
        places = [f"a {lab}, {', then '.join(map(str, sizes))}"] if sizes else []
        place = ", then ".join([*places, *([shared] if len(own) < len(here) else [])])
        path = ", the critical path" if slot is last else ""
        yield f"slot {number}: {slot.lasts_s:.0f} s in {place}{path}" if here else f"slot {number}: nothing"
        # Of two sizes in as many zones the one is made of the other.
        labs = max(1, len({(size.zones, size.spread) for size in sizes})) if slot is last else labs
        yield from _scenarios(here)
    for each in _all(slots):
        if not each.runs_here:
            yield f"{NOT_HERE}{each.scenario}  ({each.known_from.removeprefix(NOT_HERE)})"
    for word in sorted({word for each in _all(slots) for word in each.faults}):
        yield f"{word}: {harm.inverse(word)}"
    total_s = sum(slot.lasts_s for slot in slots)
    yield (
        f"expected end: {labs * start_s + last.lasts_s:.0f} s ({start_s:.0f} s for the start of a lab); "
        f"scenarios together: {total_s:.0f} s"
    )


def _scenarios(here: Sequence[Expected]) -> Iterator[str]:
    """A slot's scenarios, with what each may harm and what stands before it."""
    stands = ""
    for each in here:
        yield f"{each.lasts_s:7.1f} s  {each.scenario}  ({each.known_from})"
        if each.targets:
            yield f"{'':11}harms {each.targets}: {', '.join(each.faults) or 'see its code'}"
        if each.standing:
            told = "the same" if each.standing == stands else ", ".join(asked.described(each.standing))
            yield f"{'':11}stands before it: {told}"
        stands = each.standing


def compare(run: Path, took_s: float) -> str:
    """Say how long the run took, and how long the plan expected it to take if there is one."""
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
