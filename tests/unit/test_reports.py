"""What all reports of a run have in common: foreign text, incomplete runs, settings, speed, and commands."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodeproof import cli
from nodeproof.model.verdict import Measured, conforms, deviates, unproven
from nodeproof.report import comparison, digest, junit, page, publish, rundir, tables
from tests.unit import synthetic_runs
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    CUT,
    FACTS,
    FIXED,
    JUDGED,
    KNOWN,
    ROWS,
    SWAP,
    TAINT,
    WINDOW,
    tell,
)
from tests.unit.test_page import Read

Render = Callable[[Path], str]
RIGHT_TO_LEFT = "\u202e\u05e9\u05dc\u05d5\u05dd"
HOSTILE = (
    f"<script>alert('x')</script> ]]> | `a` **b** [c](d)\n# h\r\x1b[2J\x00\ufffe\ud800{RIGHT_TO_LEFT}"
    + "x" * 10_000
)


def published(run: Path) -> str:
    """Return the list of published runs."""
    return publish.publish(run.parent / "site", [run], CLAIMS).index.read_text()


def compared(*runs: Path) -> comparison.Comparison:
    return comparison.compare([digest.read(run) for run in runs], CLAIMS)


def since_before(run: Path) -> str:
    """Compare with a run in which everything conformed."""
    before = tell(run.parent / "before", [(CUT, claim, CONFORMS) for _scenario, claim, _verdict in ROWS])
    return comparison.changes_text(compared(before, run))


HTML: dict[str, Render] = {
    "page": lambda run: page.write(run, CLAIMS).read_text(),
    "matrix in HTML": lambda run: page.encodable(comparison.matrix_html(compared(run), run.parent)),
    "published": published,
}
TEXT: dict[str, Render] = {
    "summary": lambda run: tables.summary(digest.read(run), CLAIMS),
    "matrix in Markdown": lambda run: comparison.matrix_markdown(compared(run)),
    "matrix": lambda run: comparison.matrix_text(compared(run)),
    "compare": since_before,
    "table": lambda run: tables.render(digest.read(run).rows, None, "site"),
    "last lines": lambda run: "\n".join(tables.last_lines(digest.read(run).rows)),
}
XML: dict[str, Render] = {"JUnit": lambda run: junit.render(digest.read(run), CLAIMS)}
ALL = HTML | TEXT | XML
OF_A_RUN = {name: render for name, render in ALL.items() if name not in ("table", "last lines")}
"""Reports of the run itself, and not only of its rows."""


@pytest.mark.parametrize("render", ALL.values(), ids=ALL)
def test_known_deviation_is_shown_with_its_issue_and_fails_nothing(tmp_path: Path, render: Render) -> None:
    run = tell(tmp_path / "run", [(CUT, TAINT, KNOWN), (CUT, SWAP, FIXED)])
    text = render(run)
    assert "deviates: reported" in text or "known and reported" in text
    assert "<failure" not in text


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Write a run whose every text is foreign."""
    verdicts = (
        deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE),
        unproven("gap", HOSTILE),
        unproven("scaled", HOSTILE),
        conforms(HOSTILE, WINDOW, Measured(HOSTILE, HOSTILE)),
    )
    claims = [claim for _scenario, claim, _verdict in ROWS]
    rows = [
        (f"a.py::test_{HOSTILE}", claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)
    ]
    facts = replace(
        FACTS,
        lab=HOSTILE,
        profile=HOSTILE,
        kubernetes_version=HOSTILE,
        command=HOSTILE,
        exit_reason=HOSTILE,
        settings=(HOSTILE,),
        quarantined=(HOSTILE,),
        components={HOSTILE: {"version": HOSTILE, "origin": HOSTILE}},
    )
    return tell(tmp_path / f"<b>|run{RIGHT_TO_LEFT}", rows, facts)


@pytest.mark.parametrize("render", HTML.values(), ids=HTML)
def test_foreign_text_is_neither_markup_nor_changes_direction(hostile: Path, render: Render) -> None:
    read = Read()
    read.feed(render(hostile))
    assert read.open == []
    assert "script" not in read.tags
    assert read.loads == ["data:,"]
    assert [part for part in read.bare if "\u202e" in part] == []


@pytest.mark.parametrize("render", TEXT.values(), ids=TEXT)
def test_foreign_text_moves_no_cursor_and_is_cut(hostile: Path, render: Render) -> None:
    text = render(hostile)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\n# h" not in text
    assert len(text) < 3 * len(HOSTILE)


def test_foreign_text_keeps_the_xml_valid(hostile: Path) -> None:
    (failure,) = ET.fromstring(junit.render(digest.read(hostile), CLAIMS)).iter("failure")  # noqa: S314
    for text in (failure.attrib["message"], failure.text or ""):
        assert "<script>alert('x')</script> ]]>" in text
        assert "\u05e9\u05dc\u05d5\u05dd" in text
        assert not set("\x00\x1b\ufffe\ud800") & set(text)


