"""Recheck of a run: every file has the new verdict, and recorded data is unchanged."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from nodeproof import catalogue, cli, proc
from nodeproof.model.pattern import Json
from nodeproof.report import comparison, digest, page, recheck, rundir, site, tables, timeline
from tests.golden_runs import CONFIGURATION, HISTORY, JUDGMENTS, RUNS, restore
from tests.unit.synthetic_runs import CONFORMS, DEVIATES, FACTS, LACKS, alter, content, shard_of, tell

CLAIMS = catalogue.load([RUNS / "claims"])
FROZEN = "unreachable-measured"
DETECTION = "monitoring.detection-time"
BEGAN = "20261120-141530"
SKIPPED = "s.py::test_swap"


def thaw(run: Path, facts: rundir.RunFacts | None = FACTS, frozen: str = FROZEN) -> rundir.Scenario:
    """Store a run with a recording of a real lab and a skipped scenario; without facts it was killed."""
    nodeid = rundir.read_json(RUNS / frozen / JUDGMENTS)["scenario"]
    scenario = restore(RUNS / frozen, run / "scenarios" / rundir.slug(nodeid))
    tell(run, [(SKIPPED, "swap.fail-on-default", LACKS)], None, scenario.configuration())
    if facts is not None:
        selected = tuple(sorted({row["claim"] for row in scenario.rows}))
        rundir.write_facts(run, replace(facts, run=run.name, selected=selected))
        rundir.merge_verdicts(run)
    allure(run, scenario.nodeid)
    return scenario


def allure(run: Path, nodeid: str) -> None:
    """Write Allure's results of a scenario with two tries."""
    results = run / "allure-results"
    for start in (1, 2):
        sources = {name: f"{name}-{start}-attachment.txt" for name in ("timeline", "verdicts", "kubelet.log")}
        for name, source in sources.items():
            (results / source).write_text(f"as it was: {name}")
        content = {
            "uuid": f"try-{start}",
            "name": "it",
            "fullName": "a#b",
            "start": start,
            "status": "passed",
            "labels": [{"name": "scenario", "value": nodeid}, {"name": "thread", "value": "gw0"}],
            "attachments": [{"name": name, "source": source} for name, source in sources.items()],
        }
        rundir.write_json(results / f"try-{start}-result.json", content)
    (results / "environment.properties").write_text("as = it was\n")


def slow_down(scenario: rundir.Scenario) -> None:
    """Let the controller manager wait longer than the recording lasts."""
    path = scenario.folder / CONFIGURATION
    text, count = re.subn(r'("NodeMonitorGracePeriod": )"[^"]*"', r'\1"50s"', path.read_text())
    assert count
    path.write_text(text)


def recorded_files(run: Path) -> Mapping[str, bytes]:
    """Return all files of a run except those that recheck writes."""
    written = (f"{rundir.RECHECK}/", recheck.FILE)
    return {name: text for name, text in content(run).items() if not name.startswith(written)}


def of(rows: Any, claim: str) -> rundir.Row:
    return next(row for row in rows if row["claim"] == claim)


def result(folder: Path, name: str) -> dict[str, Json]:
    content: dict[str, Json] = json.loads((folder / "allure-results" / f"{name}-result.json").read_text())
    return content


