"""What a probe is: something that can be looked at, once or again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError

Json = Any
COMMAND_LIMIT_S = 30.0


@dataclass(frozen=True)
class Sample:
    """What a metric is, and when the process was started that counts it (s since the epoch); None where
    that does not say so, and of a gauge.
    """

    value: Json
    process_s: float | None = None


@dataclass(frozen=True)
class Probe:
    """`what` of `subject`, and how it is read: a value, or a `Sample` of it. `read` raises ApiError,
    MachineError, Problem: then nothing was seen, which is no value.
    """

    what: str
    subject: str
    read: Callable[[Lab], Json]


def output_of(lab: Lab, node: str, argv: list[str]) -> str:
    """What a command on a node prints. Raises MachineError where it fails."""
    done = lab.fleet.machine(node).run(argv, deadline_s=COMMAND_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{node}: {argv[0]}: {done.stderr.strip()}")
    return done.stdout
