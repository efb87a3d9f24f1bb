"""Bugs that claims must catch, and the table of their tries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof import catalogue
from nodeproof.catalogue import scenarios_dir
from tests.sensitivity.bugs import BadBug, Bug, Edit, insert_bugs, load, sample, selector_file
from tests.sensitivity.running import CAUGHT, TABLE, CaughtFile, Try, read_caught

FILE = "k8s.io/kubernetes/pkg/a.go"
SOURCE = """package a // a comment

func one() int {
	x := 1
	return x
}

func two() int {
	return x
}
"""


def edit(how: str, text: str = "x = 2", at: str = "x := 1", within: str = "", bug: str = "more") -> Edit:
    return Edit(bug, FILE, at, how, text, within)


def bug(
    name: str = "more", falls: tuple[str, ...] = ("a.b",), may: tuple[str, ...] = (), slow: bool = False
) -> Bug:
    return Bug(name, "kubelet", "a/test_a.py", falls, may, slow=slow)


def test_every_bug_names_a_scenario_and_its_claims() -> None:
    judged = catalogue.judged(catalogue.load())
    for entry in load():
        text = (scenarios_dir() / entry.scenario).read_text()
        named = {*entry.falls, *entry.may}
        assert named <= judged.keys(), entry.name
        assert {claim for claim in named if f'"{claim}"' not in text} == set(), entry.name
        assert entry.falls, entry.name
        assert entry.select in text, entry.name


def test_bug_code_is_inserted_before_after_or_instead_of_its_line() -> None:
    assert insert_bugs(SOURCE, []) == SOURCE
    assert selector_file(SOURCE).startswith('package a\n\nimport "os"\n')
    chosen = 'if nodeproofBug == "more" {\nx = 2\n}'
    assert f"{chosen}\n\tx := 1\n" in insert_bugs(SOURCE, [edit("before")])
    assert f"\tx := 1\n{chosen}\n" in insert_bugs(SOURCE, [edit("after")])
    instead = insert_bugs(SOURCE, [edit("instead", "return 3", "return x", "func two(")])
    assert 'func two() int {\nif nodeproofBug == "more" {\nreturn 3\n} else {\n\treturn x\n}\n}\n' in instead
    assert 'x := map((nodeproofBug == "more"))\n' in insert_bugs(SOURCE, [edit("as", "x := map(CHOSEN)")])


def test_several_bugs_share_a_line() -> None:
    both = insert_bugs(
        SOURCE, [edit("after"), edit("after", "x = 3", bug="most"), edit("before", "y()", bug="less")]
    )
    less, more, most = (both.index(f'"{name}"') for name in ("less", "more", "most"))
    assert less < both.index("x := 1") < more < most
    with pytest.raises(BadBug, match="rewrite one line"):
        insert_bugs(SOURCE, [edit("as", "x := 2"), edit("as", "x := 3", bug="most")])


@pytest.mark.parametrize("at", ["x := 9", "return x"])
def test_bug_whose_line_is_not_unique_is_refused(at: str) -> None:
    with pytest.raises(BadBug, match=r"more: [02] lines of k8s"):
        insert_bugs(SOURCE, [edit("before", at=at)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: a, of: b, scenario: c, falls: [d.e]}", "neither edits nor flags"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], flags: [-x], colour: red}", "colour"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], edits: [{at: x, before: y, after: z}]}", "one of"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], flags: [-x]}\n" * 2, "named twice: a"),
    ],
)
def test_invalid_bug_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bugs.yaml").write_text(text)
    with pytest.raises(BadBug, match=message):
        load(tmp_path)


def test_commit_selects_the_bugs_and_never_a_slow_one() -> None:
    bugs = [bug(str(at), slow=at % 2 == 0) for at in range(40)]
    one, other = sample(bugs, 10, "a"), sample(bugs, 10, "b")
    assert one == sample(bugs, 10, "a") != other
    assert not any(entry.slow for entry in (*one, *other))
    assert len(set(one)) == 10


def new_try(deviating: Iterable[str], conforming: Iterable[str] = (), codes: Iterable[str] = ()) -> Try:
    return Try(bug(may=("a.c",)), frozenset(deviating), frozenset(conforming), frozenset(codes), 1.0)


def test_bug_is_caught_by_exactly_the_claims_it_names() -> None:
    assert new_try({"a.b"}).outcome == new_try({"a.b", "a.c"}).outcome == CAUGHT
    assert new_try({"a.c"}).outcome == "missed by a.b"
    assert new_try({"a.b", "a.d"}).outcome == "deviates too: a.d"
    assert new_try(set()).outcome == "the cluster does not come up"
    assert new_try(set(), set(), {"host-too-loaded"}).outcome == "missed by a.b"


NONE: frozenset[str] = frozenset()
ONE = Bug("one", "kubelet", "scenarios/a.py", ("a.one",), may=("a.two",))
OTHER = Bug("other", "scheduler", "scenarios/b.py", ("b.one",))
CAUGHT_BUG = Try(ONE, frozenset({"a.one"}), frozenset({"a.three"}), NONE, 12.34, at_first="missed by a.one")
MISSED = Try(OTHER, NONE, frozenset({"b.one"}), NONE, 3.0, message="nothing deviates")


def digest(bug: Bug) -> str:
    return f"recipe-1 {bug}"


def other_digest(bug: Bug) -> str:
    return f"recipe-2 {bug}"


def test_caught_bugs_are_kept_and_a_missed_one_is_tried_again(tmp_path: Path) -> None:
    CaughtFile(tmp_path / TABLE, digest, ()).write([CAUGHT_BUG, MISSED])
    caught = read_caught(tmp_path / TABLE, digest, [ONE, OTHER])
    assert caught == [replace(CAUGHT_BUG, took_s=12.3)]
    CaughtFile(tmp_path / TABLE, digest, caught).add(
        replace(CAUGHT_BUG, bug=OTHER, deviating=frozenset({"b.one"}))
    )
    both = read_caught(tmp_path / TABLE, digest, [ONE, OTHER])
    assert [result.bug.name for result in both] == ["one", "other"]


def test_table_is_not_used_for_other_executables_or_claims(tmp_path: Path) -> None:
    assert read_caught(tmp_path / TABLE, digest, [ONE]) == []
    CaughtFile(tmp_path / TABLE, digest, ()).write([CAUGHT_BUG])
    assert read_caught(tmp_path / TABLE, other_digest, [ONE]) == []
    assert read_caught(tmp_path / TABLE, digest, [replace(ONE, falls=("a.one", "a.four"))]) == []
    assert read_caught(tmp_path / TABLE, digest, [OTHER]) == []
