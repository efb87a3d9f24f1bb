"""Verdicts of checks: the conditions under which a recording can decide a claim."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nodeproof.checks import heartbeats
from nodeproof.checks.checks import Times, evidence_times, remaining_s, run_check
from nodeproof.checks.settings import KUBELET, changed_default, changed_settings
from nodeproof.model.claim import Claim, includes, release
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import PROBED, Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import Json
from nodeproof.model.slack import (
    Span,
    hull,
    late_anchor_s,
    longest_slack_s,
    longest_stall_s,
    loses_nodes_s,
    misread_s,
    slack_s,
    undisturbed_s,
    waited_s,
    working_until_t,
    worst_moment_s,
)
from nodeproof.model.verdict import Outlier, Verdict, unproven
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


def judge(claim: Claim, check: Check, history: History, configuration: Configuration) -> Verdict:
    """Judge one claim from a recording.

    Reasons that no recording can change come first, then the check, then doubts about its result: a fault
    that was aborted or not proven, a component that died, a host that was too loaded when the check read its
    times. A check that raises an exception gets the verdict `check-failed` and does not affect other
    judgments.
    """
    try:
        kubelet = kubelet_version(claim, check, history, configuration)
        not_applicable = _not_applicable(claim, kubelet, configuration)
        if not_applicable is not None:
            return replace(not_applicable, kubelet_version=kubelet)
        verdict = replace(_judge(claim, check, history, configuration), kubelet_version=kubelet)
        return _compare_with_report(verdict, claim, check, history, configuration)
    except Exception as error:
        reason = f"check {check.name} of {claim.id} failed: {type(error).__name__}: {error}"
        return unproven("check-failed", reason)


def _compare_with_report(
    verdict: Verdict, claim: Claim, check: Check, history: History, configuration: Configuration
) -> Verdict:
    """Name the bug, if it explains a deviation, or if a version that was reported to have it conforms."""
    bug = claim.reported
    versions = _versions(verdict.kubelet_version, configuration)
    if bug is None or not verdict.is_proven or not _includes_all(bug.versions, versions):
        return verdict
    deviation = bug.deviation(check)
    if deviation is None:
        return verdict
    if verdict.outcome == "conforms":
        reason = f"{verdict.reason}; {bug.issue} reports a bug here: fixed?"
        return replace(verdict, reason=reason, reported=bug.issue)
    as_reported = _judge(claim, deviation, history, configuration)
    if as_reported.code == "host-too-loaded":
        # Whether the deviation is the reported one is uncertain, so it must not fail a run.
        return replace(as_reported, kubelet_version=verdict.kubelet_version)
    if as_reported.outcome != "conforms":
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {bug.issue} reports this", reported=bug.issue)


def _judge(claim: Claim, check: Check, history: History, configuration: Configuration) -> Verdict:
    not_applicable = _not_for_this_lab(claim, configuration)
    if not_applicable is not None:
        return not_applicable
    not_default = changed_default(claim, configuration)
    if not_default:
        return unproven("scaled", not_default)
    changed_figure = changed_settings(check, claim, history)
    if changed_figure:
        return unproven("scaled", f"{changed_figure}; its value in the configuration does not apply")
    times = evidence_times(check, history, configuration)
    case = _Judging(claim, check, history, configuration, times)
    verdict = case.verdict(case.context(times))
    load = case.load_behind(verdict)
    context = load.context
    too_loaded = load.may_explain or case.is_over_limit(context) or case.is_owed_to_load(verdict, context)
    if check.name == "default" or (verdict.is_skip and not too_loaded):
        return verdict
    invalid = next(_doubts(check, history, configuration, verdict), None)
    if invalid is not None:
        return invalid
    lost_nodes = _may_have_lost_nodes(verdict, history, configuration, times)
    if lost_nodes:
        reason = f"{lost_nodes}; {verdict.reason}"
        return unproven("host-too-loaded", reason, verdict.window, verdict.measured)
    if too_loaded and (verdict.code in ("", "scaled") or case.is_gap_of_load(verdict)):
        waiting = f" and {load.waited_s:.2f} s of CPU wait" if load.waited_s else ""
        slack = f"slack {context.slack_s:.2f} s (limit {configuration.slack_limit_s:g} s)"
        reason = f"{slack}{waiting} makes this uncertain: {verdict.reason}"
        return unproven("host-too-loaded", reason, verdict.window, verdict.measured)
    if load.unexplained:
        verdict = replace(verdict, reason=f"{verdict.reason}; {load.unexplained}")
    return _with_foreign_write(verdict, history)


@dataclass(frozen=True)
class _Load:
    """The load of the host behind a verdict, and whether it may explain a deviation.

    `context` has the slack that decides, `waited_s` is the longest possible wait of a process (s),
    `unexplained` which of several events no wait explains.
    """

    context: WindowContext
    waited_s: float = 0.0
    may_explain: bool = False
    unexplained: str = ""


@dataclass(frozen=True)
class _Judging:
    """A check of a recording that is repeated with the slack of different times."""

    claim: Claim
    check: Check
    history: History
    configuration: Configuration
    times: Times

    def context(self, about: Times) -> WindowContext:
        """Return the context with the slack near `about`.

        Stalls near `about` may have moved the times of the check. Only at these times themselves can a time
        have been misread.
        """
        history, configuration = self.history, self.configuration
        misreading_s = misread_s(history, configuration, self.times)
        shift_s = slack_s(history, configuration, about) - misread_s(history, configuration, about)
        return WindowContext(configuration, shift_s + misreading_s, misreading_s)

    def verdict(self, context: WindowContext) -> Verdict:
        return run_check(self.check, self.history, context, self.claim)

    def verdict_with(self, slack_s: float, misread_s: float = 0.0) -> Verdict:
        return self.verdict(WindowContext(self.configuration, slack_s, misread_s))

    def load_behind(self, verdict: Verdict) -> _Load:
        """Return the load that may explain a deviation."""
        context = self.context(self.times)
        if verdict.outliers:
            # Each of a series of events has its own waits.
            gaps = [(gap, outlier.window) for outlier in verdict.outliers for gap in outlier.gaps]
            waited_s = max(self.waited_in_gap_s(*gap) for gap in gaps)
            other = next((outlier for outlier in verdict.outliers if not self.may_explain_gap(outlier)), None)
            unexplained = f"no CPU wait explains {other}" if other and waited_s else ""
            return _Load(context, waited_s, other is None, unexplained)
        if not self.times or verdict.outcome != "deviates":
            return _Load(context)
        if not _is_late(verdict):
            early = self.context([_awaited(verdict, self.times)])
            may_explain = self.verdict(early).outcome != "deviates"
            return _Load(early if may_explain else context, may_explain=may_explain)
        # A stall between an anchor and its event may have delayed the event itself.
        within = _until_event(hull(self.times), verdict)
        context = self.context([within])
        awaited = within if verdict.measured else Span(within.since_t, self.history.ended_t)
        waited_s = _waited_s(awaited, verdict.window, self.history, self.configuration)
        return _Load(context, waited_s, self.may_explain(verdict, context, waited_s))

    def may_explain(self, verdict: Verdict, context: WindowContext, waited_s: float) -> bool:
        """Return whether slack and a wait (s) may explain an event that came late, or never."""
        window, measured = verdict.window, verdict.measured
        allowed = replace(context, slack_s=context.slack_s + waited_s)
        if window and window.shape == "negative" and measured and isinstance(measured.value, float):
            # A wait may delay a forbidden event past its anchor, but lets none come before the end.
            latest_s = window.low_s + allowed.slack_s
            allowed = allowed if measured.value <= latest_s else context
        return self.verdict(allowed).outcome != "deviates"

    def may_explain_gap(self, outlier: Outlier) -> bool:
        """Return whether a wait may explain one of the gaps."""
        window = outlier.window
        waited = ((gap.length_s, self.waited_in_gap_s(gap, window)) for gap in outlier.gaps)
        return any(window.low_s - waited_s <= gap_s <= window.high_s + waited_s for gap_s, waited_s in waited)

    def waited_in_gap_s(self, gap: Span, window: Window) -> float:
        """Return the longest possible wait (s) of the event that ends a long gap, or starts a short one.

        The latter was due one period before the event that ends the gap.
        """
        is_short = gap.length_s < window.low_s
        awaited = Span(gap.until_t - 2 * window.nominal_s, gap.since_t) if is_short else gap
        return _waited_s(awaited, window, self.history, self.configuration)

    def is_over_limit(self, context: WindowContext) -> bool:
        """Return whether slack is over the profile's limit at one of the times, or at a time of one span."""
        limit_s = self.configuration.slack_limit_s
        if context.slack_s <= limit_s or self.times is None or len(self.times) != 1:
            return context.slack_s > limit_s
        return worst_moment_s(self.history, self.configuration, self.times[0]) > limit_s

    def is_owed_to_load(self, verdict: Verdict, context: WindowContext) -> bool:
        """Return whether a time conforms only because of a stall or a clock step.

        A stall may have lengthened the measured time as much as the slack, and shortened it as much as the
        slack near the anchor: an event is never recorded before it occurs. The time must therefore also
        conform with the slack of an undisturbed host, reduced by what the stall added. An early event does
        not matter if only a bound is claimed.
        """
        window, measured = verdict.window, verdict.measured
        # The check `spaced` already includes the uncertainty of its rate.
        if self.check.name == "spaced" or verdict.outcome != "conforms":
            return False
        if window is None or window.shape == "negative" or measured is None:
            return False
        slack_s = context.slack_s
        if context.misread_s and self.verdict_with(slack_s, -context.misread_s).outcome != "conforms":
            return True
        if self.check.name == "renewals":
            # It already includes the uncertainty of its mean.
            return False
        undisturbed = undisturbed_s(self.history, self.configuration)
        if slack_s <= undisturbed:
            return False
        strict = self.verdict_with(2 * undisturbed - slack_s)
        if strict.outcome == "conforms" or strict.window is None or not isinstance(measured.value, float):
            return False
        if measured.value < strict.window.low_s:
            return window.shape == "period"
        added_s = self._late_anchor_s(slack_s - undisturbed)
        if added_s <= 0.0:
            return False
        bound = self.verdict_with(undisturbed - added_s).window
        return bound is None or measured.value > bound.high_s

    def _late_anchor_s(self, most_s: float) -> float:
        """Return how much (s) a late anchor may have shortened the measured time, at most `most_s`."""
        if self.check.name != "after" or self.times is None or len(self.times) != 2:
            return most_s
        # The check has one time for its anchor and one for its event.
        misreading_s = misread_s(self.history, self.configuration, self.times)
        anchor = self.times[0]
        misreading_s -= misread_s(self.history, self.configuration, [anchor])
        return late_anchor_s(self.history, self.configuration, anchor) + misreading_s

    def is_gap_of_load(self, verdict: Verdict) -> bool:
        """Return whether the recording would decide the claim with the slack of an undisturbed host."""
        undisturbed = undisturbed_s(self.history, self.configuration)
        return verdict.code == "gap" and self.verdict_with(undisturbed).code != "gap"


