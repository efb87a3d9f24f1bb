"""The page's claims across several runs: on a terminal, in Markdown, as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof import cli
from nodeproof.report import digest, matrix, page
from nodeproof.report.matrix import Matrix
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, Told, configuration, tell

DETECTION, TAINT = "monitoring.detection-time", "cordon.taint"
A = "a.py::test_a"
OLD = "v1.31.9"


def told(tmp_path: Path) -> list[Path]:
    """An old version, a new one, and a run that was killed."""
    old: list[Told] = [(A, DETECTION, CONFORMS), (A, TAINT, DEVIATES)]
    facts = replace(FACTS, kubernetes_version=OLD)
    return [
        tell(tmp_path / "old", old, facts, configuration(OLD)),
        tell(tmp_path / "new", [(A, DETECTION, CONFORMS), (A, TAINT, CONFORMS)]),
        tell(tmp_path / "killed", [(A, DETECTION, GAP)], None),
    ]


def made(runs: list[Path]) -> Matrix:
    """Those beside each other."""
    return matrix.matrix([digest.read(run) for run in runs], CLAIMS)


def test_a_column_for_each_run_and_a_line_for_each_claim(tmp_path: Path) -> None:
    found = made(told(tmp_path))
    assert [column.title for column in found.columns] == [
        f"{OLD} process fast",
        *["v1.36.3 process fast"] * 2,
    ]
    assert [section.title for section, _lines in found.sections] == [
        "Manual Node administration",
        "Node controller",
    ]
    lines = {line.id: line for _section, lines in found.sections for line in lines}
    assert [str(cell) for cell in lines[TAINT].cells] == ["deviates 15.200 s", "conforms 13.100 s", "-"]
    assert [cell.label for cell in lines[DETECTION].cells] == ["conforms", "conforms", "unproven: gap"]
    assert found.differing == 2


def test_a_terminal_gets_numbers_and_marks(tmp_path: Path) -> None:
    lines = matrix.on_a_terminal(made(told(tmp_path))).splitlines()
    assert lines[0] == f"1  {OLD} process fast  old: 1 deviates, 1 conforms"
    assert lines[1] == "2  v1.36.3 process fast  new: 2 conform"
    assert any("not whole" in line and "run.json" in line for line in lines[3:5])
    (line,) = (line for line in lines if TAINT in line)
    assert line.split() == ["*", TAINT, "deviates", "15.200", "s", "conforms", "13.100", "s", "-"]
    assert lines[-1] == "claims: 2; runs differ on 2"


def test_markdown_is_one_table_of_as_many_cells(tmp_path: Path) -> None:
    text = matrix.in_markdown_table(made(told(tmp_path)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 2 + 2 + 1
    assert {row.count("|") for row in rows} == {5}
    assert "✗ `deviates 15.200 s`" in text


def test_the_page_leads_to_each_runs_own(tmp_path: Path) -> None:
    runs = told(tmp_path)
    page.write(runs[0], CLAIMS)
    text = matrix.write_html(made(runs), tmp_path / "matrix.html").read_text()
    assert f'<a href="old/site/page.html#{TAINT}">evidence<' in text
    assert "new/site" not in text
    assert "<script" not in text


def test_others_text_stays_text(tmp_path: Path) -> None:
    hostile = "<script>x</script> | `a` **b** [c](d)\n\x1b[2J\u202e" + "x" * 10_000
    facts = replace(FACTS, exit_reason=hostile, lab=hostile)
    found = made([tell(tmp_path / "<b>|run", [(A, TAINT, replace(DEVIATES, reason=hostile))], facts)])
    assert "<script>x" not in matrix.write_html(found, tmp_path / "m.html").read_text()
    markdown = matrix.in_markdown_table(found)
    assert "``v1.36.3 <script>x</script> ¦ `a` **b** [c](d)" in markdown
    assert "`<b>¦run`" in markdown
    shown = matrix.on_a_terminal(found)
    assert all(character.isprintable() or character == "\n" for character in shown + markdown)
    assert len(shown) < 3000


def test_the_command_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(run) for run in told(tmp_path)]
    assert cli.main(["matrix", *runs]) == 0
    assert capsys.readouterr().out.startswith(f"1  {OLD}")
    assert cli.main(["matrix", *runs, "--markdown", "-"]) == 0
    assert capsys.readouterr().out.startswith("# The Nodes page across runs")
    files = tmp_path / "m.md", tmp_path / "m.html"
    assert cli.main(["matrix", *runs, "--markdown", str(files[0]), "--html", str(files[1])]) == 0
    assert [path.is_file() for path in files] == [True, True]


def test_a_dash_is_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [str(run) for run in told(tmp_path)]
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert cli.main(["matrix", *runs, "--html", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    assert sorted(tmp_path.iterdir()) == before
    assert cli.main(["matrix", *runs, "--html", "./-"]) == 0
    assert (tmp_path / "-").is_file()


def test_what_cannot_be_written_and_what_is_no_run_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(run) for run in told(tmp_path)]
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for arguments in (
        ["--html", str(tmp_path / "none" / "m.html")],
        ["--html", str(tmp_path / "folder")],
        ["--markdown", str(tmp_path / "folder")],
        ["--markdown", "/proc/m.md"],
        [str(tmp_path)],
    ):
        assert cli.main(["matrix", *runs, *arguments]) == 2
        assert capsys.readouterr().err.splitlines()[0].startswith("nodeproof: ")
        assert sorted(tmp_path.iterdir()) == before
