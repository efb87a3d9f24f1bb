"""The pod garbage collector's quarantine of Nodes that were deleted before.

Each pass puts every missing Node into quarantine, even one whose pods it removes in that pass. A Node that
is created again stays in quarantine until that expires (pkg/controller/podgc/gc_controller.go: gcOrphaned).
If it is deleted before, its pods are removed when the older quarantine expires: too early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodeproof.actions.action import Action, ActionContext
from nodeproof.cluster.api import Api
from nodeproof.cluster.published import total
from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.cluster.workloads import pod_spec
from nodeproof.labs.client.measuring import MANAGER
from nodeproof.model.history import parse_time
from nodeproof.model.judgment import words_in
from nodeproof.model.problem import Problem
from nodeproof.model.window import POD_GC_S, QUARANTINE_S
from nodeproof.waiting import wait_until

Json = Any
_PASSES_S, _FRACTION_S = 10.0, 1.0
"""Allowance for two passes with a late cache on a busy host, and for API times in whole seconds."""
OVER_S = QUARANTINE_S + POD_GC_S + _PASSES_S + _FRACTION_S
"""Age (s) of a Node at which the quarantine of an earlier Node of the same name has surely expired.

The collector may put the name into quarantine just before the Node is created. The first pass after the
quarantine, at most gcCheckPeriod later, removes it.
"""
_TIMEOUT_S, _PERIOD_S = OVER_S + 30.0, 1.0


def wait_podgc_quarantine(*nodes: str) -> Action[None]:
    """Wait until the pod garbage collector has no quarantine of an earlier Node of these names, up to 71 s.

    It returns at once if no Node was ever in quarantine, or if the Nodes are old enough. Use it before a
    scenario deletes a Node and measures from that: the rest of a quarantine shortens the next one.

    Raises:
        ApiError: By the action.
        Problem: By the action, if a Node is created again and again.
    """

    def do(context: ActionContext) -> None:
        api = context.lab.cluster.api
        if begun(api) == 0 or wait_until(lambda: _are_old(api, nodes), _TIMEOUT_S, _PERIOD_S):
            return
        message = f"after {_TIMEOUT_S:g} s, a Node of {', '.join(nodes)} is younger than {OVER_S:g} s"
        next_step = "something recreates it: look for its `create` requests in the lab's audit log"
        raise Problem(message, f"lab {context.lab.name}", next_step)

    return Action(f"wait until no quarantine of an earlier {' or '.join(nodes)} is left", do)


def begun(api: Api) -> float | None:
    """Return how often the running collector put a Node into quarantine; None if there is no such metric.

    The work queue counts each quarantine (AddAfter) as a retry, from the start of the process.

    Raises:
        ApiError: The metrics cannot be read.
    """
    text = api.text_at(f"{MANAGER}/metrics")
    return total(text, "workqueue_retries_total", {"name": "orphaned_pods_nodes"})


def _are_old(api: Api, names: tuple[str, ...]) -> bool:
    """Return whether these Nodes are old enough, by the API server's own clock. Raises ApiError."""
    # The object of a dry run has the current time.
    now = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    return all(_created_t(now) - _created_t(api.get(node(name))) >= OVER_S for name in names)


def _created_t(document: Json) -> float:
    return parse_time(document["metadata"]["creationTimestamp"])


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
