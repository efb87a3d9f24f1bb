"""The scenario's `lab`: a clean cluster, one node that may be affected, one recording.

Its verbs are record, inject, run, observe, collect, wait_for. Their arguments are data: a fault, an
action, a probe, a source, a check.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nodeproof.actions import Action, ActionContext, Workload, perform
from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import can_be_waited_for, describe, refuse
from nodeproof.checks.judge import abort_of
from nodeproof.checks.observations import shows
from nodeproof.checks.repeated import counted
from nodeproof.checks.shapes import Occurrence
from nodeproof.cluster import workloads
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import Pod
from nodeproof.faults import Fault
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.client.handle import LabHandle, TooFewNodes
from nodeproof.model import window as windows
from nodeproof.model.claim import ReportedBug
from nodeproof.model.cluster import LEASE_NAMESPACE, Configuration, condition
from nodeproof.model.formula import Term
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment, Observation, effect_of
from nodeproof.model.needs import FAULTED_S, Needs
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.slack import slack_s
from nodeproof.model.window import Duration, WindowSpec, longer
from nodeproof.probes import Probe, Sample
from nodeproof.recording.node_messages import BootClock, read_clock
from nodeproof.recording.recorder import Recording
from nodeproof.safety.guard import Declared
from nodeproof.safety.injector import Aborted, Injection
from nodeproof.sources import Source, SourceContext, WitnessMessages
from nodeproof.waiting import OnWait, ignore_wait, wait_until

Within = WindowSpec | Duration
Register = Callable[[str, Check], None]
"""Registers a check that decides a claim when the scenario ends."""


@dataclass(frozen=True)
class Expectation:
    """What the recording must show for one claim; a claim may have several expectations.

    Each is registered before anything is waited for: a scenario that is aborted loses none of them. The
    verdict is given when the scenario has ended, from the recording alone.

    Args:
        claim: id of the claim.
        window: the window in the claim's YAML, if it has one.
        reported: the known bug of the claim, if it has one.
        margin_s: how much longer (s) than its window an absence is recorded: more than any slack.
    """

    claim: str
    window: WindowSpec | None
    reported: ReportedBug | None
    margin_s: float
    register: Register
    wait: Callable[[Check], object]

    def expect(
        self, event: Moment | Check, *, within: Within | None = None, after: Moment | None = None
    ) -> Check:
        """Register an event or a check, and wait until it is decided or its window has passed.

        The verdict is computed when the scenario ends; the wait only keeps the recording running. Where an
        event that came in time would end it, a late one is awaited as long as a known bug may delay it.

        Args:
            event: a moment, with `after`; or a check that has its anchor and window.
            within: the window, or a duration from the anchor; by default the window of the claim's YAML.
            after: the anchor of the window.

        Raises:
            Problem: The claim has no window, or the check is decided by the end of the recording.
        """
        check = self.expect_later(event, within=within, after=after)
        self.wait(check)
        deviation = self.reported and self.reported.deviation(check)
        if deviation:
            self.wait(deviation)
        return check

    def expect_later(
        self, event: Moment | Check, *, within: Within | None = None, after: Moment | None = None
    ) -> Check:
        """Register an event or a check without waiting; it is judged when the scenario ends, like all checks.

        Use it if something else keeps the recording running long enough: another wait, or a later `expect`.
        The arguments are those of `expect`.

        Raises:
            Problem: The claim has no window.
        """
        check = event if isinstance(event, Check) else self._timed(event, within, after)
        self.register(self.claim, check)
        return check

    def expect_value(self, observation: Observation, pattern: Json) -> Check:
        """Register that an observed value matches a pattern (`nodeproof.model.pattern`)."""
        return self.expect_later(shows(observation, pattern))

    def expect_none(self, event: Moment, *, after: Moment, until: Moment) -> Check:
        """Register that an event does not occur between two moments."""
        return self.expect_later(counted(event, 0, 0, after=after, until=until))

    def never(self, event: Moment, *, throughout: Within, after: Moment) -> Check:
        """Register that an event does not occur in a window, and wait until it could not be hidden by slack.

        Args:
            event: what must not occur.
            throughout: the window, or a duration from the anchor.
            after: the anchor of the window.
        """
        window = throughout if isinstance(throughout, WindowSpec) else windows.absence(throughout)
        check = event.never_after(after, window)
        self.register(self.claim, check)
        self.wait(event.never_after(after, longer(window, self.margin_s)))
        return check

    def _timed(self, event: Moment, within: Within | None, after: Moment | None) -> Check:
        window = self.window if within is None else within
        if window is None:
            next_step = "pass `within=`, or add `window` to the claim's YAML"
            raise Problem(f"{event} has no window", f"claim {self.claim}", next_step)
        if after is None:
            raise Problem(f"{event} has no anchor", f"claim {self.claim}", "pass `after=`")
        return event.after(after, window)


class Expectations(Protocol):
    """The fixture `claim`: `claim("taints.unreachable-noexecute").expect(...)`."""

    def __call__(self, claim: str, /) -> Expectation:
        """Return the expectation of a claim. The id must be a string literal: collection reads the source."""
        ...


@dataclass(frozen=True)
class Taint:
    """A taint that a node may have."""

    node: str
    key: str
    effect: str

    @property
    def added(self) -> Moment:
        """The addition of the taint."""
        return moments.taint_added(self.node, self.key, self.effect)

    @property
    def removed(self) -> Moment:
        """The removal of the taint."""
        return moments.taint_removed(self.node, self.key, self.effect)


class Node(str):
    """The name of a node, with its moments."""

    __slots__ = ()

    @property
    def ready(self) -> Moment:
        """The change of its condition Ready to True."""
        return self.condition("Ready", "True")

    @property
    def not_ready(self) -> Moment:
        """The change of its condition Ready to False."""
        return self.condition("Ready", "False")

    @property
    def unknown(self) -> Moment:
        """The change of its condition Ready to Unknown."""
        return self.condition("Ready", "Unknown")

    @property
    def detection(self) -> Check:
        """A check that its Ready becomes Unknown a grace period after its last heartbeat."""
        return self.unknown.after(self.last_heartbeat(before=self.unknown), windows.detection())

    @property
    def created(self) -> Moment:
        """The creation of its Node object."""
        return moments.created("nodes", self)

    @property
    def removed(self) -> Moment:
        """The removal of its Node object."""
        return moments.removed("nodes", self)

    @property
    def lease_renewal(self) -> Moment:
        """A renewal of its Lease."""
        return moments.changed("leases", self, "spec.renewTime", LEASE_NAMESPACE)

    @property
    def status_report(self) -> Moment:
        """A report of its status."""
        return moments.changed("nodes", self, "status.conditions[].lastHeartbeatTime")

    @property
    def cordoned(self) -> Moment:
        """The change of spec.unschedulable to true."""
        return moments.cordoned(self)

    @property
    def uncordoned(self) -> Moment:
        """The removal of spec.unschedulable."""
        return moments.uncordoned(self)

    def condition(self, type_: str, status: str) -> Moment:
        """Match the change of a condition to a status."""
        return moments.condition_became(self, type_, status)

    def event(self, reason: str, message: str = "") -> Moment:
        """Match an event about it with this reason, whose message starts with this text."""
        return moments.event_reported(reason, "Node", self, message)

    def became(self, pattern: Mapping[str, Any]) -> Moment:
        """Match the change of its Node object to one with these fields."""
        return moments.became("nodes", self, pattern)

    @property
    def shutdown_detected(self) -> Moment:
        """Its kubelet's event that a shutdown began."""
        return self.event("Shutdown", "Shutdown manager detected shutdown event")

    @property
    def shutdown_cancelled(self) -> Moment:
        """Its kubelet's event that a shutdown was cancelled."""
        return self.event("Shutdown", "Shutdown manager detected shutdown cancellation")

    @property
    def shutting_down(self) -> Moment:
        """The report that its condition Ready is False because it shuts down."""
        reason = ("KubeletNotReady", "node is shutting down")
        return moments.condition_reported(self, "Ready", "False", *reason)

    def taint(self, key: str, effect: str = "NoExecute") -> Taint:
        """Return one of its taints."""
        return Taint(self, key, effect)

    def last_heartbeat(self, before: Moment) -> Moment:
        """Match its last heartbeat, a lease renewal or a status update, before a moment."""
        return moments.last_heartbeat(self, before)


