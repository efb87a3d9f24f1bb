"""Silence on `control`: nothing goes between the lab's side and a node there, and nobody is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import Machine

_COMMAND_LIMIT_S = 10.0
_ABSENT = "add table inet silent; delete table inet silent"


@contextmanager
def silence(lab: Lab, machine: Machine) -> Iterator[None]:
    """Nothing goes to or comes from a node on `control` until the context ends."""
    fall_silent(lab, machine)
    try:
        yield
    finally:
        end_silence(lab)


def fall_silent(lab: Lab, machine: Machine) -> None:
    """Drop what goes to a node's `control` address, in the lab's own namespace."""
    (address,) = (entry.control_address for entry in lab.fleet.nodes() if entry.name == machine.name)
    rules = "".join(
        f"add chain inet silent {hook} {{ type filter hook {hook} priority 0; }}\n"
        f"add rule inet silent {hook} ip {side} {address} drop\n"
        for hook, side in (("input", "saddr"), ("output", "daddr"))
    )
    _nft(lab, f"add table inet silent\n{rules}")


def end_silence(lab: Lab) -> None:
    """Drop it no more; not silent already is fine."""
    _nft(lab, f"{_ABSENT}\n")


def _nft(lab: Lab, script: str) -> None:
    done = registry.client(lab.name).spawn_command(["nft", "-f", "-"], _COMMAND_LIMIT_S, script)
    assert done["status"] == 0, done
