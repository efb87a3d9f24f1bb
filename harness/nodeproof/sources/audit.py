"""The API server's audit log: who asked it for what, and what it answered."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.cluster.resources import AUDIT_MARK, NAMESPACE
from nodeproof.labs.client.lab import Lab
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import fault, matches
from nodeproof.model.problem import Problem
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import Word, lines_of
from nodeproof.recording.wall import wall_offset_s
from nodeproof.sources.loss import torn
from nodeproof.sources.source import Hearing, Told, any_word, last_heard
from nodeproof.waiting import insist

Json = Any
FIELDS = frozenset(("agent", "as_user", "code", "group", "name", "namespace"))
FIELDS |= {"resource", "subresource", "uri", "user", "verb"}
"""What an audit line is asked by."""
LOGGED = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""The verbs of which the lab's policy keeps every line; of `get` only those of leases."""
_OVER = ("ResponseComplete", "Panic")
"""The last stage of a request: one that goes on for long has a line before it, too."""
_MARKED = re.compile(rf"[?&]{AUDIT_MARK}=([^&\n]+)")
_MARK_LIMIT_S = 10.0
_LATE_S = 0.5
"""How much later than its answer a request's line may be written: that is done when it has been answered."""


@dataclass(frozen=True)
class _Line:
    """What the log tells of a request that was answered at `t` (s, monotonic)."""

    t: float
    told: Mapping[str, Json]


@dataclass(frozen=True)
class Audit:
    """The requests whose audit lines match `pattern`, a mapping of `FIELDS`.

    The lab's policy logs what changes something, and GETs of leases; no other reads.
    """

    pattern: Mapping[str, Json]

    @property
    def by(self) -> str:
        """The pattern is part of it."""
        return f"audit {json.dumps(self.pattern, sort_keys=True)}"

    @property
    def request(self) -> Moment:
        """The next of these requests, when it was answered."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """Up to when it was heard."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the log up to a request of our own that is sent now. Raises ApiError, Problem, OSError."""
        history = hearing.history
        until_t = time.monotonic()
        mark = _mark(hearing.lab)
        insist(lambda: _find(hearing.lab, mark), Problem, limit_s=_MARK_LIMIT_S)
        threading.Event().wait(_LATE_S)
        lines = _lines(hearing)
        over = [line for line in lines if line is not None and line.told.get("stage") in _OVER]
        unsure = _why_unsure(hearing.history, lines, over, until_t)
        words = [Word(line.t, _said(line.told)) for line in over if matches(self.pattern, _fields(line.told))]
        moved_s = abs(wall_offset_s() - history.wall_offset_s(until_t))
        return Told(words, until_t, moved_s, unsure)


def audit(**pattern: Json) -> Audit:
    """The requests that these patterns match, by field. Raises Problem on a field that is none, and on a verb
    that is not logged: the silence of what nobody writes down proves nothing.
    """
    wrong = ", ".join(sorted(pattern.keys() - FIELDS)) or fault(pattern)
    if wrong:
        said = f"there are: {', '.join(sorted(FIELDS))}"
        raise Problem(f"an audit line cannot be asked by {wrong}", "audit(...)", said)
    logged = LOGGED | ({"get"} if pattern.get("resource") == "leases" else set())
    if "verb" in pattern and not _verbs(pattern["verb"]) <= logged:
        said = f"logged are: {', '.join(sorted(logged))}"
        raise Problem(f"the audit log does not hold each {pattern['verb']}", "audit(...)", said)
    return Audit(pattern)


def _verbs(asked: Json) -> set[str]:
    """The verbs that a pattern names; what it does not name by `$in` or by itself is none."""
    if isinstance(asked, str):
        return {asked}
    return set(asked.get("$in", ["?"])) if isinstance(asked, Mapping) else {"?"}


def _mark(lab: Lab) -> str:
    """Send a request that changes nothing, and that an audit line tells from all others."""
    mark = f"heard-{uuid.uuid4().hex}"
    lab.cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}?dryRun=All&{AUDIT_MARK}={mark}", {})
    return mark


