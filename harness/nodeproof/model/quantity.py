"""Quantities in the API's notation."""

from __future__ import annotations

import re
from fractions import Fraction

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
