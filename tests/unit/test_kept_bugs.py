"""A table of bugs that was ended is gone on with, where it is still of the same bugs and executables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.sensitivity.bugs import Bug
from tests.sensitivity.kept import TABLE, Keeper, kept
from tests.sensitivity.running import Tried

NONE: frozenset[str] = frozenset()
ONE = Bug("one", "kubelet", "scenarios/a.py", ("a.one",), may=("a.two",))
OTHER = Bug("other", "scheduler", "scenarios/b.py", ("b.one",))
CAUGHT = Tried(ONE, frozenset({"a.one"}), frozenset({"a.three"}), NONE, 12.34, at_first="missed by a.one")
MISSED = Tried(OTHER, NONE, frozenset({"b.one"}), NONE, 3.0, said="nothing fell")


def test_what_was_caught_is_known_and_what_was_missed_is_tried_again(tmp_path: Path) -> None:
    Keeper(tmp_path / TABLE, "build-1", ()).write([CAUGHT, MISSED])
    (found,) = kept(tmp_path / TABLE, "build-1", [ONE, OTHER])
    assert found == replace(CAUGHT, took_s=12.3)


def test_a_table_is_there_as_soon_as_one_was_caught(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / TABLE, "build-1", ())
    keeper.add(CAUGHT)
    again = Keeper(tmp_path / TABLE, "build-1", kept(tmp_path / TABLE, "build-1", [ONE]))
    assert [each.bug.name for each in kept(tmp_path / TABLE, "build-1", [ONE])] == ["one"]
    again.add(replace(CAUGHT, bug=OTHER, fell=frozenset({"b.one"})))
    assert [each.bug.name for each in kept(tmp_path / TABLE, "build-1", [ONE, OTHER])] == ["one", "other"]


def test_nothing_is_known_of_other_executables_or_other_claims(tmp_path: Path) -> None:
    assert kept(tmp_path / TABLE, "build-1", [ONE]) == []
    Keeper(tmp_path / TABLE, "build-1", ()).write([CAUGHT])
    assert kept(tmp_path / TABLE, "build-2", [ONE]) == []
    assert kept(tmp_path / TABLE, "build-1", [replace(ONE, falls=("a.one", "a.four"))]) == []
    assert kept(tmp_path / TABLE, "build-1", [OTHER]) == []
