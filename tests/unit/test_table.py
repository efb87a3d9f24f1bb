"""How CI ends: parts with their limits, and the slowest tests."""

from __future__ import annotations

import sys
from pathlib import Path

from nodeproof import proc
from tests.table import ENDED, read_parts, render, slowest

TABLE = Path(__file__).resolve().parents[1] / "table.py"
PARTS = [f"test\t700\t1320\t{0}", f"test-vm\t900\t900\t{ENDED[0]}", "soak N=10\t30\t240\t2"]
RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a" name="one" time="3.5"/><testcase classname="tests.a" name="two" time="120.25"/>
</testsuite></testsuites>"""


def test_a_part_over_its_limit_is_told_by_name() -> None:
    lines = render(read_parts(PARTS), []).splitlines()
    assert lines[1].split() == ["test", "700", "s", "of", "1320", "s", "passed"]
    assert lines[2].endswith("over its limit of 900 s")
    assert lines[2].split()[0] == "test-vm"
    assert lines[3].endswith("failed (2)")


def test_the_slowest_tests_come_first(tmp_path: Path) -> None:
    (tmp_path / "contract.xml").write_text(RESULTS)
    (tmp_path / "half.xml").write_text(RESULTS[:40])
    (tmp_path / "unit.xml").write_text(RESULTS.replace("120.25", "0.1"))
    assert slowest([*tmp_path.glob("*.xml")], most=2) == [
        (120.25, "tests.a::two (contract)"),
        (3.5, "tests.a::one (unit)"),
    ]


def test_it_tells_of_a_part_that_failed_before_any_test(tmp_path: Path) -> None:
    (tmp_path / "parts").write_text("test\t3\t1320\t2\n")
    argv = [sys.executable, "-I", str(TABLE), str(tmp_path / "parts"), str(tmp_path / "*.xml")]
    assert "failed (2)" in proc.run(argv, timeout_s=120, cwd=tmp_path).stdout
