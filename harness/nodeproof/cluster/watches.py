"""Who watches what at the API server, as it counts itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from nodeproof.cluster.api import Api

_LINE = re.compile(r"^apiserver_longrunning_requests\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def watches(api: Api) -> Mapping[str, int]:
    """How many watches of all objects of a resource there are, by `group/resource`. Raises ApiError."""
    counted: Counter[str] = Counter()
    for line in _LINE.finditer(api.text("/metrics")):
        labels = dict(_LABEL.findall(line["labels"]))
        if (labels.get("verb"), labels.get("scope")) == ("WATCH", "cluster"):
            counted[f"{labels.get('group', '')}/{labels['resource']}"] += int(float(line["value"]))
    return counted


def fewer(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """The resources that fewer watch than before."""
    return sorted(name for name, many in before.items() if now.get(name, 0) < many)
