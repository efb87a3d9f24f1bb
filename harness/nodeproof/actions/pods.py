"""Pods of a scenario's own; all of them are swept when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.cluster.witness import Witness
from nodeproof.cluster.workloads import Pod, tolerates
from nodeproof.model.cluster import UNREACHABLE

Json = Any


def run_pod(
    *, on: str, tolerates_unreachable_s: int | None = None, tolerations: Sequence[Mapping[str, Json]] = ()
) -> Action[Pod]:
    """A Running pod on a node, which tolerates its being unreachable so long, and what else it is given."""
    unreachable = [] if tolerates_unreachable_s is None else [tolerates(UNREACHABLE, tolerates_unreachable_s)]
    given = [*unreachable, *tolerations]
    return Action(f"run a pod on {on}", lambda doing: doing.lab.cluster.run_pod(on, given))


def pending_pod(
    *,
    only_on: str,
    tolerations: Sequence[Mapping[str, Json]] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Json,
) -> Action[Pod]:
    """A pod that the scheduler may bind to one node only, that asks for so much of it, and may have so much;
    `fields` are others of its spec, such as `holding(CLAIM)`.
    """
    return Action(
        f"a pod for {only_on} alone",
        lambda doing: doing.lab.cluster.pending_pod(only_on, tolerations, requests, limits, fields),
    )


def bound_pod(*, to: str) -> Action[Pod]:
    """A pod that is a node's from the beginning, past the scheduler, whatever its kubelet says to it."""
    return Action(f"a pod bound to {to}", lambda doing: doing.lab.cluster.bound_pod(to))


def run_witnesses(*witnesses: Witness, on: str) -> Action[list[Pod]]:
    """Running pods on a node that write down what happens to them, to be heard; needs the feature
    `real-pods`.
    """

    def do(doing: Doing) -> list[Pod]:
        made = doing.lab.cluster.run_witnesses(on, witnesses)
        doing.keep_clock(on)
        return made

    return Action(f"run {len(witnesses)} witnesses on {on}", do)
