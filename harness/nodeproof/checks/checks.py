"""Checks: pure functions `(History, args, Ground) -> Verdict`, stored by name and arguments.

The current code can therefore judge a saved run again.
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
    """Check that gaps between a node's lease renewals are within `window`, for at least `at_least` gaps."""
    return Check("renewals", {"node": node, "window": window.to_json(), "at_least": at_least})


def default_of(constant: str) -> Check:
    """Check that a component started without the flag reports the catalogue's constant for its version."""
    return Check("default", {"constant": constant})


def describe(check: Check) -> str:
    """Describe a check on one line."""
    if check.name == "in-bursts":
        return f"bursts of {' and '.join(map(str, bursts.events(check.args)))}"
    if "event" not in check.args:
        subject = next(
            (check.args[key] for key in ("node", "subject", "constant", "fault") if key in check.args), ""
        )
        return f"{check.name}({subject})"
    event, anchor = Moment.from_json(check.args["event"]), Moment.from_json(check.args["anchor"])
    return f"{'no ' if check.name == 'never' else ''}{event} after {anchor}"


def run_check(check: Check, history: History, ground: Ground, claim: Claim) -> Verdict:
    """Evaluate one check.

    Raises:
        LookupError: The check is unknown or invalid, see `refuse`.
    """
    refuse(check, history, ground.configuration)
    doubt = unseen(check, history, ground.configuration)
    return unproven("gap", doubt) if doubt else _CHECKS[check.name](history, check.args, ground, claim)


def refuse(check: Check, history: History, configuration: Configuration) -> None:
    """Reject a check that can never match: misspelled names, or resources that are not recorded.

    Raises:
        LookupError: The check is invalid.
    """
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    required = {name for composed_of in moments_of(check) for name in moments.resources(composed_of)}
    if recorded and not required <= recorded:
        raise LookupError(f"not recorded: {', '.join(sorted(required - recorded))}")
    for composed_of in (moment for moment in moments_of(check) for moment in moments.parts(moment)):
        shape = moments.shape(composed_of)
        problem = shapes.fault(shape) or _unknown_fields(shape, configuration.fields)
        if problem:
            raise LookupError(f"{composed_of}: {problem}")


def _unknown_fields(shape: shapes.Shape, schema_fields: Mapping[str, frozenset[str]]) -> str:
    for resource, paths in shapes.paths(shape).items():
        if resource not in schema_fields:
            continue
        # A path is split at its dots, so it cannot name a key with dots, such as a label.
        is_dotted = isinstance(shape, shapes.Changed)
        unknown_names = (
            paths - schema_fields[resource] if is_dotted else unknown(paths, schema_fields[resource])
        )
        if unknown_names:
            return f"objects of {resource} have no field {', '.join(sorted(unknown_names))}"
    return ""


def can_be_waited_for(check: Check) -> bool:
    """Return whether a check is decided at some time of a recording, rather than at its end."""
    return check.name in ("after", "never", "renewals", "spaced")


def remaining_s(check: Check, history: History, ground: Ground, now_t: float) -> float | None:
    """Return how much longer (s) a recording must go on for a check that can be waited for.

    0 or less once it is decided or its window is over; None while its anchor has not occurred.
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
    min_gaps = int(check.args["at_least"])
    if len(heartbeats.seen_renewals(history, str(check.args["node"]))) > min_gaps:
        return 0.0
    window = compute(WindowSpec.from_json(check.args["window"]), ground, {})
    return history.entries[0].t + (min_gaps + 2) * window.high_s - now_t


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
        raise ValueError("a window of an absence cannot bound the time of an event")
    if not window.discerning:
        return _indiscernible(spec, ground, start.detail, window)
    occurrence = find_event(history, event, start, ground.configuration)
    gap = blind(history, (event, anchor), start.t, occurrence.t if occurrence else start.t + window.high_s)
    if gap:
        return unproven("gap", gap, window)
    if occurrence is None:
        return _did_not_come(history, event, anchor, start, window)
    doubt = unfenced(history, anchor, occurrence.t) if anchor.name == "last-heartbeat" else ""
    if doubt:
        return unproven("gap", f"there may be a later heartbeat: {doubt}", window)
    return _judge_time(history, event, anchor, window, occurrence.t - start.t)


def _indiscernible(spec: WindowSpec, ground: Ground, anchor: Args, window: Window) -> Verdict:
    """Return the verdict for a window that admits half or double the value.

    The cause is the configuration, or the slack of a loaded host.
    """
    reason = f"the window {window.arithmetic} also admits half or double the value"
    idle = compute(spec, Ground(ground.configuration, 0.0), anchor)
    return unproven("host-too-loaded" if idle.discerning else "scaled", reason, window)


def _judge_time(history: History, event: Moment, anchor: Moment, window: Window, value: float) -> Verdict:
    measured = Measured(value, "s")
    if window.holds(value):
        return conforms(f"{event} occurred {value:.3f} s after {anchor}", window, measured)
    side = "too early" if value < window.low_s else "too late"
    return deviates(
        f"{event} occurred {value:.3f} s after {anchor}: {side}",
        window,
        measured,
        moments.last_state(history, event),
    )


def _did_not_come(
    history: History, event: Moment, anchor: Moment, start: Occurrence, window: Window
) -> Verdict:
    """Return the verdict for a missing event: a deviation only if the fence is after the window's end."""
    end_t = start.t + window.high_s
    for moment in (event, anchor):
        doubt = unfenced(history, moment, end_t)
        if doubt and moment.name != "fault-step":
            return unproven("gap", f"{event} was not recorded by the window's end: {doubt}", window)
    state = moments.last_state(history, event)
    return deviates(
        f"{event} did not occur within {window.high_s:.2f} s after {anchor}", window, last_state=state
    )


