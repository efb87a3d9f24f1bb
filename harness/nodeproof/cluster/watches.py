"""Watches at the API server, from its own metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from nodeproof.cluster.api import Api

_LINE = re.compile(r"^apiserver_longrunning_requests\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def watches(api: Api) -> Mapping[str, int]:
    """Return the number of watches of all objects of a resource, by `group/resource`. Raises ApiError."""
    counts: Counter[str] = Counter()
    for line in _LINE.finditer(api.text("/metrics")):
        labels = dict(_LABEL.findall(line["labels"]))
        if (labels.get("verb"), labels.get("scope")) == ("WATCH", "cluster"):
            counts[f"{labels.get('group', '')}/{labels['resource']}"] += int(float(line["value"]))
    return counts


def fewer(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the resources with fewer watches than before."""
    return sorted(name for name, count in before.items() if now.get(name, 0) < count)
