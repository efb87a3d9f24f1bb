"""The resources that a Node reports, as numbers that can be added up."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client.lab import Lab
from nodeproof.model.quantity import amount
from nodeproof.probes.probe import Json, Probe

_THOUSANDTHS = 1000


def resources_of(node: str) -> Probe:
    """Return a probe of a Node's `capacity` and `allocatable`, by resource: `cpu` in millicores.

    All other resources are in their units, so memory is in bytes.
    """

    def read(lab: Lab) -> Json:
        status = lab.cluster.api.get(node_path(node))["status"]
        return {what: in_numbers(status[what]) for what in ("capacity", "allocatable")}

    return Probe("resources", node, read)


def in_numbers(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return resources as numbers, from the form in the API (`cpu: 950m`, `memory: 2Gi`).

    Raises:
        ValueError: A quantity is invalid, or not a whole number.
    """
    return {name: _whole(amount(text), text, name) for name, text in quantities.items()}


def _whole(number: Fraction, text: str, name: str) -> int:
    scaled = number * _THOUSANDTHS if name == "cpu" else number
    if scaled.denominator != 1:
        raise ValueError(f"{text!r} of {name} is not a whole number")
    return scaled.numerator
