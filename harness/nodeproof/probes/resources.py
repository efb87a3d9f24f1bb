"""How much a Node says that it has, in numbers that can be added up."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client.lab import Lab
from nodeproof.model.quantity import amount
from nodeproof.probes.probe import Json, Probe

_THOUSANDTHS = 1000


def resources_of(node: str) -> Probe:
    """The `capacity` of a Node and what is `allocatable` of it, each by resource: `cpu` in thousandths of
    one, all others in ones, so memory in bytes.
    """

    def read(lab: Lab) -> Json:
        status = lab.cluster.api.get(node_path(node))["status"]
        return {what: in_numbers(status[what]) for what in ("capacity", "allocatable")}

    return Probe("resources", node, read)


def in_numbers(told: Mapping[str, str]) -> dict[str, int]:
    """Resources as the API writes them (`cpu: 950m`, `memory: 2Gi`). Raises ValueError on one that is none,
    or no whole number.
    """
    return {name: _whole(amount(text), text, name) for name, text in told.items()}


def _whole(number: Fraction, text: str, name: str) -> int:
    counted = number * _THOUSANDTHS if name == "cpu" else number
    if counted.denominator != 1:
        raise ValueError(f"{text!r} of {name} is no whole number")
    return counted.numerator
