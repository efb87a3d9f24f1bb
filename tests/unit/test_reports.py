"""Reports of a run: the verdict page, tables, JUnit XML, OpenMetrics, and what all of them have in common."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nodeproof.cli import main
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Measured, Verdict, conforms, deviates, unproven
from nodeproof.report import comparison, digest, page, plain, publish, rundir, tables
from nodeproof.report.digest import Since
from nodeproof.report.plain import COLUMNS, SECTIONS, sections
from nodeproof.report.rundir import RunFacts
from nodeproof.session.run import closing_lines, settings
from tests.unit.in_process import Call
from tests.unit.sample_checks import GRACE
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    CUT,
    DEFAULT,
    DETECTION,
    DEVIATES,
    FACTS,
    FIXED,
    GAP,
    JUDGED,
    KNOWN,
    LACKS,
    OTHER,
    ROWS,
    SWAP,
    TAINT,
    VERSION,
    WINDOW,
    ScenarioVerdict,
    alter,
    digest_of,
    row,
    tell,
)

# The verdict page: its order, its links, and what it says of malformed files.


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


def parsed(text: str) -> Read:
    """Return a page as a browser reads it; no tag is open, and nothing is loaded."""
    read = Read()
    read.feed(text)
    assert read.open == []
    assert "script" not in read.tags
    assert read.loads == ["data:,"]
    return read


def shown(run: Path) -> tuple[str, Read]:
    """Return the page of a run as text, and parsed."""
    text = page.write(run, CLAIMS).read_text()
    read = parsed(text)
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
    details = (DEVIATES.reason, "15.200 s", WINDOW.arithmetic, DEVIATES.last_state)
    for expected in (CLAIMS[TAINT].statement, *details):
        assert expected in parts["deviates"]
    should, cannot = parts["unproven"].split("This lab, profile or version cannot")
    for part, reason, claim in ((should, GAP.reason, DEFAULT), (cannot, LACKS.reason, SWAP)):
        assert reason in part
        assert claim in part
    assert "the page says 40 s, v1.36.3 has 50 s" in parts["differs"]
    assert DETECTION in parts["differs"]
    assert TAINT not in parts["differs"]


def test_page_shows_the_facts_of_the_run_and_counts(text: str) -> None:
    facts = ("process, fast", "slack 0.25 s in the median, 0.30 s at most (limit 1 s)", "6 min 2 s")
    states = ("deviates", "should have been proven", "cannot be proven here", "conforms")
    counts = (*(f"</span> 1 {state}<" for state in states), f"{len(CLAIMS) - 4} not judged")
    wording = "v1.18, v1.24, v1.26 word it otherwise: <bdi>40 s</bdi>"
    assert [expected for expected in (*facts, *counts, wording) if expected not in text] == []


def test_each_code_in_use_is_explained(text: str) -> None:
    assert set(digest.MEANINGS) == set(get_args(Code)) - {""}
    assert {code for code in digest.MEANINGS if f"<dt>{code}</dt>" in text} == {"gap", "lab-lacks"}


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
        ("verdicts.json", {"code": "moonlight"}, "a file of the run is malformed"),
        ("run.json", {"began": "yesterday", "components": {"kubelet": 3}}, "a file of the run is malformed"),
        *(("run.json", {"format": format_}, "a file of the run is malformed") for format_ in NO_NUMBERS),
    ],
)
def test_bad_value_is_reported(tmp_path: Path, file: str, changed: dict[str, object], expected: str) -> None:
    run = tell(tmp_path / "run", ROWS)
    alter(run / file, **changed)
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
    alter(run / "verdicts.json", claim="gone.for-good")
    text, _read = shown(run)
    assert "gone.for-good (not in this catalogue)" in text
    assert "Not on the page: gone" in text


# What all reports of a run have in common: foreign text, incomplete runs, settings, speed, and commands.


Render = Callable[[Path], str]
RIGHT_TO_LEFT = "\u202e\u05e9\u05dc\u05d5\u05dd"
HOSTILE = (
    f"<script>alert('x')</script> ]]> | `a` **b** [c](d)\n# h\r\x1b[2J\x00\ufffe\ud800{RIGHT_TO_LEFT}"
    + "x" * 10_000
)


def published(run: Path) -> str:
    """Return the list of published runs."""
    return publish.publish(run.parent / "site", [run], CLAIMS).index.read_text()


def compared(*runs: Path) -> comparison.Comparison:
    return comparison.compare([digest.read(run, CLAIMS) for run in runs])


def since_before(run: Path) -> str:
    """Compare with a run in which everything conformed."""
    before = tell(run.parent / "before", [(CUT, claim, CONFORMS) for _scenario, claim, _verdict in ROWS])
    return comparison.changes_text(compared(before, run))


HTML: dict[str, Render] = {
    "page": lambda run: page.write(run, CLAIMS).read_text(),
    "matrix in HTML": lambda run: plain.encodable(comparison.matrix_html(compared(run), run.parent)),
    "published": published,
}
TEXT: dict[str, Render] = {
    "summary": lambda run: tables.summary(digest.read(run, CLAIMS)),
    "matrix in Markdown": lambda run: comparison.matrix_markdown(compared(run)),
    "matrix": lambda run: comparison.matrix_text(compared(run)),
    "compare": since_before,
    "table": lambda run: tables.render(digest.read(run, CLAIMS), "site", {}),
    "last lines": lambda run: "\n".join(tables.last_lines(digest.read(run, CLAIMS))),
}
XML: dict[str, Render] = {"JUnit": lambda run: tables.junit_xml(digest.read(run, CLAIMS))}
ALL = HTML | TEXT | XML
OF_A_RUN = {name: render for name, render in ALL.items() if name not in ("table", "last lines")}
"""Reports of the run itself, and not only of its rows."""


@pytest.mark.parametrize("render", ALL.values(), ids=ALL)
def test_known_deviation_is_shown_with_its_issue_and_fails_nothing(tmp_path: Path, render: Render) -> None:
    run = tell(tmp_path / "run", [(CUT, TAINT, KNOWN), (CUT, SWAP, FIXED)])
    text = render(run)
    assert "deviates: reported" in text or "known and reported" in text
    assert "<failure" not in text


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Write a run whose every text is foreign."""
    verdicts = (
        deviates(HOSTILE, WINDOW, Measured(HOSTILE), HOSTILE),
        unproven("gap", HOSTILE),
        unproven("scaled", HOSTILE),
        conforms(HOSTILE, WINDOW, Measured(HOSTILE, HOSTILE)),
    )
    claims = [claim for _scenario, claim, _verdict in ROWS]
    rows = [(f"a::test_{HOSTILE}", claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]
    texts = ("lab", "profile", "kubernetes_version", "command", "exit_reason")
    changed: Json = {**dict.fromkeys(texts, HOSTILE), "settings": (HOSTILE,), "quarantined": (HOSTILE,)}
    facts = replace(FACTS, **changed, components={HOSTILE: {"version": HOSTILE, "origin": HOSTILE}})
    return tell(tmp_path / f"<b>|run{RIGHT_TO_LEFT}", rows, facts)


@pytest.mark.parametrize("render", HTML.values(), ids=HTML)
def test_foreign_text_is_neither_markup_nor_changes_direction(hostile: Path, render: Render) -> None:
    assert [part for part in parsed(render(hostile)).bare if "\u202e" in part] == []


@pytest.mark.parametrize("render", TEXT.values(), ids=TEXT)
def test_foreign_text_moves_no_cursor_and_is_cut(hostile: Path, render: Render) -> None:
    text = render(hostile)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\n# h" not in text
    assert len(text) < 3 * len(HOSTILE)


def test_foreign_text_keeps_the_xml_valid(hostile: Path) -> None:
    (failure,) = ET.fromstring(tables.junit_xml(digest.read(hostile, CLAIMS))).iter("failure")  # noqa: S314
    for text in (failure.attrib["message"], failure.text or ""):
        assert "<script>alert('x')</script> ]]>" in text
        assert "\u05e9\u05dc\u05d5\u05dd" in text
        assert not set("\x00\x1b\ufffe\ud800") & set(text)


@pytest.mark.parametrize("render", OF_A_RUN.values(), ids=OF_A_RUN)
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (None, "The run did not come to its end"),
        (replace(FACTS, ended=""), "The run has no end"),
        (replace(FACTS, exit_reason="etcd exited 1"), "The run broke off: etcd exited 1"),
        (replace(FACTS, overrides=("--set kubelet.x=1",)), "--set kubelet.x=1"),
    ],
    ids=["killed", "open", "broken off", "settings of the user"],
)
def test_end_and_settings_of_a_run_are_shown(
    tmp_path: Path, render: Render, facts: RunFacts | None, expected: str
) -> None:
    assert expected in render(tell(tmp_path / "run", ROWS, facts))


