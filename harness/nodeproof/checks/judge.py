"""From a check's answer to a verdict: what must be true of a recording before any answer counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nodeproof.checks.checks import remaining_s, run_check
from nodeproof.checks.read_off import Times, read_off
from nodeproof.checks.set_meanwhile import set_meanwhile
from nodeproof.model.claim import Claim, includes
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import PROBED, Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.needs import CLOUD
from nodeproof.model.slack import (
    Span,
    hull,
    longest_slack_s,
    loses_nodes_s,
    misread_s,
    slack_s,
    stood_still_s,
    undisturbed_s,
    waited_before_s,
)
from nodeproof.model.verdict import Verdict, unproven
from nodeproof.model.window import Ground


def judge(claim: Claim, check: Check, history: History, configuration: Configuration) -> Verdict:
    """Judge one claim from a recording.

    Reasons that no recording could change come first, then the check, then what takes its answer's worth
    away: a fault that was not proven, a component that died, a host that was too loaded to tell the time just
    when the answer was read off. A check that raises costs no other judgment its verdict.
    """
    try:
        return _judge(claim, check, history, configuration)
    except Exception as error:
        said = f"check {check.name} of {claim.id} cannot be evaluated: {type(error).__name__}: {error}"
        return unproven("check-failed", said)


def _judge(claim: Claim, check: Check, history: History, configuration: Configuration) -> Verdict:
    ahead = _not_for_this_lab(claim, configuration)
    if ahead is not None:
        return ahead
    other = set_meanwhile(check, claim, history)
    if other:
        return unproven("scaled", f"{other}: it is not what was read from the configuration")
    times = read_off(check, history, configuration)
    ground = _ground(history, configuration, times, times)
    verdict = run_check(check, history, ground, claim)
    waited_s, excused = 0.0, False
    if times and _is_late(verdict):
        # What stood still between an anchor and its event may have put the event itself off.
        within = hull(times)
        ground = _ground(history, configuration, times, [within])
        waited_s = waited_before_s(history, within.until_t)
        allowed = replace(ground, slack_s=ground.slack_s + waited_s)
        excused = run_check(check, history, allowed, claim).outcome != "deviates"
    elif times and verdict.outcome == "deviates":
        awaited = _ground(history, configuration, times, [_awaited(verdict, times)])
        excused = run_check(check, history, awaited, claim).outcome != "deviates"
        ground = awaited if excused else ground
    too_loaded = (
        excused
        or ground.slack_s > configuration.slack_limit_s
        or _is_owed_to_load(verdict, check, claim, history, ground)
    )
    if check.name == "default" or (verdict.is_skip and not too_loaded):
        return verdict
    broken = _not_injected(history, check) or _component_died(history) or _not_healed(history, verdict)
    if broken is not None:
        return broken
    lost = _may_have_lost_nodes(verdict, history, configuration, times)
    if lost:
        return unproven("host-too-loaded", f"{lost}; {verdict.reason}", verdict.window, verdict.measured)
    if too_loaded and (
        verdict.code in ("", "scaled") or _is_gap_of_load(verdict, check, claim, history, configuration)
    ):
        waits = f", with waits of {waited_s:.2f} s for processors," if waited_s else ""
        slacks = f"slack {ground.slack_s:.2f} s (limit {configuration.slack_limit_s:g} s)"
        said = f"{slacks}{waits} leaves it open; {verdict.reason}"
        return unproven("host-too-loaded", said, verdict.window, verdict.measured)
    return verdict


def _ground(history: History, configuration: Configuration, times: Times, about: Times) -> Ground:
    """What a check is judged by that reads its answer off at `times`, where what stood still `about` them may
    have moved it. What was read wrong was read so at these times.
    """
    misread = misread_s(history, configuration, times)
    moved = slack_s(history, configuration, about) - misread_s(history, configuration, about)
    return Ground(configuration, moved + misread, misread)


def _is_owed_to_load(verdict: Verdict, check: Check, claim: Claim, history: History, ground: Ground) -> bool:
    """Whether a time conforms that would not if what stood still, or a clock that was set, had put it off or
    brought it forward.

    What a stall adds to the slack it may have added to the time as well: with so much less slack than an
    undisturbed measurement has, the time must conform all the same. That something came too early after its
    anchor is no matter where only a bound is claimed.
    """
    window, measured = verdict.window, verdict.measured
    if check.name == "spaced":
        # Of several in a row: it says itself how sure their rate is.
        return False
    if verdict.outcome != "conforms" or window is None or window.shape == "negative" or measured is None:
        return False
    late = Ground(ground.configuration, ground.slack_s, -ground.misread_s)
    if ground.misread_s and run_check(check, history, late, claim).outcome != "conforms":
        return True
    undisturbed = undisturbed_s(history, ground.configuration)
    if ground.slack_s <= undisturbed:
        return False
    narrow = Ground(ground.configuration, 2 * undisturbed - ground.slack_s)
    strict = run_check(check, history, narrow, claim)
    if strict.outcome == "conforms" or strict.window is None or not isinstance(measured.value, float):
        return False
    return window.shape == "period" or measured.value > strict.window.high_s


def _is_gap_of_load(
    verdict: Verdict, check: Check, claim: Claim, history: History, configuration: Configuration
) -> bool:
    """Whether the same recording tells what happened, had nothing stood still: it lacks no evidence."""
    if verdict.code != "gap":
        return False
    undisturbed = Ground(configuration, undisturbed_s(history, configuration))
    return run_check(check, history, undisturbed, claim).code != "gap"


def _awaited(verdict: Verdict, times: Sequence[Span]) -> Span:
    """From when on an event that came too early was to be awaited: what stood still in that time may have
    kept an anchor that is in the API from a controller, which counts from the one before.
    """
    low_s = verdict.window.low_s if verdict.window else 0.0
    return hull([*times, Span.at(times[-1].until_t - low_s)])


def _may_have_lost_nodes(
    verdict: Verdict, history: History, configuration: Configuration, times: Times
) -> str:
    """Why a deviation may be due to nodes that no fault hit, or nothing: those of a lab that stood still for
    so long before have sent no heartbeat, either, and are Unknown when it goes on.
    """
    if verdict.outcome != "deviates":
        return ""
    before_t = hull(times).until_t if times else math.inf
    stalled_s = stood_still_s(history, before_t)
    if stalled_s <= configuration.slack_limit_s or stalled_s <= loses_nodes_s(configuration):
        return ""
    return f"the lab stood still for {stalled_s:.1f} s and may have lost nodes by that"


def _is_late(verdict: Verdict) -> bool:
    """Whether it deviates, and not because something came too early."""
    if verdict.outcome != "deviates" or verdict.window is None or verdict.measured is None:
        return verdict.outcome == "deviates"
    value = verdict.measured.value
    return not isinstance(value, float) or value >= verdict.window.low_s


def _not_for_this_lab(claim: Claim, configuration: Configuration) -> Verdict | None:
    if not includes(claim.versions, configuration.kubernetes_version):
        said = f"the claim holds for {claim.versions}, the cluster runs {configuration.kubernetes_version}"
        return unproven("not-applicable", said)
    if claim.subject == "kubelet" and not configuration.tested_kubelet:
        return unproven("lab-lacks", "the hollow kubelet was not built from the Kubernetes under test")
    if claim.subject == CLOUD and not _is_of_the_tree(configuration, CLOUD):
        return unproven("lab-lacks", f"the {CLOUD} was not built from the Kubernetes under test")
    return None


def _is_of_the_tree(configuration: Configuration, role: str) -> bool:
    """Whether an executable is one file with the controller manager: two files may be of two trees."""
    told = [configuration.components.get(each, {}) for each in (role, "kube-controller-manager")]
    return bool(told[0]) and told[0]["sha256"] == told[1]["sha256"]


def undecided_s(check: Check, history: History, configuration: Configuration, now_t: float) -> float | None:
    """How long (s) a recording must still go on for a check: `checks.remaining_s`, and where its event has
    not come, for as long again as that may have waited for processors. Else its lateness would mean nothing,
    however late it is.
    """
    slack = longest_slack_s(history, configuration)
    left_s = remaining_s(check, history, Ground(configuration, slack), now_t)
    if left_s is None or left_s > 0.0 or check.name != "after":
        return left_s
    waited_s = waited_before_s(history, now_t + left_s)
    return remaining_s(check, history, Ground(configuration, slack + waited_s), now_t)


def _not_injected(history: History, check: Check) -> Verdict | None:
    """A fault that was not in, or not to its end, unless the check is whether one lasted."""
    ours = {entry.data["id"] for entry in history.of_kind("fault")}
    fired = [entry for entry in history.of_kind("deadman") if entry.data["id"] in ours]
    if fired:
        return unproven(
            "not-injected", f"the dead-man's switch healed fault {fired[0].data['id']} before its time"
        )
    steps: dict[str, list[str]] = {}
    for entry in history.of_kind("fault"):
        steps.setdefault(entry.data["id"], []).append(entry.data["step"])
    for fault, seen in steps.items():
        probed = [step for step in seen if step in PROBED]
        ended_early = "injected" in seen and check.name == "lasted"
        if probed[-1:] != ["injected"] and not ended_early:
            return unproven("not-injected", f"no probe proved fault {fault}; its steps: {', '.join(seen)}")
    return None


def _not_healed(history: History, verdict: Verdict) -> Verdict | None:
    """A deviation may be what a fault did that was to be over."""
    for entry in history.of_kind("fault"):
        if entry.data["step"] == "unhealed" and verdict.outcome == "deviates":
            return unproven("not-injected", f"fault {entry.data['id']} was not healed; {verdict.reason}")
    return None


def died(history: History) -> Entry | None:
    """The first component that ended and should not have: no fault was to end it."""
    for entry in history.of_kind("component"):
        if not entry.data["expected"] and not _by_fault(history, entry):
            return entry
    return None


def _component_died(history: History) -> Verdict | None:
    entry = died(history)
    if entry is None:
        return None
    where = f" on {entry.data['node']}" if entry.data.get("node") else ""
    return unproven("component-died", f"{entry.data['name']}{where} {entry.data['status']}")


def _by_fault(history: History, end: Entry) -> bool:
    """Whether a component ended on the target of a fault that ends components, from the moment that the harm
    was begun until it was undone.
    """
    steps = [
        entry
        for entry in history.of_kind("fault")
        if entry.data.get("ends_components") and entry.data["node"] == end.data.get("node")
    ]
    begun = [entry.data["id"] for entry in steps if entry.data["step"] == "injecting" and entry.t <= end.t]
    over = {entry.data["id"] for entry in steps if entry.data["step"] == "healed" and entry.t < end.t}
    return any(fault not in over for fault in begun)