def _awaited(verdict: Verdict, times: Sequence[Span]) -> Span:
    """Return the time in which an early event should have been awaited.

    A stall in that time may have hidden the anchor from a controller, which then counts from an earlier one.
    """
    low_s = verdict.window.low_s if verdict.window else 0.0
    return hull([*times, Span.at(times[-1].until_t - low_s)])


def _may_have_lost_nodes(
    verdict: Verdict, history: History, configuration: Configuration, times: Times
) -> str:
    """Return why a deviation may be due to nodes that no fault hit, or an empty string.

    The nodes of a lab that stalled too long before the event sent no heartbeats either, and become Unknown
    when the lab resumes.
    """
    if verdict.outcome != "deviates":
        return ""
    before_t = hull(times).until_t if times else math.inf
    stalled_s = longest_stall_s(history, before_t)
    if stalled_s <= configuration.slack_limit_s or stalled_s <= loses_nodes_s(configuration):
        return ""
    return f"the lab stalled for {stalled_s:.1f} s and may have lost nodes"


def _is_late(verdict: Verdict) -> bool:
    """Return whether a verdict deviates for another reason than an early event."""
    window, measured = verdict.window, verdict.measured
    if verdict.outcome != "deviates" or (measured and measured.unit not in ("", "s")):
        return False
    if window is None or measured is None:
        return True
    return not isinstance(measured.value, float) or measured.value >= window.low_s


