"""The bugs that claims must catch: what they name exists, and what becomes of a line that has some."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from nodeproof import catalogue
from nodeproof.catalogue import scenarios_dir
from tests.sensitivity.bugs import BadBug, Bug, Edit, altered, chooser, load, some
from tests.sensitivity.running import CAUGHT, Tried

NAMED_BY_NONE = {
    "registration.with-taints-not-reconciled": "NodeRestriction keeps a kubelet from it, too",
}
FILE = "k8s.io/kubernetes/pkg/a.go"
SOURCE = """package a // of nobody

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


def test_every_bug_names_a_scenario_and_claims_that_it_judges() -> None:
    judged = catalogue.judged(catalogue.load())
    for each in load():
        text = (scenarios_dir() / each.scenario).read_text()
        named = {*each.falls, *each.may}
        assert named <= judged.keys(), each.name
        assert {claim for claim in named if f'"{claim}"' not in text} == set(), each.name
        assert each.falls, each.name
        assert each.select in text, each.name


def test_every_judged_claim_of_process_nodes_is_named_by_a_bug() -> None:
    named = {claim for each in load() for claim in each.falls}
    judged = catalogue.judged(catalogue.load())
    unnamed = {name for name, claim in judged.items() if claim.tier == "process"} - named
    assert unnamed == NAMED_BY_NONE.keys()


def test_what_is_chosen_comes_before_after_or_instead_of_its_line() -> None:
    chosen = 'if nodeproofBug == "more" {\nx = 2\n}'
    assert f"{chosen}\n\tx := 1\n" in altered(SOURCE, [edit("before")])
    assert f"\tx := 1\n{chosen}\n" in altered(SOURCE, [edit("after")])
    instead = altered(SOURCE, [edit("instead", "return 3", "return x", "func two(")])
    assert 'func two() int {\nif nodeproofBug == "more" {\nreturn 3\n} else {\n\treturn x\n}\n}\n' in instead
    assert 'x := map((nodeproofBug == "more"))\n' in altered(SOURCE, [edit("as", "x := map(CHOSEN)")])


def test_several_bugs_share_a_line() -> None:
    both = altered(
        SOURCE, [edit("after"), edit("after", "x = 3", bug="most"), edit("before", "y()", bug="less")]
    )
    less, more, most = (both.index(f'"{name}"') for name in ("less", "more", "most"))
    assert less < both.index("x := 1") < more < most
    with pytest.raises(BadBug, match="rewrite one line"):
        altered(SOURCE, [edit("as", "x := 2"), edit("as", "x := 3", bug="most")])


@pytest.mark.parametrize("at", ["x := 9", "return x"])
def test_a_line_that_is_not_there_once_is_refused(at: str) -> None:
    with pytest.raises(BadBug, match=r"more: [02] lines of k8s"):
        altered(SOURCE, [edit("before", at=at)])


def test_the_rest_of_a_file_stays_as_it_is() -> None:
    assert altered(SOURCE, []) == SOURCE


def test_a_package_asks_which_bug_was_chosen() -> None:
    assert chooser(SOURCE).startswith('package a\n\nimport "os"\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {name: a, of: b, scenario: c, falls: [d.e]}", "neither edits nor flags"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], flags: [-x], colour: red}", "colour"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], edits: [{at: x, before: y, after: z}]}", "one of"),
        ("- {name: a, of: b, scenario: c, falls: [d.e], flags: [-x]}\n" * 2, "named twice: a"),
    ],
)
def test_what_is_no_bug_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bugs.yaml").write_text(text)
    with pytest.raises(BadBug, match=said):
        load(tmp_path)


def test_a_commit_decides_which_are_tried_and_never_a_slow_one() -> None:
    bugs = [bug(str(at), slow=at % 2 == 0) for at in range(40)]
    one, other = some(bugs, 10, "a"), some(bugs, 10, "b")
    assert one == some(bugs, 10, "a") != other
    assert not any(each.slow for each in (*one, *other))
    assert len(set(one)) == 10


def tried(fell: Iterable[str], stood: Iterable[str] = (), codes: Iterable[str] = ()) -> Tried:
    return Tried(bug(may=("a.c",)), frozenset(fell), frozenset(stood), frozenset(codes), 1.0)


def test_a_bug_is_caught_by_the_claims_that_it_names_and_by_nothing_that_it_does_not() -> None:
    assert tried({"a.b"}).outcome == tried({"a.b", "a.c"}).outcome == CAUGHT
    assert tried({"a.c"}).outcome == "missed by a.b"
    assert tried({"a.b", "a.d"}).outcome == "fell too: a.d"
    assert tried(set()).outcome == "the cluster does not come up"
    assert tried(set(), set(), {"host-too-loaded"}).outcome == "missed by a.b"
