"""infra/subject.py: accepted commit subjects, and its pre-commit hook."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.subject import LONGEST, fault
from nodeproof import proc

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "subject",
    [
        "fix: keep labs up between retries",
        "feat(faults): add a fault that pulls a disk",
        "refactor!: rename Stage to Lab",
        "test: process rows in one pass",
        "docs: embed the timeline",
        "perf: need no snapshot",
        "fix: keep " + "a" * (LONGEST - 10),
        "Merge branch 'main' into topic",
        'Revert "fix: keep labs up between retries"',
        "fixup! fix: keep labs up between retries",
    ],
)
def test_subject_is_accepted(subject: str) -> None:
    assert fault(f"{subject}\n\nA body.\n# a comment\n") == ""


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Keep labs up between retries", "PREFIX"),
        ("fixes: keep labs up between retries", "PREFIX"),
        ("fix:keep labs up", "PREFIX"),
        ("fix: Keep labs up", "PREFIX"),
        ("fix: keep labs up.", "PREFIX"),
        ("", "PREFIX"),
        ("fix: added a retry", "'added' is not"),
        ("fix: adding a retry", "'adding' is not"),
        ("fix: adds a retry", "'adds' is not"),
        ("fix: the retry of labs", "'the' is not"),
        ("fix: keep " + "a" * (LONGEST - 9), f"{LONGEST + 1} characters, at most {LONGEST}"),
    ],
)
def test_subject_is_refused_with_the_reason(subject: str, expected: str) -> None:
    assert expected in fault(subject)


def test_comments_before_the_subject_are_ignored() -> None:
    assert fault("# a comment\n\nfix: keep labs up\n") == ""


def test_hook_prints_one_line_and_exits_1(tmp_path: Path) -> None:
    (tmp_path / "message").write_text("fix: added a retry\n")
    argv = (sys.executable, "-m", "infra.subject", str(tmp_path / "message"))
    completed = proc.run(argv, timeout_s=60.0, cwd=TOP, check=False)
    assert completed.status == 1
    assert completed.stderr == "commit subject: 'added' is not an imperative; see docs/style.md\n"