def _until_event(within: Span, verdict: Verdict) -> Span:
    """Return a time that starts at an anchor, extended to an event that came later."""
    measured = verdict.measured
    if measured is None or measured.unit != "s" or not isinstance(measured.value, float):
        return within
    return Span(within.since_t, max(within.until_t, within.since_t + measured.value))


def _waited_s(within: Span, window: Window | None, history: History, configuration: Configuration) -> float:
    """Return the longest possible wait (s) of an event from its anchor until it came, or was last awaited.

    Besides those just before the event, the waits since it was due count. On a machine, a change passes
    through many processes of the guest, which share its virtual processors: on a busy host that takes longer.
    The work that a bound limits may take all of the time from its anchor on. A period is that of a timer,
    which may start late, and runs meanwhile.
    """
    if window is None:
        return waited_s(history, within)
    due_s = window.low_s if window.shape == "negative" else window.nominal_s
    working = [Span(within.since_t + due_s, within.until_t)]
    if configuration.has_own_systems:
        starting = Span(within.since_t, working_until_t(history, within.since_t))
        working.append(within if window.shape == "within" else starting)
    return waited_s(history, within, working)


def _not_applicable(claim: Claim, kubelet: str, configuration: Configuration) -> Verdict | None:
    """Return a verdict if the claim does not hold for the version of the kubelet, or of the cluster."""
    versions = _versions(kubelet, configuration)
    if _includes_all(claim.versions, versions):
        return None
    runs = f"the {'kubelet' if kubelet else 'cluster'} runs {', then '.join(versions)}"
    reason = f"the claim holds for {claim.versions}, {runs}"
    return unproven("not-applicable", reason)


