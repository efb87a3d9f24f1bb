"""Firing alerts of a cluster's monitoring: while one that matches fires, no run and no fault begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.existing import questions
from nodeproof.existing.questions import NoAnswer

Json = Any
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


def errors(content: Json) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and reason of an entry without exactly one server, and of malformed matchers."""
    if len({PROMETHEUS, ALERTMANAGER} & content.keys()) != 1:
        yield (), f"expected one of the keys {PROMETHEUS}, {ALERTMANAGER}"
    for number, text in enumerate(content.get("match", ())):
        try:
            Matcher.of(text)
        except ValueError as error:
            yield ("match", number), f'{error}; one is severity="critical"'


def parse(content: Json) -> Alerts | None:
    """Return the server of the valid entry `alerts`, or None if there is no entry."""
    if content is None:
        return None
    kind = PROMETHEUS if PROMETHEUS in content else ALERTMANAGER
    matchers = tuple(map(Matcher.of, content.get("match", ())))
    return Alerts(kind, content[kind], matchers, content.get("timeout_s", TIMEOUT_S))
