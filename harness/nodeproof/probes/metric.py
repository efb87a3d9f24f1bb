"""A metric of a component, as it exports it."""

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
"""A kubelet gathers each 10 to 15 s, and of a container that it does not know yet it says nothing, or 0."""


def metric(component: str, name: str, **labels: str) -> Probe:
    """The sum of a metric's samples that have these labels; None where there is none of them (a counter that
    counted nothing is not exported).

    `component` is kube-apiserver, kube-controller-manager, kube-scheduler, or a node for its kubelet.
    """
    chosen = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read(lab: Lab) -> Sample:
        text = _text(lab, component)
        return Sample(total(text, name, labels), counting_since_s(text, name))

    return Probe(f"{name}{{{chosen}}}", component, read)


def resource_metric(node: str, name: str, **labels: str) -> Probe:
    """The sum of a metric's samples that have these labels, of those at a kubelet's /metrics/resource: a
    whole number as text, nothing where there is none of them. It is read until it is more than 0, or has had
    the time for it.
    """
    chosen = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def ask(lab: Lab) -> float | None:
        return total(lab.cluster.api.text(f"{node_path(node)}/proxy/metrics/resource"), name, labels)

    def more_than_nothing(lab: Lab) -> str:
        found = ask(lab)
        if not found:
            raise LookupError(name)
        return str(int(found))

    def read(lab: Lab) -> str:
        with contextlib.suppress(LookupError):
            return insist(
                lambda: more_than_nothing(lab), LookupError, limit_s=_GATHERED_S, period_s=_PERIOD_S
            )
        found = ask(lab)
        return "" if found is None else str(int(found))

    return Probe(f"{name}{{{chosen}}}", node, read)


def _text(lab: Lab, component: str) -> str:
    api = lab.cluster.api
    if component in _AT:
        return api.text_at(f"{_AT[component]}/metrics")
    if component == "kube-apiserver":
        return api.text("/metrics")
    return api.text(f"{node_path(component)}/proxy/metrics")
