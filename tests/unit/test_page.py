"""The verdict page: its order, its links, and what it says of malformed files."""

from __future__ import annotations

import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Measured, Verdict, conforms
from nodeproof.report import page, rundir
from nodeproof.report.sections import SECTIONS, sections
from tests.unit import synthetic_runs
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    CUT,
    DEFAULT,
    DETECTION,
    DEVIATES,
    FACTS,
    GAP,
    LACKS,
    OTHER,
    ROWS,
    SWAP,
    TAINT,
    WINDOW,
    tell,
)

VOID = {"meta", "link", "br", "img"}


class Read(HTMLParser):
    """The parts of a page that a browser would show."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.bare: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store an opened tag."""
        attributes = dict(attrs)
        self.tags.append(tag)
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [attributes["href"] or ""] if tag == "a" else []
        self.loads += [
            attributes[name] or "" for name in ("src", "href") if name in attributes and tag != "a"
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Assert that the last opened tag is closed."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Store text outside of every `bdi`, except for the title."""
        if {"bdi", "title"}.isdisjoint(self.open):
            self.bare.append(data)


def shown(run: Path) -> tuple[str, Read]:
    """Return the page of a run as text, and parsed."""
    text = page.write(run, CLAIMS).read_text()
    read = Read()
    read.feed(text)
    assert read.open == []
    assert "script" not in read.tags
    assert read.loads == ["data:,"]
    inside = {link.removeprefix("#") for link in read.links if link.startswith("#")}
    assert inside <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))
    levels = [int(tag[1]) for tag in read.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
    return text, read


def test_every_area_of_the_catalogue_has_a_heading_of_the_page() -> None:
    areas = [area for section in SECTIONS for area in section.areas]
    assert set(areas) == {claim.area for claim in CLAIMS.values()}
    assert len(areas) == len(set(areas))
    assert [section.title for section in sections(["ours"])][-1] == "Not on the page: ours"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a run with `ROWS`."""
    return shown(tell(tmp_path_factory.mktemp("page") / "run", ROWS))[0]


def test_deviations_come_first_then_unproven_claims_then_the_page(text: str) -> None:
    parts = dict(re.findall(r'<h2 id="(\w+)">(.*?)(?=<h2|$)', text, re.DOTALL))
    assert [*parts] == ["deviates", "unproven", "differs", "page", "run"]
    for expected in (
        CLAIMS[TAINT].statement,
        "came 15.2 s after: too late",
        "15.200 s",
        "[G, G + 2P + slack] = [12.00, 14.62] s",
        "node node-1: Ready=True",
    ):
        assert expected in parts["deviates"]
    should, cannot = parts["unproven"].split("This lab, profile or version cannot")
    for part, reason, claim in ((should, GAP.reason, DEFAULT), (cannot, LACKS.reason, SWAP)):
        assert reason in part
        assert claim in part
    assert "the page says 40 s, v1.36.3 has 50 s" in parts["differs"]
    assert DETECTION in parts["differs"]
    assert TAINT not in parts["differs"]


@pytest.mark.parametrize(
    "expected",
    [
        "v1.36.3",
        "process, fast",
        "slack 0.25 s in the median, 0.30 s at most (limit 1 s)",
        "6 min 2 s",
        "</span> 1 deviates<",
        "</span> 1 should have been proven<",
        "</span> 1 cannot be proven here<",
        "</span> 1 conforms<",
        "1 setting of the lab is not upstream's",
        f"{len(CLAIMS) - 4} not judged",
        "v1.18, v1.24, v1.26 word it otherwise: <bdi>40 s</bdi>",
    ],
)
def test_page_shows_the_facts_of_the_run_and_counts(text: str, expected: str) -> None:
    assert expected in text


def test_each_code_in_use_is_explained(text: str) -> None:
    assert set(page.MEANINGS) == set(get_args(Code)) - {""}
    assert {code for code in page.MEANINGS if f"<dt>{code}</dt>" in text} == {"gap", "lab-lacks"}


def test_deviation_shows_since_when(tmp_path: Path) -> None:
    tell(tmp_path / "before", ROWS, replace(FACTS, began="2026-11-01T02:00:00+00:00"))
    text, _read = shown(tell(tmp_path / "run", ROWS))
    assert "since 2026-11-01 02:00 UTC (run before), in 2 consecutive runs" in text


def words(text: str, claim: str) -> str:
    """Return the visible text about a claim below the page's headings."""
    entry = text.partition(f'id="{claim}"')[2].partition('<li class="claim')[0]
    inline = re.sub(r"</?(?:span|a|code|bdi)\b[^>]*>", "", f"<p{entry}")
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", inline)).split())


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (CONFORMS, "measured 13.100 s, allowed [12.00, 14.62] s: came 13.1 s after"),
        (conforms("it did not come", WINDOW, Measured("none")), "allowed [12.00, 14.62] s: it did not come"),
        (conforms("PATCH of admin is 200", measured=Measured("200")), "PATCH of admin is 200"),
        (conforms("a claim came 2 times", measured=Measured(2.0)), "a claim came 2 times"),
        (conforms("all came at once", measured=Measured(2.0)), "measured 2.000: all came at once"),
        (conforms("never came for 5 s", WINDOW), "allowed [12.00, 14.62] s: never came for 5 s"),
        (DEVIATES, "measured 15.200 s, allowed [12.00, 14.62] s: came 15.2 s after: too late"),
    ],
)
def test_row_shows_each_measurement_once(tmp_path: Path, verdict: Verdict, expected: str) -> None:
    text, _read = shown(tell(tmp_path / "run", [(CUT, TAINT, verdict)]))
    assert f"no version of the page says it {expected} in A cut node is found" in words(text, TAINT)


