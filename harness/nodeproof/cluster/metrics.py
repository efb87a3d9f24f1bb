"""Metrics, as a component exports them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


def total(text: str, name: str, labels: Mapping[str, str]) -> float | None:
    """The sum over a metric's samples with these labels, from the text of /metrics."""
    samples = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in _names(name, family.type) and labels.items() <= sample.labels.items()
    ]
    return sum(samples) if samples else None


def _names(name: str, type_: str) -> tuple[str, ...]:
    """What the parser calls a metric's samples: those of a counter it gives OpenMetrics' suffix."""
    return (name, f"{name}_total") if type_ == "counter" else (name,)
