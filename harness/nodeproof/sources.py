"""Sources: what is collected after the events, and what they may have lost."""

from __future__ import annotations

import json
import mmap
import re
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from nodeproof.artifacts.components import ROLES
from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.cluster.resources import AUDIT_MARK, NAMESPACE
from nodeproof.cluster.workloads import Pod
from nodeproof.faults.providers import STARTED as CLOUD_STARTED
from nodeproof.faults.providers import cloud_file, handle
from nodeproof.labs.base.processes import CHECK_PERIOD_S
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import CONTROL_PLANE, MachineError
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import ATTACHER, CLOUD, role_of
from nodeproof.model.pattern import Json, fault, matches, value_at
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import Problem
from nodeproof.recording.node_messages import (
    BootClock,
    Message,
    journal_began,
    journal_of,
    lines_of,
    messages_of,
    wall_offset_s,
)
from nodeproof.waiting import retry_on

Line = TypeVar("Line")


@dataclass(frozen=True)
class SourceContext:
    """The context for reading a source: lab, recording so far, and node clocks.

    `clock` is for the boot whose messages are wanted, `present_clock` for the current boot. Both raise
    MachineError and Problem.
    """

    lab: LabHandle
    history: History
    clock: Callable[[str], BootClock]
    present_clock: Callable[[str], BootClock]

    def wall_error_s(self, t: float) -> float:
        """Return how far the host's wall clock has moved since `t` (s), so the error of times by it."""
        return abs(wall_offset_s() - self.history.wall_offset_s(t))


@dataclass(frozen=True)
class SourceMessages:
    """The messages of a source, complete up to `until_t` (s, monotonic).

    `error_s` is the largest error of their times (s). `losses` are times in which messages may be missing.
    `node` and `boot_id` are set if the source is on a node.
    """

    messages: Sequence[Message]
    until_t: float
    error_s: float = 0.0
    losses: Sequence[Lost] = ()
    node: str = ""
    boot_id: str = ""


class Source(ABC):
    """A source that can be read after the events."""

    @property
    @abstractmethod
    def by(self) -> str:
        """Unique name in the recording; a source with fewer messages has another name."""

    @abstractmethod
    def read(self, context: SourceContext) -> SourceMessages:
        """Return the messages since the recording began.

        Raises:
            ApiError, MachineError, Problem, OSError: The source cannot be read.
        """

    @property
    def collected(self) -> Moment:
        """The time up to which the source was collected."""
        return Moment("heard", {"by": self.by})

    @property
    def next_message(self) -> Moment:
        """The next message of the source."""
        return Moment("told", {"by": self.by, "what": ""})


_STARTS = ("booted", "restored", "reset")
_JOURNAL_BEGINS_S = 60.0
"""Longest time (s) from a boot to the journal's first line on a slow machine. A journal that starts later was
shortened, by many megabytes.
"""


def possible_losses(
    context: SourceContext, record: str, complete_since_t: float, until_t: float
) -> list[Lost]:
    """Return possible losses of a log or journal: before its start (s), or due to a full memory."""
    began_t = context.history.began_t
    losses = []
    if complete_since_t > began_t:
        losses.append(Lost(began_t, complete_since_t, f"{record} starts after the recording"))
    return [*losses, *memory_losses(context, until_t)]


def memory_losses(context: SourceContext, until_t: float) -> list[Lost]:
    """Return possible losses due to a lab's full memory; the time when it was full is not known."""
    since_t = context.history.began_t - CHECK_PERIOD_S
    return [Lost(since_t, until_t, why) for why in context.lab.life.full_parts(since_t=since_t)[:1]]


def read_journal(context: SourceContext, node: str, unit: str, clock: BootClock) -> SourceMessages:
    """Read the messages of a unit in one boot of its node.

    Raises:
        MachineError: The journal cannot be read.
    """
    machine, until_t = context.lab.fleet.machine(node), time.monotonic()
    messages = list(journal_of(machine, unit, clock))
    first_t, boot_entries = journal_began(machine, clock), _boot_entries(context.history, node)
    first_t = until_t if first_t is None else first_t
    record, complete_since_t = f"the journal of {node}", _whole_since(context.history, node, clock, first_t)
    later = [start.t for start in boot_entries if start.t > first_t and start.data["step"] != "restored"]
    losses = [
        *possible_losses(context, record, complete_since_t, until_t),
        *(Lost(t, until_t, f"{record} is from an earlier boot") for t in later[:1]),
    ]
    return SourceMessages(messages, until_t, clock.error_s, losses, node, clock.boot_id)


