"""Label selectors of the API."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.model.pattern import Json


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects an object with these labels; an empty one selects all."""
    exact = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return exact.items() <= labels.items() and all(_is_met(expression, labels) for expression in expressions)


def _is_met(expression: Json, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement (apimachinery/pkg/labels/selector.go, Requirement.Matches)."""
    key, values = expression["key"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
