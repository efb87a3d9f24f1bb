# ruff: noqa: ARG002
"""A cluster that exists already: the least that a kind of lab without a supervisor implements."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.kinds.kind import Access, Fleet, Kind, Lifecycle
from nodeproof.machines.machine import Machine
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

NODES = [NodeInfo(f"node-{slot}", slot, "zone-a", True, "", f"192.0.2.{slot}", "") for slot in (1, 2)]


class Machines(Fleet):
    """Two machines."""

    def nodes(self) -> list[NodeInfo]:
        return NODES

    def zones(self) -> list[str]:
        return ["zone-a"]

    def restrict_to_zone(self, zone: str) -> None:
        pass

    def is_in_other_zone(self, name: str) -> bool:
        return False

    def free_slot(self) -> int:
        raise Problem("no node may join", "dummy lab", "choose another lab")

    def has(self, name: str) -> bool:
        return name in self.node_names()

    def machine(self, name: str, purpose: str = "") -> Machine:
        raise Problem(f"no machine {name}", "dummy lab", "choose another lab")

    def dial(self, host: str, port: int, timeout_s: float, source: str = "") -> socket.socket:
        return socket.create_connection((host, port), timeout_s)

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        return {}

    def owner(self, name: str) -> str:
        return ""

    def join(self, spec: NodeSpec) -> None:
        raise Problem("no node may join", "dummy lab", "choose another lab")

    def leave(self, name: str) -> None:
        raise Problem("no node may leave", "dummy lab", "choose another lab")

    def fetch_journals(self, into: Path) -> None:
        pass

    def close(self) -> None:
        pass


class Life(Lifecycle):
    """A cluster that outlives the harness."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check_alive(self) -> None:
        pass

    def has_control_plane(self) -> bool:
        return True

    @property
    def logs(self) -> Path:
        return self._folder

    def last_lines(self, component: str) -> str:
        return ""

    def full_parts(self, since_t: float | None = None) -> list[str]:
        return []

    def close(self) -> None:
        pass

    def down(self) -> None:
        self._folder.rmdir()


class NoSwitch:
    """A dead-man's switch that nobody needs: this kind has no feature that a fault uses."""

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        pass


class ReadyNodes:
    """An API with Ready nodes."""

    def get(self, path: str) -> Json:
        assert path == WATCHED["nodes"]
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return {"items": [{"metadata": {"name": node.name}, "spec": {}, "status": ready} for node in NODES]}

    def close(self) -> None:
        pass


def connect(_name: str) -> Access:
    folder = Path(tempfile.mkdtemp())
    return Access(
        folder,
        frozenset(),
        "documented",
        Components("v1.36.3", {}, hollow_from_tree=False),
        cast(Api, ReadyNodes()),
        lambda _arguments, _timeout_s, _stdin: {"status": 0, "stdout": "", "stderr": ""},
        Machines(),
        Life(folder),
        NoSwitch(),
        lambda: [],
    )


DUMMY = Kind("dummy", connect=connect)
