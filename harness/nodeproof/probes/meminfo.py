"""A node's memory, as its kernel reports it."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of

_UNIT_BYTES = 1024
"""The unit of each figure in /proc/meminfo that is marked kB (proc_meminfo(5))."""


def meminfo(node: str, name: str) -> Probe:
    """Return a probe of a figure of the node's /proc/meminfo, such as `MemTotal` or `SwapTotal` (bytes)."""

    def read(lab: Lab) -> int:
        for line in output_of(lab, node, ["cat", "/proc/meminfo"]).splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return int(value.split()[0]) * _UNIT_BYTES
        raise MachineError(f"{node}: no {name} in /proc/meminfo")

    return Probe(name, node, read)
