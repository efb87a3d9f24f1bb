"""Exclude nodes that are out of service from a run on an attached lab, and report them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodeproof.cluster import workloads
from nodeproof.labs.client.lab import NODES_READY_LIMIT_S, Lab, with_reasons
from nodeproof.model.problem import Problem


@dataclass
class InService:
    """The nodes of a lab that were reported as excluded; `report` prints a line."""

    report: Callable[[str], None]
    _reported: Mapping[str, str] = field(default_factory=dict)

    def begin(self, lab: Lab, limit_s: float = NODES_READY_LIMIT_S) -> None:
        """Exclude nodes that were taken out of service, and nodes that are not Ready after `limit_s`.

        Raises:
            Problem: No node is left.
            ApiError: The API server does not answer.
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
        """Report each excluded node once, with the reason."""
        excluded = {name: why for name, why in lab.left_out.items() if self._reported.get(name) != why}
        if excluded:
            self.report(f"lab {lab.name}: leaves out {with_reasons(excluded)}")
        self._reported = lab.left_out
