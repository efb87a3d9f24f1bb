"""The verdict page: its order, its links, and escaped foreign text."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from nodeproof import cli
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Measured, Verdict, conforms, deviates, unproven
from nodeproof.report import comparison, digest, junit, page, publish, rundir, tables
from nodeproof.report.sections import SECTIONS, sections
from tests.golden_runs import RUNS, thawed
from tests.unit import synthetic_runs
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    DEFAULT,
    DETECTION,
    DEVIATES,
    FACTS,
    GAP,
    LACKS,
    SWAP,
    TAINT,
    WINDOW,
    tell,
)

CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
SERVICES = "manual-node.healthy-means-all-services"
ROWS = [
    (CUT, DETECTION, CONFORMS),
    (CUT, TAINT, DEVIATES),
    (f"{CUT}_2", DEFAULT, GAP),
    (f"{CUT}_3", SWAP, LACKS),
]
SCRIPT, RIGHT_TO_LEFT = (
    "<script>alert('x')</script>",
    "\u202e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
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
    assert [section.title for section in sections(["ours"])][-1] == "Not of the page: ours"


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
        "slack 0.30 s in the median, 0.40 s at most (limit 1 s)",
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


def test_settings_of_the_user_are_shown_beside_the_version(tmp_path: Path) -> None:
    own = "--set kubelet.x=<b>"
    run = tell(tmp_path / "run", ROWS, replace(FACTS, overrides=(own,)))
    assert "--set kubelet.x=&lt;b&gt;" in shown(run)[0]
    assert own in tables.summary(digest.read(run), CLAIMS).partition("\n")[0]
    assert 'name="set" value="--set kubelet.x=&lt;b&gt;"' in junit.render(digest.read(run), CLAIMS)


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


def test_remarks_on_a_page_version_are_readable(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", [(CUT, SERVICES, CONFORMS)]))
    assert "v1.18, v1.24, v1.26, v1.28 say otherwise: it is healthy only if all necessary" in words(
        text, SERVICES
    )
    differs = text.partition('<h2 id="differs">')[2].partition("<h2")[0]
    assert "the page says that it is healthy only if all necessary services run" in differs
    remarks = " ".join(words(text, claim) for claim in CLAIMS)
    for jargon in ("variant:", "moved:", "true (", "differs:"):
        assert jargon not in remarks
    assert "v1.28 has it elsewhere: on the linked" in remarks
    assert "v1.26 says so: a mistranslation adds" in remarks


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


def test_foreign_text_never_becomes_markup(tmp_path: Path) -> None:
    long = SCRIPT + RIGHT_TO_LEFT + "x" * 10_000
    scenario = f"scenarios/test_x.py::test_{long}"
    rows = [
        (scenario, DETECTION, deviates(long, WINDOW, Measured(long), long)),
        (scenario, TAINT, unproven("gap", long)),
        (scenario, SWAP, unproven("scaled", long)),
        (scenario, DEFAULT, conforms(long)),
    ]
    run = tell(
        tmp_path / f"run {SCRIPT.replace('/', '')}", rows, replace(FACTS, command=long, exit_reason=long)
    )
    text, _read = shown(run)
    assert "&lt;script&gt;" in text
    assert "<summary><bdi>" in text


def test_foreign_text_does_not_change_the_direction_of_other_text(tmp_path: Path) -> None:
    scenario = f"scenarios/test_x.py::test_{RIGHT_TO_LEFT}"
    rows = [
        (scenario, DETECTION, deviates(RIGHT_TO_LEFT, WINDOW, Measured(RIGHT_TO_LEFT), RIGHT_TO_LEFT)),
        (scenario, TAINT, unproven("gap", RIGHT_TO_LEFT)),
        (scenario, SWAP, unproven("scaled", RIGHT_TO_LEFT)),
        (scenario, DEFAULT, conforms(RIGHT_TO_LEFT, WINDOW, Measured(RIGHT_TO_LEFT, RIGHT_TO_LEFT))),
    ]
    facts = replace(
        FACTS,
        lab=RIGHT_TO_LEFT,
        profile=RIGHT_TO_LEFT,
        kubernetes_version=RIGHT_TO_LEFT,
        command=RIGHT_TO_LEFT,
        exit_reason=RIGHT_TO_LEFT,
        settings=(RIGHT_TO_LEFT,),
        quarantined=(RIGHT_TO_LEFT,),
        selected=(RIGHT_TO_LEFT,),
        components={RIGHT_TO_LEFT: {"version": RIGHT_TO_LEFT, "origin": RIGHT_TO_LEFT}},
    )
    run = tell(tmp_path / f"run {RIGHT_TO_LEFT}", rows, facts)
    run_digest = digest.read(run)
    across = comparison.matrix_html(comparison.compare([run_digest], CLAIMS), tmp_path)
    publish.publish(tmp_path / "site", [run], CLAIMS)
    for text in (page.render(run_digest, CLAIMS), across, (tmp_path / "site" / "index.html").read_text()):
        read = Read()
        read.feed(text)
        assert RIGHT_TO_LEFT in text
        assert [part for part in read.bare if "\u202e" in part] == []


@pytest.mark.parametrize("gone", ["run.json", "verdicts.json", "scenarios"])
def test_incomplete_run_has_a_page_that_says_so(tmp_path: Path, gone: str) -> None:
    run = tell(tmp_path / "run", ROWS)
    (run / gone).rename(tmp_path / "gone")
    text, _read = shown(run)
    assert ("This run is not whole" in text) == (gone != "scenarios")
    assert "came 15.2 s after: too late" in text


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
    (rundir.scenario_dir(run, f"{CUT}_2") / "judgments.json").write_text("{")
    text, _read = shown(run)
    assert "A scenario&#39;s verdicts are lost" in text
    assert "1 deviate" in text


def test_empty_and_aborted_runs_say_so(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "empty", []))
    assert "No scenario left a verdict." in text
    assert "Nothing was judged." in text
    broken = replace(FACTS, exit_reason="kube-apiserver exited 1")
    text, _read = shown(tell(tmp_path / "broken", ROWS, broken))
    assert "The run broke off: kube-apiserver exited 1" in text
    text, _read = shown(tell(tmp_path / "open", ROWS, replace(FACTS, ended="")))
    assert "The run has no end" in text


def test_command_writes_the_page_and_fails_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tell(tmp_path / "run", ROWS)
    assert cli.main(["page", str(run)]) == 0
    assert Path(capsys.readouterr().out.strip()) == run / "site" / page.FILE
    with pytest.raises(Problem, match="no run's folder"):
        page.write(tmp_path, CLAIMS)
    assert cli.main(["page", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS, replace(FACTS, format=rundir.FORMAT + 1))
    with pytest.raises(Problem, match="written by a newer nodeproof"):
        page.write(run, CLAIMS)


def test_content_of_logs_and_recordings_is_on_no_page(tmp_path: Path) -> None:
    canary = "-----BEGIN PRIVATE KEY----- canary"
    run = tell(tmp_path / "run", ROWS, replace(FACTS, exit_reason=f"etcd exited 1\n{canary}"))
    (run / "labs" / "p-1").mkdir()
    for path in (run / "labs" / "p-1" / "etcd.log", rundir.scenario_dir(run, CUT) / "history.jsonl"):
        path.write_text(canary)
    configured = rundir.scenario_dir(run, CUT) / "configuration.json"
    configuration = json.loads(configured.read_text())
    configured.write_text(
        json.dumps({**configuration, "flags_set": {"kubelet": {"token": canary}}, "reported": {"x": canary}})
    )
    run_digest = digest.read(run)
    pages = (
        page.render(run_digest, CLAIMS),
        tables.summary(run_digest, CLAIMS),
        comparison.changes_text(comparison.compare([run_digest, run_digest], CLAIMS)),
        comparison.matrix_markdown(comparison.compare([run_digest], CLAIMS)),
    )
    assert not [text for text in pages if "canary" in text]
    assert all("etcd exited 1" in text for text in pages)


def test_claim_missing_in_the_catalogue_is_shown(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS)
    synthetic_runs.alter(run / "verdicts.json", claim="gone.for-good")
    text, _read = shown(run)
    assert "gone.for-good (not in this catalogue)" in text
    assert "Not of the page: gone" in text


def test_frozen_run_has_a_page(tmp_path: Path) -> None:
    run = rundir.create(tmp_path / "run")
    with thawed(RUNS / "unreachable") as scenario:
        shutil.copytree(scenario.folder, run / "scenarios" / rundir.slug(scenario.nodeid))
    text, read = shown(run)
    assert "Pods leave a partitioned node after their own toleration" in text
    assert len([link for link in read.links if link == "#deviates"]) == 1


def test_three_hundred_scenarios_are_a_small_page(tmp_path: Path) -> None:
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
    rows = [(f"scenarios/t.py::test_{n}", judged[n % len(judged)], CONFORMS) for n in range(300)]
    run = tell(tmp_path / "run", rows)
    began = time.thread_time()
    assert page.write(run, CLAIMS).stat().st_size < 2e6
    assert time.thread_time() - began < 5.0


def test_states_of_a_claim_are_distinguished(tmp_path: Path) -> None:
    run_digest = digest.read(tell(tmp_path / "run", ROWS))
    states = {entry.id: entry.state for entry in digest.entries(run_digest, CLAIMS) if entry.rows}
    assert states == {DETECTION: "conforms", TAINT: "deviates", DEFAULT: "open", SWAP: "skipped"}
