"""The page about versions: verdicts, defaults and times that differ, and where the page was true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.versions import in_order, reusable
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Verdict, conforms, unproven
from nodeproof.model.window import Window
from nodeproof.report import comparison, digest
from nodeproof.report.digest import Digest
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DETECTION, DEVIATES, FACTS, TAINT, measured, tell

SCENARIO = "a.py::test_a"
OLD, NEW = "v1.31.9", "v1.36.3"
NOT_YET = unproven("not-applicable", "the claim holds for >=1.32")


def runs_of(folder: Path, claim: str, *verdicts: Verdict) -> list[Digest]:
    """Return runs of one claim on an old and a new version."""
    return [
        digest.read(
            tell(folder / version, [(SCENARIO, claim, verdict)], replace(FACTS, kubernetes_version=version))
        )
        for version, verdict in zip((OLD, NEW), verdicts, strict=True)
    ]


def render(folder: Path, claim: str, *verdicts: Verdict) -> str:
    """Return the page about one claim on an old and a new version."""
    runs = runs_of(folder, claim, *verdicts)
    return comparison.versions_markdown(comparison.compare(runs, CLAIMS))


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("after", "is_shown"), [(CONFORMS, False), (DEVIATES, True)])
def test_page_shows_verdicts_that_differ(tmp_path: Path, after: Verdict, is_shown: bool) -> None:
    differing = section(render(tmp_path, TAINT, CONFORMS, after), "Verdicts that differ")
    assert (TAINT in differing) is is_shown
    assert (DEVIATES.reason in differing) is is_shown


def test_claim_of_later_versions_names_its_versions_and_sources(tmp_path: Path) -> None:
    differing = section(render(tmp_path, TAINT, NOT_YET, CONFORMS), "Verdicts that differ")
    claim = CLAIMS[TAINT]
    assert claim.versions in differing
    assert all(source.partition(":")[0] in differing for source in claim.sources)


def test_page_shows_changed_defaults_with_their_source(tmp_path: Path) -> None:
    defaults = section(render(tmp_path, DETECTION, CONFORMS, CONFORMS), "Defaults that differ")
    assert "40 s" in defaults
    assert "50 s" in defaults
    assert "pkg/controller/nodelifecycle" in defaults


@pytest.mark.parametrize(("after_s", "is_shown"), [(40.5, False), (52.0, True)])
def test_page_shows_medians_that_differ_by_more_than_noise(
    tmp_path: Path, after_s: float, is_shown: bool
) -> None:
    medians = section(
        render(tmp_path, DETECTION, measured(40.0), measured(after_s)), "Median times that differ"
    )
    assert (DETECTION in medians) is is_shown


@pytest.mark.parametrize(
    ("minor", "is_shown"), [("1.31", False), ("1.32", True), ("1.36", True), ("1.37", False)]
)
def test_page_shows_changes_between_the_versions_of_the_runs(
    tmp_path: Path, minor: str, is_shown: bool
) -> None:
    claims = {TAINT: replace(CLAIMS[TAINT], changed={minor: "another event (PR 1)"})}
    runs = runs_of(tmp_path, TAINT, CONFORMS, CONFORMS)
    changes = section(
        comparison.versions_markdown(comparison.compare(runs, claims)), "Changes that no verdict shows"
    )
    assert ("another event (PR 1)" in changes) is is_shown


def test_sentence_is_true_of_the_versions_it_holds_for() -> None:
    page: dict[str, bool | str] = {
        "v1.24": True,
        "v1.26": "variant: says so too",
        "v1.27": "moved: elsewhere",
        "v1.28": False,
    }
    claims = {TAINT: replace(CLAIMS[TAINT], versions=">=1.26", page=page)}
    ((_claim, truths),) = comparison.untrue_sentences(claims)
    assert truths == {"v1.24": False, "v1.26": True, "v1.27": None, "v1.28": None}


def test_page_leaves_out_medians_that_one_window_admits(tmp_path: Path) -> None:
    window = Window(0.0, 20.0, 0.0, "period", "0", "20")
    times = [conforms("came", window, Measured(time_s, "s")) for time_s in (3.0, 17.0)]
    assert DETECTION not in section(render(tmp_path, DETECTION, *times), "Median times that differ")


@pytest.mark.parametrize(
    ("page", "is_shown"), [({"v1.28": True}, False), ({"v1.28": "differs: says the contrary"}, True)]
)
def test_only_sentences_that_were_not_true_are_shown(page: Mapping[str, bool | str], is_shown: bool) -> None:
    claims = {TAINT: replace(CLAIMS[TAINT], page=page)}
    assert bool(list(comparison.untrue_sentences(claims))) is is_shown


def run_with(folder: Path, version: str, **changed: Any) -> Digest:
    """Return a run of a version with other facts; `ended=""` makes it one that was killed."""
    facts = replace(FACTS, kubernetes_version=version, **changed)
    return digest.read(tell(folder / str(len([*folder.iterdir()])), [(SCENARIO, TAINT, CONFORMS)], facts))


def test_runs_are_ordered_by_version_not_by_text(tmp_path: Path) -> None:
    runs = [run_with(tmp_path, version) for version in ("v1.37.2", "v1.36.10", "v1.36.3")]
    assert [run.kubernetes_version for run in in_order(runs)] == ["v1.36.3", "v1.36.10", "v1.37.2"]


@pytest.mark.parametrize(
    ("version", "changed", "reason"),
    [
        (OLD, {"ended": ""}, "not whole"),
        (OLD, {"profile": "documented"}, "documented is not process fast"),
        (OLD, {"overrides": ("--set kubelet.maxPods=50",)}, "maxPods=50 is not"),
        (NEW, {}, "two runs"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(
    tmp_path: Path, version: str, changed: Mapping[str, Any], reason: str
) -> None:
    runs = [run_with(tmp_path, NEW), run_with(tmp_path, version, **changed)]
    with pytest.raises(Problem, match=reason):
        in_order(runs)


def test_only_a_whole_run_of_the_same_setup_is_reused(tmp_path: Path) -> None:
    run = run_with(tmp_path, NEW)
    others = [
        run_with(tmp_path, OLD),
        run_with(tmp_path, NEW, lab="libvirt"),
        run_with(tmp_path, NEW, overrides=("--set kubelet.maxPods=50",)),
        run_with(tmp_path, NEW, ended=""),
    ]
    assert reusable([run, *others], (NEW, "process", "fast")) is run
    assert reusable(others, (NEW, "process", "fast")) is None