def _not_for_this_lab(claim: Claim, configuration: Configuration) -> Verdict | None:
    if claim.subject == "kubelet" and not configuration.tested_kubelet:
        return unproven("lab-lacks", "the hollow kubelet was not built from the Kubernetes under test")
    # An executable of the tree is the controller manager's own file: two files may come from two trees.
    cloud, manager = (configuration.components.get(name, {}) for name in (CLOUD, "kube-controller-manager"))
    if claim.subject == CLOUD and not (cloud and cloud["sha256"] == manager["sha256"]):
        return unproven("lab-lacks", f"the {CLOUD} was not built from the Kubernetes under test")
    return None


def _versions(kubelet: str, configuration: Configuration) -> Sequence[str]:
    """Return the version of the kubelet that a claim is about, else those that the control plane had."""
    return (kubelet,) if kubelet else configuration.versions


def _includes_all(versions: str, actual: Sequence[str]) -> bool:
    return all(includes(versions, version) for version in actual)


def undecided_s(check: Check, history: History, configuration: Configuration, now_t: float) -> float | None:
    """Return how much longer (s) a recording must continue to decide a check.

    This is `checks.remaining_s`. While the event has not occurred and recorded CPU waits may explain that, it
    is extended by these waits, at most by the claimed time: on a host that waits all the time, it would never
    be decided.
    """
    slack = longest_slack_s(history, configuration)
    left_s = remaining_s(check, history, WindowContext(configuration, slack), now_t)
    if left_s is None or left_s > 0.0 or check.name != "after":
        return left_s
    times = evidence_times(check, history, configuration)
    since_t = hull(times).since_t if times else now_t
    window = compute(WindowSpec.from_json(check.args["window"]), WindowContext(configuration, slack), {})
    waiting_s = _waited_s(Span(since_t, now_t), window, history, configuration)
    extended = WindowContext(configuration, slack + min(waiting_s, window.nominal_s))
    return remaining_s(check, history, extended, now_t)


def abort_of(history: History) -> Entry | None:
    """Return the first step by which the owner of the nodes ended a fault."""
    steps = history.of_kind("fault")
    return next((entry for entry in steps if entry.data["step"] == "aborted"), None)


def _doubts(
    check: Check, history: History, configuration: Configuration, verdict: Verdict
) -> Iterator[Verdict]:
    """Yield why the faults and components of a recording do not allow a verdict, the worst first."""
    aborted, exit_entry = abort_of(history), unexpected_exit(history)
    if aborted is not None:
        yield unproven("aborted", f"fault {aborted.data['id']} was aborted: {aborted.data['reason']}")
    not_injected = _not_injected(history, check)
    if not_injected:
        yield unproven("not-injected", not_injected)
    renewed = heartbeats.contact(history, configuration)
    if renewed:
        yield unproven("not-injected", f"{renewed}; {verdict.reason}", verdict.window, verdict.measured)
    if exit_entry is not None:
        where = f" on {exit_entry.data['node']}" if exit_entry.data.get("node") else ""
        yield unproven("component-died", f"{exit_entry.data['name']}{where} {exit_entry.data['status']}")
    unhealed = [entry.data["id"] for entry in history.of_kind("fault") if entry.data["step"] == "unhealed"]
    if unhealed and verdict.outcome == "deviates":
        # The deviation may be the effect of the fault.
        yield unproven("not-injected", f"fault {unhealed[0]} was not healed; {verdict.reason}")


