"""One file per fault: one harm and its exact inverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.faults.fault import Fault
from harness.faults.partition import Partition
from harness.faults.power_off import PowerOff

__all__ = ["Fault", "Partition", "PowerOff", "fault_from_json"]


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """Make a fault from a ledger entry's constructor data. Raises KeyError when it is none."""
    if data["fault"] == "partition":
        return Partition(data["id"], data["node"], data["direction"])
    if data["fault"] == "power-off":
        return PowerOff(data["id"], data["node"])
    raise KeyError(f"unknown fault {data['fault']!r}")
