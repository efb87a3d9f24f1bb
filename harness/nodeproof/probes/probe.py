"""The type of a probe: a read of state that is not an API object, once or repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import checked
from nodeproof.model.pattern import Json

COMMAND_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Sample:
    """Value of a metric and when the process that counts it started (s since the epoch).

    `process_s` is None for a gauge, and if the process does not export it.
    """

    value: Json
    process_s: float | None = None


@dataclass(frozen=True)
class Probe:
    """How to read `what` of `subject`: a value, or a `Sample` of it.

    `read` raises ApiError, MachineError or Problem if nothing could be read.
    """

    what: str
    subject: str
    read: Callable[[LabHandle], Json]


def output_of(lab: LabHandle, node: str, argv: list[str]) -> str:
    """Return the output of a command on a node. Raises MachineError if it fails."""
    return checked(lab.fleet.machine(node).run(argv, timeout_s=COMMAND_TIMEOUT_S), f"{node}: {argv[0]}")
