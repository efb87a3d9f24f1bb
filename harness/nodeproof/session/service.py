"""Which nodes of a lab that somebody keeps a run goes without, and that it says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodeproof.cluster import workloads
from nodeproof.labs.client.lab import NODES_READY_LIMIT_S, Lab, with_reasons
from nodeproof.model.problem import Problem


@dataclass
class InService:
    """What was said of a lab's nodes; `report` tells people."""

    report: Callable[[str], None]
    _said: Mapping[str, str] = field(default_factory=dict)

    def begin(self, lab: Lab, limit_s: float = NODES_READY_LIMIT_S) -> None:
        """Go without the nodes that somebody took out of service, at once, and without those that are not
        Ready after `limit_s`. Raises Problem where none is left, ApiError.
        """
        lab.leave_out()
        self.say(lab)
        awaited = workloads.not_ready(lab.cluster.api, lab.usable())
        if awaited:
            self.report(f"lab {lab.name}: waits for {with_reasons(awaited)}")
        unready = lab.unready_after(lab.usable(), limit_s, workloads.not_fit)
        if unready:
            self.report(f"lab {lab.name}: leaves out {with_reasons(unready)}")
            lab.safety.injector.quarantined |= unready.keys()
        if not lab.usable():
            raise Problem("no node is in service", f"lab {lab.name}", "see `nodeproof kubectl get nodes`")

    def say(self, lab: Lab) -> None:
        """Say of each node once why it is left out."""
        named = {name: why for name, why in lab.left_out.items() if self._said.get(name) != why}
        if named:
            self.report(f"lab {lab.name}: leaves out {with_reasons(named)}")
        self._said = lab.left_out