@pytest.mark.parametrize("name", ALL)
def test_empty_run_has_every_report(tmp_path: Path, name: str) -> None:
    text = ALL[name](rundir.create(tmp_path / "run"))
    assert ("No scenario left a verdict." if name in OF_A_RUN else "conforms 0  deviates 0") in text
    assert "Nothing deviates" not in text


@pytest.mark.parametrize("render", OF_A_RUN.values(), ids=OF_A_RUN)
def test_content_of_logs_and_recordings_is_in_no_report(tmp_path: Path, render: Render) -> None:
    canary = "-----BEGIN PRIVATE KEY----- canary"
    run = tell(tmp_path / "run", ROWS, replace(FACTS, exit_reason=f"etcd exited 1\n{canary}"))
    scenario = rundir.scenario_dir(run, CUT)
    (run / "labs" / "etcd.log").write_text(canary)
    (scenario / "history.jsonl").write_text(canary)
    configuration = json.loads((scenario / "configuration.json").read_text())
    secret = {"flags_set": {"kubelet": {"token": canary}}, "reported": {"x": canary}}
    (scenario / "configuration.json").write_text(json.dumps({**configuration, **secret}))
    text = render(run)
    assert "etcd exited 1" in text
    assert "canary" not in text


@pytest.mark.parametrize(
    ("command", "begin"),
    [
        ("page RUN", "/"),
        ("summary RUN RUN", "## Kubernetes `v1.36.3"),
        ("junit RUN", "<?xml"),
        ("junit RUN --output -", "<?xml"),
        ("junit RUN --output FILE", "file"),
        ("matrix RUN RUN", "1  v1.36.3"),
        ("matrix RUN --markdown -", "# The Nodes page across runs"),
        ("matrix RUN --html -", "<!DOCTYPE html>"),
        ("matrix RUN --html FILE", "file"),
        ("matrix RUN --markdown FILE", "file"),
        ("compare RUN RUN", "A run: Kubernetes"),
        ("publish FILE RUN", "file/index.html"),
    ],
)
def test_command_prints_its_report_or_where_it_is(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, command: str, begin: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tell(tmp_path / "run", ROWS)
    output = call(*command.replace("RUN", "run").replace("FILE", "file").split())
    assert (output.status, output.out[: len(begin)]) == (0, begin)
    assert {path.name for path in tmp_path.iterdir()} == ({"run", "file"} if "FILE" in command else {"run"})
    (error,) = call(*command.replace("RUN", "none").replace("FILE", "file").split()).refusal.splitlines()
    assert "no run's folder" in error


@pytest.mark.parametrize("option", ["matrix RUN --html", "matrix RUN --markdown", "junit RUN --output"])
@pytest.mark.parametrize("place", ["none/file", "folder", "/proc/file"])
def test_unwritable_file_is_one_line(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, option: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    run = str(tell(tmp_path / "run", ROWS))
    before = sorted(tmp_path.iterdir())
    refusal = call(*option.replace("RUN", run).split(), place).refusal
    assert refusal.startswith("nodeproof: the report cannot be written")
    assert sorted(tmp_path.iterdir()) == before


# One run as text: the table of all claims, the last lines of the output, and the Markdown summary.


LEASE = "heartbeat.lease-interval"
A, B = "scenarios/a.py::test_a_node_is_cordoned", "scenarios/b.py::test_b"
SETTINGS = ("etcd unsafe-no-fsync=true", "kubelet healthzPort=0")
SCALED = unproven("scaled", "--node-monitor-grace-period=12s was given")
LONG = "word " * 200
LATE = deviates(LONG, WINDOW, Measured(LONG), LONG)
LONG_GAP = unproven("gap", LONG)
MAX_LINES = 40


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_table_shows_each_claim_once_with_reasons_and_totals() -> None:
    rows = [
        row("monitoring.grace", CONFORMS, "s.py::test_it", GRACE),
        row("monitoring.grace", CONFORMS, "s.py::test_other"),
        row("eviction.late", DEVIATES),
        row("heartbeat.blind", GAP),
        row("swap.scaled", SCALED),
    ]
    run = digest_of(rows, replace(FACTS, ended="2026-11-20T15:17:33+00:00"))
    lines = tables.render(run, "reports/out/latest/site/index.html", {}).splitlines()
    assert cells(lines[0]) == ["claim", "verdict", "measured", "window"]
    starts = [number for number, line in enumerate(lines) if number > 1 and line and line[0] != " "][:4]
    assert [cells(lines[number])[:2] for number in starts] == [
        ["eviction.late", "deviates"],
        ["heartbeat.blind", "unproven: gap"],
        ["swap.scaled", "unproven: scaled"],
        ["monitoring.grace", "conforms"],
    ]
    assert cells(lines[starts[3]])[2:] == ["13.100 s", "[12.00, 14.62] s", "x2", "page: 40 s"]
    assert lines[starts[0] + 1].strip() == DEVIATES.reason
    assert lines[-2] == "conforms 1  deviates 1  unproven 2 (gap: 1, scaled: 1)"
    assert lines[-1] == "1 h 2 min; report: reports/out/latest/site/index.html"


def test_table_shows_since_when_a_claim_deviates() -> None:
    histories = {"eviction.late": Since((replace(FACTS, run="earlier"), FACTS))}
    rows = [row("eviction.late", DEVIATES), row("monitoring.grace", CONFORMS)]
    text = tables.render(digest_of(rows), "site", histories)
    assert "    since 2026-11-20 14:15 UTC (run earlier), in 2 consecutive runs" in text
    assert text.count("since") == 1


def last_lines(run: Path, rows: Sequence[ScenarioVerdict], **facts: Json) -> list[str]:
    """Return the last lines of the output of a run with these verdicts."""
    return list(closing_lines(tell(run, rows, replace(FACTS, **facts))))


def test_deviating_claim_shows_reason_window_history_and_scenarios(tmp_path: Path) -> None:
    rows: list[ScenarioVerdict] = [(A, TAINT, DEVIATES), (B, TAINT, DEVIATES), (A, DETECTION, CONFORMS)]
    tell(tmp_path / "before", [(A, TAINT, CONFORMS)], replace(FACTS, began="2026-11-19T14:15:30+00:00"))
    lines = last_lines(tmp_path / "run", rows)
    assert lines[: lines.index("")] == [
        f"deviates: {TAINT}",
        "    came 15.2 s after: too late",
        f"    window: {WINDOW.arithmetic}",
        "    observed: 15.200 s",
        "    last seen: node node-1: Ready=True",
        "    since this run; last conformed on 2026-11-19 14:15 UTC (run before)",
        f"    scenario: {A}",
        f"    scenario: {B}",
    ]
    assert "conforms 1  deviates 1  unproven 0" in lines


def test_claims_unproven_by_one_cause_are_grouped(tmp_path: Path) -> None:
    other = unproven("gap", "the watch of nodes was blind")
    lines = last_lines(tmp_path / "run", [(A, DETECTION, GAP), (A, TAINT, GAP), (A, LEASE, other)])
    both = f"    {TAINT}, {DETECTION}: {GAP.reason}"
    assert lines[: lines.index("")] == [f"unproven: gap: {A}", both, f"    {LEASE}: {other.reason}"]


def test_unprovable_claims_are_counted_by_reason(tmp_path: Path) -> None:
    reasons = ["one", "one", "one", "two", "two", "three", "four", "five"]
    rows = [(A, claim, unproven("lab-lacks", reason)) for claim, reason in zip(JUDGED, reasons, strict=False)]
    lines = last_lines(tmp_path / "run", rows)
    assert lines[: lines.index("")] == [
        "this lab and profile cannot prove 8 of the claims:",
        "    3 lab-lacks: one",
        "    2 lab-lacks: two",
        "    1 lab-lacks: three",
        "    2 for other reasons: see table.txt",
    ]


def test_selected_unprovable_claim_states_its_reason(tmp_path: Path) -> None:
    lines = last_lines(tmp_path / "run", [(A, SWAP, LACKS)], command=f"pytest --claim {SWAP}")
    assert lines[:2] == [f"unproven: lab-lacks: {A}", f"    {SWAP}: {LACKS.reason}"]


def test_last_lines_have_counts_retries_times_and_paths(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in (A, A, B):
        rundir.scenario_dir(run, name)
        rundir.put_aside(run, name)
    assert last_lines(run, [(A, TAINT, CONFORMS)], settings=SETTINGS)[-5:] == [
        "conforms 1  deviates 0  unproven 0",
        "retried because the host was too loaded or a watch broke: 2 scenarios (3 tries before the last one)",
        "took 6 min 2 s",
        "table of all claims: --table (table.txt); 2 settings other than upstream's: --settings (run.json)",
        f"run folder: {run}",
    ]


@pytest.mark.parametrize("verdicts", [(LATE, LATE), (LONG_GAP, LONG_GAP), (LATE, LONG_GAP)])
def test_last_lines_are_complete_for_two_failing_claims(
    tmp_path: Path, verdicts: tuple[Verdict, Verdict]
) -> None:
    skipped = [unproven("lab-lacks", f"{number} {LONG}") for number in range(100)]
    wrong, others = JUDGED[:2], JUDGED[2:102]
    rows = [*((f"{A}_{claim}", claim, verdict) for claim, verdict in zip(wrong, verdicts, strict=True))]
    rows += [(B, claim, verdict) for claim, verdict in zip(others, skipped, strict=True)]
    facts = {"settings": SETTINGS, "quarantined": ("node-1",), "exit_reason": "no memory"}
    lines = last_lines(tmp_path / "run", rows, **facts)
    assert len(lines) <= MAX_LINES
    assert all(any(claim in line for line in lines) for claim in wrong)
    assert max(map(len, lines[:-1])) <= COLUMNS


def test_many_deviating_claims_are_listed_in_a_few_lines_each(tmp_path: Path) -> None:
    many = JUDGED[: 5 * tables.MAX_DETAILED]
    lines = last_lines(tmp_path / "run", [(A, claim, LATE) for claim in many])
    listed = [line.removeprefix("deviates: ") for line in lines if line.startswith("deviates: ")]
    assert listed == sorted(many)
    assert len(lines) <= 8 * len(many)


def test_non_upstream_settings_are_listed_on_request(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [], replace(FACTS, settings=SETTINGS))
    assert {f"  {setting}" for setting in SETTINGS} <= set(settings(run))


def summary(run: Path) -> str:
    return tables.summary(digest.read(run, CLAIMS))


def test_summary_begins_with_deviations_then_unproven_claims(tmp_path: Path) -> None:
    text = summary(tell(tmp_path / "run", ROWS))
    places = [text.index(part) for part in (CLAIMS[TAINT].statement, GAP.reason, LACKS.reason)]
    assert places == sorted(places)


def test_long_lists_of_the_summary_are_cut(tmp_path: Path) -> None:
    text = summary(tell(tmp_path / "run", [(A, claim, DEVIATES) for claim in JUDGED]))
    assert f"\n- and {len(JUDGED) - tables.MAX_LISTED} more\n\n###" in text
    assert len(text.encode()) < 1 << 20


# The JUnit report of a run: failures, errors, skips, properties and times.


def of(run: Path) -> ET.Element:
    return ET.fromstring(tables.junit_xml(digest.read(run, CLAIMS)))  # noqa: S314


def counts(element: ET.Element) -> list[int]:
    """Return the numbers of cases, failures, errors and skips, as the element has them."""
    return [int(element.attrib[name]) for name in ("tests", "failures", "errors", "skipped")]


def case(root: ET.Element, claim: str) -> ET.Element:
    (testcase,) = (case for case in root.iter("testcase") if case.get("name", "").endswith(f"({claim})"))
    return testcase


def result(root: ET.Element, claim: str) -> ET.Element:
    """Return the only child of a claim's case."""
    (element,) = case(root, claim)
    return element


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tell(tmp_path / "run", ROWS)


def test_each_claim_is_a_case_below_its_heading(run: Path) -> None:
    root = of(run)
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["Manual Node administration", "Node controller", "Swap memory management"]
    names = {element.get("name") for element in suites["Node controller"].iter("testcase")}
    assert names == {f"{CLAIMS[claim].statement} ({claim})" for claim in (DETECTION, DEFAULT)}
    assert case(root, DETECTION).get("classname") == "monitoring"
    assert list(case(root, DETECTION)) == []


def test_counts_match_the_cases(run: Path) -> None:
    root = of(run)
    assert counts(root) == [4, 1, 1, 1]
    assert [counts(suite) for suite in root] == [[1, 1, 0, 0], [2, 0, 1, 0], [1, 0, 0, 1]]


def test_verdict_decides_the_element_of_a_case(run: Path) -> None:
    failure, error, skipped = (result(of(run), claim) for claim in (TAINT, DEFAULT, SWAP))
    assert (failure.tag, failure.attrib) == ("failure", {"message": DEVIATES.reason, "type": "deviates"})
    for text in (WINDOW.arithmetic, "15.200 s", DEVIATES.last_state, CUT):
        assert text in (failure.text or "")
    assert (error.tag, error.attrib) == ("error", {"message": GAP.reason, "type": "unproven: gap"})
    reason = f"unproven: lab-lacks: {LACKS.reason}"
    assert (skipped.tag, skipped.attrib) == ("skipped", {"message": reason})


def test_selected_claim_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS[:1], replace(FACTS, selected=(DETECTION, TAINT)))
    error = result(of(run), TAINT)
    assert error.tag == "error"
    assert error.get("message") == "It was to be judged, and the run has no verdict on it."


def test_scenario_without_files_is_an_error_for_each_claim(run: Path) -> None:
    scenarios = {"s/test_lost.py::test_lost": [DETECTION, SWAP, TAINT], CUT: [DETECTION], "s.py::test": []}
    rundir.write_json(run / rundir.DECLARED, scenarios)
    root = of(run)
    assert counts(root) == [5, 1, 4, 0]
    message = "Scenarios without a verdict: s.py::test, s/test_lost.py::test_lost."
    assert root.find(f"testsuite[@name='The run itself']/testcase/error[@message='{message}']") is not None
    for claim in (DETECTION, SWAP):
        error = result(root, claim)
        assert error.tag == "error"
        assert error.get("message", "").endswith("left no verdict: s/test_lost.py::test_lost.")
    failure = result(root, TAINT)
    assert failure.tag == "failure"
    assert "no verdict\nscenario: s/test_lost.py::test_lost" in (failure.text or "")


@pytest.mark.parametrize("text", ["[]", "{", '{"a.py::test_a": 1}', "null"])
def test_malformed_list_of_scenarios_is_ignored(run: Path, text: str) -> None:
    whole = of(run)
    (run / rundir.DECLARED).write_text(text)
    assert ET.tostring(of(run)) == ET.tostring(whole)


def test_report_has_properties_and_times(run: Path) -> None:
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, "start": 30.0})
    root = of(run)
    properties = {element.get("name"): element.get("value") for element in root[0].iter("property")}
    facts = {"kubernetes": VERSION, "lab": "process", "profile": "fast", "run": "run"}
    assert properties == {**facts, "set": "", "judged": ""}
    assert root[0].get("timestamp") == "2026-11-20T14:15:30"
    assert root.get("time") == "362.000"
    assert case(root, DETECTION).get("time") == "12.500"
    assert "time" not in case(root, DEFAULT).attrib
    tell(run, [*ROWS, (OTHER, DETECTION, CONFORMS)])
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, OTHER: 1.0})
    assert "time" not in case(of(run), DETECTION).attrib, "two scenarios judge it"


