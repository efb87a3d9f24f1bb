"""What an inventory says about when faults may begin and what ends one: hours, alerts and abort conditions.

HTTP requests and commands about them have a time limit; no answer counts as a refusal.
"""

from __future__ import annotations

import json
import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import urllib3

from nodeproof import proc
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError

PERIOD_S, TIMEOUT_S = 5.0, 3.0
"""Default period of the poll of abort conditions, and time for an answer (s)."""
_MARGIN_S = 0.5
"""Time (s) beyond the timeout of a question, whose own message is more exact."""
_MOST_BYTES = 10_000_000
_LONGEST = 300
"""Characters of an error or an output that a reason quotes."""
Errors = Iterator[tuple[tuple[str | int, ...], str]]
"""Place and reason of each invalid part of an entry."""


class NoAnswer(OutsideError):
    """A program did not answer, or not as expected."""


def _get(url: str, timeout_s: float) -> bytes:
    """Return the body of a page; a redirect is not followed. Raises NoAnswer unless the status is 2xx."""
    try:
        with urllib3.PoolManager(retries=False) as pool:
            timeout = urllib3.Timeout(total=timeout_s)
            page = pool.request("GET", url, redirect=False, timeout=timeout, preload_content=False)
            body: bytes = page.read(_MOST_BYTES)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise NoAnswer(f"no answer: {_short(str(error).rpartition(': ')[2])}") from error
    if not 200 <= page.status < 300:
        raise NoAnswer(f"HTTP {page.status}")
    return body


def _get_json(url: str, timeout_s: float, **query: str) -> Json:
    """Return the content of a page of JSON. Raises NoAnswer."""
    body = _get(f"{url}?{urlencode(query)}" if query else url, timeout_s)
    try:
        return json.loads(body)
    except ValueError as error:
        raise NoAnswer(f"no JSON: {_short(body.decode(errors='replace'))}") from error


def _get_prometheus(url: str, timeout_s: float, **query: str) -> Json:
    """Return the answer of Prometheus' API. Raises NoAnswer if it failed or is partial.

    Source: prometheus.io/docs/prometheus/latest/querying/api, "Format overview": `warnings` name what a
    result lacks.
    """
    answer = _get_json(url, timeout_s, **query)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise NoAnswer("the answer is no success of Prometheus")
    if answer.get("warnings"):
        raise NoAnswer(f"the answer is partial: {_short(str(answer['warnings'][0]))}")
    return answer


def _answers(questions: Mapping[str, Callable[[], str]], timeout_s: float) -> list[str]:
    """Ask all questions at the same time, and return the non-empty answers, each with its name.

    One that raises an exception, or has not answered in time, counts as answered with that: a server that
    sends a byte from time to time must not hold up the others.
    """
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def answer(name: str) -> None:
        try:
            answers.put((name, questions[name]()))
        except Exception as error:  # whatever fails, it is no answer
            answers.put((name, str(error) or repr(error)))

    for name in questions:
        threading.Thread(target=answer, args=(name,), daemon=True).start()
    limit_s = timeout_s + _MARGIN_S
    open_names, reasons, deadline_t = dict.fromkeys(questions), list[str](), time.monotonic() + limit_s
    while open_names:
        try:
            name, reason = answers.get(timeout=max(0.0, deadline_t - time.monotonic()))
        except queue.Empty:
            return [*reasons, *(f"{name}: no answer within {limit_s:g} s" for name in open_names)]
        del open_names[name]
        reasons += [f"{name}: {reason}"] if reason else []
    return reasons


def _short(text: str) -> str:
    """Return text from elsewhere as a part of one line."""
    return " ".join(text.split())[:_LONGEST]


# Conditions that abort a fault


