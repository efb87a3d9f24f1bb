"""Coverage of a storm: which faults were injected in which states of the cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from nodeproof.checks.invariants import component_stopped_spans, cut_off_spans, nodes_by_name
from nodeproof.model.cluster import condition_status
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.schedule import COMPONENTS, TAINT_KEY, Combination, Step, combine, of_node, stopped
from nodeproof.model.slack import Span


def coverage(steps: Sequence[Step], history: History) -> frozenset[Combination]:
    """Return the combinations that the steps of a storm met, by the state when their injection began."""
    nodes = nodes_by_name(history)
    cut_off = {node: cut_off_spans(history, node) for node in nodes}
    down = {component: component_stopped_spans(history, component) for component in COMPONENTS}
    begun_t = {
        entry.data["id"]: entry.t for entry in history.of_kind("fault") if entry.data["step"] == "injecting"
    }
    met: set[Combination] = set()
    for number, entry in injected(steps, history):
        # A taint is written in the control plane, on a Node.
        target = str(entry.data["fault"].get("on", entry.data["node"]))
        states = _states(nodes, cut_off, down, target, begun_t[entry.data["id"]])
        met |= combine(steps[number], set(states))
    return frozenset(met)


def injected(steps: Sequence[Step], history: History) -> Iterator[tuple[int, Entry]]:
    """Yield the number of each injected step with its entry; other faults of the scenario are left out."""
    number = 0
    for entry in history.of_kind("fault"):
        if entry.data["step"] != "injected" or number == len(steps):
            continue
        if entry.data["fault"]["fault"] == steps[number].fault.replace("_", "-"):
            yield number, entry
            number += 1


def _states(
    nodes: Mapping[str, Sequence[Version]],
    cut_off: Mapping[str, Sequence[Span]],
    down: Mapping[str, Sequence[Span]],
    target: str,
    t: float,
) -> Iterator[str]:
    """Yield the states of the cluster at a time (s), for a fault of this target.

    `cut_off` are the times at which faults cut nodes off, `down` those at which they stopped components.
    """
    now = Span.at(t)
    for name, versions in nodes.items():
        position = bisect_right(versions, t, key=lambda version: version.t)
        if not position:
            continue
        node, is_target = versions[position - 1].object, name == target
        if condition_status(node, "Ready") == "Unknown":
            yield of_node("unknown", is_target=is_target)
        elif any(span.touches(now) for span in cut_off[name]):
            yield of_node("lost", is_target=is_target)
        if any(taint["key"] == TAINT_KEY for taint in node["spec"].get("taints") or ()):
            yield of_node("tainted", is_target=is_target)
    for component, spans in down.items():
        if component != target and any(span.touches(now) for span in spans):
            yield stopped(component)
