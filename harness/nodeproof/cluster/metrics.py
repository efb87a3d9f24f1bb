"""Metrics, as a component exports them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
"""The start time of the process that exports the metrics (github.com/prometheus/client_golang)."""
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_PARTS = ("_bucket", "_count", "_sum")


def counting_since_s(text: str, name: str) -> float | None:
    """Return when the process that counts a metric started (s since the epoch), from the text of /metrics.

    It is None if the text does not contain it, and for a gauge, which does not count. A metric that is not
    exported yet may be a counter.
    """
    types = dict(_TYPE.findall(text))
    family = next((name.removesuffix(part) for part in _PARTS if name.removesuffix(part) in types), name)
    started = _STARTED.search(text)
    if started is None or types.get(family, "counter") not in ("counter", "histogram", "summary"):
        return None
    return float(started[1])


def total(text: str, name: str, labels: Mapping[str, str]) -> float | None:
    """Return the sum over a metric's samples with these labels, from the text of /metrics."""
    samples = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in _names(name, family.type) and labels.items() <= sample.labels.items()
    ]
    return sum(samples) if samples else None


def _names(name: str, type_: str) -> tuple[str, ...]:
    """Return the parser's names of a metric's samples: a counter's have the suffix of OpenMetrics."""
    return (name, f"{name}_total") if type_ == "counter" else (name,)
