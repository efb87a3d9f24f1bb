"""Coverage: what each lab and profile judges, and the share of each page."""

from __future__ import annotations

from dataclasses import replace

from nodeproof import catalogue
from nodeproof.session.coverage import COLUMNS, Coverage, _collect, _coverage_of, cell, coverage, render
from tests.documented import TOP
from tests.unit.sample_checks import CLAIM

FAST, DOCUMENTED = ("process", "fast"), ("process", "documented")
ONLY_DOCUMENTED = Coverage((CLAIM.id,), lambda column: "" if column == DOCUMENTED else "scaled")
EVERYWHERE = Coverage((CLAIM.id,), lambda _column: "")


def test_claim_is_judged_if_one_scenario_can() -> None:
    assert cell(CLAIM, FAST, [ONLY_DOCUMENTED]) == "scaled"
    assert cell(CLAIM, DOCUMENTED, [ONLY_DOCUMENTED]) == "judged"
    assert cell(CLAIM, FAST, [ONLY_DOCUMENTED, EVERYWHERE]) == "judged"
    assert cell(CLAIM, FAST, []) == "-"
    assert cell(replace(CLAIM, status="planned"), FAST, [EVERYWHERE]) == "planned"


def test_coverage_is_counted() -> None:
    planned = replace(CLAIM, id="a.c", status="planned", page={"v1.18": True, "v1.28": False})
    restart = replace(CLAIM, id="a.d", document="restart", page={"v1.37": True})
    claims = {"a.b": CLAIM, "a.c": planned, "a.d": restart}
    lines = render(claims, [EVERYWHERE], [FAST, DOCUMENTED]).splitlines()
    assert lines[0].split() == ["claim", "tier", "process", "fast", "process", "documented"]
    assert lines[1].split() == ["a.b", "process", "judged", "judged"]
    assert lines[2].split() == ["a.c", "process", "planned", "planned"]
    assert "3 claims: 2 judged, 1 planned" in lines
    assert [line.split() for line in lines[-4:]] == [
        ["document", "page", "claims", "judged"],
        ["nodes", "v1.18", "1", "0"],
        ["nodes", "v1.28", "1", "1"],
        ["restart", "v1.37", "1", "1"],
    ]


def test_readme_counts_the_scenarios_and_claims_of_the_fast_profile() -> None:
    """Without the storm, which a run deselects."""
    items = [item for item in _collect(()).items if "storm" not in item.path.parts]
    judging = [entry for entry in map(_coverage_of, items) if not entry.why_not(FAST)]
    claims = {claim for entry in judging for claim in entry.claims}
    figures = f"the `fast` profile: {len(judging)} scenarios, {len(claims)} claims,"
    assert figures in (TOP / "README.md").read_text()


def test_readme_counts_the_claims_of_the_catalogue() -> None:
    assert f"holds {len(catalogue.load())} claims" in (TOP / "README.md").read_text()


def test_shipped_scenarios_cover_the_catalogue() -> None:
    table = coverage([]).partition("\n\n")[0].splitlines()[1:]
    rows = {line.split()[0]: line.split()[2:] for line in table}
    assert rows.keys() == catalogue.load().keys()
    at = {f"{kind} {profile}": number for number, (kind, profile) in enumerate(COLUMNS)}
    assert not any("-" in cells for cells in rows.values())
    assert rows["swap.fail-on-default"][at["process fast"]] == "lab-lacks"
    assert rows["swap.fail-on-default"][at["libvirt fast"]] == "judged"
    assert rows["eviction.after-five-minutes-unreachable"][at["process fast"]] == "scaled"
    assert rows["eviction.after-five-minutes-unreachable"][at["process documented"]] == "judged"
    assert not any("planned" in cells for cells in rows.values())
