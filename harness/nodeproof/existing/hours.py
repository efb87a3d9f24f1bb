"""Working hours of an inventory: faults begin and end only while somebody is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

Json = Any
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHOWN = "%H:%M"


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
    return f"{DAYS[moment.weekday()]} {moment.strftime(_SHOWN)}"


def _since_midnight(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def errors(content: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield place and reason of an unknown time zone, and of hours that end before they begin."""
    try:
        ZoneInfo(content["zone"])
    except (KeyError, ValueError, OSError):
        yield ("zone",), "this machine knows no such time zone; one is Europe/Berlin"
    if _since_midnight(content["from"]) >= _since_midnight(content["to"]):
        yield ("to",), "to must be later than from, on the same day"


def parse(content: Json) -> Hours | None:
    """Return the hours of the valid entry `hours`, or None if there is no entry."""
    if content is None:
        return None
    return Hours(content["zone"], tuple(content["days"]), content["from"], content["to"])
