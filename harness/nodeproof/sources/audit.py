"""Requests in the API server's audit log, with users and responses."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof.cluster.resources import AUDIT_MARK, NAMESPACE
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import role_of
from nodeproof.model.pattern import Json, fault, matches
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import Problem
from nodeproof.recording.node_messages import Message
from nodeproof.sources.source import Source, SourceContext, SourceMessages, parse_lines, torn
from nodeproof.waiting import retry_on

FIELDS = frozenset(("agent", "as_user", "code", "group", "name", "namespace"))
FIELDS |= {"resource", "subresource", "uri", "user", "verb"}
"""Fields of an audit line that a pattern can use."""
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
class _Line:
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
        mark = _mark(context.lab)
        retry_on(lambda: _find(context.lab, mark), Problem, timeout_s=_MARK_TIMEOUT_S)
        threading.Event().wait(_LATE_S)
        lines = _lines(context)
        completed_lines = [line for line in lines if line is not None and line.event.get("stage") in _OVER]
        losses = _possible_losses(context.history, lines, completed_lines, until_t)
        messages = [
            Message(line.t, _describe(line.event))
            for line in completed_lines
            if matches(self.pattern, _fields(line.event))
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
    if "verb" in pattern and not _verbs(pattern["verb"]) <= logged:
        choices = f"use one of: {', '.join(sorted(logged))}"
        raise Problem(f"the audit log does not have every {pattern['verb']}", "audit(...)", choices)
    return Audit(pattern)


def _verbs(pattern: Json) -> set[str]:
    """Return the verbs that a pattern names directly or by `$in`; `?` for any other pattern."""
    if isinstance(pattern, str):
        return {pattern}
    return set(pattern.get("$in", ["?"])) if isinstance(pattern, Mapping) else {"?"}


def _mark(lab: LabHandle) -> str:
    """Send a marker request, which changes nothing and is unique in the log."""
    mark = f"heard-{uuid.uuid4().hex}"
    lab.cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}?dryRun=All&{AUDIT_MARK}={mark}", {})
    return mark


def _find(lab: LabHandle, mark: str) -> None:
    if not any(mark in log.read_text(errors="replace") for log in _logs(lab)):
        reason = f"no line for the marker request within {_MARK_TIMEOUT_S:g} s"
        raise Problem(reason, "audit log", "check whether the lab's memory is full: `nodeproof status`")


def _logs(lab: LabHandle) -> Sequence[Path]:
    """Return the log of each API server and its earlier parts; those of the only one oldest first."""
    folder = lab.life.logs
    return [*sorted(folder.glob("audit-*.jsonl")), *filter(Path.exists, [folder / "audit.jsonl"])]


def _lines(context: SourceContext) -> Sequence[_Line | None]:
    """Return every line; None for one that is torn or overwritten."""

    def parse(event: Json) -> _Line:
        return _Line(context.history.from_wall(event["stageTimestamp"]), event)

    texts = (log.read_bytes().decode(errors="replace") for log in _logs(context.lab))
    return [line for text in texts for line in parse_lines(text, parse)]


def _possible_losses(
    history: History, lines: Sequence[_Line | None], completed_lines: Sequence[_Line], until_t: float
) -> Sequence[Lost]:
    """Return the times since the start of the recording for which the log may be incomplete."""
    began_t, first_t = history.began_t, min((line.t for line in completed_lines), default=until_t)
    times = [None if line is None else line.t for line in lines]
    rotated = "the audit log starts after the recording: its start was rotated away"
    losses = [
        *([Lost(began_t, first_t, rotated)] if first_t > began_t else []),
        *torn(times, (began_t, until_t), "a line of the audit log was torn"),
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


def _missing_sentinels(history: History, lines: Sequence[_Line], until_t: float) -> Iterator[Lost]:
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


def _fields(line: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the `FIELDS` of a line; missing ones are empty."""
    reference = line.get("objectRef") or {}
    return {
        "verb": line.get("verb", ""),
        "user": (line.get("user") or {}).get("username", ""),
        "as_user": (line.get("impersonatedUser") or {}).get("username", ""),
        "agent": line.get("userAgent", ""),
        "uri": line.get("requestURI", ""),
        "code": (line.get("responseStatus") or {}).get("code", 0),
        "group": reference.get("apiGroup", ""),
        "resource": reference.get("resource", ""),
        "subresource": reference.get("subresource", ""),
        "namespace": reference.get("namespace", ""),
        "name": reference.get("name", ""),
    }


def _describe(line: Mapping[str, Json]) -> str:
    """Describe a line for output."""
    fields = _fields(line)
    user = f"{fields['as_user']} (by {fields['user']})" if fields["as_user"] else fields["user"]
    return f"{fields['verb']} {str(fields['uri']).partition('?')[0]} by {user}: {fields['code']}"
