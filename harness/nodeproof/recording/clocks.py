"""What nodes' clocks are ahead of the harness's, measured in the course of a recording."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from nodeproof.model.clocks import Reading
from nodeproof.model.problem import OutsideError, Problem

_PERIOD_S = 0.5


class NodeClocks:
    """Asks nodes for their time, and writes down each answer."""

    def __init__(
        self,
        nodes: Sequence[str],
        read: Callable[[str], Reading],
        append: Callable[..., None],
        stopping: threading.Event,
    ) -> None:
        self._read = read
        self._append = append
        self._stopping = stopping
        self._asking = {node: threading.Lock() for node in nodes}

    def read_all(self) -> None:
        """Ask all nodes at once; one that does not answer is asked again when it has booted."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.read, self._asking))

    def read(self, node: str) -> bool:
        """Whether the node told its time, which is then written down; one question at a time."""
        with self._asking[node]:
            try:
                reading = self._read(node)
            except (OutsideError, Problem):
                return False
        self._append("clock", **asdict(reading))
        return True

    def insist(self, node: str) -> None:
        """Ask a node whose clock was set until it answers, or the recording ends."""
        while not self.read(node):
            if self._stopping.wait(_PERIOD_S):
                return
