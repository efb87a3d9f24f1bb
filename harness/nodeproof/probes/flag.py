"""A flag that a component of the control plane was started with."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe


def flag_of(component: str, flag: str) -> Probe:
    """The value of a component's flag, such as `node-monitor-period`; None where it was not given."""

    def read(lab: Lab) -> str | None:
        given = [each for each in lab.fleet.command_lines()[component] if each.startswith(f"--{flag}=")]
        return given[-1].partition("=")[2] if given else None

    return Probe(f"--{flag}", component, read)