@pytest.mark.parametrize("render", OF_A_RUN.values(), ids=OF_A_RUN)
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (None, "The run did not come to its end"),
        (replace(FACTS, ended=""), "The run has no end"),
        (replace(FACTS, exit_reason="etcd exited 1"), "The run broke off: etcd exited 1"),
    ],
    ids=["killed", "open", "broken off"],
)
def test_incomplete_run_says_so(
    tmp_path: Path, render: Render, facts: rundir.RunFacts | None, expected: str
) -> None:
    assert expected in render(tell(tmp_path / "run", ROWS, facts))


@pytest.mark.parametrize("name", ALL)
def test_empty_run_has_every_report(tmp_path: Path, name: str) -> None:
    text = ALL[name](rundir.create(tmp_path / "run"))
    assert ("No scenario left a verdict." if name in OF_A_RUN else "conforms 0  deviates 0") in text
    assert "Nothing deviates" not in text


@pytest.mark.parametrize("render", OF_A_RUN.values(), ids=OF_A_RUN)
def test_settings_of_the_user_are_shown(tmp_path: Path, render: Render) -> None:
    run = tell(tmp_path / "run", ROWS, replace(FACTS, overrides=("--set kubelet.x=1",)))
    assert "--set kubelet.x=1" in render(run)


@pytest.mark.parametrize("render", OF_A_RUN.values(), ids=OF_A_RUN)
def test_content_of_logs_and_recordings_is_in_no_report(tmp_path: Path, render: Render) -> None:
    canary = "-----BEGIN PRIVATE KEY----- canary"
    run = tell(tmp_path / "run", ROWS, replace(FACTS, exit_reason=f"etcd exited 1\n{canary}"))
    scenario = rundir.scenario_dir(run, CUT)
    (run / "labs" / "etcd.log").write_text(canary)
    (scenario / "history.jsonl").write_text(canary)
    configuration = json.loads((scenario / "configuration.json").read_text())
    secret = {"flags_set": {"kubelet": {"token": canary}}, "reported": {"x": canary}}
    (scenario / "configuration.json").write_text(json.dumps({**configuration, **secret}))
    text = render(run)
    assert "etcd exited 1" in text
    assert "canary" not in text


@pytest.mark.parametrize("render", [HTML["page"], TEXT["compare"]], ids=["page", "compare"])
def test_three_hundred_scenarios_are_reported_fast(tmp_path: Path, render: Render) -> None:
    rows = [(f"scenarios/t.py::test_{n}", JUDGED[n % len(JUDGED)], CONFORMS) for n in range(300)]
    run = tell(tmp_path / "run", rows)
    began = time.thread_time()
    assert len(render(run)) < 2e6
    assert time.thread_time() - began < 5.0


@pytest.mark.parametrize(
    ("command", "begin"),
    [
        ("page RUN", "/"),
        ("summary RUN RUN", "## Kubernetes `v1.36.3"),
        ("junit RUN", "<?xml"),
        ("junit RUN --output -", "<?xml"),
        ("junit RUN --output FILE", "FILE"),
        ("matrix RUN RUN", "1  v1.36.3"),
        ("matrix RUN --markdown -", "# The Nodes page across runs"),
        ("matrix RUN --html -", "<!DOCTYPE html>"),
        ("matrix RUN --html FILE", "FILE"),
        ("matrix RUN --markdown FILE", "FILE"),
        ("compare RUN RUN", "A run: Kubernetes"),
        ("publish FILE RUN", "FILE/index.html"),
    ],
)
def test_command_prints_its_report_or_where_it_is(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    begin: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run, file = tell(tmp_path / "run", ROWS), tmp_path / "file"
    arguments = command.replace("RUN", str(run)).replace("FILE", str(file)).split()
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out.startswith(begin.replace("FILE", str(file)))
    assert file.exists() == ("FILE" in command)
    assert not (tmp_path / "-").exists()
    assert cli.main([argument.replace(str(run), str(tmp_path / "none")) for argument in arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "no run's folder" in error


def test_compare_exits_with_1_on_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tell(tmp_path / "a", [(CUT, synthetic_runs.TAINT, CONFORMS)])
    assert cli.main(["compare", str(before), str(tell(tmp_path / "b", ROWS))]) == 1
    assert f"regressions: 1\n  {synthetic_runs.TAINT}: conforms -> deviates\n" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["matrix RUN --html", "matrix RUN --markdown", "junit RUN --output"])
@pytest.mark.parametrize("place", ["none/file", "folder", "/proc/file"])
def test_unwritable_file_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    run = str(tell(tmp_path / "run", ROWS))
    before = sorted(tmp_path.iterdir())
    assert cli.main([*option.replace("RUN", run).split(), place]) == 2
    assert re.match(r"nodeproof: the (page|JUnit XML) cannot be written", capsys.readouterr().err)
    assert sorted(tmp_path.iterdir()) == before
