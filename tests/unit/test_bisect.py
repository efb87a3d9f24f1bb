"""`nodeproof bisect` on small repositories, with commits judged by their content or by recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.bisect import BAD, GOOD, SKIP, confirmed, find_first_bad, term_of
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from tests.checkouts import commit, git, write_checkout
from tests.unit.synthetic_runs import CONFORMS, DEVIATES, GAP, TAINT, tell

LIMITS = "pkg/limits/limits.go"
COMMITS, FIRST_BAD = 10, 7


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a checkout with a tag for each commit, on which the user works."""
    folder = write_checkout(tmp_path / "kubernetes")
    for number in range(1, COMMITS + 1):
        (folder / LIMITS).write_text(str(number))
        commit(folder, f"c{number}")
    (folder / LIMITS).write_text("uncommitted")
    return folder


def judged(tree: Path, _commit: str) -> str:
    """Judge a tree by its number; two commits before the first bad one do not compile."""
    number = int((tree / LIMITS).read_text())
    return SKIP if number in (4, 5) else BAD if number >= FIRST_BAD else GOOD


def test_first_bad_commit_is_found_beside_the_work_of_the_user(repository: Path) -> None:
    head, lines = git(repository, "rev-parse", "HEAD"), list[str]()
    first_bad = find_first_bad(repository, "c1", "c10", judged, lines.append)
    assert git(repository, "rev-parse", first_bad.split()[0]) == git(repository, "rev-parse", f"c{FIRST_BAD}")
    assert any(line.startswith("Bisecting: ") for line in lines)
    assert (repository / LIMITS).read_text() == "uncommitted"
    assert git(repository, "rev-parse", "HEAD") == head
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "for-each-ref", "refs/bisect") == ""


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("c1", "c3", "the bad revision .* is judged good"),
        ("c8", "c10", "the good revision .* is judged bad"),
        ("c4", "c10", "the good revision .* is judged skip"),
        ("c1", "none", "the checkout has no revision 'none'"),
    ],
)
def test_unsuitable_revisions_are_refused(repository: Path, good: str, bad: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        find_first_bad(repository, good, bad, judged, print)
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_only_skipped_commits_left_is_a_problem_that_names_them(repository: Path) -> None:
    def judge(tree: Path, _commit: str) -> str:
        return {"3": GOOD, "6": BAD}.get((tree / LIMITS).read_text(), SKIP)

    with pytest.raises(Problem, match="only commits that cannot be judged"):
        find_first_bad(repository, "c3", "c6", judge, print)


@pytest.mark.parametrize(("verdict", "term"), [(CONFORMS, GOOD), (DEVIATES, BAD), (GAP, SKIP)])
def test_term_follows_from_the_verdict(tmp_path: Path, verdict: Verdict, term: str) -> None:
    run = tell(tmp_path / "run", [("a.py::test_a", TAINT, verdict)])
    assert term_of(run, TAINT) == term
    assert term_of(run, "cordon.blocks-new-pods") == SKIP
    assert term_of(tmp_path / "none", TAINT) == SKIP


@pytest.mark.parametrize(
    ("terms", "expected"),
    [([GOOD], GOOD), ([SKIP], SKIP), ([BAD, BAD], BAD), ([BAD, GOOD], SKIP), ([BAD, SKIP], SKIP)],
)
def test_commit_is_bad_only_if_its_deviation_repeats(terms: list[str], expected: str) -> None:
    runs = iter(terms)
    assert confirmed(next(runs), lambda: next(runs)) == expected
