"""Bash completes commands, options and files by the script that shtab makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nodeproof import proc

pytest.importorskip("shtab")
COMPLETE = """
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_shtab_nodeproof
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the completion script as docs/how-to/complete-commands.md does."""
    path = tmp_path_factory.mktemp("completion") / "nodeproof"
    argv = [sys.executable, "-m", "shtab", "--shell=bash", "nodeproof.completion.parser"]
    path.write_text(proc.run(argv, timeout_s=120).stdout)
    return path


def completions(script: Path, *words: str, cwd: Path | None = None) -> list[str]:
    argv = ["bash", "-c", COMPLETE, "bash", str(script), "nodeproof", *words]
    return proc.run(argv, timeout_s=60, cwd=cwd).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("he",), {"heal"}),
        (("re",), {"recheck", "report"}),
        (("audit", "--con"), {"--context"}),
        (("run", "--feat"), {"--feature-gates"}),
        (("storm", "--feat"), {"--feature-gates"}),
        (("new", "sc"), {"scenario"}),
    ],
)
def test_bash_completes_command_and_option(script: Path, words: tuple[str, ...], expected: set[str]) -> None:
    assert set(completions(script, *words)) == expected


def test_bash_completes_folders_of_runs(script: Path, tmp_path: Path) -> None:
    (tmp_path / "run-of-monday").mkdir()
    assert completions(script, "recheck", "run-", cwd=tmp_path)[0].rstrip("/") == "run-of-monday"
