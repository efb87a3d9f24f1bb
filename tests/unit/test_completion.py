"""Bash and zsh complete commands, options and files by the script that shtab makes."""

from __future__ import annotations

import os
import shutil
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


def write_script(shell: str, path: Path) -> Path:
    """Write the completion script as docs/how-to/complete-commands.md does."""
    argv = [sys.executable, "-m", "shtab", f"--shell={shell}", "nodeproof.completion.parser"]
    path.write_text(proc.run(argv, timeout_s=120).stdout)
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_script("bash", tmp_path_factory.mktemp("completion") / "nodeproof")


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
        (("plan", "--sh"), {"--shard", "--shipped"}),
        (("storm", "--feat"), {"--feature-gates"}),
        (("shrink", "--feat"), {"--feature-gates"}),
        (("bisect", "--feat"), {"--feature-gates"}),
        (("new", "sc"), {"scenario"}),
    ],
)
def test_bash_completes_commands_and_options(
    script: Path, words: tuple[str, ...], expected: set[str]
) -> None:
    assert set(completions(script, *words)) == expected


def test_bash_completes_folders_of_runs(script: Path, tmp_path: Path) -> None:
    (tmp_path / "run-of-monday").mkdir()
    assert [name.rstrip("/") for name in completions(script, "recheck", "run-", cwd=tmp_path)] == [
        "run-of-monday"
    ]


ZSHRC = """
fpath=($ZDOTDIR $fpath)
autoload -Uz compinit && compinit -u -D
nodeproof() { print -r -- "<$*>" }
"""


@pytest.fixture(scope="module")
def zsh(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """Return zsh and its environment: installed, or of the packages that apt downloads (6 MB)."""
    installed = shutil.which("zsh")
    if installed:
        return installed, {}
    folder = tmp_path_factory.mktemp("zsh")
    unpack = 'for package in *.deb; do dpkg-deb --extract "$package" .; done'
    argv = ["sh", "-c", f"apt-get download zsh-static zsh-common && {unpack}"]
    if proc.run(argv, timeout_s=120, cwd=folder, check=False).status != 0:
        pytest.skip("no zsh: apt-get install zsh")
    functions = folder / "usr" / "share" / "zsh" / "functions"
    folders = [path for path in functions.rglob("*") if path.is_dir()]
    return str(folder / "bin" / "zsh-static"), {"FPATH": os.pathsep.join(map(str, (functions, *folders)))}


def test_zsh_completes_commands_options_and_folders(zsh: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    program, variables = zsh
    write_script("zsh", tmp_path / "_nodeproof")
    (tmp_path / ".zshrc").write_text(ZSHRC)
    (tmp_path / "run-of-monday").mkdir()
    typed = ("he\t", "audit --con\t", "run --feat\t", "new sc\t", "recheck run-\t")
    lines = "".join(f"nodeproof {words}\n" for words in typed)
    output = proc.run(
        ["script", "--quiet", "--return", "--command", f"{program} -d -i", "/dev/null"],
        timeout_s=120,
        stdin=f"{lines}exit\n",
        cwd=tmp_path,
        env={**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb", **variables},
    ).stdout
    completed = ("heal", "audit --context", "run --feature-gates", "new scenario", "recheck run-of-monday")
    assert [words for words in completed if f"<{words}>" not in output] == [], output