@dataclass(frozen=True)
class Url:
    """A page whose status must be 2xx."""

    url: str

    def reason(self, _folder: Path, timeout_s: float) -> str:
        """Return an empty string. Raises NoAnswer if a fault must end."""
        _get(self.url, timeout_s)
        return ""

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Command:
    """A program whose exit code must be 0; it runs in the inventory's folder."""

    argv: tuple[str, ...]

    def reason(self, folder: Path, timeout_s: float) -> str:
        """Return an empty string. Raises NoAnswer if a fault must end."""
        try:
            proc.run(self.argv, timeout_s=timeout_s, cwd=folder)
        except proc.CommandFailed as error:
            code = "timed out" if error.status is None else f"exit code {error.status}"
            raise NoAnswer(f"{code}: {_short(error.output)}".removesuffix(": ")) from error
        return ""

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True)
class Query:
    """A query whose result, a vector, must be empty, as that of an alert."""

    prometheus: str
    query: str

    def reason(self, _folder: Path, timeout_s: float) -> str:
        """Return how many series the result has, if any. Raises NoAnswer if it cannot be read."""
        url = f"{self.prometheus.rstrip('/')}/api/v1/query"
        answer = _get_prometheus(url, timeout_s, query=self.query)
        try:
            kind, result = answer["data"]["resultType"], answer["data"]["result"]
        except (KeyError, TypeError) as error:
            raise NoAnswer("the answer is no result of a query") from error
        if kind != "vector" or not isinstance(result, list):
            raise NoAnswer(f"the result is a {kind}, not a vector")
        return f"the result is not empty: {len(result)} series" if result else ""

    def __str__(self) -> str:
        return f"{self.query} at {self.prometheus}"


Condition = Url | Command | Query
_COMPANIONS = {"url": set[str](), "command": set[str](), "prometheus": {"query"}}
"""The keys that must stand beside the key of each kind of condition."""


@dataclass(frozen=True)
class Abort:
    """What is polled while a fault is in, how often, and how long an answer may take (s)."""

    conditions: tuple[Condition, ...] = ()
    period_s: float = PERIOD_S
    timeout_s: float = TIMEOUT_S

    def reasons(self, folder: Path) -> list[str]:
        """Ask all conditions, and return why a fault must end; no answer is a reason, too."""
        questions = {
            f"abort condition {condition}": partial(condition.reason, folder, self.timeout_s)
            for condition in self.conditions
        }
        return _answers(questions, self.timeout_s)


def abort_errors(content: Json) -> Errors:
    """Yield place and reason of conditions that are not of exactly one kind."""
    for number, condition in enumerate(content["conditions"]):
        place = ("conditions", number)
        kinds = _COMPANIONS.keys() & condition.keys()
        if len(kinds) != 1:
            yield place, f"expected one of the keys {', '.join(_COMPANIONS)}"
            continue
        (kind,) = kinds
        for key in sorted(_COMPANIONS[kind] - condition.keys()):
            yield place, f"expected the key {key} beside {kind}"
        for key in sorted(condition.keys() - {kind} - _COMPANIONS[kind]):
            yield (*place, key), f"{key} does not belong to {kind}"


def parse_abort(content: Json) -> Abort:
    """Return the conditions of the valid entry `abort`, or none if there is no entry."""
    if content is None:
        return Abort()
    conditions = tuple(map(_condition, content["conditions"]))
    return Abort(conditions, content.get("period_s", PERIOD_S), content.get("timeout_s", TIMEOUT_S))


def _condition(entry: Json) -> Condition:
    if "url" in entry:
        return Url(entry["url"])
    if "command" in entry:
        return Command(tuple(entry["command"]))
    return Query(entry["prometheus"], entry["query"])


# Working hours


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Hours:
    """Hours of the day on some weekdays in a time zone; `until` may be 24:00."""

    zone: str
    days: tuple[str, ...]
    since: str
    until: str

    def refusals(self, begin: datetime, end: datetime) -> Iterator[str]:
        """Yield why what lasts from `begin` to `end` is not within the hours of one day."""
        first, last = (moment.astimezone(ZoneInfo(self.zone)) for moment in (begin, end))
        if not self._include(first):
            yield f"{_shown(first)} is outside of the working hours {self}"
        elif not self._include(last) or last.date() != first.date():
            yield f"the fault may last until {_shown(last)}, outside of the working hours {self}"

    def _include(self, moment: datetime) -> bool:
        is_workday = DAYS[moment.weekday()] in self.days
        return is_workday and self.since <= f"{moment:%H:%M:%S}" <= f"{self.until}:00"

    def __str__(self) -> str:
        return f"{', '.join(self.days)} {self.since}-{self.until} {self.zone}"


def _shown(moment: datetime) -> str:
    return f"{DAYS[moment.weekday()]} {moment:%H:%M}"


