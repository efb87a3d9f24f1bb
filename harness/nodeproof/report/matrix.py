"""The page's rows across several runs: a column for each, with its version, lab and profile."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof.model.claim import Claim
from nodeproof.report import digest, html, page, rechecked
from nodeproof.report.digest import Digest, Entry, State
from nodeproof.report.plain import in_markdown, in_markdown_cell, on_terminal, prose_in_markdown
from nodeproof.report.sections import SECTIONS, Section
from nodeproof.report.table import COLUMNS

_MEASURED = 24


@dataclass(frozen=True)
class Cell:
    """What one run says of a claim."""

    state: State
    label: str
    measured: str

    def __str__(self) -> str:
        return f"{self.label} {self.measured}".strip()


NOTHING = Cell("silent", "-", "")
"""The run does not have the claim."""


@dataclass(frozen=True)
class Column:
    """A run: what tells it from the others, and how many claims are in each state."""

    title: str
    name: str
    counts: str
    missing: tuple[str, ...]
    run: Path


@dataclass(frozen=True)
class Line:
    """A claim across runs."""

    id: str
    statement: str
    cells: tuple[Cell, ...]
    is_known: bool = True
    """Whether the catalogue has it: then the statement is the catalogue's, and not the run's."""

    @property
    def is_same(self) -> bool:
        """Whether all runs that know of it say the same."""
        return len({cell.label for cell in self.cells if cell != NOTHING}) == 1


@dataclass(frozen=True)
class Matrix:
    """Claims that one run at least has a verdict on, under the page's headings; those without any are out."""

    columns: tuple[Column, ...]
    sections: tuple[tuple[Section, tuple[Line, ...]], ...]

    @property
    def differing(self) -> int:
        """How many claims runs say different things of."""
        return sum(not line.is_same for _section, lines in self.sections for line in lines)


def matrix(runs: Sequence[Digest], claims: Mapping[str, Claim]) -> Matrix:
    """Put runs side by side, in the order in which they are given."""
    entries = [{entry.id: entry for entry in digest.entries(run, claims)} for run in runs]
    known = dict.fromkeys(name for found in entries for name, entry in found.items() if _counts(entry))
    some = [next(found[name] for found in entries if name in found) for name in known]
    lines = {
        entry.id: Line(
            entry.id,
            entry.statement,
            tuple(_cell(found.get(entry.id)) for found in entries),
            entry.claim is not None,
        )
        for entry in some
    }
    sections = [
        (section, tuple(lines[entry.id] for entry in found)) for section, found in digest.by_section(some)
    ]
    columns = tuple(_column(run, list(found.values())) for run, found in zip(runs, entries, strict=True))
    return Matrix(columns, tuple(each for each in sections if each[1]))


def on_a_terminal(made: Matrix) -> str:
    """Runs by number, then a line for each claim; `*` is where they say different things."""
    parts = []
    for number, column in enumerate(made.columns, 1):
        parts.append(f"{number}  {on_terminal(column.title)}  {on_terminal(column.name)}: {column.counts}")
        parts += [f"   not whole: {on_terminal(said)}" for said in column.missing]
    cells = {
        line.id: [
            "" if line.is_same else "*",
            on_terminal(line.id),
            *(on_terminal(str(cell)) for cell in line.cells),
        ]
        for _section, lines in made.sections
        for line in lines
    }
    header = ["", "claim", *(str(number) for number in range(1, len(made.columns) + 1))]
    widths = [max(map(len, column)) for column in zip(header, *cells.values(), strict=True)]
    parts += ["", _aligned(header, widths)]
    for section, lines in made.sections:
        parts += ["", section.title, *(_aligned(cells[line.id], widths) for line in lines)]
    return "\n".join([*parts, "", f"claims: {len(cells)}; runs differ on {made.differing}"])


def in_markdown_table(made: Matrix) -> str:
    """One table, with a line for each heading of the page."""
    head = [
        "claim",
        *(f"{in_markdown_cell(column.title)}<br>{in_markdown_cell(column.name)}" for column in made.columns),
    ]
    lines = ["# The Nodes page across runs", ""]
    lines += [
        f"- {in_markdown(column.name)}: not whole: {in_markdown(said)}"
        for column in made.columns
        for said in column.missing
    ]
    lines += ["", _row(head), "|" + "---|" * len(head)]
    for section, found in made.sections:
        # Claims that the catalogue does not have may be under a heading of the run's.
        written = prose_in_markdown if section in SECTIONS else in_markdown_cell
        lines.append(_row([f"**{written(section.title)}**", *("" for _ in made.columns)]))
        lines += [_row([_named(line), *map(_marked, line.cells)]) for line in found]
    counts = ["", *(column.counts for column in made.columns)]
    return "\n".join([*lines, _row(counts), ""])


def in_html(made: Matrix, folder: Path) -> str:
    """A page of this folder; where a run has its page, the cells lead there."""
    links = [_link(column.run / "site" / page.FILE, folder) for column in made.columns]
    return html.render("matrix.html", matrix=made, links=links, nothing=NOTHING)


def write_html(made: Matrix, path: Path) -> Path:
    """Write it as a page. Raises Problem where it cannot be written."""
    return html.write(path, in_html(made, path.parent))


def _counts(entry: Entry) -> bool:
    return bool(entry.rows) or entry.is_missing


def _cell(entry: Entry | None) -> Cell:
    if entry is None or not _counts(entry):
        return NOTHING
    measured = digest.measured_of(entry.rows[0]) if entry.rows else ""
    return Cell(entry.state, entry.label, on_terminal(measured, _MEASURED))


def _column(run: Digest, entries: Sequence[Entry]) -> Column:
    told = Counter(entry.state for entry in entries if _counts(entry))
    counts = ", ".join(f"{n} {page.label_of(state, n)}" for state in page.LABELS if (n := told[state]))
    title = " ".join(dict.fromkeys((run.kubernetes_version, run.lab, run.profile)))
    return Column(title, rechecked.named(run.run), counts or "no verdict", run.missing, run.run)


def _link(judged: Path, folder: Path) -> str:
    """The address of a run's page, seen from a folder; empty where it has none."""
    if not judged.is_file():
        return ""
    return html.address(os.path.relpath(judged, folder.resolve()))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _named(line: Line) -> str:
    statement = textwrap.shorten(line.statement, COLUMNS, placeholder="…")
    written = prose_in_markdown if line.is_known else in_markdown_cell
    return f"{written(statement)}<br>{in_markdown_cell(line.id)}"


def _marked(cell: Cell) -> str:
    return cell.label if cell == NOTHING else f"{digest.SIGNS[cell.state]} {in_markdown_cell(str(cell))}"
