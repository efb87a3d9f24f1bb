"""Checks: pure functions `(History, args, Ground) -> Verdict`, stored by name so that a saved run is judged again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from harness.checks import moments
from harness.checks.moments import Occurrence
from harness.model.claim import Claim
from harness.model.history import History, fence
from harness.model.judgment import Check, Moment
from harness.model.verdict import Measured, Verdict, conforms, deviates, unproven
from harness.model.window import Ground, Window, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
CheckFunction = Callable[[History, Args, Ground, Claim], Verdict]


def renewals_of(node: str, window: WindowSpec, at_least: int) -> Check:
    """Each gap between a node's lease renewals lies in `window`; at least `at_least` gaps."""
    return Check("renewals", {"node": node, "window": window.to_json(), "at_least": at_least})


def default_of(constant: str) -> Check:
    """A component that was started without the flag reports the catalogue's constant for its version."""
    return Check("default", {"constant": constant})


def shown_throughout(what: str, subject: str, value: str, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments showed `value`, and there was more than one look."""
    args = {
        "what": what,
        "subject": subject,
        "value": value,
        "since": since.to_json(),
        "until": until.to_json(),
    }
    return Check("shown-throughout", args)


def run_check(check: Check, history: History, ground: Ground, claim: Claim) -> Verdict:
    """Evaluate one check. Raises KeyError when this version does not know it."""
    return _CHECKS[check.name](history, check.args, ground, claim)


def _after(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return _missing(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    if not window.discerning:
        return unproven("scaled", f"the window {window.arithmetic} would also admit half or double", window)
    found = moments.find(history, event, start.t + min(window.low_s, 0.0) - _LOOK_BACK_S)
    until = found.t if found else start.t + window.high_s
    gap = _gap(history, (event, anchor), start.t, until)
    if gap:
        return unproven("gap", gap, window)
    if found is None:
        return _did_not_come(history, event, anchor, start, window)
    return _placed(history, event, anchor, window, found.t - start.t)


_LOOK_BACK_S = 5.0
"""How far before the anchor an early event is looked for: one that came too early must not be overlooked."""


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
    passed = fence(history)
    if not passed.passed:
        return unproven("gap", f"{event} was not seen, and the fence did not pass: {passed.reason}", window)
    if passed.t < end:
        return unproven(
            "gap", f"the recording was fenced {end - passed.t:.1f} s before the window's end", window
        )
    state = moments.last_state(history, event)
    return deviates(
        f"{event} did not come within {window.high_s:.2f} s after {anchor}", window, last_state=state
    )


def _missing(history: History, anchor: Moment) -> Verdict:
    """The anchor is missing: what the claim starts from never happened."""
    if anchor.name == "fault-step":
        return unproven("not-injected", f"{anchor} was never proven")
    if anchor.name == "last-heartbeat":
        anchor = Moment.from_json(anchor.args["before"])
    passed = fence(history)
    if not passed.passed:
        return unproven("gap", f"{anchor} was not seen, and the fence did not pass: {passed.reason}")
    return deviates(f"{anchor} did not come", last_state=moments.last_state(history, anchor))


def _gap(history: History, about: tuple[Moment, ...], since_t: float, until_t: float) -> str:
    """Say which watch was blind between two times (s), or nothing."""
    for resource in sorted({name for moment in about for name in moments.resources(moment)}):
        gap = history.gap(resource, since_t, until_t)
        if gap is not None:
            return f"the watch of {resource} was blind for {gap.t - gap.data['since']:.1f} s: {gap.data['reason']}"
    return ""


def _never(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return _missing(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    end = start.t + window.high_s
    found = moments.find(history, event, start.t)
    if found is not None and found.t <= end:
        came = Measured(found.t - start.t, "s")
        state = moments.last_state(history, event)
        return deviates(f"{event} came {came} after {anchor} and should not have", window, came, state)
    passed = fence(history)
    if not passed.passed:
        return unproven("gap", f"absence is not proven: {passed.reason}", window)
    if passed.t < end:
        return unproven(
            "gap", f"the recording was fenced {end - passed.t:.1f} s before the wait's end", window
        )
    gap = _gap(history, (event,), start.t, end)
    if gap:
        return unproven("gap", gap, window)
    return conforms(
        f"{event} did not come for {window.high_s:.2f} s after {anchor}", window, Measured("none")
    )


def _renewals(history: History, args: Args, ground: Ground, _claim: Claim) -> Verdict:
    node, wanted = str(args["node"]), int(args["at_least"])
    window = compute(WindowSpec.from_json(args["window"]), ground, {})
    if not window.discerning:
        return unproven("scaled", f"the window {window.arithmetic} would also admit half or double", window)
    renewed = [beat.t for beat in moments.lease_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(renewed)]
    blind = history.gap("leases", renewed[0], renewed[-1]) if renewed else None
    if blind is not None:
        return unproven("gap", f"the watch of leases was blind: {blind.data['reason']}", window)
    wrong = [gap for gap in gaps if not window.holds(gap)]
    if wrong:
        outside = Measured(wrong[0], "s")
        return deviates(f"{len(wrong)} of {len(gaps)} renewals of {node} lie outside", window, outside)
    if len(gaps) < wanted:
        return _too_few_renewals(history, node, len(gaps), wanted, window)
    mean = Measured(sum(gaps) / len(gaps), "s")
    return conforms(
        f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart", window, mean
    )


def _too_few_renewals(history: History, node: str, seen: int, wanted: int, window: Window) -> Verdict:
    """Fewer renewals than there was time for are a deviation, behind a fence."""
    passed = fence(history)
    if not passed.passed:
        return unproven("gap", f"{seen} renewals of {node} were seen; {passed.reason}", window)
    begun_t = history.entries[0].t
    if passed.t - begun_t < (wanted + 1) * window.high_s:
        return unproven("gap", f"the recording is too short for {wanted} renewals of {node}", window)
    return deviates(f"{node} renewed its lease {seen} times, expected at least {wanted}", window)


def _default(_history: History, args: Args, ground: Ground, claim: Claim) -> Verdict:
    configuration = ground.configuration
    constant = next(entry for entry in claim.constants if entry.name == args["constant"])
    given = configuration.flags_set.get(constant.component, {})
    if constant.flag in given:
        return unproven("scaled", f"--{constant.flag}={given[constant.flag]} was given; this is no default")
    reported = _reported(configuration.reported.get(constant.component), constant.reported)
    if reported is None:
        return unproven("gap", f"{constant.component} reported no {constant.reported} at /configz")
    expected = constant.at(configuration.kubernetes_version)
    measured = Measured(reported, constant.unit)
    if reported != expected:
        said = f"{constant.name} is {measured}, expected {expected:g} {constant.unit}"
        return deviates(said, measured=measured)
    return conforms(f"{constant.name} is {measured} without a flag", measured=measured)


def _reported(configz: Json, path: str) -> float | None:
    for part in path.split("."):
        if not isinstance(configz, Mapping) or part not in configz:
            return None
        configz = configz[part]
    return duration_s(configz)


def duration_s(value: Json) -> float:
    """Seconds of a Go duration such as `50s`, `5m0s` or `1m40s`, or of a plain number. Raises ValueError."""
    if isinstance(value, int | float):
        return float(value)
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    total, number, unit = 0.0, "", ""
    for char in [*str(value), "0"]:
        if unit and (char.isdigit() or char == "."):
            total, number, unit = total + float(number) * units[unit], "", ""
        if char.isalpha():
            unit += char
        else:
            number += char
    return total


def _shown_throughout(history: History, args: Args, _ground: Ground, _claim: Claim) -> Verdict:
    since = moments.find(history, Moment.from_json(args["since"]))
    if since is None:
        return _missing(history, Moment.from_json(args["since"]))
    until = moments.find(history, Moment.from_json(args["until"]), since.t)
    until_t = until.t if until else history.ended_t
    looks = [
        entry
        for entry in history.of_kind("observed")
        if entry.data["what"] == args["what"]
        and entry.data["subject"] == args["subject"]
        and since.t < entry.data.get("asked_t", entry.t)
        and entry.t < until_t
    ]
    other = next((look for look in looks if look.data["value"] != args["value"]), None)
    if other is not None:
        value = str(other.data["value"])
        said = f"{args['what']} of {args['subject']} was {value!r} {other.t - since.t:.1f} s after {args['since']['name']}"
        return deviates(said, measured=Measured(value), last_state=f"expected {args['value']!r}")
    if len(looks) < _LOOKS:
        return unproven(
            "gap", f"{len(looks)} looks at {args['what']} of {args['subject']}, {_LOOKS} are needed"
        )
    return conforms(f"{len(looks)} looks showed {args['value']!r}", measured=Measured(str(args["value"])))


_LOOKS = 2

_CHECKS: Mapping[str, CheckFunction] = {
    "after": _after,
    "never": _never,
    "renewals": _renewals,
    "default": _default,
    "shown-throughout": _shown_throughout,
}
