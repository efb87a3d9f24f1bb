"""Checks: pure functions `(History, args, Ground) -> Verdict`, stored by name and arguments.

So a saved run is judged again by today's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from nodeproof.checks import (
    backoff,
    bursts,
    counting,
    heartbeats,
    lasting,
    looks,
    moments,
    observations,
    order,
    rates,
    shapes,
    weights,
)
from nodeproof.checks.anchors import missing, unfenced
from nodeproof.checks.blind import blind
from nodeproof.checks.occurrence import Occurrence
from nodeproof.checks.read_off import find_event
from nodeproof.checks.set_meanwhile import plain
from nodeproof.checks.unseen import moments_of, unseen
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import Configuration
from nodeproof.model.duration import duration_s
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.schema import unknown
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground, Window, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
CheckFunction = Callable[[History, Args, Ground, Claim], Verdict]


def renewals_of(node: str, window: WindowSpec, at_least: int) -> Check:
    """Each gap between a node's lease renewals lies in `window`; at least `at_least` gaps."""
    return Check("renewals", {"node": node, "window": window.to_json(), "at_least": at_least})


def default_of(constant: str) -> Check:
    """A component that was started without the flag reports the catalogue's constant for its version."""
    return Check("default", {"constant": constant})


def describe(check: Check) -> str:
    """One line for people: what is waited for or judged."""
    if check.name == "in-bursts":
        return f"bursts of {' and '.join(map(str, bursts.events(check.args)))}"
    if "event" not in check.args:
        about = next(
            (check.args[key] for key in ("node", "subject", "constant", "fault") if key in check.args), ""
        )
        return f"{check.name}({about})"
    event, anchor = Moment.from_json(check.args["event"]), Moment.from_json(check.args["anchor"])
    return f"{'no ' if check.name == 'never' else ''}{event} after {anchor}"


def run_check(check: Check, history: History, ground: Ground, claim: Claim) -> Verdict:
    """Evaluate one check. Raises LookupError like `refuse`, and when this version does not know it."""
    refuse(check, history, ground.configuration)
    why = unseen(check, history, ground.configuration)
    return unproven("gap", why) if why else _CHECKS[check.name](history, check.args, ground, claim)


def refuse(check: Check, history: History, configuration: Configuration) -> None:
    """Refuse what would be misspelt or unwatched, and never come. Raises LookupError."""
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    needed = {name for moment in moments_of(check) for name in moments.resources(moment)}
    if recorded and not needed <= recorded:
        raise LookupError(f"nobody recorded {', '.join(sorted(needed - recorded))}")
    for moment in (part for named in moments_of(check) for part in moments.parts(named)):
        shape = moments.shape(moment)
        wrong = shapes.fault(shape) or _unknown_fields(shape, configuration.fields)
        if wrong:
            raise LookupError(f"{moment}: {wrong}")


def _unknown_fields(shape: shapes.Shape, known: Mapping[str, frozenset[str]]) -> str:
    for resource, paths in shapes.paths(shape).items():
        if resource not in known:
            continue
        # A path is split at its dots: what is below a mapping of anybody's keys can't be said by one.
        said_by_path = isinstance(shape, shapes.Changed)
        wrong = paths - known[resource] if said_by_path else unknown(paths, known[resource])
        if wrong:
            return f"objects of {resource} have no field {', '.join(sorted(wrong))}"
    return ""


def can_be_waited_for(check: Check) -> bool:
    """Whether a check is decided at some time of a recording; others need what comes after it, or nothing."""
    return check.name in ("after", "never", "renewals", "spaced")


