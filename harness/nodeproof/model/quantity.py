"""Quantities, as the API writes them."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(r"([0-9.]+)(m|[kMGTPE]|[KMGTPE]i|)")
_POWERS = "kMGTPE"
_THOUSANDTHS = 1000


def amount(text: str) -> Fraction:
    """A quantity of the API as a number (k8s.io/apimachinery/pkg/api/resource). Raises ValueError."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"no quantity: {text!r}")
    number, unit = Fraction(found[1]), found[2]
    if not unit:
        return number
    if unit == "m":
        return number / _THOUSANDTHS
    base, power = (1024 if unit.endswith("i") else 1000), 1 + _POWERS.index(unit[0].replace("K", "k"))
    return number * Fraction(base) ** power
