"""A guest that cannot be made, in a lab that goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeproof.labs.ground.processes import EventLog, Processes
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.libvirt import guests, seed
from nodeproof.labs.kinds.libvirt.guests import Guests
from nodeproof.model.problem import OutsideError

SPEC = NodeSpec("node-1", 0, "zone-a", "1")


class Made(Guests):
    """Whose machines nobody makes."""

    def _make(self, spec: NodeSpec) -> None:
        self._specs[spec.name] = spec


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    for folder in ("disks", "nodes", "pki"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(guests, "write_host", lambda *_: None)
    monkeypatch.setattr(Made, "_seed_of", lambda *_: None)
    lab: Any = SimpleNamespace(dir=tmp_path, lab="v-1")
    hypervisor: Any = SimpleNamespace(disks=tmp_path / "disks", refresh_volumes=lambda: None)
    events = EventLog(tmp_path / "events.jsonl")
    on: Any = SimpleNamespace(
        lab=lab,
        memory=tmp_path,
        authority=None,
        kubelet=None,
        events=events,
        processes=Processes(tmp_path, events),
    )
    return Made(on, hypervisor)


def test_one_whose_seed_cannot_be_written_may_join_once_it_can(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(home: Path, image: Path, _what: object) -> str:
        (home / "half").touch()
        image.touch()
        raise OutsideError("no space left on device")

    monkeypatch.setattr(seed, "make", full)
    with pytest.raises(OutsideError, match="no space"):
        made.join(SPEC)
    assert not list(tmp_path.glob("nodes/*"))
    assert not list(tmp_path.glob("disks/*"))
    monkeypatch.setattr(seed, "make", lambda *_: "key")
    made.join(SPEC)
    assert [path.name for path in tmp_path.glob("nodes/*")] == ["node-1"]


def test_a_machine_that_is_lost_or_given_up_is_looked_at_no_more(tmp_path: Path) -> None:
    processes = Processes(tmp_path, EventLog(tmp_path / "events.jsonl"))
    for name in ("node-1", "node-2"):
        processes.found(name, 42)
    processes.lost("node-1", "node-1", "lost its QEMU")
    assert set(processes.others()) == {"node-2"}
    assert set(processes.died()) == {"node-1"}
    processes.found("node-2", None)
    assert not processes.others()