def remaining_s(check: Check, history: History, ground: Ground, now_t: float) -> float | None:
    """How long (s) a recording must still go on for a check that can be waited for; 0 when it is decided or
    its window over.

    None while its anchor has not come: nobody knows yet.
    """
    if check.name == "renewals":
        return _renewals_remaining_s(check, history, ground, now_t)
    if check.name == "spaced":
        return rates.remaining_s(history, check.args, ground, now_t)
    event, anchor = Moment.from_json(check.args["event"]), Moment.from_json(check.args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return None
    window = compute(WindowSpec.from_json(check.args["window"]), ground, start.detail)
    since_s = window.low_s if check.name == "never" else min(window.low_s, 0.0)
    if moments.find(history, event, start.t + since_s) is not None:
        return 0.0
    return start.t + window.high_s - now_t


def _renewals_remaining_s(check: Check, history: History, ground: Ground, now_t: float) -> float:
    wanted = int(check.args["at_least"])
    if len(heartbeats.seen_renewals(history, str(check.args["node"]))) > wanted:
        return 0.0
    window = compute(WindowSpec.from_json(check.args["window"]), ground, {})
    return history.entries[0].t + (wanted + 2) * window.high_s - now_t


def _after(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    spec = WindowSpec.from_json(args["window"])
    start = moments.find(history, anchor)
    if start is None and anchor.name == "last-heartbeat":
        start = moments.long_silence(history, anchor, compute(spec, ground, {"heartbeat": "status"}).high_s)
    if start is None:
        return missing(history, anchor)
    window = compute(spec, ground, start.detail)
    if window.shape == "negative":
        raise ValueError("the window of an absence says nothing about a time")
    if not window.discerning:
        return _indiscernible(spec, ground, start.detail, window)
    found = find_event(history, event, start, ground.configuration)
    gap = blind(history, (event, anchor), start.t, found.t if found else start.t + window.high_s)
    if gap:
        return unproven("gap", gap, window)
    if found is None:
        return _did_not_come(history, event, anchor, start, window)
    unsure = unfenced(history, anchor, found.t) if anchor.name == "last-heartbeat" else ""
    if unsure:
        return unproven("gap", f"a later heartbeat is not excluded: {unsure}", window)
    return _placed(history, event, anchor, window, found.t - start.t)


def _indiscernible(spec: WindowSpec, ground: Ground, anchor: Args, window: Window) -> Verdict:
    """A window that admits half or double proves nothing: by its configuration, or by the slack of a loaded
    host.
    """
    said = f"the window {window.arithmetic} would also admit half or double"
    idle = compute(spec, Ground(ground.configuration, 0.0), anchor)
    return unproven("host-too-loaded" if idle.discerning else "scaled", said, window)


def _placed(history: History, event: Moment, anchor: Moment, window: Window, value: float) -> Verdict:
    measured = Measured(value, "s")
    if window.holds(value):
        return conforms(f"{event} came {value:.3f} s after {anchor}", window, measured)
    side = "too early" if value < window.low_s else "too late"
    return deviates(
        f"{event} came {value:.3f} s after {anchor}: {side}",
        window,
        measured,
        moments.last_state(history, event),
    )


def _did_not_come(
    history: History, event: Moment, anchor: Moment, start: Occurrence, window: Window
) -> Verdict:
    """The event is missing: a deviation only behind a fence that stands after the window's end."""
    end = start.t + window.high_s
    for about in (event, anchor):
        unsure = unfenced(history, about, end)
        if unsure and about.name != "fault-step":
            return unproven("gap", f"{event} was not seen by the window's end: {unsure}", window)
    state = moments.last_state(history, event)
    return deviates(
        f"{event} did not come within {window.high_s:.2f} s after {anchor}", window, last_state=state
    )


def _never(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return missing(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    if not window.discerning:
        return unproven("scaled", f"the window {window.arithmetic} waits for nothing", window)
    begin, end, slack_s = start.t + window.low_s, start.t + window.high_s, ground.slack_s
    ahead_s = 0.0 if window.low_s == 0.0 and _come_in_order(event, anchor) else slack_s
    found = moments.find_state(history, event, begin + ahead_s)
    if found is not None and found.t <= end - slack_s:
        gap = blind(history, (event, anchor), start.t, found.t)
        if gap:
            return unproven("gap", f"{event} may have come before {anchor}: {gap}", window)
        came = Measured(found.t - start.t, "s")
        state = moments.last_state(history, event)
        return deviates(f"{event} came {came} after {anchor} and should not have", window, came, state)
    near = moments.find_state(history, event, begin - ahead_s)
    if near is not None and near.t <= end + slack_s:
        said = f"{event} came {near.t - start.t:.3f} s after {anchor}"
        said += f": within the slack of {slack_s:.2f} s of an end of {window.arithmetic}"
        return unproven("gap", said, window)
    unseen = (
        moments.unable(history, event, Span(max(begin, start.t), end))
        or unfenced(history, event, end)
        or blind(history, (event, anchor), start.t, end)
    )
    if unseen:
        return unproven("gap", f"absence is not proven: {unseen}", window)
    since = f" from {window.low_s:.2f} s on" if window.low_s else ""
    said = f"{event} did not come{since} for {window.high_s - window.low_s:.2f} s after {anchor}"
    return conforms(said, window, Measured("none"))


def _come_in_order(one: Moment, other: Moment) -> bool:
    """Whether both are read from one watch, which delivers in order; of two, one may be ahead."""
    watches = {moments.resources(one), moments.resources(other)}
    return len(watches) == 1 and len(watches.pop()) == 1


def _renewals(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    node, wanted = str(args["node"]), max(1, int(args["at_least"]))
    spec = WindowSpec.from_json(args["window"])
    window = compute(spec, ground, {})
    if not window.discerning:
        return _indiscernible(spec, ground, {}, window)
    renewed = [beat.t for beat in heartbeats.seen_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(renewed)]
    gap = history.gap("leases", history.began_t, history.ended_t)
    if gap is not None:
        return unproven("gap", f"the watch of leases was blind: {gap.data['reason']}", window)
    wrong = [gap for gap in gaps if not window.holds(gap)]
    if wrong:
        outside = Measured(wrong[0], "s")
        return deviates(f"{len(wrong)} of {len(gaps)} renewals of {node} lie outside", window, outside)
    first_s = renewed[0] - history.began_t if renewed else 0.0
    if first_s > window.high_s:
        said = f"{node} renewed nothing for the first {first_s:.3f} s; when it did so last is not known"
        return unproven("gap", said, window)
    silent = _silent_since(history, renewed, window)
    if silent is not None or len(gaps) < wanted:
        return silent or unproven(
            "gap", f"{len(gaps)} renewals of {node} were seen, {wanted} are needed", window
        )
    mean = Measured(sum(gaps) / len(gaps), "s")
    return conforms(
        f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart", window, mean
    )


def _silent_since(history: History, renewed: list[float], window: Window) -> Verdict | None:
    """A deviation where no renewal came for longer than the window up to the fence; None without one."""
    passed = fence(history, ("leases",))
    silence = passed.t - (renewed[-1] if renewed else history.began_t)
    if not passed.passed or silence <= window.high_s:
        return None
    return deviates(f"no renewal for {silence:.3f} s", window, Measured(silence, "s"))


def _default(_history: History, args: Args, ground: Ground, claim: Claim) -> Verdict:
    configuration = ground.configuration
    constant = next((entry for entry in claim.constants if entry.name == args["constant"]), None)
    if constant is None:
        raise KeyError(f"{claim.id} has no constant {args['constant']}")
    given = configuration.flags_set.get(constant.component)
    if given is None:
        said = f"the lab does not say which settings it gave {constant.component}; this may be no default"
        return unproven("lab-lacks", said)
    flag = next((name for name in given if plain(name) == plain(constant.flag)), None)
    if flag is not None:
        return unproven("scaled", f"{flag}={given[flag]} was given; this is no default")
    reported = _reported(configuration.reported.get(constant.component), constant.reported)
    if reported is None:
        return unproven("gap", f"{constant.component} reported no {constant.reported}")
    if reported == NOTHING:
        return deviates(
            f"{constant.component} was seen to set no {constant.name}", measured=Measured("nothing")
        )
    expected = constant.at(configuration.kubernetes_version)
    measured = _shown(reported, constant)
    if reported != expected:
        said = f"{constant.name} is {measured}, expected {_shown(expected, constant)}"
        return deviates(said, measured=measured)
    return conforms(f"{constant.name} is {measured} without a flag", measured=measured)


def _shown(value: float, constant: Constant) -> Measured:
    if constant.unit == "boolean":
        return Measured(str(bool(value)).lower())
    return Measured(value, constant.unit)


NOTHING = float("-inf")
"""What a component reports that was asked and has no such setting (a null in its document)."""


def _reported(configz: Json, path: str) -> float | None:
    for part in path.split("."):
        if not isinstance(configz, Mapping) or part not in configz:
            return None
        configz = configz[part]
    if configz is None:
        return NOTHING
    return float(configz) if isinstance(configz, bool) else duration_s(configz)


_CHECKS: Mapping[str, CheckFunction] = {
    "after": _after,
    "never": _never,
    "renewals": _renewals,
    "default": _default,
    "shown-throughout": lambda history, args, ground, _claim: looks.judge_throughout(history, args, ground),
    "listed": lambda history, args, ground, _claim: looks.judge_listed(history, args, ground),
    "not-listed": lambda history, args, ground, _claim: looks.judge_not_listed(history, args, ground),
    "amounts-to": lambda history, args, ground, _claim: looks.judge_amount(history, args, ground),
    "shows": lambda history, args, _ground, _claim: observations.judge_shows(history, args),
    "same-as": lambda history, args, _ground, _claim: observations.judge_same(history, args),
    "grew": lambda history, args, _ground, _claim: observations.judge_growth(history, args),
    "lasted": lambda history, args, _ground, _claim: lasting.judge_lasted(history, args),
    "spaced": lambda history, args, ground, _claim: rates.judge(history, args, ground),
    "counted": lambda history, args, ground, _claim: counting.judge(history, args, ground),
    "in-order": lambda history, args, _ground, _claim: order.judge(history, args),
    "outweighs": lambda history, args, _ground, _claim: weights.judge(history, args),
    "doubled": lambda history, args, ground, _claim: backoff.judge(history, args, ground),
    "in-bursts": lambda history, args, ground, _claim: bursts.judge(history, args, ground),
    "lives-on": lambda history, args, _ground, _claim: looks.judge_life(history, args),
}
