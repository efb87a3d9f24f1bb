"""The lab that workers share: started once, come to by all, left by who can't trust it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.leases import InUse, Leases
from nodeproof.model.problem import Problem
from nodeproof.session.sharing import Shared, give_back

ZONES = ("zone-a", "zone-b")


@dataclass
class Started:
    """A lab as a worker has it: its folder and its locks are real."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leases = Leases(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    def lease(self) -> bool:
        return self.leases.take_zone(ZONES)[1]

    def close(self) -> None:
        self.leases.close()
        self.said.append("closed")

    def down(self) -> None:
        self.close()
        self.said.append("down")


@dataclass
class Run:
    """A run's folder, and every lab that was started in it."""

    folder: Path
    started: list[str] = field(default_factory=list)

    def shared(self) -> Shared:
        return Shared(self.folder / "labs", self._start)

    def lease(self) -> tuple[Started, bool]:
        lab, had = self.shared().lease()
        return cast(Started, lab), had

    def _start(self) -> Lab:
        name = f"p-{len(self.started):06d}"
        (self.folder / name).mkdir()
        self.started.append(name)
        return self.attach(name)

    def attach(self, name: str, holds: bool = False) -> Lab:
        if name not in self.started or not (self.folder / name).exists():
            raise Problem(f"no lab {name!r}", "test", "start one")
        assert holds or name == self.started[-1]
        return cast(Lab, Started(self.folder / name))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run(tmp_path)
    monkeypatch.setattr(registry, "attach", made.attach)
    return made


def test_the_first_starts_it_and_the_others_come_to_it(run: Run) -> None:
    (first, _), (second, had) = run.lease(), run.lease()
    assert (first.name, second.name, had) == ("p-000000", "p-000000", False)
    assert run.started == ["p-000000"]
    with pytest.raises(InUse):
        run.lease()


def test_who_comes_when_it_is_about_to_end_starts_another(run: Run) -> None:
    first, _had = run.lease()
    (first.folder / "in-use").unlink()
    (first.folder / "in-use-zone-a").unlink()
    first.folder.rmdir()
    assert run.lease()[0].name == "p-000001"


def test_one_that_cannot_be_trusted_is_left_by_whoever_comes_next(run: Run) -> None:
    first, _had = run.lease()
    run.shared().forget(first.name)
    second, _had = run.lease()
    assert second.name == "p-000001"
    run.shared().forget(first.name)
    assert run.lease()[0].name == second.name


def test_the_last_who_gives_a_zone_back_keeps_the_logs_and_ends_it(run: Run) -> None:
    (first, _), (second, _) = run.lease(), run.lease()
    kept: list[str] = []
    for each in (first, second):
        give_back(cast(Lab, each), lambda lab: kept.append(lab.name))
    assert (first.said, second.said, kept) == (["closed"], ["closed", "down"], [second.name])


def test_nothing_of_it_is_left_in_the_runs_folder(run: Run) -> None:
    run.lease()
    Shared.remove_files(run.folder / "labs")
    assert list((run.folder / "labs").iterdir()) == []