def test_claim_without_a_verdict_has_a_reason(tmp_path: Path) -> None:
    facts = replace(FACTS, selected=("cordon.blocks-new-pods", TAINT))
    text, _read = shown(tell(tmp_path / "run", [(CUT, TAINT, CONFORMS)], facts))
    assert "It was to be judged, and the run has no verdict on it." in text
    assert "not-applicable: " in text
    assert "Not part of this run." in text


def test_scenarios_link_to_their_timeline_and_last_try_in_allure(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS)
    for began, uuid in enumerate(("first", "last")):
        result = {"uuid": uuid, "start": began, "labels": [{"name": "scenario", "value": CUT}]}
        (run / "allure-results" / f"{uuid}-result.json").write_text(json.dumps(result))
    (run / "allure-results" / "half-result.json").write_text("{")
    _text, read = shown(run)
    assert f"../scenarios/{rundir.slug(CUT)}/timeline.svg" in read.links
    assert not [link for link in read.links if link.startswith("index.html")]
    (run / "site" / "index.html").write_text("")
    _text, read = shown(run)
    assert f"index.html#{hashlib.md5(b'last', usedforsecurity=False).hexdigest()}" in read.links
    assert all((run / "site" / link).exists() for link in read.links if link.startswith(".."))


@pytest.mark.parametrize("file", ["run.json", "verdicts.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", '[{"claim": 1}]', '{"began": 3}'])
def test_torn_file_is_reported(tmp_path: Path, file: str, content: str) -> None:
    run = tell(tmp_path / "run", ROWS)
    (run / file).write_text(content)
    assert "This run is not whole" in shown(run)[0]


NO_NUMBERS: list[object] = ["x", None, [], {}]
MALFORMED_ROWS: list[dict[str, object]] = [
    {"window": {}}, {"measured": "x"}, {"page": {}}, {"page": 7}, {"reason": None}, {"claim": 3},
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "changed", "expected"),
    [
        *(("verdicts.json", row, "1 verdict is malformed and left out") for row in MALFORMED_ROWS),
        ("verdicts.json", {"scenario": "s.py::test_\ud800", "reason": "\ud800"}, "<bdi>?</bdi>"),
        ("run.json", {"began": "yesterday", "components": {"kubelet": 3}}, "a file of the run is malformed"),
        *(("run.json", {"format": format_}, "a file of the run is malformed") for format_ in NO_NUMBERS),
    ],
)
def test_malformed_value_is_reported(
    tmp_path: Path, file: str, changed: dict[str, object], expected: str
) -> None:
    run = tell(tmp_path / "run", ROWS)
    if file == "run.json":
        (run / file).write_text(json.dumps({**json.loads((run / file).read_text()), **changed}))
    else:
        synthetic_runs.alter(run / file, **changed)
    assert expected in shown(run)[0]


def test_killed_run_shows_the_scenarios_that_ended(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS, None)
    (rundir.scenario_dir(run, OTHER) / "judgments.json").write_text("{")
    text, _read = shown(run)
    assert "A scenario&#39;s verdicts are lost" in text
    assert "1 deviate" in text


def test_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS, replace(FACTS, format=rundir.FORMAT + 1))
    with pytest.raises(Problem, match="written by a newer nodeproof"):
        page.write(run, CLAIMS)


def test_claim_missing_in_the_catalogue_is_shown(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS)
    synthetic_runs.alter(run / "verdicts.json", claim="gone.for-good")
    text, _read = shown(run)
    assert "gone.for-good (not in this catalogue)" in text
    assert "Not on the page: gone" in text