# Runs as OpenMetrics, and a dashboard whose queries name what the file has.


DASHBOARD = Path(__file__).resolve().parents[2] / "infra" / "grafana" / "nodeproof.json"
SETUP = {"kubernetes_version": VERSION, "lab": "process", "profile": "fast", "settings": ""}
_SELECTOR = re.compile(r"(nodeproof_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)=~?")
_BY = re.compile(r"by \(([^)]*)\)")


def samples(path: Path) -> Iterator[Sample]:
    for family in text_string_to_metric_families(path.read_text()):  # type: ignore[no-untyped-call]
        yield from family.samples


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    """Write the metrics of a run with a claim in each state."""
    path = tmp_path / "run.prom"
    write_metrics(path, tell(tmp_path / "run", [*ROWS, (OTHER, "cordon.display", KNOWN)]))
    return path


def write_metrics(path: Path, *runs: Path, status: int = 0) -> None:
    """Write the metrics of runs by the command."""
    assert main(["summary", "--openmetrics", str(path), *map(str, runs)]) == status


def test_metrics_have_states_times_and_windows_of_claims(metrics: Path) -> None:
    values = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples(metrics)}

    def value(name: str, **labels: str) -> float:
        return values[(f"nodeproof_{name}", *sorted({**SETUP, **labels}.items()))]

    states = {"deviates": 1, "open": 1, "known": 1, "skipped": 1, "conforms": 1}
    assert {state: value("claims", state=state) for state in states} == states
    assert value("claim_state", claim=TAINT, area="cordon", state="deviates") == 1
    assert value("claim_measured_seconds", claim=DETECTION) == 13.1
    assert value("claim_window_low_seconds", claim=DETECTION) == 12.0
    assert value("claim_window_high_seconds", claim=DETECTION) == 14.62
    assert value("run_duration_seconds") == 362
    assert value("run_start_seconds") == 1795184130
    assert value("run_complete") == 1


