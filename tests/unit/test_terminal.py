"""What others wrote, where somebody reads it: on a terminal, and in Markdown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import cli, terminal
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, deviates
from nodeproof.report import digest, matrix, plain, summary, table
from tests.unit.told_runs import CLAIMS, CONFORMS, FACTS, WINDOW, shard_run, tell

TITLE = "\x1b]0;owned\x07\x1b[2J\u202e"
HOSTILE = (
    f"node-1 {TITLE}<img src=x onerror=alert(1)> @everyone https://evil.example/x #1 "
    "![i](http://e/x.png) <!-- | `x` ``y"
)
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def steers(text: str) -> list[str]:
    """The characters of a text that a terminal does more with than show them."""
    return [char for char in text if not char.isprintable() and char != "\n"]


def test_what_is_printed_steers_no_terminal_and_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(f"{TITLE} password=s3cr3tvalue")
    terminal.put(f"a\n{TITLE} password=s3cr3tvalue\tb")
    seen = capsys.readouterr()
    assert steers(seen.err + seen.out.replace("\t", "")) == []
    assert "s3cr3tvalue" not in seen.err + seen.out
    assert seen.out.startswith("a\n")


def test_a_problem_steers_no_terminal() -> None:
    problem = Problem(TITLE, TITLE, TITLE, f"{TITLE}\n{TITLE}")
    assert steers(str(problem)) == steers(problem.line) == []
    assert str(problem).count("\n") == 2


def test_no_command_that_reads_runs_steers_a_terminal(
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
    seen = capsys.readouterr()
    assert "changed: cordon.taint" in seen.out
    assert "two shards differ in their kind of lab" in seen.err
    assert steers(seen.out + seen.err) == []
    assert steers(table.render(rows, 1.0, HOSTILE, {})) == []


def test_in_markdown_a_text_of_others_is_a_code_span(tmp_path: Path) -> None:
    """GitHub makes links of bare addresses and of numbers, and tells whom a name names."""
    told = [(f"a.py::test_{HOSTILE}", "cordon.taint", deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE))]
    facts = replace(FACTS, lab=HOSTILE, exit_reason=HOSTILE, selected=(HOSTILE,))
    found = digest.read(tell(tmp_path / "run", told, facts))
    for text in (summary.render(found, CLAIMS), matrix.in_markdown_table(matrix.matrix([found], CLAIMS))):
        assert "evil.example" in text
        for mark in ("@everyone", "evil.example", "#1", "![i]", "<img", "<!--"):
            assert mark not in "".join(SPAN.sub("", line) for line in text.splitlines())


@given(st.text(alphabet="`a |\\", max_size=12))
def test_a_code_span_ends_where_the_text_does(text: str) -> None:
    span = plain.in_markdown(text)
    shown = SPAN.fullmatch(span)
    assert (shown[2].strip() if shown else "") == plain.on_terminal(text)
    assert "|" not in plain.in_markdown_cell(text)