def _boot_entries(history: History, node: str) -> Sequence[Entry]:
    steps = (entry for entry in history.of_kind("machine") if entry.data["node"] == node)
    return [entry for entry in steps if entry.data["step"] in _STARTS]


def _whole_since(history: History, node: str, clock: BootClock, begins_t: float) -> float:
    """Return from when on (s) the journal of one boot is complete: from the boot, if it starts with that.

    Messages of an earlier boot are in another journal. A node that joined during the recording and booted
    once had none.
    """
    boot_entries = _boot_entries(history, node)
    if joined(history, node) and len(boot_entries) == 1:
        return history.began_t
    # A snapshot contains a journal that started earlier.
    boot_times = [
        entry.t for entry in boot_entries if entry.t <= begins_t or entry.data["step"] == "restored"
    ]
    is_complete = begins_t - clock.offset_s < _JOURNAL_BEGINS_S
    return boot_times[-1] if boot_times and is_complete else begins_t


def joined(history: History, node: str) -> bool:
    """Return whether a node joined its cluster during the recording, and so had no log before."""
    steps = (entry.data for entry in history.of_kind("machine") if entry.data["node"] == node)
    return any(data["step"] == "joining" for data in steps)


class Timed(Protocol):
    """A line that was written at `t` (s)."""

    @property
    def t(self) -> float: ...


def torn(lines: Sequence[Timed | None], within: tuple[float, float], why: str) -> list[Lost]:
    """Return the possible losses at unreadable lines, which are None.

    Messages may be lost between the readable lines on both sides, or up to an end of `within` (s).
    """
    losses, since_t = [], within[0]
    for number, line in enumerate(lines):
        if line is not None:
            since_t = line.t
            continue
        until_t = next((later.t for later in lines[number:] if later is not None), within[1])
        losses.append(Lost(since_t, max(since_t, until_t), why))
    return losses


def parse_lines(text: str, parse: Callable[[Json], Line]) -> list[Line | None]:
    """Return each line of JSON as `parse` reads it; None for one that is torn or overwritten."""

    def parse_line(line: str) -> Line | None:
        try:
            return parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    return [parse_line(line) for line in lines_of(text)]


DRIVER_CALLS = f"{ATTACHER}/calls.jsonl"
DRIVER_STARTED = "Started"
"""First line of each driver, as in infra/csi/calls.py."""
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Call:
    """A request about a node, answered at `t`; the driver's also have a volume, a code and their begin."""

    t: float
    method: str
    node: str
    volume: str = ""
    code: str = ""
    begin_t: float = 0.0


@dataclass(frozen=True)
class CloudCalls(Source):
    """Requests about a node to the cloud of the fault `cloud`.

    Of one method, such as `InstanceExists`, or of all.
    """

    node: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes node and method."""
        return f"cloud asked about {self.node}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these requests."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the requests to the current cloud.

        Raises:
            MachineError: There is no cloud.
        """
        machine, until_t = context.lab.fleet.machine(CLOUD), time.monotonic()
        output = machine.run(["cat", cloud_file(machine, "calls")], timeout_s=_TIMEOUT_S)
        calls, losses = cloud_calls(output.stdout, context.history, until_t)
        messages = [
            Message(call.t, f"{call.method} {call.node}")
            for call in calls
            if call.node == self.node and self.method in ("", call.method)
        ]
        losses += memory_losses(context, until_t)
        return SourceMessages(messages, until_t, context.wall_error_s(until_t), losses)