def test_killed_run_is_incomplete_and_has_no_duration(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    write_metrics(path, tell(tmp_path / "run", ROWS, facts=None))
    values = {sample.name: sample.value for sample in samples(path)}
    assert values["nodeproof_run_complete"] == 0
    assert "nodeproof_run_duration_seconds" not in values


def test_runs_of_one_set_up_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (tell(tmp_path / name, ROWS) for name in ("first", "second"))
    write_metrics(tmp_path / "run.prom", first, second, status=2)
    assert f"two runs have the set-up {VERSION} process fast" in capsys.readouterr().err
    other = tell(tmp_path / "other", ROWS, replace(FACTS, overrides=("A=true",)))
    write_metrics(tmp_path / "run.prom", first, other)


def test_each_query_of_the_dashboard_names_what_the_file_has(metrics: Path) -> None:
    labels: dict[str, set[str]] = {}
    for sample in samples(metrics):
        labels.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = set()
    for query in queries:
        selectors = _SELECTOR.findall(query)
        assert len(selectors) == query.count("nodeproof_"), query
        for name, selector in selectors:
            names.add(name)
            grouped = {label for group in _BY.findall(query) for label in group.split(", ")}
            assert {*_LABEL.findall(selector)} | grouped <= labels[name], query
    assert names >= labels.keys() - {"nodeproof_claim_window_low_seconds"}