def hours_errors(content: Json) -> Errors:
    """Yield place and reason of an unknown time zone, and of hours that end before they begin."""
    try:
        ZoneInfo(content["zone"])
    except (KeyError, ValueError, OSError):
        yield ("zone",), "this machine knows no such time zone; one is Europe/Berlin"
    if content["from"] >= content["to"]:
        yield ("to",), "to must be later than from, on the same day"


def parse_hours(content: Json) -> Hours | None:
    """Return the hours of the valid entry `hours`, or None if there is no entry."""
    if content is None:
        return None
    return Hours(content["zone"], tuple(content["days"]), content["from"], content["to"])


# Firing alerts


PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"
_SHOWN = 5
"""Names of alerts in a message."""
_MATCHER = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(?:"([^"]*)"|([^"\s'`,={}!~]*))\s*""")


@dataclass(frozen=True)
class Matcher:
    """A condition on a label, as Alertmanager writes it: `severity="critical"`, `alertname!~"Info.*"`."""

    label: str
    operator: str
    text: str

    @staticmethod
    def of(text: str) -> Matcher:
        """Read a matcher. Raises ValueError if it is malformed."""
        parts = _MATCHER.fullmatch(text)
        if parts is None:
            raise ValueError("not a matcher")
        label, operator, quoted, plain = parts.groups("")
        matcher = Matcher(label, operator, quoted or plain)
        try:
            matcher.matches({})
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return matcher

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition; a label that is missing is empty."""
        value = labels.get(self.label, "")
        is_regex = self.operator.endswith("~")
        is_same = re.fullmatch(self.text, value) is not None if is_regex else value == self.text
        return is_same != self.operator.startswith("!")


@dataclass(frozen=True)
class Alerts:
    """The server that knows the alerts, and the matchers that all must match an alert that counts."""

    kind: str
    url: str
    matchers: tuple[Matcher, ...]
    timeout_s: float = TIMEOUT_S

    def refusals(self) -> list[str]:
        """Return why nothing may begin now: alerts that fire, or no answer about them."""
        return _answers({f"alerts of {self.url}": self._firing}, self.timeout_s)

    def _firing(self) -> str:
        """Return which matching alerts fire, or an empty string. Raises NoAnswer."""
        try:
            firing = [
                labels
                for labels in map(dict, self._labels())
                if all(matcher.matches(labels) for matcher in self.matchers)
            ]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NoAnswer(f"the answer is no list of alerts of {self.kind}") from error
        names = sorted({str(labels.get("alertname", "?")) for labels in firing})
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"firing: {', '.join(names[:_SHOWN])}{more}" if names else ""

    def _labels(self) -> Sequence[Json]:
        """Return the labels of each alert that fires. Raises NoAnswer, KeyError, TypeError."""
        base = self.url.rstrip("/")
        if self.kind == PROMETHEUS:
            alerts = _get_prometheus(f"{base}/api/v1/alerts", self.timeout_s)["data"]["alerts"]
            firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        else:
            url = f"{base}/api/v2/alerts"
            alerts = _get_json(url, self.timeout_s, active="true", silenced="false", inhibited="false")
            firing = [alert["labels"] for alert in alerts if alert["status"]["state"] == "active"]
        if not isinstance(alerts, list):
            raise TypeError(alerts)
        return firing


def alert_errors(content: Json) -> Errors:
    """Yield place and reason of an entry without exactly one server, and of malformed matchers."""
    if len({PROMETHEUS, ALERTMANAGER} & content.keys()) != 1:
        yield (), f"expected one of the keys {PROMETHEUS}, {ALERTMANAGER}"
    for number, text in enumerate(content.get("match", ())):
        try:
            Matcher.of(text)
        except ValueError as error:
            yield ("match", number), f'{error}; one is severity="critical"'


def parse_alerts(content: Json) -> Alerts | None:
    """Return the server of the valid entry `alerts`, or None if there is no entry."""
    if content is None:
        return None
    kind = PROMETHEUS if PROMETHEUS in content else ALERTMANAGER
    matchers = tuple(map(Matcher.of, content.get("match", ())))
    return Alerts(kind, content[kind], matchers, content.get("timeout_s", TIMEOUT_S))
