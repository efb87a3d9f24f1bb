"""Metrics that a component exports."""

from __future__ import annotations

import contextlib

from nodeproof.cluster.metrics import counting_since_s, total
from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.measuring import MANAGER, SCHEDULER
from nodeproof.probes.probe import Probe, Sample
from nodeproof.waiting import insist

_AT = {"kube-controller-manager": MANAGER, "kube-scheduler": SCHEDULER}
_GATHERED_S, _PERIOD_S = 45.0, 2.0
"""A kubelet samples every 10 to 15 s; for a container that it does not know yet it exports nothing, or 0."""


def metric(component: str, name: str, **labels: str) -> Probe:
    """Return a probe of the sum of a metric's samples that have these labels; None if there are none.

    A counter that counted nothing is not exported.

    Args:
        component: kube-apiserver, kube-controller-manager, kube-scheduler, or a node for its kubelet.
        name: The metric's name.
        **labels: The labels that a sample must have.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read(lab: Lab) -> Sample:
        text = _text(lab, component)
        return Sample(total(text, name, labels), counting_since_s(text, name))

    return Probe(f"{name}{{{selector}}}", component, read)


def resource_metric(node: str, name: str, **labels: str) -> Probe:
    """Return a probe of the sum of a metric's samples with these labels at a kubelet's /metrics/resource.

    The value is a whole number as text, empty if there are no samples. The probe reads until it is above 0,
    or until the kubelet had time to sample.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read_total(lab: Lab) -> float | None:
        return total(lab.cluster.api.text(f"{node_path(node)}/proxy/metrics/resource"), name, labels)

    def read_positive(lab: Lab) -> str:
        sum_ = read_total(lab)
        if not sum_:
            raise LookupError(name)
        return str(int(sum_))

    def read(lab: Lab) -> str:
        with contextlib.suppress(LookupError):
            return insist(lambda: read_positive(lab), LookupError, limit_s=_GATHERED_S, period_s=_PERIOD_S)
        sum_ = read_total(lab)
        return "" if sum_ is None else str(int(sum_))

    return Probe(f"{name}{{{selector}}}", node, read)


def _text(lab: Lab, component: str) -> str:
    api = lab.cluster.api
    if component in _AT:
        return api.text_at(f"{_AT[component]}/metrics")
    if component == "kube-apiserver":
        return api.text("/metrics")
    return api.text(f"{node_path(component)}/proxy/metrics")