def _not_injected(history: History, check: Check) -> str:
    """Return which fault was not active to its end, unless the check is `lasted`, or an empty string."""
    fault_ids = {entry.data["id"] for entry in history.of_kind("fault")}
    deadman_entries = [entry for entry in history.of_kind("deadman") if entry.data["id"] in fault_ids]
    if deadman_entries:
        return f"the dead-man's switch healed fault {deadman_entries[0].data['id']} before its time"
    steps: dict[str, list[str]] = {}
    for entry in history.of_kind("fault"):
        steps.setdefault(entry.data["id"], []).append(entry.data["step"])
    for fault, fault_steps in steps.items():
        probed = [step for step in fault_steps if step in PROBED]
        ended_early = "injected" in fault_steps and check.name == "lasted"
        if probed[-1:] != ["injected"] and not ended_early:
            return f"no probe proved fault {fault}; its steps: {', '.join(fault_steps)}"
    return ""


def _with_foreign_write(verdict: Verdict, history: History) -> Verdict:
    """Add to a deviation who else wrote the Lease of a node that was cut off, if anybody did."""
    written = heartbeats.foreign_write(history) if verdict.outcome == "deviates" else ""
    return replace(verdict, reason=f"{verdict.reason}; {written}") if written else verdict


def unexpected_exit(history: History) -> Entry | None:
    """Return the first component that ended unexpectedly, without a fault that ends components."""
    for entry in history.of_kind("component"):
        if not entry.data["expected"] and not _by_fault(history, entry):
            return entry
    return None


def _by_fault(history: History, exit_entry: Entry) -> bool:
    """Return whether a component ended on a fault's target, between the fault's injection and its healing."""
    steps = [
        entry
        for entry in history.of_kind("fault")
        if entry.data.get("ends_components") and entry.data["node"] == exit_entry.data.get("node")
    ]
    injected_ids = [
        entry.data["id"] for entry in steps if entry.data["step"] == "injecting" and entry.t <= exit_entry.t
    ]
    healed_ids = {
        entry.data["id"] for entry in steps if entry.data["step"] == "healed" and entry.t < exit_entry.t
    }
    return any(fault not in healed_ids for fault in injected_ids)


# The kubelet that a claim is about, in a lab whose kubelets are older than its control plane


def kubelet_version(claim: Claim, check: Check, history: History, configuration: Configuration) -> str:
    """Return the version of the kubelet that a claim is about; empty if it is the API server's.

    A default is that of the kubelet that reported it. Another check names nodes, or pods on them; without
    any, it is about all nodes of the recording. Of several versions, return one in which the claim does not
    hold, else the oldest.
    """
    if claim.subject != KUBELET or not configuration.node_versions:
        return ""
    if check.name == "default":
        return configuration.kubelet_version
    nodes = _nodes_of(check, history) or {*history.begun.get("nodes", ())}
    versions = sorted({_version_on(node, history, configuration) for node in nodes}, key=release)
    others = (version for version in versions if not includes(claim.versions, version))
    version = next(others, next(iter(versions), ""))
    return "" if version == configuration.kubernetes_version else version


def _nodes_of(check: Check, history: History) -> Set[str]:
    """Return the nodes that the arguments of a check name, and those of the pods that they name."""
    names = {name for text in _texts(check.args) for name in _NAME.findall(text)}
    nodes = {name for name in names if history.versions("nodes", "", name)}
    for pod in history.all_versions("pods"):
        if pod.object["metadata"]["name"] in names:
            nodes.add(str(pod.object["spec"].get("nodeName") or ""))
    return nodes - {""}


def _texts(args: Json) -> Iterator[str]:
    if isinstance(args, str):
        yield args
    elif isinstance(args, Mapping | list | tuple):
        for part in args.values() if isinstance(args, Mapping) else args:
            yield from _texts(part)


def _version_on(node: str, history: History, configuration: Configuration) -> str:
    """Return the version of a node's kubelet; a node that joined later is in the recording alone."""
    if node in configuration.node_versions:
        return configuration.node_versions[node]
    infos = (
        state.object.get("status", {}).get("nodeInfo", {}) for state in history.versions("nodes", "", node)
    )
    reported = (str(info["kubeletVersion"]) for info in infos if info.get("kubeletVersion"))
    return next(reported, configuration.kubernetes_version)