@dataclass(frozen=True)
class VolumeCalls(Source):
    """Finished requests about a PVC's volume to the CSI driver of the fault `volumes`.

    Of one method, such as `ControllerUnpublishVolume`, or of all. Each message has method, node and code.
    """

    pvc: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes PVC and method."""
        return f"driver asked about {self.pvc}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The end of the next of these requests."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the requests to the current driver.

        Raises:
            MachineError: There is no driver.
        """
        machine, until_t = context.lab.fleet.machine(ATTACHER), time.monotonic()
        output = machine.run(["cat", DRIVER_CALLS], timeout_s=_TIMEOUT_S)
        if output.status != 0:
            raise MachineError("the CSI driver has no record of calls")
        calls, losses = driver_calls(output.stdout, context.history.began_t, until_t)
        messages = [
            Message(call.t, f"{call.method} {call.node} {call.code}")
            for call in calls
            if call.volume == handle(self.pvc) and self.method in ("", call.method)
        ]
        return SourceMessages(messages, until_t, losses=[*losses, *memory_losses(context, until_t)])


def cloud_calls(text: str, history: History, until_t: float) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that was read at `until_t` (s), and the times of possible losses.

    A request is written before it is answered, and the provider writes a first line when it starts.
    """

    def parse(call: Json) -> Call:
        return Call(history.from_wall(call["time"]), str(call["method"]), str(call.get("node", "")))

    return _calls(text, parse, (history.began_t, until_t), "cloud", CLOUD_STARTED)


def driver_calls(text: str, began_t: float, until_t: float) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that was read at `until_t`, and possible losses since `began_t`.

    Both times are in s, monotonic. A request is written at its end, before it is answered; one that is cut
    off by a kill of the driver is not written.
    """

    def parse(call: Json) -> Call:
        method, node, volume, code = (str(call[name]) for name in ("method", "node", "volume", "code"))
        return Call(float(call["end"]), method, node, volume, code, float(call["begin"]))

    calls, losses = _calls(text, parse, (began_t, until_t), "driver", DRIVER_STARTED)
    why = "the driver restarted: a call that was interrupted is not recorded"
    restarts = [pair for pair in pairwise(calls) if pair[1].method == DRIVER_STARTED]
    losses += [Lost(last.t, start.begin_t, why) for last, start in restarts if start.begin_t >= began_t]
    return calls, losses


def _calls(
    text: str, parse: Callable[[Json], Call], recorded_span: tuple[float, float], whose: str, started: str
) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that begins with `started`, and the times of possible losses."""
    parsed_lines = parse_lines(text, parse)
    calls = [call for call in parsed_lines if call is not None]
    if not calls or calls[0].method != started:
        began_t, until_t = recorded_span
        first_t = calls[0].t if calls else until_t
        return calls, [Lost(began_t, first_t, f"the start of the {whose}'s calls is missing")]
    losses = torn(parsed_lines, recorded_span, f"a line of the {whose}'s calls is torn")
    if not text.endswith("\n") and parsed_lines[-1] is not None:
        losses += torn([calls[-1], None], recorded_span, f"the last line of the {whose}'s calls is torn")
    return calls, losses


FIELDS: Mapping[str, str] = {
    "agent": "userAgent",
    "as_user": "impersonatedUser.username",
    "code": "responseStatus.code",
    "group": "objectRef.apiGroup",
    "name": "objectRef.name",
    "namespace": "objectRef.namespace",
    "resource": "objectRef.resource",
    "subresource": "objectRef.subresource",
    "uri": "requestURI",
    "user": "user.username",
    "verb": "verb",
}
"""Where a pattern's fields are in an audit line."""
LOGGED = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""Verbs that the lab's policy logs completely; `get` is only logged for leases."""
_OVER = ("ResponseComplete", "Panic")
"""Last stages of a request; a long-running request has an earlier line, too."""
_MARKED = re.compile(rf"[?&]{AUDIT_MARK}=([^&\n]+)")
_WITH_SERVER = ("kube-apiserver", CONTROL_PLANE)
_MARK_TIMEOUT_S = 10.0
_LATE_S = 0.5
"""Longest delay (s) between the response to a request and its line, which is written afterwards."""


@dataclass(frozen=True)
class _AuditLine:
    """A line of the log, for a request that was answered at `t` (s, monotonic)."""

    t: float
    event: Mapping[str, Json]


