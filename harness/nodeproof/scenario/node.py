"""A node of the lab, with its moments as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeproof.checks import moments
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.judgment import Moment


@dataclass(frozen=True)
class Taint:
    """A taint that a node may have."""

    node: str
    key: str
    effect: str

    @property
    def added(self) -> Moment:
        """The addition of the taint."""
        return moments.taint_added(self.node, self.key, self.effect)

    @property
    def removed(self) -> Moment:
        """The removal of the taint."""
        return moments.taint_removed(self.node, self.key, self.effect)


class Node(str):
    """The name of a node, with its moments."""

    __slots__ = ()

    @property
    def ready(self) -> Moment:
        """The change of its condition Ready to True."""
        return self.condition("Ready", "True")

    @property
    def not_ready(self) -> Moment:
        """The change of its condition Ready to False."""
        return self.condition("Ready", "False")

    @property
    def unknown(self) -> Moment:
        """The change of its condition Ready to Unknown."""
        return self.condition("Ready", "Unknown")

    @property
    def created(self) -> Moment:
        """The creation of its Node object."""
        return moments.created("nodes", self)

    @property
    def removed(self) -> Moment:
        """The removal of its Node object."""
        return moments.removed("nodes", self)

    @property
    def lease_renewal(self) -> Moment:
        """A renewal of its Lease."""
        return moments.changed("leases", self, "spec.renewTime", LEASE_NAMESPACE)

    @property
    def status_report(self) -> Moment:
        """A report of its status."""
        return moments.changed("nodes", self, "status.conditions[].lastHeartbeatTime")

    @property
    def cordoned(self) -> Moment:
        """The change of spec.unschedulable to true."""
        return moments.cordoned(self)

    @property
    def uncordoned(self) -> Moment:
        """The removal of spec.unschedulable."""
        return moments.uncordoned(self)

    def condition(self, type_: str, status: str) -> Moment:
        """Match the change of a condition to a status."""
        return moments.condition_became(self, type_, status)

    def became(self, pattern: Mapping[str, Any]) -> Moment:
        """Match the change of its Node object to one with these fields."""
        return moments.became("nodes", self, pattern)

    def taint(self, key: str, effect: str) -> Taint:
        """Return one of its taints."""
        return Taint(self, key, effect)

    def last_heartbeat(self, before: Moment) -> Moment:
        """Match its last heartbeat, a lease renewal or a status update, before a moment."""
        return moments.last_heartbeat(self, before)
