"""Text on a terminal and in Markdown: foreign text, lines, progress, and a closed output pipe."""

from __future__ import annotations

import contextlib
import json
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
    WINDOW,
    ScenarioVerdict,
    digest_of,
    shard_run,
    tell,
)

# Text on a terminal and in Markdown: foreign text, lines, and progress


TITLE = "\x1b]0;owned\x07\x1b[2J\u202e"
HOSTILE = (
    f"node-1 {TITLE}<img src=x onerror=alert(1)> @everyone https://evil.example/x #1 "
    "![i](http://e/x.png) <!-- | `x` ``y"
)
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def steers(text: str) -> list[str]:
    """Return the characters of a text that control a terminal."""
    return [char for char in text if not char.isprintable() and char != "\n"]


def test_printed_text_controls_no_terminal_and_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(f"{TITLE} password=s3cr3tvalue")
    terminal.put(f"a\n{TITLE} password=s3cr3tvalue\tb")
    output = capsys.readouterr()
    assert steers(output.err + output.out.replace("\t", "")) == []
    assert "s3cr3tvalue" not in output.err + output.out
    assert output.out.startswith("a\n")


def test_problem_controls_no_terminal() -> None:
    problem = Problem(TITLE, TITLE, TITLE, f"{TITLE}\n{TITLE}")
    assert steers(str(problem)) == steers(problem.line) == []
    assert str(problem).count("\n") == 2


def test_commands_that_read_runs_control_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE)
    facts = replace(FACTS, command=HOSTILE, exit_reason=HOSTILE, settings=(HOSTILE,), lab=HOSTILE)
    run = tell(tmp_path / "run", [(f"a.py::test_{HOSTILE}", "cordon.taint", verdict)], facts)
    rows = json.loads((run / "verdicts.json").read_text())
    (run / "verdicts.json").write_text(json.dumps([{**rows[0], "verdict": "conforms"}]))
    shards = [
        shard_run(
            tmp_path / name, number, PARTS, [(f"{name}.py::test_{name}", "cordon.taint", CONFORMS)], facts
        )
        for number, name in enumerate("ab", 1)
    ]
    shard = json.loads((shards[1] / "shard.json").read_text())
    for arguments in (
        ("recheck", str(run), "--no-site"),
        ("page", str(run)),
        ("compare", str(run), str(run)),
        ("matrix", str(run)),
        ("summary", str(run)),
        ("merge", *map(str, shards), "--no-site", "--run", str(tmp_path / "merged")),
        ("publish", str(tmp_path / "site"), str(run)),
    ):
        cli.main(arguments)
    (shards[1] / "shard.json").write_text(json.dumps({**shard, "lab": HOSTILE}))
    assert cli.main(("merge", *map(str, shards), "--run", str(tmp_path / "other"))) == 2
    output = capsys.readouterr()
    assert "changed: cordon.taint" in output.out
    assert "two shards differ in their kind of lab" in output.err
    assert steers(output.out + output.err) == []
    assert steers(tables.render(digest_of(rows), HOSTILE, {})) == []


def test_foreign_text_in_markdown_is_a_code_span(tmp_path: Path) -> None:
    """GitHub links bare addresses and numbers, and notifies mentioned users."""
    rows = [(f"a.py::test_{HOSTILE}", "cordon.taint", deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE))]
    facts = replace(FACTS, lab=HOSTILE, exit_reason=HOSTILE, selected=(HOSTILE,))
    run_digest = digest.read(tell(tmp_path / "run", rows, facts), CLAIMS)
    for text in (
        tables.summary(run_digest),
        comparison.matrix_markdown(comparison.compare([run_digest])),
    ):
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


LINE = "\r\x1b[2Knodeproof: "


@pytest.mark.parametrize(
    ("is_terminal", "printed"),
    [
        (False, "nodeproof: begins\nnodeproof: 6 of 10\nnodeproof: done\n"),
        (
            True,
            f"{LINE}begins\n{LINE}{'█' * 15}{'░' * 15} 5 of 10{LINE}{'█' * 18}{'░' * 12} 6 of 10{LINE}done\n",
        ),
    ],
)
def test_progress_is_a_bar_on_a_terminal_and_milestones_elsewhere(
    is_terminal: bool, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    progress = (ProgressLine.of("5 of 10", 5, 10, is_milestone=False), ProgressLine.of("6 of 10", 6, 10))
    for line in ("begins", *progress, "done"):
        commands._say(line)
    assert capsys.readouterr().err == printed


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
    minutes = [f", about {number} min left" for number in (6, 5, 4, 3, 2)]
    left = ["", "", "", *minutes, ", about 60 s left", ", almost done"]
    assert milestones == [
        f"compiling: {60 * n} packages, {60 * n} s{left[n - 1] if total else ''}" for n in range(1, 11)
    ]


# Colours of state words, which only a terminal without NO_COLOR gets


RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"
ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]
SCENARIO_WITHOUT_A_LAB = """
from nodeproof.scenario import claims

@claims("cordon.taint")
def test_it(judge):
    pass
"""


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
    ("command", "states"),
    [
        (("recheck", "before", "--no-site"), {f"{GREEN}conforms"}),
        (("matrix", "before", "after"), {f"{GREEN}conforms", f"{RED}deviates"}),
        (("compare", "before", "after"), {f"{GREEN}conforms", f"{RED}deviates"}),
        (("doctor", "--lab", "process"), {f"{GREEN}ok"}),
        (("claims", "test_it.py"), {f"{GREEN}judged"}),
        (("run", "--no-site", "-n", "0", "test_it.py"), {f"{YELLOW}unproven"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_state_words_have_colours_on_a_terminal_only(
    command: Sequence[str], states: set[str], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIO_WITHOUT_A_LAB)
    tell(tmp_path / "before", ROWS)
    tell(tmp_path / "after", [("a.py::test_a", "cordon.taint", deviates("it is not", WINDOW))])

    output = on_terminal(command, tmp_path)

    assert {state for state in states if state not in output} == set(), output
    assert not re.search(r"\x1b\[[0-9;]*m", on_terminal(command, tmp_path, NO_COLOR="1"))


def test_only_states_are_coloured() -> None:
    plain_text = "a claim  conforms 2 s\nnot whole: missing it is\n  ok       programs\nit deviates: no"
    coloured = f"a claim  {GREEN}conforms\x1b[0m 2 s\nnot whole: missing it is\n"
    assert terminal.coloured(plain_text) == f"{coloured}  {GREEN}ok\x1b[0m       programs\nit deviates: no"


# A command with a closed output pipe ends like Unix tools; other broken pipes are errors


TIMEOUT_S = 240.0


@pytest.mark.parametrize(
    "command", [("compare", "RUN", "RUN"), ("matrix", "--markdown", "-", "RUN"), ("summary", "RUN", "RUN")]
)
def test_closed_output_pipe_ends_quietly(tmp_path: Path, command: tuple[str, ...]) -> None:
    run = tell(tmp_path / "run", ROWS)
    argv = [
        sys.executable,
        "-m",
        "nodeproof.cli",
        *(str(run) if argument == "RUN" else argument for argument in command),
    ]
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
