"""The page, judged: what is first on it, what it links to, and that nobody's text becomes markup."""

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
from nodeproof.report import compare, digest, matrix, page, publish, rundir, summary
from nodeproof.report.sections import SECTIONS, sections
from tests.freeze import RUNS, thawed
from tests.unit import told_runs
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, LACKS, WINDOW, tell

CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
DETECTION, DEFAULT, TAINT, SWAP = (
    "monitoring.detection-time",
    "monitoring.grace-period-default",
    "cordon.taint",
    "swap.fail-on-default",
)
SERVICES = "manual-node.healthy-means-all-services"
TOLD = [
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
    """What a browser would see, as far as it matters here."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is opened."""
        told = dict(attrs)
        self.tags.append(tag)
        self.ids += [told["id"] or ""] if "id" in told else []
        self.links += [told["href"] or ""] if tag == "a" else []
        self.loads += [told[name] or "" for name in ("src", "href") if name in told and tag != "a"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """What is closed is what was opened last."""
        assert self.open.pop() == tag


def shown(run: Path) -> tuple[str, Read]:
    """The page of a run as text, and read."""
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


def test_every_area_of_the_catalogue_stands_under_a_heading_of_the_page() -> None:
    areas = [area for section in SECTIONS for area in section.areas]
    assert set(areas) == {claim.area for claim in CLAIMS.values()}
    assert len(areas) == len(set(areas))
    assert [section.title for section in sections(["ours"])][-1] == "Not of the page: ours"


def test_what_deviates_comes_first_then_what_is_unproven_then_the_page(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", TOLD))
    assert [*re.findall(r'<h2 id="(.*?)">', text)] == ["deviates", "unproven", "differs", "page", "run"]
    parts = dict(re.findall(r'<h2 id="(\w+)">(.*?)(?=<h2|$)', text, re.DOTALL))
    assert "came 15.2 s after: too late" in parts["deviates"]
    assert "15.200 s" in parts["deviates"]
    assert "[G, G + 2P + slack] = [12.00, 14.62] s" in parts["deviates"]
    assert "node node-1: Ready=True" in parts["deviates"]
    assert CLAIMS[TAINT].statement in parts["deviates"]
    should, cannot = parts["unproven"].split("This lab, profile or version cannot")
    assert "the watch of leases was blind" in should
    assert "this lab has no systemd" in cannot
    assert DEFAULT in should
    assert SWAP in cannot


def test_it_says_version_lab_profile_load_and_counts(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", TOLD))
    for said in (
        "v1.36.3",
        "process, fast",
        "slack 0.30 s in the median, 0.40 s at most (limit 1 s)",
        "6 min 2 s",
    ):
        assert said in text
    for count in ("1 deviates", "1 should have been proven", "1 cannot be proven here", "1 conforms"):
        assert f"</span> {count}<" in text
    assert "1 setting of the lab is not upstream's" in text
    assert f"{len(CLAIMS) - 4} not judged" in text


def test_each_code_that_occurs_is_explained(tmp_path: Path) -> None:
    assert set(page.MEANINGS) == set(get_args(Code)) - {""}
    text, _read = shown(tell(tmp_path / "run", TOLD))
    assert {code for code in page.MEANINGS if f"<dt>{code}</dt>" in text} == {"gap", "lab-lacks"}


def test_drift_is_told_apart_from_deviations(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", TOLD))
    differs = text.partition('<h2 id="differs">')[2].partition("<h2")[0]
    assert "the page says 40 s, v1.36.3 has 50 s" in differs
    assert DETECTION in differs
    assert TAINT not in differs


def test_a_deviation_says_since_when(tmp_path: Path) -> None:
    tell(tmp_path / "before", TOLD, replace(FACTS, began="2026-11-01T02:00:00+00:00"))
    text, _read = shown(tell(tmp_path / "run", TOLD))
    assert "since 2026-11-01 02:00 UTC (run before), in 2 runs one after the other" in text


def test_each_claim_says_which_versions_of_the_page_say_it(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", TOLD))
    entry = text.partition(f'id="{DETECTION}"')[2].partition('<li class="claim')[0]
    assert "v1.18, v1.24, v1.26 word it otherwise: <bdi>40 s</bdi>" in entry
    assert "measured" in entry
    assert "allowed [12.00, 14.62] s" in entry


def words(text: str, claim: str) -> str:
    """What a reader sees of a claim below the page's headings, without markup."""
    entry = text.partition(f'id="{claim}"')[2].partition('<li class="claim')[0]
    inline = re.sub(r"</?(?:span|a|code|bdi)\b[^>]*>", "", f"<p{entry}")
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", inline)).split())


def test_what_did_not_come_stands_apart_from_its_window(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "run", [(CUT, TAINT, conforms("never came for 5 s", WINDOW))]))
    assert "allowed [12.00, 14.62] s: never came for 5 s in A cut node is found" in words(text, TAINT)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (CONFORMS, "measured 13.100 s, allowed [12.00, 14.62] s: came 13.1 s after"),
        (conforms("it did not come", WINDOW, Measured("none")), "allowed [12.00, 14.62] s: it did not come"),
        (conforms("PATCH of admin is 200", measured=Measured("200")), "PATCH of admin is 200"),
        (conforms("a claim came 2 times", measured=Measured(2.0)), "a claim came 2 times"),
        (conforms("all came at once", measured=Measured(2.0)), "measured 2.000: all came at once"),
        (DEVIATES, "measured 15.200 s, allowed [12.00, 14.62] s: came 15.2 s after: too late"),
    ],
)
def test_a_row_says_what_was_measured_and_nothing_twice(tmp_path: Path, verdict: Verdict, said: str) -> None:
    text, _read = shown(tell(tmp_path / "run", [(CUT, TAINT, verdict)]))
    assert f"no version of the page says it {said} in A cut node is found" in words(text, TAINT)


def test_what_the_catalogue_remarks_on_a_version_of_the_page_reads_well(tmp_path: Path) -> None:
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


def test_a_claim_without_a_verdict_says_why(tmp_path: Path) -> None:
    facts = replace(FACTS, selected=("cordon.blocks-new-pods", TAINT))
    text, _read = shown(tell(tmp_path / "run", [(CUT, TAINT, CONFORMS)], facts))
    assert "It was to be judged, and the run has no verdict on it." in text
    assert "not-applicable: " in text
    assert "Not part of this run." in text


def test_scenarios_link_to_their_timeline_and_to_the_last_try_in_allure(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD)
    for began, uuid in enumerate(("first", "last")):
        told = {"uuid": uuid, "name": "test_a_cut_node_is_found", "start": began}
        told["fullName"] = "scenarios.partition.test_unreachable#test_a_cut_node_is_found"
        (run / "allure-results" / f"{uuid}-result.json").write_text(json.dumps(told))
    (run / "allure-results" / "half-result.json").write_text("{")
    _text, read = shown(run)
    assert f"../scenarios/{rundir.slug(CUT)}/timeline.svg" in read.links
    assert not [link for link in read.links if link.startswith("index.html")]
    (run / "site" / "index.html").write_text("")
    _text, read = shown(run)
    assert f"index.html#{hashlib.md5(b'last', usedforsecurity=False).hexdigest()}" in read.links
    assert all((run / "site" / link).exists() for link in read.links if link.startswith(".."))


def test_nobodys_text_becomes_markup(tmp_path: Path) -> None:
    long = SCRIPT + RIGHT_TO_LEFT + "x" * 10_000
    scenario = f"scenarios/test_x.py::test_{long}"
    told = [
        (scenario, DETECTION, deviates(long, WINDOW, Measured(long), long)),
        (scenario, TAINT, unproven("gap", long)),
        (scenario, SWAP, unproven("scaled", long)),
        (scenario, DEFAULT, conforms(long)),
    ]
    run = tell(
        tmp_path / f"run {SCRIPT.replace('/', '')}", told, replace(FACTS, command=long, exit_reason=long)
    )
    text, _read = shown(run)
    assert "&lt;script&gt;" in text
    assert "<summary><bdi>" in text


class Isolated(HTMLParser):
    """The texts of a page that are outside of every `bdi`, but for its title."""

    def __init__(self) -> None:
        super().__init__()
        self.around: list[str] = []
        self.bare: list[str] = []

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        """Note what is opened."""
        if tag in ("bdi", "title"):
            self.around.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note what is closed."""
        if self.around and self.around[-1] == tag:
            self.around.pop()

    def handle_data(self, data: str) -> None:
        """Keep what is in none."""
        if not self.around:
            self.bare.append(data)


def test_a_text_of_others_turns_the_direction_of_no_other(tmp_path: Path) -> None:
    scenario = f"scenarios/test_x.py::test_{RIGHT_TO_LEFT}"
    told = [
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
    run = tell(tmp_path / f"run {RIGHT_TO_LEFT}", told, facts)
    found = digest.read(run)
    across = matrix.in_html(matrix.matrix([found], CLAIMS), tmp_path)
    publish.publish(tmp_path / "site", [run], CLAIMS)
    for text in (page.render(found, CLAIMS), across, (tmp_path / "site" / "index.html").read_text()):
        read = Isolated()
        read.feed(text)
        assert RIGHT_TO_LEFT in text
        assert [part for part in read.bare if "\u202e" in part] == []


def test_half_a_surrogate_pair_is_no_reason_to_fail(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD)
    told_runs.alter(run / "verdicts.json", scenario="s.py::test_\ud800", reason="\ud800")
    shown(run)


@pytest.mark.parametrize("gone", ["run.json", "verdicts.json", "scenarios"])
def test_a_half_written_run_has_a_page_that_says_so(tmp_path: Path, gone: str) -> None:
    run = tell(tmp_path / "run", TOLD)
    (run / gone).rename(tmp_path / "gone")
    text, _read = shown(run)
    assert ("This run is not whole" in text) == (gone != "scenarios")
    assert "came 15.2 s after: too late" in text


@pytest.mark.parametrize("file", ["run.json", "verdicts.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", '[{"claim": 1}]', '{"began": 3}'])
def test_a_file_that_is_torn_or_edited_is_told_of(tmp_path: Path, file: str, content: str) -> None:
    run = tell(tmp_path / "run", TOLD)
    (run / file).write_text(content)
    text, _read = shown(run)
    assert "This run is not whole" in text


@pytest.mark.parametrize(
    "changed", [{"window": {}}, {"measured": "x"}, {"page": {}}, {"reason": None}, {"claim": 3}, {"page": 7}]
)
def test_a_malformed_row_is_left_out_and_told_of(tmp_path: Path, changed: dict[str, object]) -> None:
    run = tell(tmp_path / "run", TOLD)
    told_runs.alter(run / "verdicts.json", **changed)
    text, _read = shown(run)
    assert "1 verdict is malformed and left out" in text


def test_facts_of_other_types_are_told_of(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "began": "yesterday", "components": {"kubelet": 3}}))
    text, _read = shown(run)
    assert "run.json is malformed" in text


@pytest.mark.parametrize("number", ["x", None, [], {}])
def test_a_format_that_is_no_number_is_malformed(tmp_path: Path, number: object) -> None:
    run = tell(tmp_path / "run", TOLD)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "format": number}))
    text, _read = shown(run)
    assert "a file of the run is malformed" in text
    assert "This run is not whole" in text


def test_a_run_that_was_killed_tells_of_the_scenarios_that_ended(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD, None)
    (rundir.scenario_dir(run, f"{CUT}_2") / "judgments.json").write_text("{")
    text, _read = shown(run)
    assert "A scenario&#39;s verdicts are lost" in text
    assert "1 deviate" in text


def test_an_empty_run_and_one_that_broke_off_say_so(tmp_path: Path) -> None:
    text, _read = shown(tell(tmp_path / "empty", []))
    assert "No scenario left a verdict." in text
    assert "Nothing was judged." in text
    broken = replace(FACTS, exit_reason="kube-apiserver exited 1")
    text, _read = shown(tell(tmp_path / "broken", TOLD, broken))
    assert "The run broke off: kube-apiserver exited 1" in text
    text, _read = shown(tell(tmp_path / "open", TOLD, replace(FACTS, ended="")))
    assert "The run has no end" in text


def test_a_folder_that_is_no_run_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Problem, match="no run's folder"):
        page.write(tmp_path, CLAIMS)
    assert cli.main(["page", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD, replace(FACTS, format=rundir.FORMAT + 1))
    with pytest.raises(Problem, match="written by a newer nodeproof"):
        page.write(run, CLAIMS)


def test_what_logs_and_recordings_hold_is_on_no_page(tmp_path: Path) -> None:
    canary = "-----BEGIN PRIVATE KEY----- canary"
    run = tell(tmp_path / "run", TOLD, replace(FACTS, exit_reason=f"etcd exited 1\n{canary}"))
    (run / "labs" / "p-1").mkdir()
    for path in (run / "labs" / "p-1" / "etcd.log", rundir.scenario_dir(run, CUT) / "history.jsonl"):
        path.write_text(canary)
    configured = rundir.scenario_dir(run, CUT) / "configuration.json"
    told = json.loads(configured.read_text())
    configured.write_text(
        json.dumps({**told, "flags_set": {"kubelet": {"token": canary}}, "reported": {"x": canary}})
    )
    found = digest.read(run)
    pages = (
        page.render(found, CLAIMS),
        summary.render(found, CLAIMS),
        compare.render(compare.compare(found, found, CLAIMS)),
        matrix.in_markdown_table(matrix.matrix([found], CLAIMS)),
    )
    assert not [text for text in pages if "canary" in text]
    assert all("etcd exited 1" in text for text in pages)


def test_the_command_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tell(tmp_path / "run", TOLD)
    assert cli.main(["page", str(run)]) == 0
    assert Path(capsys.readouterr().out.strip()) == run / "site" / page.FILE


def test_a_claim_that_the_catalogue_lost_is_shown_all_the_same(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD)
    told_runs.alter(run / "verdicts.json", claim="gone.for-good")
    text, _read = shown(run)
    assert "gone.for-good (not in this catalogue)" in text
    assert "Not of the page: gone" in text


def test_a_frozen_run_has_a_page(tmp_path: Path) -> None:
    run = rundir.create(tmp_path / "run")
    with thawed(RUNS / "unreachable") as scenario:
        shutil.copytree(scenario.folder, run / "scenarios" / rundir.slug(scenario.nodeid))
    text, read = shown(run)
    assert "Pods leave a partitioned node after their own toleration" in text
    assert len([link for link in read.links if link == "#deviates"]) == 1


def test_three_hundred_scenarios_are_a_small_page(tmp_path: Path) -> None:
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
    told = [(f"scenarios/t.py::test_{n}", judged[n % len(judged)], CONFORMS) for n in range(300)]
    run = tell(tmp_path / "run", told)
    began = time.thread_time()
    assert page.write(run, CLAIMS).stat().st_size < 2e6
    assert time.thread_time() - began < 5.0


def test_the_states_of_a_claim(tmp_path: Path) -> None:
    found = digest.read(tell(tmp_path / "run", TOLD))
    states = {entry.id: entry.state for entry in digest.entries(found, CLAIMS) if entry.rows}
    assert states == {DETECTION: "conforms", TAINT: "deviates", DEFAULT: "open", SWAP: "skipped"}