_FREEZE_STEPS = ("frozen", "thawed")


@dataclass
class ReportCollector:
    """Collector of reports of one lab, with each node's clock in the boot that its witnesses run in."""

    lab: LabHandle
    _clocks: dict[str, BootClock] = field(default_factory=dict)
    _present: dict[tuple[str, str], BootClock] = field(default_factory=dict)
    _recorded: set[tuple[str, float, str]] = field(default_factory=set)

    def keep_clock(self, node: str) -> None:
        """Measure a node's clock in this boot, by which its witnesses report. Raises MachineError."""
        self._clocks[node] = read_clock(self.lab.fleet.machine(node))

    def collect(self, recording: Recording, source: Source) -> None:
        """Record a source's reports since the recording began, and until when they are complete.

        Reports that were recorded before are skipped.

        Raises:
            ApiError: The API did not answer.
            MachineError: A machine did not answer.
            Problem: The source cannot be read.
            OSError: A file cannot be read or written.
        """
        history = recording.history()
        report = source.read(SourceContext(self.lab, history, self._clock, self._present_clock))
        why_frozen = _why_frozen(history, report.node)
        for message in () if why_frozen else report.messages:
            key = (source.by, round(message.t, 6), message.what)
            if message.t >= history.began_t and key not in self._recorded:
                self._recorded.add(key)
                recording.append("told", message.t, by=source.by, what=message.what)
        lost_spans = [Lost(history.began_t, report.until_t, why_frozen)] if why_frozen else report.losses
        unsure = [span.to_json() for span in lost_spans]
        facts = {"by": source.by, "error_s": round(report.error_s, 6), "unsure": unsure}
        recording.append("heard", report.until_t, **facts, node=report.node, boot_id=report.boot_id)

    def _clock(self, node: str) -> BootClock:
        if node not in self._clocks:
            reason = f"the clock of {node} was not measured"
            raise Problem(reason, "lab.collect(...)", "run a witness on it first")
        return self._clocks[node]

    def _present_clock(self, node: str) -> BootClock:
        """Measure a clock once in each boot, so that a report that is read twice has the same time."""
        fresh = read_clock(self.lab.fleet.machine(node))
        return self._present.setdefault((node, fresh.boot_id), fresh)