def _find(lab: Lab, mark: str) -> None:
    if not any(mark in log.read_text(errors="replace") for log in _logs(lab)):
        said = f"no line of our own request within {_MARK_LIMIT_S:g} s"
        raise Problem(said, "audit log", "see whether the lab's memory is full: `nodeproof status`")


def _logs(lab: Lab) -> Sequence[Path]:
    """The log and its earlier part, the older first."""
    folder = lab.life.logs
    return [*sorted(folder.glob("audit-*.jsonl")), folder / "audit.jsonl"]


def _lines(hearing: Hearing) -> Sequence[_Line | None]:
    """Every line; None for one that is torn, or overwritten."""
    texts = (
        text for log in _logs(hearing.lab) for text in lines_of(log.read_bytes().decode(errors="replace"))
    )
    return [_line(text, hearing.history) for text in texts]


def _line(text: str, history: History) -> _Line | None:
    try:
        told = json.loads(text)
        return _Line(history.from_wall(told["stageTimestamp"]), told)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _why_unsure(
    history: History, lines: Sequence[_Line | None], over: Sequence[_Line], until_t: float
) -> Sequence[Lost]:
    """Which requests since the recording began the log may lack."""
    began_t, first_t = history.began_t, min((line.t for line in over), default=until_t)
    times = [None if line is None else line.t for line in lines]
    rotated = "the audit log begins after the recording: its beginning was rotated away"
    lost = [
        *([Lost(began_t, first_t, rotated)] if first_t > began_t else []),
        *torn(times, (began_t, until_t), "a line of the audit log was torn"),
        *_killed(history),
        *_lacking(history, over, until_t),
    ]
    # Lines are not quite in the order of their times. What was lost before the recording does not matter.
    near = [Lost(each.since_t - _LATE_S, each.until_t + _LATE_S, each.why) for each in lost]
    return [each for each in near if each.until_t > began_t]


def _killed(history: History) -> Iterator[Lost]:
    for entry in history.of_kind("machine"):
        if entry.data["node"] == "kube-apiserver" and entry.data["step"] == "powered-off":
            why = (
                "the API server was killed, perhaps before it wrote a line of a request that it had answered"
            )
            yield Lost(entry.t - _LATE_S, entry.t, why)


def _lacking(history: History, lines: Sequence[_Line], until_t: float) -> Iterator[Lost]:
    """From a sentinel that the log holds to the next, with one between that it lacks: each is a request."""
    marks = set(_MARKED.findall("\n".join(str(line.told.get("requestURI")) for line in lines)))
    held_t, lacks = history.began_t, ""
    for entry in history.of_kind("sentinel"):
        value = str(entry.data["value"])
        if value not in marks:
            lacks = lacks or value
            continue
        if lacks:
            yield Lost(held_t, entry.t, f"the audit log lacks sentinel {lacks}")
        held_t, lacks = min((entry.data.get("sent_t") or {}).values(), default=entry.t), ""
    if lacks:
        yield Lost(held_t, until_t, f"the audit log lacks sentinel {lacks}")


def _fields(line: Mapping[str, Json]) -> Mapping[str, Json]:
    """A line by `FIELDS`; what it does not tell is empty."""
    of = line.get("objectRef") or {}
    return {
        "verb": line.get("verb", ""),
        "user": (line.get("user") or {}).get("username", ""),
        "as_user": (line.get("impersonatedUser") or {}).get("username", ""),
        "agent": line.get("userAgent", ""),
        "uri": line.get("requestURI", ""),
        "code": (line.get("responseStatus") or {}).get("code", 0),
        "group": of.get("apiGroup", ""),
        "resource": of.get("resource", ""),
        "subresource": of.get("subresource", ""),
        "namespace": of.get("namespace", ""),
        "name": of.get("name", ""),
    }


def _said(line: Mapping[str, Json]) -> str:
    """A line for people."""
    told = _fields(line)
    user = f"{told['as_user']} (by {told['user']})" if told["as_user"] else told["user"]
    return f"{told['verb']} {str(told['uri']).partition('?')[0]} by {user}: {told['code']}"
