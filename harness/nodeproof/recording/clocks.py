"""Measurement of the nodes' clock offsets during a recording."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from nodeproof.model.clocks import Reading
from nodeproof.model.problem import OutsideError, Problem

_PERIOD_S = 0.5


class NodeClocks:
    """Reads the clocks of nodes, and records the offsets."""

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
        self._locks = {node: threading.Lock() for node in nodes}

    def read_all(self) -> None:
        """Read all nodes' clocks at once; a node that does not answer is read again after its next boot."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.read, self._locks))

    def read(self, node: str) -> bool:
        """Read and record a node's clock, one request at a time, and return whether it answered."""
        with self._locks[node]:
            try:
                reading = self._read(node)
            except (OutsideError, Problem):
                return False
        self._append("clock", **asdict(reading))
        return True

    def insist(self, node: str) -> None:
        """Read a node's clock that was set, until the node answers or the recording ends."""
        while not self.read(node):
            if self._stopping.wait(_PERIOD_S):
                return
