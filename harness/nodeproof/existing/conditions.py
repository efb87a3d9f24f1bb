"""When a run or a fault may begin on an existing cluster: in working hours, and while no alert fires."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nodeproof.existing import questions
from nodeproof.existing.questions import NoAnswer
from nodeproof.model.pattern import Json

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CLOCK = "%H:%M"


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
        since_midnight = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
        is_workday = DAYS[moment.weekday()] in self.days
        return is_workday and _since_midnight(self.since) <= since_midnight <= _since_midnight(self.until)

    def __str__(self) -> str:
        return f"{', '.join(self.days)} {self.since}-{self.until} {self.zone}"


def _shown(moment: datetime) -> str:
    return f"{DAYS[moment.weekday()]} {moment.strftime(_CLOCK)}"


def _since_midnight(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def hours_errors(content: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield place and reason of an unknown time zone, and of hours that end before they begin."""
    try:
        ZoneInfo(content["zone"])
    except (KeyError, ValueError, OSError):
        yield ("zone",), "this machine knows no such time zone; one is Europe/Berlin"
    if _since_midnight(content["from"]) >= _since_midnight(content["to"]):
        yield ("to",), "to must be later than from, on the same day"


def parse_hours(content: Json) -> Hours | None:
    """Return the hours of the valid entry `hours`, or None if there is no entry."""
    if content is None:
        return None
    return Hours(content["zone"], tuple(content["days"]), content["from"], content["to"])


PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"
TIMEOUT_S = 3.0
"""Default time for an answer (s)."""
_MARGIN_S = 0.5
_SHOWN = 5
"""Names of alerts in a message."""
_MATCHER = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(?:"([^"]*)"|([^"\s'`,={}!~]*))\s*""")
_ACTIVE = {"active": "true", "silenced": "false", "inhibited": "false"}


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
        label, operator, quoted, plain = parts.groups()
        try:
            re.compile(quoted or plain or "" if operator.endswith("~") else "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return Matcher(label, operator, quoted or plain or "")

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
        place = f"alerts of {self.url}"
        return questions.ask_all({place: self._firing}, self.timeout_s + _MARGIN_S)

    def _firing(self) -> str:
        """Return which matching alerts fire, or an empty string. Raises NoAnswer."""
        base = self.url.rstrip("/")
        if self.kind == PROMETHEUS:
            answer = questions.get_prometheus(f"{base}/api/v1/alerts", {}, self.timeout_s)
        else:
            answer = questions.get_json(f"{base}/api/v2/alerts", _ACTIVE, self.timeout_s)
        try:
            labels = list(_labels_of_firing(answer, self.kind))
        except (KeyError, TypeError, AttributeError) as error:
            raise NoAnswer(f"the answer is no list of alerts of {self.kind}") from error
        matching = [entry for entry in labels if all(matcher.matches(entry) for matcher in self.matchers)]
        names = sorted({str(entry.get("alertname", "?")) for entry in matching})
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"firing: {', '.join(names[:_SHOWN])}{more}" if names else ""


def _labels_of_firing(answer: Json, kind: str) -> Iterator[Mapping[str, str]]:
    """Yield the labels of each alert that fires. Raises KeyError, TypeError, AttributeError."""
    alerts: Sequence[Json] = answer["data"]["alerts"] if kind == PROMETHEUS else answer
    if not isinstance(alerts, list):
        raise TypeError(alerts)
    for alert in alerts:
        state = alert["state"] if kind == PROMETHEUS else alert["status"]["state"]
        if state in ("firing", "active"):
            yield dict(alert["labels"].items())


def alert_errors(content: Json) -> Iterator[tuple[tuple[str | int, ...], str]]:
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
