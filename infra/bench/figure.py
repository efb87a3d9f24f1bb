"""What every figure is made of: its values, its anchor, its target, and how it is printed."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeproof.artifacts.components import Components

Json = Any
MIB = 1 << 20


@dataclass(frozen=True)
class Figure:
    """One measured figure, its anchor, and what was asked of which of them."""

    name: str
    unit: str
    values: Sequence[float]
    anchor: str = ""
    anchor_values: Sequence[float] = ()
    target: str = ""
    met: bool | None = None
    loads: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def value(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.values)

    @property
    def anchor_value(self) -> float | None:
        """The median of the anchor's repeats."""
        return statistics.median(self.anchor_values) if self.anchor_values else None

    @property
    def ratio(self) -> float | None:
        """The figure by its anchor."""
        return self.value / self.anchor_value if self.anchor_value else None

    def to_json(self) -> Mapping[str, Json]:
        """As written by --json."""
        computed = {"median": self.value, "anchor_median": self.anchor_value, "ratio": self.ratio}
        return {**dataclasses.asdict(self), **computed}


@dataclass(frozen=True)
class Bench:
    """What every figure needs: the components, where to write, and how often to repeat."""

    components: Components
    source: str
    scratch: Path
    repeats: int
    injections: int
    failures: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        print(f"bench: {line}", file=sys.stderr, flush=True)


def table(machine: Mapping[str, str], figures: Sequence[Figure]) -> str:
    """Return the figures as plain text."""
    header = ("figure", "measured", "reference", "ratio", "target", "n", "load")
    rows = [header, *(row(figure) for figure in figures)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(header))]
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()), ""]
    notes: Sequence[Sequence[str]] = [(), *(figure.notes for figure in figures)]
    for cells, below in zip(rows, notes, strict=True):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
        lines += [f"    {note}" for note in below]
    return "\n".join(lines)


def row(figure: Figure) -> tuple[str, ...]:
    """Return a figure's cells, in the order of the table's header."""
    met = {None: "", True: ": met", False: ": MISSED"}[figure.met]
    anchor, ratio = figure.anchor_value, figure.ratio
    spread = f" [{min(figure.values):.3g}..{max(figure.values):.3g}]" if len(figure.values) > 1 else ""
    return (
        figure.name,
        f"{figure.value:.3g} {figure.unit}{spread}",
        f"{anchor:.3g} {figure.unit} ({figure.anchor})" if anchor is not None else "-",
        f"{ratio:.2f}" if ratio is not None else "-",
        figure.target + met,
        str(len(figure.values)),
        ", ".join(figure.loads),
    )
