"""Pods of a scenario; all of them are deleted when it ends."""

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
    """Run a pod on a node, with these tolerations.

    Args:
        on: The node's name.
        tolerates_unreachable_s: How long the pod tolerates that its node is unreachable (s); None adds no
            toleration.
        tolerations: Further tolerations.
    """
    unreachable = [] if tolerates_unreachable_s is None else [tolerates(UNREACHABLE, tolerates_unreachable_s)]
    all_tolerations = [*unreachable, *tolerations]
    return Action(f"run a pod on {on}", lambda doing: doing.lab.cluster.run_pod(on, all_tolerations))


def pending_pod(
    *,
    only_on: str,
    tolerations: Sequence[Mapping[str, Json]] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Json,
) -> Action[Pod]:
    """Create a pod that the scheduler may bind to one node only, with these resources.

    `fields` are further fields of its spec, such as `holding(CLAIM)`.
    """
    return Action(
        f"a pod for {only_on} alone",
        lambda doing: doing.lab.cluster.pending_pod(only_on, tolerations, requests, limits, fields),
    )


def bound_pod(*, to: str) -> Action[Pod]:
    """Create a pod that is bound to a node from the beginning, without the scheduler.

    Its kubelet may still reject it.
    """
    return Action(f"a pod bound to {to}", lambda doing: doing.lab.cluster.bound_pod(to))


def run_witnesses(*witnesses: Witness, on: str) -> Action[list[Pod]]:
    """Run pods on a node that record what happens to them, to be heard; needs the feature `real-pods`."""

    def do(doing: Doing) -> list[Pod]:
        pods = doing.lab.cluster.run_witnesses(on, witnesses)
        doing.keep_clock(on)
        return pods

    return Action(f"run {len(witnesses)} witnesses on {on}", do)
