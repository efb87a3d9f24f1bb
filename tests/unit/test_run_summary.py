"""A run in Markdown: what deviates, what could not be proven, counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof import cli
from nodeproof.report import digest, rundir, summary
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, LACKS, Told, tell

DETECTION, TAINT, DEFAULT, SWAP = (
    "monitoring.detection-time",
    "cordon.taint",
    "monitoring.grace-period-default",
    "swap.fail-on-default",
)
A = "a.py::test_a_node_is_cordoned"
TOLD: list[Told] = [(A, DETECTION, CONFORMS), (A, TAINT, DEVIATES), (A, DEFAULT, GAP), (A, SWAP, LACKS)]


def told(run: Path) -> str:
    return summary.render(digest.read(run), CLAIMS)


def test_what_deviates_comes_first_then_what_is_unproven(tmp_path: Path) -> None:
    text = told(tell(tmp_path / "run", TOLD))
    assert text.startswith("## Kubernetes `v1.36.3, process, fast`: 1 deviates, 2 unproven, 1 conforms\n")
    order = [
        "### What deviates",
        CLAIMS[TAINT].statement,
        "`came 15.2 s after: too late`; measured `15.200 s`; allowed `[G, G + 2P + slack] =",
        "last seen `node node-1: Ready=True`; scenario: `A node is cordoned`",
        "### What could not be proven, and should have been",
        "unproven: gap: `the watch of leases was blind`",
        "### What this lab, profile or version cannot prove",
        "lab-lacks (1): `this lab has no systemd`",
        "### Where page and code differ, as is known",
        "the page says 40 s, v1.36.3 has 50 s",
        "| ✗ deviate | 1 |",
    ]
    places = [text.index(said) for said in order]
    assert places == sorted(places)


def test_nothing_is_left_of_what_is_not_known(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [(A, TAINT, DEVIATES), (A, DETECTION, DEVIATES)], None)
    assert "<br>\n" not in told(run)
    assert ": 2 deviate, 0 unproven, 0 conform\n" in told(run)


def test_where_page_and_code_differ_without_a_number_it_says_what_the_page_says(tmp_path: Path) -> None:
    text = told(tell(tmp_path / "run", [(A, "manual-node.healthy-means-all-services", CONFORMS)]))
    assert "<br>`the page says that it is healthy only if all necessary services run`\n" in text


def test_a_run_that_is_not_whole_says_so(tmp_path: Path) -> None:
    assert "**This run is not whole.**" in told(tell(tmp_path / "killed", TOLD, None))
    assert "no memory" in told(tell(tmp_path / "broken", TOLD, replace(FACTS, exit_reason="no memory")))
    assert "Nothing was judged." in told(rundir.create(tmp_path / "empty"))


def test_others_text_is_no_markup_and_is_cut(tmp_path: Path) -> None:
    hostile = "<script>x</script> | **b** ![i](j)\n# h\n\x1b[2J\u202e" + "x" * 10_000
    text = told(tell(tmp_path / "run", [(f"a.py::test_{hostile}", TAINT, replace(DEVIATES, reason=hostile))]))
    assert "`<script>x</script> | **b** ![i](j) # h " in text
    assert "\n# h" not in text
    assert len(text) < 4000


def test_long_lists_are_cut(tmp_path: Path) -> None:
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
    text = told(tell(tmp_path / "run", [(A, claim, DEVIATES) for claim in judged]))
    assert f"- and {len(judged) - summary.MOST} more" in text
    assert len(text.encode()) < 1 << 20


def test_the_command_prints_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tell(tmp_path / "run", TOLD))
    assert cli.main(["summary", run, run]) == 0
    assert capsys.readouterr().out.count("## Kubernetes `v1.36.3, ") == 2
    assert cli.main(["summary", str(tmp_path)]) == 2
