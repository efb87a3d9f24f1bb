"""The CSI driver as a process, over a table, in a folder of the test."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from infra.csi.client import Driver
from infra.csi.hypervisor import Refused
from infra.csi.protocol import csi_pb2
from infra.csi.table import Table
from nodeproof import proc
from nodeproof.artifacts.csi import python_path
from nodeproof.model.pattern import Json

NODES = ("node-1", "node-2")
END_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Ground:
    """Paths where a driver serves and keeps things, whichever process it is.

    Sockets have paths of their own: those of a test's folder may be too long.
    """

    folder: Path
    sockets: Path

    @property
    def controller(self) -> str:
        """The controller's endpoint."""
        return f"unix://{self.sockets}/controller"

    def node(self, name: str) -> str:
        """Return a node's endpoint."""
        return f"unix://{self.sockets}/{name}"

    @property
    def calls(self) -> Path:
        """The log of calls."""
        return self.folder / "calls"

    @property
    def table(self) -> Table:
        """The table of the driver."""
        return Table(self.folder / "table")

    def lines(self) -> list[Json]:
        """Return all logged calls."""
        return [json.loads(line) for line in self.calls.read_text().splitlines()]

    def command(self) -> list[str]:
        """Return the command that starts a driver."""
        nodes = [f"--node={name}={self.node(name)}" for name in NODES]
        where = [f"--hypervisor=table:{self.folder / 'table'}", f"--nodes={','.join(NODES)}"]
        argv = [sys.executable, "-m", "infra.csi", f"--endpoint={self.controller}"]
        return [*argv, *where, *nodes, f"--calls={self.calls}"]


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Return a folder for drivers."""
    with TemporaryDirectory(prefix="csi-") as sockets:
        yield Ground(folder, Path(sockets))


@contextmanager
def driver(on: Ground) -> Iterator[proc.Process]:
    """Start a driver that serves, and end it if it still runs."""
    env = {**os.environ, "PYTHONPATH": str(python_path())}
    process = proc.start(on.command(), log=on.folder / "driver.log", cwd=on.folder, env=env)
    try:
        with Driver(on.node(NODES[-1])) as last:
            last.call("Identity", "Probe", csi_pb2.ProbeRequest())
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(END_TIMEOUT_S)


def refused(do: Callable[[], object], code: grpc.StatusCode, *named: str) -> None:
    """Assert that a call is refused with this code and a message that names all of this."""
    with pytest.raises(Refused) as raised:
        do()
    assert raised.value.code is code
    assert [name for name in named if name not in raised.value.why] == []