def attached(folder: Path, content: Mapping[str, Json]) -> Mapping[str, str]:
    return {
        attachment["name"]: (folder / "allure-results" / attachment["source"]).read_text()
        for attachment in content["attachments"]
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "out" / f"{BEGAN}-fast-process-0000"


@pytest.mark.parametrize("frozen", [FROZEN, "unreachable", "reboot"])
def test_every_file_has_the_new_verdict(run: Path, capsys: pytest.CaptureFixture[str], frozen: str) -> None:
    scenario = thaw(run, frozen=frozen)
    slow_down(scenario)
    folder = run / "recheck"
    assert rechecked_by_command(run) == 1
    output = capsys.readouterr()
    assert f"changed: {DETECTION} in " in output.out
    assert f"report: {folder}" in output.out
    assert f"the page, judged again: {folder / 'site' / page.FILE}" in output.err
    assert of(rundir.read_verdicts(folder), DETECTION)["verdict"] == "deviates"
    stored = rundir.read_scenario(folder / "scenarios" / scenario.folder.name)
    assert of(stored.rows, DETECTION)["verdict"] == "deviates"
    assert stored.history().entries
    changed = json.loads((folder / rundir.CHANGES).read_text())["changed"]
    assert (DETECTION, "conforms", "deviates") in {
        (change["claim"], change["before"], change["after"]) for change in changed
    }
    assert f"{DETECTION} · deviates" in (stored.folder / "timeline.svg").read_text()
    assert f"{CLAIMS[DETECTION].statement} ({DETECTION})" in cases_with("failure", run)
    run_digest = digest.read(folder, CLAIMS)
    judged_page = (folder / "site" / page.FILE).read_text()
    assert "too early" in judged_page
    assert "again, from the recordings" in judged_page
    assert "too early" in tables.summary(run_digest)
    assert f"{run.name}/recheck" in comparison.matrix_markdown(comparison.compare([run_digest]))


def test_last_try_in_allure_has_the_new_verdict_and_keeps_the_rest(run: Path) -> None:
    slow_down(thaw(run))
    folder = recheck.recheck(run, CLAIMS).digest.run
    try_result = result(folder, "try-2")
    assert try_result["status"] == "failed"
    assert f"{DETECTION} deviates: " in try_result["statusDetails"]["message"]
    assert {"name": "thread", "value": "gw0"} in try_result["labels"]
    attachments = attached(folder, try_result)
    assert set(attachments) == {"timeline", "verdicts", "judgments", "kubelet.log"}
    assert f"{DETECTION}: deviates: " in attachments["verdicts"]
    assert f"{DETECTION} · deviates" in attachments["timeline"]
    assert of(json.loads(attachments["judgments"])["verdicts"], DETECTION)["verdict"] == "deviates"
    assert attachments["kubelet.log"] == "as it was: kubelet.log"
    assert not (folder / "allure-results" / "verdicts-2-attachment.txt").exists()
    assert result(folder, "try-1") == result(run, "try-1")
    names = {path.name.removesuffix("-result.json") for path in folder.glob("allure-results/*-result.json")}
    (other,) = names - {"try-1", "try-2"}
    skipped = result(folder, other)
    assert (skipped["fullName"], skipped["status"]) == (SKIPPED, "skipped")


def test_files_of_the_recorded_run_are_unchanged(run: Path) -> None:
    slow_down(thaw(run))
    before = recorded_files(run)
    recheck.recheck(run, CLAIMS)
    page.write(run / "recheck", CLAIMS)
    recheck.recheck(run / "recheck", CLAIMS)
    assert recorded_files(run) == before
    assert of(rundir.read_verdicts(run), DETECTION)["verdict"] == "conforms"
    assert of(rundir.read_json(run / recheck.FILE), DETECTION)["verdict"] == "deviates"
    assert not (run / "recheck" / "site").exists(), "of another judging"
    assert not list(run.rglob("recheck/recheck"))


def test_unchanged_verdict_keeps_the_status(run: Path) -> None:
    scenario = thaw(run)
    # The frozen run has an older wording.
    rebuilt = recheck.recheck(run, CLAIMS).digest.run / "scenarios" / scenario.folder.name
    shutil.copy(rebuilt / "judgments.json", scenario.folder)
    details = {"message": "m", "trace": "t"}
    alter(run / "allure-results" / "try-2-result.json", statusDetails=details)
    outcome = recheck.recheck(run, CLAIMS)
    assert outcome.changed == ()
    assert json.loads((run / recheck.FILE).read_text()) == list(outcome.digest.rows)
    assert result(outcome.digest.run, "try-2")["statusDetails"] == details


def test_scenario_that_failed_for_another_reason_still_fails(run: Path) -> None:
    scenario = thaw(run)
    rows = [{**row, "verdict": "deviates", "code": None} for row in scenario.rows]
    alter(scenario.folder / JUDGMENTS, verdicts=rows)
    alter(run / "allure-results" / "try-2-result.json", status="broken")
    outcome = recheck.recheck(run, CLAIMS)
    assert of(outcome.digest.rows, DETECTION)["verdict"] == "conforms"
    assert result(outcome.digest.run, "try-2")["status"] == "broken"


def test_earlier_runs_are_found_beside_the_recorded_one(run: Path) -> None:
    slow_down(thaw(run))
    rows = [("s.py::test_before", DETECTION, DEVIATES)]
    earlier = tell(run.parent / "before", rows, replace(FACTS, began="2026-11-19T14:15:30+00:00"))
    long_ago = replace(FACTS, began="2026-11-18T14:15:30+00:00")
    tell(run.parent / "long-before", [("s.py::test_before", DETECTION, CONFORMS)], long_ago)
    outcome = recheck.recheck(run, CLAIMS)
    history = outcome.digest.since[DETECTION]
    assert [facts.run for facts in history.runs] == [earlier.name, run.name]
    assert site.history(outcome.digest.run, outcome.facts) == site.history(run, outcome.facts)
    assert site.history(run, outcome.facts).parent == run.parent.resolve()


def test_killed_run_is_judged_and_marked_incomplete(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = thaw(run, None)
    rundir.write_json(run / rundir.DECLARED, {scenario.nodeid: [DETECTION], "s.py::test_b": ["cordon.taint"]})
    lab = {"kubernetes_version": "v1.36.3", "components": {"kubelet": {"version": "v1.36.3"}}}
    rundir.write_json(run / "labs" / "p-1.json", {**lab, "quarantined": ["node-2"], "calibration": {}})
    assert rechecked_by_command(run) == 2
    out, error = capsys.readouterr()
    assert f"\nwithout an end; report: {run / 'recheck'}" in out
    assert "nodeproof: the run is not whole: The run has no end: it is under way, or was killed" in error
    assert "nodeproof: the run is not whole: Scenarios without a verdict: s.py::test_b." in error
    facts = rundir.read_facts(run / "recheck")
    configuration = scenario.configuration()
    assert (facts.lab, facts.profile) == (configuration.lab, configuration.profile)
    assert (facts.run, facts.began, facts.ended) == (run.name, "2026-11-20T14:15:30+00:00", "")
    assert facts.selected == ("cordon.taint", DETECTION)
    assert facts.components == lab["components"]
    assert facts.quarantined == ("node-2",)
    assert not (run / "run.json").exists()
    assert not (run / "verdicts.json").exists()
    assert "The run is whole" in cases_with("error", run)


def test_killed_shard_keeps_its_number_and_its_reason(run: Path) -> None:
    other = run.with_name("renamed")
    scenario = thaw(other, None)
    (other / "broken-off").write_text("no lab came up")
    outcome = recheck.recheck(other, CLAIMS)
    begun = json.loads((scenario.folder / HISTORY).read_text().splitlines()[0])
    assert outcome.facts.began.startswith("2026-")
    assert begun["kind"] == "begun"
    assert outcome.digest.missing == ("The run broke off: no lab came up",)
    shard = shard_of(1, [{scenario.nodeid: (DETECTION,)}, {"s.py::test_b": ("cordon.taint",)}])
    rundir.write_shard(other, shard)
    facts = recheck.recheck(other, CLAIMS).facts
    assert (facts.began, facts.selected, facts.shard) == (shard.began, (DETECTION,), shard.to_json())


def test_failed_write_is_one_line_and_keeps_the_earlier_result(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    thaw(run)
    recheck.recheck(run, CLAIMS)
    before = content(run)

    def full(*_arguments: object) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(timeline, "render", full)
    assert rechecked_by_command(run) == 2
    (line, detail) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodeproof: the run that was judged again cannot be written")
    assert detail == "no space left on device"
    assert content(run) == before


def rechecked_by_command(run: Path) -> int:
    return cli.main(["recheck", str(run), "--no-site", "--claims", str(RUNS / "claims")])


def cases_with(tag: str, run: Path) -> set[str]:
    """Return the cases of the JUnit report that have an error or a failure."""
    cases = ET.parse(run / "recheck" / tables.JUNIT_FILE).getroot().iter("testcase")  # noqa: S314
    return {case.get("name", "") for case in cases if case.find(tag) is not None}


def test_failing_check_costs_only_its_own_verdict(run: Path) -> None:
    scenario = thaw(run)
    first, *others = scenario.content["judgments"]
    unknown = {**first, "check": {"name": "tea-leaves", "args": {}}}
    alter(scenario.folder / JUDGMENTS, judgments=[unknown, *others])
    rows = recheck.rejudge(rundir.read_scenario(scenario.folder), CLAIMS).rows
    assert rows[0]["code"] == "check-failed"
    assert "KeyError: 'tea-leaves'" in rows[0]["reason"]
    assert [row["verdict"] for row in rows[1:]] == [row["verdict"] for row in scenario.rows[1:]]


_BLOCKED = """
import sys
BLOCKED = {"kubernetes", "paramiko", "libvirt", "pyroute2", "cryptography"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
from nodeproof import cli
status = cli.main(["recheck", sys.argv[1], "--no-site", "--claims", sys.argv[2]])
live = "artifacts cluster faults labs machines plugin recording safety scenario".split()
loaded = [name for name in live if f"nodeproof.{name}" in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else status)
"""


def test_recheck_runs_without_packages_of_the_live_half(run: Path) -> None:
    thaw(run)
    process = proc.run((sys.executable, "-c", _BLOCKED, str(run), str(RUNS / "claims")), timeout_s=240)
    assert "deviates 0" in process.stdout


@pytest.mark.parametrize("name", [HISTORY, JUDGMENTS, CONFIGURATION])
@pytest.mark.parametrize("text", [None, '{"t": 1}', "[]"])
def test_malformed_file_costs_only_its_scenario_and_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None
) -> None:
    scenario = thaw(run)
    path = scenario.folder / name
    if text is None:
        rundir.write_json(run / rundir.DECLARED, {scenario.nodeid: [DETECTION]})
    path.write_text(text or path.read_text()[:-20])
    assert rechecked_by_command(run) == 3
    stderr, file = capsys.readouterr(), path.relative_to(run).as_posix()
    lost = f"A scenario cannot be judged again: a file of the run is malformed ({file})"
    assert f"nodeproof: the run is not whole: {lost}; restore the file" in stderr.err
    assert f"changed: {DETECTION} in {scenario.nodeid}: conforms -> absent: " in stderr.out
    assert {row["scenario"] for row in rundir.read_verdicts(run / "recheck")} == {SKIPPED}
    assert cases_with("error", run) >= {"The run is whole", f"{CLAIMS[DETECTION].statement} ({DETECTION})"}
    assert lost in page.write(run / "recheck", CLAIMS).read_text()
    try_result = result(run / "recheck", "try-2")
    assert (try_result["status"], try_result["statusDetails"]["message"][: len(lost)]) == ("broken", lost)
    assert [attachment["name"] for attachment in try_result["attachments"]] == ["kubelet.log"]
    assert result(run, "try-2")["status"] == "passed"


def test_run_without_its_recordings_is_refused(run: Path) -> None:
    thaw(run)
    shutil.rmtree(run / "scenarios")
    assert rechecked_by_command(run) == 2
    assert not (run / "recheck").exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest --shipped", 0),
        ("pytest --shipped --claim swap.fail-on-default -n 3", 3),
        ("pytest --shipped --shard=1/2 --claim=swap.fail-on-default; pytest --shard=2/2", 3),
        (f"pytest --claim {DETECTION}", 0),
    ],
)
def test_recheck_exits_with_3_if_a_selected_claim_is_unproven(run: Path, command: str, expected: int) -> None:
    """The swap scenario was skipped: this lab cannot prove it."""
    thaw(run, replace(FACTS, command=command))
    assert rechecked_by_command(run) == expected


@pytest.mark.parametrize("text", ["{", '{"run": "x"}', "[]"])
def test_run_without_facts_is_not_running(run: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    thaw(run)
    (run / "run.json").write_text(text)
    assert rechecked_by_command(run) == 2
    output = capsys.readouterr().err + page.write(run / "recheck", CLAIMS).read_text()
    assert output.count("run.json is malformed: when the run ended, and whether it did, nothing says.") == 2
    assert "The run has no end" not in output