@dataclass(frozen=True)
class Audit(Source):
    """The requests whose audit lines match `pattern`, a mapping of `FIELDS`.

    The lab's policy logs changes and GETs of leases, but no other reads.
    """

    pattern: Mapping[str, Json]

    @property
    def by(self) -> str:
        """Name of the source, which includes the pattern."""
        return f"audit {json.dumps(self.pattern, sort_keys=True)}"

    @property
    def request(self) -> Moment:
        """The response to the next of these requests."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the log up to a marker request that is sent now.

        Raises:
            ApiError: The marker request failed.
            Problem: The log lacks the marker request.
            OSError: The log cannot be read.
        """
        until_t = time.monotonic()
        mark = _send_mark(context.lab)
        retry_on(lambda: _find_mark(context.lab, mark), Problem, timeout_s=_MARK_TIMEOUT_S)
        threading.Event().wait(_LATE_S)
        lines = _audit_lines(context)
        completed_lines = [line for line in lines if line is not None and line.event.get("stage") in _OVER]
        losses = _audit_losses(context.history, lines, completed_lines, until_t)
        messages = [
            Message(line.t, _describe_request(line.event))
            for line in completed_lines
            if matches(self.pattern, _fields_of(line.event))
        ]
        return SourceMessages(messages, until_t, context.wall_error_s(until_t), losses)


def audit(**pattern: Json) -> Audit:
    """Return the requests that match these patterns, by field.

    Raises:
        Problem: A field is unknown, or a verb is not logged, so that its absence proves nothing.
    """
    problem = ", ".join(sorted(pattern.keys() - FIELDS)) or fault(pattern)
    if problem:
        choices = f"use one of: {', '.join(sorted(FIELDS))}"
        raise Problem(f"invalid audit pattern: {problem}", "audit(...)", choices)
    logged = LOGGED | ({"get"} if pattern.get("resource") == "leases" else set())
    if "verb" in pattern and not _verbs_of(pattern["verb"]) <= logged:
        choices = f"use one of: {', '.join(sorted(logged))}"
        raise Problem(f"the audit log does not have every {pattern['verb']}", "audit(...)", choices)
    return Audit(pattern)


def _verbs_of(pattern: Json) -> set[str]:
    """Return the verbs that a pattern names directly or by `$in`; `?` for any other pattern."""
    if isinstance(pattern, str):
        return {pattern}
    return set(pattern.get("$in", ["?"])) if isinstance(pattern, Mapping) else {"?"}


def _send_mark(lab: LabHandle) -> str:
    """Send a marker request, which changes nothing and is unique in the log."""
    mark = f"heard-{uuid.uuid4().hex}"
    lab.cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}?dryRun=All&{AUDIT_MARK}={mark}", {})
    return mark


def _find_mark(lab: LabHandle, mark: str) -> None:
    if not any(mark in log.read_text(errors="replace") for log in _audit_logs(lab)):
        reason = f"no line for the marker request within {_MARK_TIMEOUT_S:g} s"
        raise Problem(reason, "audit log", "check whether the lab's memory is full: `nodeproof status`")


def _audit_logs(lab: LabHandle) -> Sequence[Path]:
    """Return the log of each API server and its earlier parts; those of the only one oldest first."""
    folder = lab.life.logs
    return [*sorted(folder.glob("audit-*.jsonl")), *filter(Path.exists, [folder / "audit.jsonl"])]


def _audit_lines(context: SourceContext) -> Sequence[_AuditLine | None]:
    """Return every line; None for one that is torn or overwritten."""

    def parse(event: Json) -> _AuditLine:
        return _AuditLine(context.history.from_wall(event["stageTimestamp"]), event)

    texts = (log.read_bytes().decode(errors="replace") for log in _audit_logs(context.lab))
    return [line for text in texts for line in parse_lines(text, parse)]