def _never(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return missing(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    if not window.discerning:
        return unproven("scaled", f"the window {window.arithmetic} is empty", window)
    begin_t, end_t, slack_s = start.t + window.low_s, start.t + window.high_s, ground.slack_s
    ahead_s = 0.0 if window.low_s == 0.0 and _come_in_order(event, anchor) else slack_s
    occurrence = moments.find_state(history, event, begin_t + ahead_s)
    if occurrence is not None and occurrence.t <= end_t - slack_s:
        gap = blind(history, (event, anchor), start.t, occurrence.t)
        if gap:
            return unproven("gap", f"{event} may have occurred before {anchor}: {gap}", window)
        measured = Measured(occurrence.t - start.t, "s")
        state = moments.last_state(history, event)
        return deviates(f"{event} occurred {measured} after {anchor}, but must not", window, measured, state)
    close_occurrence = moments.find_state(history, event, begin_t - ahead_s)
    if close_occurrence is not None and close_occurrence.t <= end_t + slack_s:
        reason = f"{event} occurred {close_occurrence.t - start.t:.3f} s after {anchor}"
        reason += f": within the slack of {slack_s:.2f} s of an end of {window.arithmetic}"
        return unproven("gap", reason, window)
    doubt = (
        moments.unable(history, event, Span(max(begin_t, start.t), end_t))
        or unfenced(history, event, end_t)
        or blind(history, (event, anchor), start.t, end_t)
    )
    if doubt:
        return unproven("gap", f"absence is not proven: {doubt}", window)
    start_text = f" from {window.low_s:.2f} s on" if window.low_s else ""
    reason = f"{event} did not occur{start_text} for {window.high_s - window.low_s:.2f} s after {anchor}"
    return conforms(reason, window, Measured("none"))


def _come_in_order(one: Moment, other: Moment) -> bool:
    """Return whether both moments are read from one watch, which delivers in order."""
    watches = {moments.resources(one), moments.resources(other)}
    return len(watches) == 1 and len(watches.pop()) == 1


def _renewals(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    node, min_gaps = str(args["node"]), max(1, int(args["at_least"]))
    spec = WindowSpec.from_json(args["window"])
    window = compute(spec, ground, {})
    if not window.discerning:
        return _indiscernible(spec, ground, {}, window)
    times = [beat.t for beat in heartbeats.seen_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(times)]
    gap = history.gap("leases", history.began_t, history.ended_t)
    if gap is not None:
        return unproven("gap", f"the watch of leases had a gap: {gap.data['reason']}", window)
    outside_gaps = [gap for gap in gaps if not window.holds(gap)]
    if outside_gaps:
        outside = Measured(outside_gaps[0], "s")
        return deviates(f"{len(outside_gaps)} of {len(gaps)} renewals of {node} are outside", window, outside)
    first_s = times[0] - history.began_t if times else 0.0
    if first_s > window.high_s:
        reason = f"{node} sent no renewal in the first {first_s:.3f} s; its last one before is unknown"
        return unproven("gap", reason, window)
    silence = _silent_since(history, times, window)
    if silence is not None or len(gaps) < min_gaps:
        return silence or unproven("gap", f"{len(gaps)} renewals of {node}, need {min_gaps}", window)
    mean = Measured(sum(gaps) / len(gaps), "s")
    return conforms(
        f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart", window, mean
    )


def _silent_since(history: History, times: list[float], window: Window) -> Verdict | None:
    """Return a deviation if no renewal came for longer than the window before the fence, else None."""
    last_fence = fence(history, ("leases",))
    silence_s = last_fence.t - (times[-1] if times else history.began_t)
    if not last_fence.passed or silence_s <= window.high_s:
        return None
    return deviates(f"no renewal for {silence_s:.3f} s", window, Measured(silence_s, "s"))


def _default(_history: History, args: Args, ground: Ground, claim: Claim) -> Verdict:
    configuration = ground.configuration
    constant = next((entry for entry in claim.constants if entry.name == args["constant"]), None)
    if constant is None:
        raise KeyError(f"{claim.id} has no constant {args['constant']}")
    flags = configuration.flags_set.get(constant.component)
    if flags is None:
        reason = f"the flags of {constant.component} are unknown; this may not be the default"
        return unproven("lab-lacks", reason)
    flag = next((name for name in flags if plain(name) == plain(constant.flag)), None)
    if flag is not None:
        return unproven("scaled", f"{flag}={flags[flag]} is set; this is not the default")
    reported = _reported(configuration.reported.get(constant.component), constant.reported)
    if reported is None:
        return unproven("gap", f"{constant.component} reported no {constant.reported}")
    if reported == NOTHING:
        return deviates(f"{constant.component} sets no {constant.name}", measured=Measured("nothing"))
    expected = constant.at(configuration.kubernetes_version)
    measured = _format(reported, constant)
    if reported != expected:
        reason = f"{constant.name} is {measured}, expected {_format(expected, constant)}"
        return deviates(reason, measured=measured)
    return conforms(f"{constant.name} is {measured} without a flag", measured=measured)


def _format(value: float, constant: Constant) -> Measured:
    if constant.unit == "boolean":
        return Measured(str(bool(value)).lower())
    return Measured(value, constant.unit)


NOTHING = float("-inf")
"""Stands for a setting that a component reports as null."""


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
