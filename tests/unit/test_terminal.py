"""Text on a terminal and in Markdown: foreign text, lines, progress, and a closed output pipe."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import cli, commands, terminal
from nodeproof.artifacts import build
from nodeproof.cache import ProgressLine
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, deviates
from nodeproof.report import comparison, digest, plain, tables
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    FACTS,
    SCENARIO_WITHOUT_A_LAB,
    WINDOW,
    ScenarioVerdict,
    tell,
)

# Text on a terminal and in Markdown: foreign text, lines, and progress


TITLE = "\x1b]0;owned\x07\x1b[2J\u202e"
HOSTILE = (
    f"node-1 {TITLE}<img src=x onerror=alert(1)> @everyone https://evil.example/x #1 "
    "![i](http://e/x.png) <!-- | `x` ``y"
)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def steers(text: str) -> list[str]:
    """Return the characters of a text that control a terminal."""
    return [char for char in text if not char.isprintable() and char != "\n"]


def test_printed_text_controls_no_terminal_and_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(TITLE, TITLE, TITLE, f"{TITLE}\n{TITLE}")
    terminal.say(f"{TITLE} password=s3cr3tvalue")
    terminal.put(f"a\n{TITLE} password=s3cr3tvalue\tb")
    output = capsys.readouterr()
    assert steers(f"{output.err}{output.out}{problem}{problem.line}".replace("\t", "")) == []
    assert "s3cr3tvalue" not in output.err + output.out
    assert output.out.startswith("a\n")
    assert str(problem).count("\n") == 2


def test_foreign_text_in_markdown_is_a_code_span(tmp_path: Path) -> None:
    """GitHub links bare addresses and numbers, and notifies mentioned users."""
    rows = [(f"a.py::test_{HOSTILE}", "cordon.taint", deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE))]
    facts = replace(FACTS, lab=HOSTILE, exit_reason=HOSTILE, selected=(HOSTILE,))
    run = digest.read(tell(tmp_path / "run", rows, facts), CLAIMS)
    for text in (tables.summary(run), comparison.matrix_markdown(comparison.compare([run]))):
        assert "evil.example" in text
        for mark in ("@everyone", "evil.example", "#1", "![i]", "<img", "<!--"):
            assert mark not in "".join(SPAN.sub("", line) for line in text.splitlines())
    assert {row.count("|") for row in text.splitlines() if row.startswith("|")} == {3}


@given(st.text(alphabet="`a |\\", max_size=12))
def test_code_span_ends_with_its_text(text: str) -> None:
    span = plain.in_markdown(text)
    shown = SPAN.fullmatch(span)
    assert (shown[2].strip() if shown else "") == plain.on_terminal(text)
    assert "|" not in plain.in_markdown_cell(text)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_is_a_bar_on_a_terminal_and_milestones_elsewhere(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    progress = (ProgressLine.of("5 of 10", 5, 10, is_milestone=False), ProgressLine.of("6 of 10", 6, 10))
    for line in ("begins", *progress, "done"):
        commands._say(line)
    printed = capsys.readouterr().err
    assert all(text in printed for text in ("nodeproof: begins\n", "6 of 10", "nodeproof: done\n"))
    assert [text in printed for text in ("\r", "█", "5 of 10")] == [is_terminal] * 3


@pytest.mark.parametrize("total", [0, 600])
def test_ten_minute_build_has_one_milestone_a_minute(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, lines = [0.0], list[ProgressLine]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    packages = build.Packages("compiling: {} packages", total, lines.append)  # type: ignore[arg-type]
    for second in range(1, 601):
        now_s[0] = float(second)
        packages("k8s.io/api/core/v1")
    milestones = [str(line) for line in lines if line.is_milestone]
    assert len(lines) == 120
    assert len(milestones) == 10
    assert milestones[3] == f"compiling: 240 packages, 240 s{', about 6 min left' if total else ''}"
    assert milestones[-1] == f"compiling: 600 packages, 600 s{', almost done' if total else ''}"


# Colours of state words, which only a terminal without NO_COLOR gets


RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"
ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]


def on_terminal(command: Sequence[str], folder: Path, **environment: str) -> str:
    """Return what a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    variables = {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-m", "nodeproof.cli", *command]
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=variables | environment
    ):
        os.close(theirs)
        output = b""
        # A terminal that its last user closed is an error on Linux.
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal_output:
            while part := terminal_output.read(65536):
                output += part
    return output.decode()


@pytest.mark.parametrize(
    ("command", "state"),
    [("compare before after", f"{RED}deviates"), ("run --no-site -n 0 test_it.py", f"{YELLOW}unproven")],
)
def test_state_words_have_colours_on_a_terminal_only(command: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIO_WITHOUT_A_LAB)
    tell(tmp_path / "before", ROWS)
    tell(tmp_path / "after", [("a.py::test_a", "cordon.taint", deviates("it is not", WINDOW))])
    assert state in on_terminal(command.split(), tmp_path)
    assert not re.search(r"\x1b\[[0-9;]*m", on_terminal(command.split(), tmp_path, NO_COLOR="1"))


def test_only_states_are_coloured() -> None:
    plain_text = "a claim  conforms 2 s\nnot whole: missing it is\n  ok       programs\nit deviates: no"
    coloured = f"a claim  {GREEN}conforms\x1b[0m 2 s\nnot whole: missing it is\n"
    assert terminal.coloured(plain_text) == f"{coloured}  {GREEN}ok\x1b[0m       programs\nit deviates: no"


# A command with a closed output pipe ends like Unix tools; other broken pipes are errors


TIMEOUT_S = 240.0


def test_closed_output_pipe_ends_quietly(tmp_path: Path) -> None:
    run = str(tell(tmp_path / "run", ROWS))
    argv = [sys.executable, "-m", "nodeproof.cli", "summary", run, run]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        errors = started.stderr.read()
        assert started.wait(TIMEOUT_S) == 128 + signal.SIGPIPE
    assert errors == b""


def test_other_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_arguments: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_is_output_closed", lambda: False)
    monkeypatch.setattr(commands, "claims", broken)
    with pytest.raises(BrokenPipeError):
        cli.main(["claims"])
