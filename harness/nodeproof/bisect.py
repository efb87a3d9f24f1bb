"""Search for the commit of Kubernetes since which a claim deviates, by `git bisect`.

It runs in a worktree of its own: the user's checkout and its uncommitted changes stay as they are.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts.checkout import git
from nodeproof.cache import Report
from nodeproof.model.overrides import SOURCE_OPTION
from nodeproof.model.problem import Problem
from nodeproof.report import digest

GOOD, BAD, SKIP = "good", "bad", "skip"
"""Git's terms for a claim that conforms, one that deviates, and a commit that cannot be judged."""
Judge = Callable[[Path, str], str]
"""Judges a claim on a tree at a commit; returns one of Git's terms."""
_FIRST_BAD = re.compile(r"^[0-9a-f]{40} is the first bad commit$", re.MULTILINE)


def find_first_bad(source: Path, good: str, bad: str, judge: Judge, report: Report) -> str:
    """Return the first bad commit, as `git log --oneline` shows it.

    Args:
        source: a repository.
        good: revision on which the claim conforms; it is judged first.
        bad: revision on which the claim deviates; it is judged next.
        judge: judges a tree.
        report: prints a line.

    Raises:
        Problem: A revision does not exist or is judged otherwise, or only skipped commits are left.
    """
    source = source.expanduser().resolve()
    commits = {term: _commit(source, revision) for term, revision in ((GOOD, good), (BAD, bad))}
    with _worktree(source, commits[GOOD]) as tree:
        for term, commit in commits.items():
            git(tree, "checkout", "--quiet", "--detach", commit)
            if (actual := judge(tree, commit)) != term:
                message = f"the {term} revision {commit[:12]} is judged {actual}"
                raise Problem(message, f"--{term}", "choose another revision; its runs are kept")
        output = git(tree, "bisect", "start", commits[BAD], commits[GOOD])
        while not _FIRST_BAD.search(output):
            report(output.splitlines()[0])
            output = _step(tree, judge)
        return git(tree, "log", "--max-count=1", "--format=%h %s", "refs/bisect/bad")


def judge_by_runs(claim: str, out: Path, options: Sequence[str]) -> Judge:
    """Return a judge that runs the scenarios of a claim; a deviation counts if it repeats.

    Args:
        claim: its identifier.
        out: folder of the runs.
        options: other options of `nodeproof run`.
    """

    def judge(tree: Path, commit: str) -> str:
        def run(number: int) -> str:
            folder = out / f"{commit[:12]}-{number}"
            argv = [sys.executable, "-m", "nodeproof.cli", "run", "--no-site", f"{SOURCE_OPTION}={tree}"]
            proc.foreground([*argv, f"--claim={claim}", f"--run={folder}", *options])
            return term_of(folder, claim)

        return confirmed(run(1), lambda: run(2))

    return judge


def confirmed(term: str, run_again: Callable[[], str]) -> str:
    """Return the term of a commit: a deviation that does not repeat tells nothing."""
    if term != BAD:
        return term
    return BAD if run_again() == BAD else SKIP


def term_of(run: Path, claim: str) -> str:
    """Return Git's term for a run: `skip` if it has no verdict or an unproven one."""
    return {"conforms": GOOD, "deviates": BAD}.get(digest.outcome_in(run, claim), SKIP)


def _step(tree: Path, judge: Judge) -> str:
    """Judge the commit that Git chose; return what Git says next. Raises Problem."""
    term = judge(tree, git(tree, "rev-parse", "HEAD"))
    try:
        return git(tree, "bisect", term)
    except proc.CommandFailed as failed:
        message = "only commits that cannot be judged are left"
        raise Problem(message, "git bisect", "judge one of them yourself", failed.output) from failed


@contextlib.contextmanager
def _worktree(source: Path, commit: str) -> Iterator[Path]:
    """Yield a new worktree of a repository, and remove it."""
    with tempfile.TemporaryDirectory(prefix="nodeproof-bisect-") as folder:
        tree = Path(folder).resolve() / "kubernetes"
        git(source, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git(source, "worktree", "remove", "--force", str(tree))


def _commit(source: Path, revision: str) -> str:
    try:
        return git(source, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except proc.CommandFailed as failed:
        message, where = f"the checkout has no revision {revision!r}", f"{SOURCE_OPTION} {source}"
        raise Problem(message, where, "name a commit, branch or tag", failed.output) from failed
