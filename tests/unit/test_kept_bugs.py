"""A table of bugs that was ended is gone on with, where it is of the same bugs, executables and scenarios."""

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


def made(bug: Bug) -> str:
    return f"recipe-1 {bug}"


def made_else(bug: Bug) -> str:
    return f"recipe-2 {bug}"


def test_what_was_caught_is_known_and_what_was_missed_is_tried_again(tmp_path: Path) -> None:
    Keeper(tmp_path / TABLE, made, ()).write([CAUGHT, MISSED])
    (found,) = kept(tmp_path / TABLE, made, [ONE, OTHER])
    assert found == replace(CAUGHT, took_s=12.3)


def test_a_table_is_there_as_soon_as_one_was_caught(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / TABLE, made, ())
    keeper.add(CAUGHT)
    again = Keeper(tmp_path / TABLE, made, kept(tmp_path / TABLE, made, [ONE]))
    assert [each.bug.name for each in kept(tmp_path / TABLE, made, [ONE])] == ["one"]
    again.add(replace(CAUGHT, bug=OTHER, fell=frozenset({"b.one"})))
    assert [each.bug.name for each in kept(tmp_path / TABLE, made, [ONE, OTHER])] == ["one", "other"]


def test_nothing_is_known_of_other_executables_or_other_claims(tmp_path: Path) -> None:
    assert kept(tmp_path / TABLE, made, [ONE]) == []
    Keeper(tmp_path / TABLE, made, ()).write([CAUGHT])
    assert kept(tmp_path / TABLE, made_else, [ONE]) == []
    assert kept(tmp_path / TABLE, made, [replace(ONE, falls=("a.one", "a.four"))]) == []
    assert kept(tmp_path / TABLE, made, [OTHER]) == []