def _audit_losses(
    history: History,
    lines: Sequence[_AuditLine | None],
    completed_lines: Sequence[_AuditLine],
    until_t: float,
) -> Sequence[Lost]:
    """Return the times since the start of the recording for which the log may be incomplete."""
    began_t, first_t = history.began_t, min((line.t for line in completed_lines), default=until_t)
    rotated = "the audit log starts after the recording: its start was rotated away"
    losses = [
        *([Lost(began_t, first_t, rotated)] if first_t > began_t else []),
        *torn(lines, (began_t, until_t), "a line of the audit log was torn"),
        *_losses_by_kill(history),
        *_missing_sentinels(history, completed_lines, until_t),
    ]
    # Lines are only roughly in the order of their times. Losses before the recording do not matter.
    widened = [Lost(loss.since_t - _LATE_S, loss.until_t + _LATE_S, loss.why) for loss in losses]
    return [loss for loss in widened if loss.until_t > began_t]


def _losses_by_kill(history: History) -> Iterator[Lost]:
    for entry in history.of_kind("machine"):
        if role_of(entry.data["node"]) in _WITH_SERVER and entry.data["step"] == "powered-off":
            why = "the API server was killed and may not have logged a request that it had answered"
            yield Lost(entry.t - _LATE_S, entry.t, why)


def _missing_sentinels(history: History, lines: Sequence[_AuditLine], until_t: float) -> Iterator[Lost]:
    """Yield the time between two logged sentinels if one between them is missing: each is a request."""
    marks = set(_MARKED.findall("\n".join(str(line.event.get("requestURI")) for line in lines)))
    last_t, missing_value = history.began_t, ""
    for entry in history.of_kind("sentinel"):
        value = str(entry.data["value"])
        if value not in marks:
            missing_value = missing_value or value
            continue
        if missing_value:
            yield Lost(last_t, entry.t, f"the audit log lacks sentinel {missing_value}")
        last_t, missing_value = min((entry.data.get("sent_t") or {}).values(), default=entry.t), ""
    if missing_value:
        yield Lost(last_t, until_t, f"the audit log lacks sentinel {missing_value}")


