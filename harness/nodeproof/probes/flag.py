"""Flags that a component of the control plane was started with."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe


def flag_of(component: str, flag: str) -> Probe:
    """Return a probe of a component's flag, such as `node-monitor-period`; None if it was not set."""

    def read(lab: Lab) -> str | None:
        settings = [
            option for option in lab.fleet.command_lines()[component] if option.startswith(f"--{flag}=")
        ]
        return settings[-1].partition("=")[2] if settings else None

    return Probe(f"--{flag}", component, read)
