"""Silence on `control`: packets between the lab's side and a node are dropped, without any error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import Machine

_COMMAND_TIMEOUT_S = 10.0
_ABSENT = "add table inet silent; delete table inet silent"


@contextmanager
def silence(lab: LabHandle, machine: Machine) -> Iterator[None]:
    """Drop all packets of a node on `control` until the context ends."""
    start_silence(lab, machine)
    try:
        yield
    finally:
        end_silence(lab)


def start_silence(lab: LabHandle, machine: Machine) -> None:
    """Drop packets to a node's `control` address in the lab's own namespace."""
    (address,) = (entry.control_address for entry in lab.fleet.nodes() if entry.name == machine.name)
    rules = "".join(
        f"add chain inet silent {hook} {{ type filter hook {hook} priority 0; }}\n"
        f"add rule inet silent {hook} ip {side} {address} drop\n"
        for hook, side in (("input", "saddr"), ("output", "daddr"))
    )
    _nft(lab, f"add table inet silent\n{rules}")


def end_silence(lab: LabHandle) -> None:
    """Stop dropping packets; no error if none are dropped."""
    _nft(lab, f"{_ABSENT}\n")


def _nft(lab: LabHandle, script: str) -> None:
    output = registry.client(lab.name).spawn_command(["nft", "-f", "-"], _COMMAND_TIMEOUT_S, script)
    assert output["status"] == 0, output