def _fields_of(line: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the `FIELDS` of a line; a missing one is empty."""
    values = {name: value_at(path, line) for name, path in FIELDS.items()}
    return {name: values[name] or (0 if name == "code" else "") for name in values}


def _describe_request(line: Mapping[str, Json]) -> str:
    """Describe a line for output."""
    fields = _fields_of(line)
    user = f"{fields['as_user']} (by {fields['user']})" if fields["as_user"] else fields["user"]
    return f"{fields['verb']} {str(fields['uri']).partition('?')[0]} by {user}: {fields['code']}"


_HEADER = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
"""Header of a klog line: level, month and day, time of day (k8s.io/klog/v2, `formatHeader`); no year."""
_TORN = re.compile(r".[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}  *\d+ \S+\.go:\d+\] ")
"""Header inside a line: the line before it was cut off, for example by a full disk."""
_KUBELET = "kubelet-"
_UNIT = "kubelet.service"
_CUTS, _SHUT_DOWN = ("powered-off", "reset"), "powered itself off"
"""Entries of a machine's end, and of an orderly one (`nodeproof.labs.kinds.libvirt.guests`)."""
_HALF_A_YEAR_S = 183 * 86400.0
_MANAGER, _SKIPS = "kube-controller-manager", "Skipping - no pods will be evicted"
_MOST_QUOTED = 5


@dataclass(frozen=True)
class Log(Source):
    """The lines of `component` (kube-controller-manager, `kubelet-NODE`) that contain `text`.

    The text must be in the component's executable, which may be of another version: the absence of a text
    that the component cannot log proves nothing. `about` must be in the line as well: a variable part, such
    as a name.
    """

    component: str
    text: str
    about: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes the text."""
        about = f" about {self.about!r}" if self.about else ""
        return f"log of {self.component}: {self.text!r}{about}"

    @property
    def line(self) -> Moment:
        """The next of these lines."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the log and its earlier part, or the journal of the present boot on a node with systemd.

        Raises:
            Problem: The component has no log, or its executable does not contain the text.
            MachineError: The node does not answer.
            OSError: The log cannot be read.
        """
        lab, is_kubelet = context.lab, self.component.startswith(_KUBELET)
        role = lab.kind.kubelet_role if is_kubelet else self.component
        in_journal = is_kubelet and "systemd" in lab.features and self._node in lab.fleet.node_names()
        if role not in ROLES or not (in_journal or _logs(lab, self.component)):
            raise Problem(f"no component {self.component!r}", "Log(...)", f"use one of: {', '.join(ROLES)}")
        own = _kubelet_on(lab, self._node) if is_kubelet else None
        if not _contains(own or lab.components.path(role), self.text.encode()):
            reason = f"{self.component} has no text {self.text!r}"
            raise Problem(reason, "Log(...)", "use a text of its source, without variable parts")
        if in_journal:
            report = read_journal(context, self._node, _UNIT, context.present_clock(self._node))
        else:
            report = self._files(context)
        return replace(
            report, messages=[message for message in report.messages if self._matches(message.what)]
        )

    def _matches(self, line: str) -> bool:
        return self.text in line and self.about in line

    @property
    def _node(self) -> str:
        return self.component.removeprefix(_KUBELET)

    def _files(self, context: SourceContext) -> SourceMessages:
        """Return all lines in both parts of the log, or of that of each replica."""
        history, until_t, logs = context.history, time.monotonic(), _logs(context.lab, self.component)
        messages = [Message(history.from_epoch(at), line) for at, line in _timed_lines(logs)]
        name, complete_since_t = f"the log of {self.component}", messages[0].t if messages else until_t
        if joined(history, self._node) and not any(earlier.exists() for earlier, _log in logs):
            complete_since_t = history.began_t
        losses = [
            *possible_losses(context, name, complete_since_t, until_t),
            *_truncations(history, logs, f"{name} was truncated during the recording"),
            *_torn_in_log(history, logs, messages, until_t, f"a line of {name} was torn: the disk was full"),
        ]
        return SourceMessages(messages, until_t, context.wall_error_s(until_t), losses)


_Logs = Sequence[tuple[Path, Path]]
"""The earlier part and the log of each replica of a component."""


def _truncations(history: History, logs: _Logs, why: str) -> Iterator[Lost]:
    """Yield the time of each truncation of a log."""
    for earlier in (earlier for earlier, _log in logs if earlier.exists()):
        truncated_t = history.from_epoch(earlier.stat().st_mtime)
        if truncated_t > history.began_t:
            yield Lost(truncated_t - CHECK_PERIOD_S, truncated_t + CHECK_PERIOD_S, why)


def _torn_in_log(
    history: History, logs: _Logs, messages: Sequence[Message], until_t: float, why: str
) -> Iterator[Lost]:
    """Yield the times of lines that a full disk truncated, up to the next line after them."""
    for line in messages:
        offsets = [match.start() + 1 for match in _TORN.finditer(line.what)]
        header_times = [_logged_at(line.what[at:]) for at in offsets]
        later_t = max((history.from_epoch(at) for at in header_times if at is not None), default=until_t)
        if offsets and later_t >= history.began_t:
            yield Lost(line.t, later_t, why)
    if messages and not all(log.read_bytes().endswith(b"\n") for _earlier, log in logs):
        yield Lost(messages[-1].t, max(until_t, messages[-1].t), why)


def _kubelet_on(lab: LabHandle, node: str) -> Path | None:
    """Return the executable that runs a node's kubelet; None if it is unknown, as for a node that left."""
    paths = (Path(entry.kubelet) for entry in lab.fleet.nodes() if entry.name == node and entry.kubelet)
    return next(paths, None)


def _logs(lab: LabHandle, component: str) -> _Logs:
    """Return the parts of a component's logs; none if it has no log."""
    folder = lab.life.logs
    names = [path.name.removesuffix(".log") for path in sorted(folder.glob(f"{component}*.log"))]
    replicas = [name for name in names if component in (name, role_of(name))]
    return [(folder / f"{name}.log.1", folder / f"{name}.log") for name in replicas]


def _timed_lines(logs: _Logs) -> Sequence[tuple[float, str]]:
    """Return each line with its time (s since the epoch), in the order of the times if there are replicas."""
    lines = [line for parts in logs for line in _lines_in(parts)]
    return sorted(lines, key=lambda line: line[0]) if len(logs) > 1 else lines


def _lines_in(parts: Sequence[Path]) -> Iterator[tuple[float, str]]:
    """Yield each line of the parts of a log with its time (s since the epoch).

    A line without a header has the time of the line before it.
    """
    line_time = 0.0
    for log in parts:
        for line in lines_of(log.read_bytes().decode(errors="replace")) if log.exists() else ():
            line_time = _logged_at(line) or line_time
            if line_time:
                yield line_time, line


def skipped_nodes(lab: LabHandle, history: History) -> Sequence[str]:
    """Return the first lines in which the controller manager logged during a recording that it skips a node.

    Such a node does not become Unknown. Since 1.37 the controller manager skips a node whose Lease was
    written but not renewed, or cannot be read (tryUpdateNodeHealth in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).

    Raises:
        OSError: The log cannot be read.
    """
    lines = [
        line
        for at, line in _timed_lines(_logs(lab, _MANAGER))
        if _SKIPS in line and history.began_t <= history.from_epoch(at) <= history.ended_t
    ]
    more = [f"and {len(lines) - _MOST_QUOTED} more"] if len(lines) > _MOST_QUOTED else []
    return [*lines[:_MOST_QUOTED], *more]


def _logged_at(line: str) -> float | None:
    """Return when a line was written (s since the epoch), in the year that is closest to now."""
    header = _HEADER.match(line)
    if header is None:
        return None
    now = datetime.now(UTC)
    month, day, hour, minute, second, micro = map(int, header.groups())
    for year in (now.year, now.year - 1, now.year + 1):
        try:
            at = datetime(year, month, day, hour, minute, second, micro, UTC).timestamp()
        except ValueError:
            continue
        if abs(at - now.timestamp()) < _HALF_A_YEAR_S:
            return at
    return None


def _contains(executable: Path, text: bytes) -> bool:
    """Return whether an executable contains a text; True for a script, which starts another executable."""
    with executable.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:2] == b"#!" or mapped.find(text) >= 0


