"""Messages of a witness pod, which writes down what happens to it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nodeproof.cluster.workloads import Pod
from nodeproof.recording.testimony import words_of
from nodeproof.sources.source import Hearing, Told


@dataclass(frozen=True)
class Words:
    """The messages of a witness in the boot whose clock was stored."""

    pod: Pod

    @property
    def by(self) -> str:
        """The pod's name."""
        return self.pod.name

    def read(self, hearing: Hearing) -> Told:
        """Read its file; its node must be up, in any boot.

        Raises:
            MachineError: The file cannot be read.
        """
        clock, machine = hearing.clock(self.pod.node), hearing.lab.fleet.machine(self.pod.node)
        until_t = time.monotonic()
        words = tuple(words_of(machine, self.pod.name, clock))
        return Told(words, until_t, clock.error_s, node=self.pod.node, boot_id=clock.boot_id)