def _why_frozen(history: History, node: str) -> str:
    """Return why no report of a node has its true time, or an empty string: its clock was stopped."""
    for entry in history.of_kind("machine"):
        if entry.data["node"] == node and entry.data["step"] in _FREEZE_STEPS:
            return f"{node} stood still: its time since boot did not go on"
    return ""


T = TypeVar("T")
STATUS = "STATUS"
_RECENT_S = 2.5
"""In this time (s) at least one sentinel arrives, unless the lab is late."""
Step = Callable[[str], AbstractContextManager[object]]
"""Opens a named step of the report, such as `allure.step`."""


class Lab:
    """A lab as one scenario sees it.

    `targets` are the nodes that its faults may hit, as many as its `needs(faulted=...)` declares; `target` is
    the node that it is about. `needs(components=..., radius=...)` declare what else they may hit.
    """

    def __init__(
        self, lab: LabHandle, folder: Path, needs: Needs, step: Step, until: OnWait = ignore_wait
    ) -> None:
        self._lab = lab
        self._step = step
        self._on_wait = until
        self._path = folder / "history.jsonl"
        self._usable = lab.usable_nodes()
        self.targets = [Node(name) for name in _targets(lab, needs)]
        self._declared = Declared(self.targets, needs.components, needs.radius)
        self._duration = Term.of(needs.duration_s or FAULTED_S)
        self.target = Node(self._usable[0])
        self.recording: Recording | None = None
        self._collector = ReportCollector(lab)
        self._has_affected_nodes = False

    @property
    def configuration(self) -> Configuration:
        """The running configuration."""
        return self._lab.configuration

    @property
    def upgrade_version(self) -> str:
        """The version that `faults.upgrade` restarts components with (`--upgrade-to`)."""
        return self._lab.upgrade_version

    @property
    def toleration_s(self) -> int:
        """A tolerationSeconds that suits the profile and differs from the default."""
        return self._lab.profile.toleration_s

    @property
    def quiet_s(self) -> float:
        """How long this profile waits to see that something does not happen (s)."""
        return self.configuration.negative_wait_s

    @property
    def clear_s(self) -> float:
        """Extra wait (s) for an absence that the scenario's next step would end: more than any slack."""
        return self._lab.profile.slack_limit_s + 1.0

    def slack_share(self) -> float | None:
        """Return the slack of the last seconds as a share of its limit, or None if nothing was measured."""
        if self.recording is None:
            return None
        measured = self.recording.measured(_RECENT_S)
        if not measured.entries:
            return None
        return slack_s(measured, self.configuration) / self.configuration.slack_limit_s

    def nodes(self) -> list[NodeInfo]:
        """Return the lab's nodes, in service or not."""
        return self._lab.fleet.nodes()

    @property
    def others(self) -> list[Node]:
        """The other nodes in service, first those that may be affected."""
        names = [Node(entry.name) for entry in self.nodes() if entry.name != self.target]
        in_service = [name for name in names if name not in self._lab.out_of_service]
        return sorted(in_service, key=lambda name: name not in self._usable)

    def labels(self, node: str) -> Mapping[str, str]:
        """Return the labels of a Node, to restore them later. Raises ApiError."""
        labels: Mapping[str, str] = self._lab.cluster.api.get(node_path(node))["metadata"]["labels"]
        return labels

    def run(self, action: Action[T]) -> T:
        """Perform an action on the cluster and return its outcome; its beginning and its end are moments.

        Raises:
            Problem: The action affects a node that is not a target. Other exceptions are the action's.
        """
        if self._lab.kind.is_attached and action.effect is None:
            message = f"{action.text}: this action is not allowed on somebody's own cluster"
            raise Problem(message, f"lab {self._lab.name}", "run this scenario in a lab")
        for node in action.affected_nodes:
            if node not in self.targets:
                message = f"{action.text}: {node} is not a target"
                raise Problem(message, f"lab {self._lab.name}", "declare it: @needs(faulted=...)")
        self._has_affected_nodes = self._has_affected_nodes or bool(action.affected_nodes)
        with self._step(action.text):
            return perform(action, ActionContext(self._lab, self.recording, self._collector.keep_clock))

    def observe(self, probe: Probe) -> Observation:
        """Read a probe once and record the value. Raises ApiError, MachineError, Problem."""
        recording, requested_t = self._recording(), time.monotonic()
        with self._step(f"look at {probe.what} of {probe.subject}"):
            reading = probe.read(self._lab)
        sample = reading if isinstance(reading, Sample) else Sample(reading)
        observation = Observation(uuid.uuid4().hex[:8], probe.what, probe.subject, sample.value)
        started = {} if sample.process_s is None else {"process_s": sample.process_s}
        facts = {**observation.to_json(), "value": observation.value, **started}
        recording.append("observed", **facts, asked_t=round(requested_t, 6))
        return observation

    def collect(self, *sources: Pod | Source) -> None:
        """Record the reports of witnesses and other sources since the recording began.

        Raises:
            ApiError: The API did not answer.
            MachineError: A machine did not answer.
            Problem: A source cannot be read.
            OSError: A file cannot be read or written.
        """
        for source in sources:
            messages = WitnessMessages(source) if isinstance(source, Pod) else source
            if self._lab.kind.is_attached and effect_of(type(messages)) is None:
                message = f"{messages.by}: this source is not allowed on somebody's own cluster"
                raise Problem(message, f"lab {self._lab.name}", "run this scenario in a lab")
            with self._step(f"hear {messages.by}"):
                self._collector.collect(self._recording(), messages)

    @contextmanager
    def record(
        self, *, status_of: Pod | None = None, extra_resources: Sequence[str] = ()
    ) -> Iterator[Recording]:
        """Record until the context ends.

        Args:
            status_of: A pod whose STATUS column is read all the time.
            extra_resources: Resources to record besides nodes, pods, leases and events.
        """
        with self._lab.record(self._path, self.targets, extra_resources) as recording:
            self.recording = recording
            if status_of is not None:
                show = partial(workloads.shown_status, self._lab.cluster.api, status_of)
                recording.observe(STATUS, status_of.name, show)
            yield recording

    @contextmanager
    def inject(self, fault: Fault) -> Iterator[Injection]:
        """Inject a fault for the length of the context, and heal it whatever happens; needs a recording.

        It begins once a heartbeat of its target is recorded: the control plane's timeouts for a silent node
        start at its last one.

        Raises:
            Problem: Nodes are lost before the scenario affected any.
            Aborted: An earlier fault of this recording was aborted.
        """
        recording = self._recording()
        self._check_not_aborted()
        for node in fault.affected_nodes:
            if node in self.targets:
                self._wait_for_heartbeat(node)
        self._check_none_lost()
        data = fault.to_json()
        name = " ".join(str(data[key]) for key in ("direction", "fault") if key in data)
        hit = ", ".join(fault.affected_nodes) or fault.node
        declared = replace(self._declared, lasts_s=self._expected_s)
        injection = self._lab.safety.injector.inject(fault, declared, recording.append)
        with self._step(f"{name} on {hit}"), injection as injected:
            yield injected

    @property
    def _expected_s(self) -> float:
        """How long the scenario is expected to last (s)."""
        return self._duration.value(self.configuration.__getitem__)

    def _check_none_lost(self) -> None:
        """Raise Problem if a node is lost that the scenario did not affect."""
        history = self.history()
        lost = [] if self._has_affected_nodes else [name for name in self._usable if _is_lost(history, name)]
        if lost:
            message = f"Ready is Unknown before the scenario affected a node: {', '.join(lost)}"
            next_step = "see the log of kube-controller-manager, or run the scenario again on an idle host"
            raise Problem(message, f"lab {self._lab.name}", next_step)
        self._has_affected_nodes = True

    def _wait_for_heartbeat(self, node: str) -> None:
        """Wait for a watched renewal of the node's lease: the time of those on the first LIST is unknown.

        If the node does not renew its lease, the checks show it.
        """
        with self._step(f"wait for a heartbeat of {node}"):
            renewals = partial(heartbeats.watched_renewals, node=node)
            wait_until(lambda: renewals(self._recording().snapshot()), 2 * self.configuration["R"])

    def wait_for(self, check: Check) -> Check:
        """Wait until a check is decided or its window has passed, and return it, to be judged later.

        Raises:
            Problem: It is decided when the recording ends, or no recording can decide it.
            Aborted: A fault was aborted.
        """
        if not can_be_waited_for(check):
            reason = f"cannot wait for {describe(check)}: it is decided when the recording ends"
            raise Problem(reason, "lab.wait_for(...)", "use `claim(...).expect_later(...)`")
        try:
            refuse(check, self.history(), self.configuration)
        except LookupError as error:
            step = f"check the resources and fields of {describe(check)}"
            raise Problem(str(error), "lab.wait_for(...)", step) from error
        with self._step(f"wait for {describe(check)}"):
            self._recording().wait_for(check, self.configuration, self._on_wait)
        self._check_not_aborted()
        return check

    def _check_not_aborted(self) -> None:
        """Raise Aborted if a fault of this recording was: no claim can be proven any more."""
        entry = abort_of(self.history())
        if entry is not None:
            raise Aborted(str(entry.data["reason"]))

    def wait_until_lost(self, node: Node, fault: Injection) -> None:
        """Wait until Ready of a node that a fault cut off is Unknown."""
        self.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))

    def wait_until_ready(self, node: Node, fault: Injection) -> None:
        """Wait until a node is Ready again after a fault."""
        self.wait_for(node.ready.after(fault.healing_at, windows.recovery()))

    def wait_for_required(self, moment: Moment, *, within_s: float, after: Moment) -> None:
        """Wait for a moment and require it, although no claim promises it. Raises Problem."""
        self.wait_for(moment.after(after, within_s))
        self.require(moment, within_s=within_s, after=after)

    def start(self, pods: Workload, *, on: str, within_s: float) -> None:
        """Create a workload, and wait until a pod of it runs on a node."""
        self.run(pods.make)
        self.wait_for(pods.running_on(on).after(pods.make.begun, within_s))

    def wait_until_quiet(self, event: Moment) -> None:
        """Wait until an event has not occurred for `clear_s`, which is more than any slack.

        The wait ends after four times as long; the judgment then shows that the event goes on. Raises Aborted
        if a fault is.
        """
        start_t = time.monotonic()

        def is_quiet() -> bool:
            self._check_not_aborted()
            since_t = time.monotonic() - self.clear_s
            return since_t >= start_t and moments.find(self.history(), event, since_t) is None

        with self._step(f"wait until {event} stops"):
            wait_until(is_quiet, 4 * self.clear_s)

    def require(self, moment: Moment, *, within_s: float, after: Moment) -> None:
        """Raise Problem unless a moment came in time for the scenario, although no claim promises it."""
        occurrence, start = self.find(moment), self.find(after)
        if occurrence is None or start is None or occurrence.t - start.t >= within_s:
            message = f"{moment} did not come within {within_s:g} s after {after}"
            raise Problem(message, f"lab {self._lab.name}", "run the scenario again on an idle host")

    def require_lab(self, is_suitable: bool, *, otherwise: str, next_step: str) -> None:
        """Raise Problem, with `otherwise` as its message, unless the lab is as the scenario needs it."""
        if not is_suitable:
            raise Problem(otherwise, f"lab {self._lab.name}", next_step)

    def check_in_time(self, is_in_time: bool, *, otherwise: str) -> None:
        """Raise HostTooLoaded, with `otherwise` as its message, if a slow host made the scenario too late."""
        if not is_in_time:
            raise HostTooLoaded(otherwise, "lab.check_in_time(...)", "run the scenario again on an idle host")

    def check_not_due(self, event: Moment, change: Moment, since: Moment, due_s: float) -> None:
        """Raise HostTooLoaded if the scenario came too late to change the time of an event.

        Args:
            event: What must still be to come.
            change: What changes its time.
            since: From when on it is due.
            due_s: How long after `since` (s) `change` must come, so that the event cannot occur by itself
                before it has an effect. An event that is earlier is left to the judgment.
        """
        check_not_due(self.history(), event, change, since, due_s)

    def check_still_to_come(self, events: Sequence[Moment], *, at_least: int) -> None:
        """Raise HostTooLoaded unless so many events are still to come: a slow host used them up."""
        check_still_to_come(self.history(), events, at_least)

    def find(self, moment: Moment) -> Occurrence | None:
        """Return the occurrence of a moment in the recording so far, or None."""
        return moments.find(self.history(), moment)

    def history(self) -> History:
        """Return the history of the recording."""
        return self._recording().history()

    def _recording(self) -> Recording:
        if self.recording is None:
            raise Problem("nothing is being recorded", f"lab {self._lab.name}", "use `with lab.record():`")
        return self.recording


