"""Quantities of the API, and durations of Go."""

from __future__ import annotations

import re
from fractions import Fraction

from nodeproof.model.pattern import Json

_QUANTITY = re.compile(r"([0-9.]+)(m|[kMGTPE]|[KMGTPE]i|)")
_POWERS = "kMGTPE"
_THOUSANDTHS = 1000


def amount(text: str) -> Fraction:
    """Parse a quantity of the API (k8s.io/apimachinery/pkg/api/resource).

    Raises:
        ValueError: The text is not a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, unit = Fraction(match[1]), match[2]
    if not unit:
        return number
    if unit == "m":
        return number / _THOUSANDTHS
    base, power = (1024 if unit.endswith("i") else 1000), 1 + _POWERS.index(unit[0].replace("K", "k"))
    return number * Fraction(base) ** power


_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"[+-]?(?:{_DURATION_PART.pattern})+")


def duration_s(value: Json) -> float:
    """Return the seconds of a Go duration such as `50s`, `5m0s` or `1m40s`, or of a plain number.

    Raises:
        ValueError: The text is not a Go duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value)
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a Go duration: {text!r}")
    total = sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION_PART.findall(text))
    return -total if text.startswith("-") else total
