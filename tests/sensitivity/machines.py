"""`python -m tests.sensitivity.machines [pytest's arguments]`: which claims fall on altered machines.

Runs every test of `tests/vm` that makes claims fall, one after another on one lab of virtual machines, and
prints a table like that of the bugs; keeps it below `reports/out/sensitivity/`. Exits as pytest does.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeproof.report.rundir import write_json
from tests.markers import fallen_claims
from tests.sensitivity.running import CAUGHT

OUT = Path("reports/out/sensitivity")
TESTS = sorted(str(path) for path in Path("tests/vm").glob("test_*_on_machines.py"))
FELL = "fell"
"""By this name a test's report has the claims that fell (tests/vm/conftest.py)."""


@dataclass(frozen=True)
class Row:
    """An altered machine: the claims that should fall there, those that fell, and what came of the test."""

    altered: str
    falls: Sequence[str]
    fell: Sequence[str]
    outcome: str
    took_s: float


class Fallen:
    """A plugin of pytest: runs only what makes claims fall, and keeps a row of each."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what shows that claims conform."""
        wanted = [item for item in items if fallen_claims(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what a test did, or that it could not begin."""
        report = yield
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.rows.append(row_of(item, report))
        return report


def row_of(item: pytest.Item, report: pytest.TestReport) -> Row:
    """Return the row of a test that has ended."""
    callspec, properties = getattr(item, "callspec", None), dict[str, Any](report.user_properties)
    alter = callspec.params.get("alter") if callspec else None
    altered = item.name if alter is None else alter.__name__
    outcome = CAUGHT if report.passed else f"{report.outcome} in {report.when}"
    return Row(altered, sorted(fallen_claims(item)), properties.get(FELL, []), outcome, report.duration)


def table(rows: Iterable[Row]) -> list[str]:
    """As lines of Markdown."""
    cells = (
        (row.altered, ", ".join(row.falls), ", ".join(row.fell), row.outcome, f"{row.took_s:.0f}")
        for row in rows
    )
    head = ["| alteration | should fall | fell | outcome | s |", "|---|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in cells]


def main(arguments: Sequence[str]) -> int:
    """Run the tests, print and keep the table; pytest's exit code."""
    fallen = Fallen()
    named = [word for word in arguments if Path(word.partition("::")[0]).exists()]
    pytest_arguments = ["-q", "-p", "no:cacheprovider", *arguments, *([] if named else TESTS)]
    status = int(pytest.main(pytest_arguments, plugins=[fallen]))
    lines = table(fallen.rows)
    print("\n".join(lines))
    caught = sum(row.outcome == CAUGHT for row in fallen.rows)
    claims = {claim for row in fallen.rows if row.outcome == CAUGHT for claim in row.falls}
    print(f"{caught} of {len(fallen.rows)} alterations caught, {len(claims)} claims")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "machines.md").write_text("\n".join(lines) + "\n")
    write_json(OUT / "machines.json", [asdict(row) for row in fallen.rows])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