@dataclass(frozen=True)
class Journal(Source):
    """Messages of a unit on a node in the boot whose clock was stored; needs the feature `systemd`."""

    node: str
    unit: str

    @property
    def by(self) -> str:
        """Name of the source in moments."""
        return journal_name(self.node, self.unit)

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the messages with journalctl.

        Raises:
            MachineError: The journal cannot be read.
        """
        return read_journal(context, self.node, self.unit, context.clock(self.node))


@dataclass(frozen=True)
class WitnessMessages(Source):
    """The messages of a witness in the boot whose clock was stored."""

    pod: Pod

    @property
    def by(self) -> str:
        """The pod's name."""
        return self.pod.name

    def read(self, context: SourceContext) -> SourceMessages:
        """Read its file; its node must be up, in any boot.

        Raises:
            MachineError: The file cannot be read.
        """
        clock, machine = context.clock(self.pod.node), context.lab.fleet.machine(self.pod.node)
        until_t = time.monotonic()
        lines = messages_of(machine, self.pod.name, clock)
        messages = [line for line in lines if line is not None]
        record = f"the file of {self.pod.name}"
        losses = [
            *torn(lines, (clock.offset_s, until_t), f"a line of {record} is torn"),
            *memory_losses(context, until_t),
        ]
        last_t = messages[-1].t if messages else clock.offset_s
        cut_t = _power_cut_t(context.history, self.pod.node, clock.offset_s)
        if cut_t is not None and cut_t > last_t:
            losses.append(Lost(last_t, cut_t, f"a power cut may have lost the end of {record}"))
        return SourceMessages(
            messages, until_t, clock.error_s, losses, node=self.pod.node, boot_id=clock.boot_id
        )


def _power_cut_t(history: History, node: str, boot_t: float) -> float | None:
    """Return when a boot ended without a shutdown (s), or None: data may not yet have been on its disk."""
    for entry in history.entries:
        own = (entry.data.get("name"), entry.data.get("step"))
        is_end = entry.data.get("node") == node and (own[0] == f"node-{node}" or own[1] in _CUTS)
        if is_end and entry.t > boot_t:
            return None if entry.data.get("status") == _SHUT_DOWN else entry.t
    return None
