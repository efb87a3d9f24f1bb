"""What a cluster's cloud was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.faults.cloud import STARTED, clouds_on
from nodeproof.labs.ground.logs import LOOKED_EACH_S
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import CLOUD
from nodeproof.recording.testimony import Word
from nodeproof.sources.source import Hearing, Told, any_word, last_heard

_LIMIT_S = 10.0


@dataclass(frozen=True)
class CloudCalls:
    """What the cloud was asked about a node by the fault `cloud`: of one method, such as `InstanceExists`, or
    of each.
    """

    node: str
    method: str = ""

    @property
    def by(self) -> str:
        """Node and method are part of it."""
        return f"cloud asked about {self.node}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these calls."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """Up to when it was heard."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the calls of the cloud that there is now. Raises MachineError where there is none."""
        lab, history = hearing.lab, hearing.history
        machine, until_t = lab.fleet.machine(CLOUD), time.monotonic()
        found = clouds_on(machine)
        if len(found) != 1:
            raise MachineError(f"{len(found)} clouds to be heard")
        read = machine.run(["cat", f"{CLOUD}/cloud-{found[0].id}.calls"], deadline_s=_LIMIT_S)
        lines, unsure = calls_of(read.stdout)
        words = [
            Word(history.from_wall(time_), f"{method} {node}")
            for time_, method, node in lines
            if node == self.node and self.method in ("", method)
        ]
        full = lab.life.full(since_t=history.began_t - LOOKED_EACH_S)
        moved_s = abs(time.time() - time.monotonic() - float(history.begun["wall_offset_s"]))
        return Told(words, until_t, moved_s, unsure or (full[0] if full else ""))


def calls_of(text: str) -> tuple[Sequence[tuple[str, str, str]], str]:
    """Time, method and node of each call in a file of calls, and why one may be missing, or nothing.

    A call is written down before it is answered, and before the first of them that the provider started.
    """
    lines, unsure = [], "" if text.endswith("\n") else "the last line of the cloud's calls is torn"
    for line in text.splitlines():
        try:
            told = json.loads(line)
            lines.append((str(told["time"]), str(told["method"]), str(told.get("node", ""))))
        except (ValueError, KeyError, TypeError):
            unsure = "a line of the cloud's calls is torn"
    if not lines or lines[0][1] != STARTED:
        return lines, "the cloud's calls lack their beginning"
    return lines, unsure