def check_still_to_come(history: History, events: Sequence[Moment], at_least: int) -> None:
    """Raise HostTooLoaded unless at least so many events have not occurred; see `Lab`."""
    number = sum(moments.find(history, event) is None for event in events)
    if number < at_least:
        message = f"{number} of {len(events)} events are still to come, {at_least} are needed"
        raise HostTooLoaded(message, "lab.check_still_to_come(...)", "run the scenario again on an idle host")


def check_not_due(history: History, event: Moment, change: Moment, since: Moment, due_s: float) -> None:
    """Raise HostTooLoaded if `change` came more than `due_s` (s) after `since`; see `Lab`."""
    start, changed = moments.find(history, since), moments.find(history, change)
    if start is None or changed is None or changed.t - start.t <= due_s:
        return
    occurrence = moments.find(history, event)
    if occurrence is not None and occurrence.t - start.t < due_s:
        return
    elapsed = f"{change} occurred {changed.t - start.t:.1f} s after {since}: {event} may have been due before"
    raise HostTooLoaded(elapsed, "lab.check_not_due(...)", "run the scenario again on an idle host")


def _targets(lab: LabHandle, needs: Needs) -> list[str]:
    """Return the nodes that faults may hit: the first of the lab, or of each of its zones."""
    usable = lab.usable_nodes()
    if not needs.faulted_in:
        return usable[: needs.faulted]
    nodes = [entry for entry in lab.fleet.nodes() if entry.name in usable]
    chosen: list[str] = []
    for zone, count in zip(lab.fleet.zones(), needs.faulted_in, strict=False):
        candidates = [node.name for node in nodes if node.zone == zone]
        if len(candidates) < count:
            raise TooFewNodes(f"too few usable nodes in {zone}", f"lab {lab.name}", "see its ledger")
        chosen += candidates[:count]
    return chosen


def _is_lost(history: History, node: str) -> bool:
    last = history.versions("nodes", "", node)[-1:]
    return any((condition(version.object, "Ready") or {}).get("status") == "Unknown" for version in last)
