"""The consent of a cluster's owner: a fault needs what `nodeproof plan --cluster --ssh` checks, and time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nodeproof.existing import impact, marks
from nodeproof.existing.connection import ConnectedCluster
from nodeproof.existing.inspection import inspect_host, power_refusals
from nodeproof.existing.inventory import INJECTABLE
from nodeproof.faults import Fault
from nodeproof.faults.machine import PowerOff
from nodeproof.labs.kinds.existing.machine import BOOT_TIMEOUT_S
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.cluster import ZONE_LABEL
from nodeproof.safety.guard import Declared, NotPermitted, Record
from nodeproof.safety.injector import HEAL_TIMEOUT_S

Json = Any
_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class MarkedNodes:
    """The nodes that inventory and marks allow to be harmed; `ssh` is the configuration that reaches them."""

    cluster: ConnectedCluster
    name: str
    ssh: Path

    def record(self) -> Record:
        """Return facts about the nodes with a valid mark. Raises ApiError."""
        nodes = self.cluster.nodes()
        marked = marked_nodes(self.cluster, nodes)
        return Record(
            self.name,
            self.cluster.inventory.cluster.uid,
            {name: marks.machine_id(node) for name, node in marked.items()},
            {name: zone_of(node) for name, node in nodes.items()},
            {},
        )

    def permit(self, fault: Fault, declared: Declared) -> None:
        """Permit a fault that the inventory, the marks and the state of the cluster allow now.

        Raises:
            NotPermitted: They do not allow it; the message has all reasons.
            ApiError: The API server refuses or does not answer.
        """
        _check_kind(fault)
        reasons = list(self._refusals(fault, declared, datetime.now(UTC)))
        if reasons:
            raise NotPermitted(f"{fault.name} on {fault.node}: {'; '.join(reasons)}")

    def check_open(self, fault: Fault) -> None:
        """Raise NotPermitted unless a run may have injected a fault of the ledger, which others can write."""
        _check_kind(fault)
        if not _ID.fullmatch(str(fault.id)):
            raise NotPermitted(f"{fault.id!r} is no id of a fault")
        if fault.node not in self.cluster.inventory.nodes:
            raise NotPermitted(f"{self.cluster.inventory.path} does not list {fault.node}")

    def _refusals(self, fault: Fault, declared: Declared, now: datetime) -> Iterator[str]:
        name, inventory = fault.node, self.cluster.inventory
        listed = inventory.nodes.get(name)
        if listed is None:
            yield "the inventory does not list it"
            return
        if fault.name not in listed.faults:
            yield f"the inventory does not allow {fault.name}"
        is_cut = isinstance(fault, PowerOff)
        heals_s = HEAL_TIMEOUT_S + (BOOT_TIMEOUT_S if is_cut else 0)
        needed = timedelta(seconds=declared.lasts_s + heals_s)
        yield from inventory.refusals(now, needed)
        yield from inventory.abort_reasons()
        alone = replace(self.cluster, inventory=replace(inventory, nodes={name: listed}))
        machines = {name: inspect_host(OpenSsh(name, self.ssh))}
        state = replace(impact.read_state(alone), machines=machines)
        if is_cut:
            yield from power_refusals(inventory, name, state.nodes, self.ssh)
        yield from impact.forecast(inventory, name, fault.name, state, now, needed.total_seconds()).refusals
        if name in state.nodes:
            yield from marks.expiry_refusals(state.nodes[name], now, needed)


def _check_kind(fault: Fault) -> None:
    """Raise NotPermitted unless the owner may allow a fault with its arguments."""
    if type(fault) not in INJECTABLE:
        raise NotPermitted(f"{fault.name} is no fault for somebody's own cluster")
    default = type(fault)(fault.node, id=fault.id)
    own = sorted({name for name, value in vars(fault).items() if value != vars(default)[name]})
    if set(own) - INJECTABLE[type(fault)]:
        raise NotPermitted(f"{fault.name} with {', '.join(own)} is no fault for somebody's own cluster")


def marked_nodes(cluster: ConnectedCluster, nodes: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the Nodes that may be harmed now, in the inventory's order."""
    inventory, now = cluster.inventory, datetime.now(UTC)
    refusals = {name: list(marks.harm_refusals(inventory, name, nodes, now)) for name in inventory.nodes}
    return {name: nodes[name] for name, reasons in refusals.items() if not reasons}


def zone_of(node: Json) -> str:
    """Return a Node's zone; empty if it has none."""
    return str((node["metadata"].get("labels") or {}).get(ZONE_LABEL, ""))
