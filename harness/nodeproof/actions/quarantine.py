"""What the pod garbage collector still holds against the name of a Node that was deleted before.

At each pass it puts every Node that it misses into quarantine, also one whose pods it removes at that pass,
and nothing takes a Node out that is there again (pkg/controller/podgc/gc_controller.go: gcOrphaned). One that
is deleted meanwhile loses its pods when that older quarantine is over.
"""

from __future__ import annotations

from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.cluster.api import Api
from nodeproof.cluster.metrics import total
from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.cluster.workloads import pod_spec
from nodeproof.labs.client.measuring import MANAGER
from nodeproof.model.history import parse_time
from nodeproof.model.problem import Problem
from nodeproof.model.window import POD_GC_S, QUARANTINE_S
from nodeproof.waiting import wait_for

Json = Any
_PASSES_S, _FRACTION_S = 10.0, 1.0
"""What two passes and the lag of their cache take on a busy host; and a time of the API has no fraction."""
OVER_S = QUARANTINE_S + POD_GC_S + _PASSES_S + _FRACTION_S
"""When a Node is made an earlier one may have been missed a moment ago. What was put into quarantine then is
taken out by the first pass after its end, gcCheckPeriod later at the most: it finds a Node of this age there.
"""
_LIMIT_S, _PERIOD_S = OVER_S + 30.0, 1.0


def wait_out_orphans_quarantine(*nodes: str) -> Action[None]:
    """Wait until the pod garbage collector holds no quarantine of an earlier Node of one of these names, up
    to 71 s; where it has begun none yet, or the Nodes are as old, not at all. Before a scenario deletes a
    Node and counts from that: what is left shortens the next one's.

    The action raises ApiError, and Problem where a Node is made again all the while.
    """

    def do(doing: Doing) -> None:
        api = doing.lab.cluster.api
        if begun(api) == 0 or wait_for(lambda: _are_old(api, nodes), _LIMIT_S, _PERIOD_S):
            return
        said = f"younger than {OVER_S:g} s after {_LIMIT_S:g} s: one of {', '.join(nodes)}"
        raise Problem(said, f"lab {doing.lab.name}", "see who makes its Node again")

    return Action(f"wait until no quarantine of an earlier {' or '.join(nodes)} is left", do)


def begun(api: Api) -> float | None:
    """How often the collector that runs has put a Node into quarantine, if it tells: adding something after a
    while is a retry to its queue, which is empty in a new process. Raises ApiError.
    """
    text = api.text_at(f"{MANAGER}/metrics")
    return total(text, "workqueue_retries_total", {"name": "orphaned_pods_nodes"})


def _are_old(api: Api, names: tuple[str, ...]) -> bool:
    """Whether these Nodes are, by the API server's own clock. Raises ApiError."""
    # An object that nobody keeps was made now.
    now = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    return all(_made(now) - _made(api.get(node(name))) >= OVER_S for name in names)


def _made(found: Json) -> float:
    return parse_time(found["metadata"]["creationTimestamp"])
