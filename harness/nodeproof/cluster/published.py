"""What components publish about themselves: configuration, metrics, watches, and the API's schema."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import RESOURCES, node
from nodeproof.model.pattern import Json, fields_of
from nodeproof.model.problem import Problem


def configz(api: Api, base: str) -> Mapping[str, Json]:
    """Return a component's own configuration, without the outer key that names its group.

    Raises:
        ApiError: The component refused or did not answer.
        Problem: There is not exactly one configuration.
    """
    return sole_configuration(api.get_at(base, "/configz"), base)


def kubelet_configz(api: Api, name: str) -> Mapping[str, Json]:
    """Return a kubelet's configuration, through the API server's proxy and so its authenticated port."""
    return sole_configuration(api.get(f"{node(name)}/proxy/configz"), f"kubelet {name}")


def sole_configuration(document: Json, where: str) -> Mapping[str, Json]:
    """Return the only configuration in an answer of /configz. Raises Problem if there is another number."""
    values = list(document.values()) if isinstance(document, dict) else []
    if len(values) != 1 or not isinstance(values[0], dict):
        raise Problem(f"{len(values)} configurations at /configz", where, "check the component's version")
    return values[0]


_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
"""The start time of the process that exports the metrics (github.com/prometheus/client_golang)."""
_PART = re.compile(r"_(bucket|count|sum)$")
_COUNTING = {"counter", "histogram", "summary"}


def counting_since_s(text: str, name: str) -> float | None:
    """Return when the process that counts a metric started (s since the epoch), from the text of /metrics.

    None if the text has no start time, and for a gauge, which does not count. A metric that is not
    exported yet may be a counter.
    """
    families = "|".join(map(re.escape, (name, _PART.sub("", name))))
    types = set(re.findall(rf"^# TYPE (?:{families}) (\S+)$", text, re.MULTILINE))
    started = _STARTED.search(text)
    if started is None or (types and types.isdisjoint(_COUNTING)):
        return None
    return float(started[1])


def total(text: str, name: str, labels: Mapping[str, str]) -> float | None:
    """Return the sum over a metric's samples with these labels, from the text of /metrics."""
    # A component publishes thousands of samples, and parsing all of them takes a processor for half a second.
    lines = re.findall(rf"^{re.escape(name)}[ {{].*$", text, re.MULTILINE)
    samples = [
        sample.value
        for family in text_string_to_metric_families("\n".join([*lines, ""]))
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    ]
    return sum(samples) if samples else None


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


def read_fields(api: Api, resources: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the field paths of each of these resources, from /openapi/v3. Raises ApiError, Problem."""
    wanted = {name: RESOURCES[name] for name in resources}
    documents = {
        group: api.get(f"/openapi/v3/{group}") for group in {resource.group for resource in wanted.values()}
    }
    try:
        return {
            name: fields_of(documents[resource.group]["components"]["schemas"], resource.type)
            for name, resource in wanted.items()
        }
    except KeyError as error:
        raise Problem(f"no schema of {error}", "/openapi/v3", "check the API server's version") from error
