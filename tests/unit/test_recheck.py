"""Recheck of a run: every file has the new verdict, and recorded data is unchanged."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from nodeproof import catalogue, cli, proc
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report import comparison, digest, page, recheck, rundir, site, tables, timeline
from tests.golden_runs import CONFIGURATION, FIELDS, HISTORY, JUDGMENTS, RUNS
from tests.unit.synthetic_runs import CONFORMS, DEVIATES, FACTS, LACKS, shard_of, tell

CLAIMS = catalogue.load([RUNS / "claims"])
FROZEN = "unreachable-measured"
DETECTION = "monitoring.detection-time"
BEGAN, NO_SITE = "20261120-141530", "--no-site"
SKIPPED = "s.py::test_swap"
SLOWER = re.compile(r'("NodeMonitorGracePeriod": )"[^"]*"')
"""A controller manager that waits longer than the recording lasts."""


def thaw(run: Path, facts: rundir.RunFacts | None = FACTS, frozen: str = FROZEN) -> rundir.Scenario:
    """Store a run with a recording of a real lab and a skipped scenario; without facts it was killed."""
    rundir.create(run)
    folder = run / "scenarios" / "frozen"
    folder.mkdir()
    for name in (CONFIGURATION, JUDGMENTS):
        shutil.copy(RUNS / frozen / name, folder / name)
    (folder / HISTORY).write_bytes(gzip.decompress((RUNS / frozen / f"{HISTORY}.gz").read_bytes()))
    shutil.copy(RUNS / FIELDS, run / FIELDS)
    # Where a run keeps it.
    nodeid = rundir.read_scenario(folder).nodeid
    scenario = rundir.read_scenario(folder.rename(folder.with_name(rundir.slug(nodeid))))
    tell(run, [(SKIPPED, "swap.fail-on-default", LACKS)], None, scenario.configuration())
    if facts is not None:
        selected = tuple(sorted({row["claim"] for row in scenario.rows}))
        rundir.write_facts(run, replace(facts, run=run.name, selected=selected))
        rundir.merge_verdicts(run)
    allure(run, scenario.nodeid)
    return scenario


def allure(run: Path, nodeid: str) -> None:
    """Write Allure's results of a scenario with two tries."""
    results, names = run / "allure-results", ("timeline", "verdicts", "kubelet.log")
    for start in (1, 2):
        sources = {name: f"{name}-{start}-attachment.txt" for name in names}
        for name, source in sources.items():
            (results / source).write_text(f"as it was: {name}")
        content = {
            **{"uuid": f"try-{start}", "name": "it", "fullName": "a#b", "start": start, "status": "passed"},
            "labels": [{"name": "scenario", "value": nodeid}, {"name": "thread", "value": "gw0"}],
            "attachments": [
                {"name": name, "source": source, "type": "text/plain"} for name, source in sources.items()
            ],
        }
        rundir.write_json(results / f"try-{start}-result.json", content)
    (results / "environment.properties").write_text("as = it was\n")


def alter(scenario: rundir.Scenario) -> None:
    path = scenario.folder / CONFIGURATION
    text, count = SLOWER.subn(r'\1"50s"', path.read_text())
    assert count
    path.write_text(text)


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


def rechecked_by_command(run: Path, *options: str) -> int:
    return cli.main(["recheck", str(run), *options, "--claims", str(RUNS / "claims")])


def files(folder: Path) -> Mapping[str, bytes]:
    """Return all files of a folder except those that recheck writes into a run."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and rundir.RECHECK not in path.relative_to(folder).parts
        and path.name != recheck.FILE
    }


def cases(run: Path, outcome: str) -> set[str]:
    """Return the cases of the JUnit report with this outcome."""
    every = ET.parse(run / "recheck" / tables.JUNIT_FILE).getroot().iter("testcase")  # noqa: S314
    return {case.get("name", "") for case in every if case.find(outcome) is not None}


@pytest.mark.parametrize("frozen", [FROZEN, "unreachable", "reboot"])
def test_every_file_has_the_new_verdict(run: Path, capsys: pytest.CaptureFixture[str], frozen: str) -> None:
    scenario = thaw(run, frozen=frozen)
    alter(scenario)
    folder = run / "recheck"
    assert rechecked_by_command(run, NO_SITE) == 1
    output = capsys.readouterr()
    assert f"changed: {DETECTION} in " in output.out
    assert f"report: {folder}" in output.out
    assert f"the page, judged again: {folder / 'site' / page.FILE}" in output.err
    assert of(rundir.read_verdicts(folder), DETECTION)["verdict"] == "deviates"
    stored = rundir.read_scenario(folder / "scenarios" / scenario.folder.name)
    assert of(stored.rows, DETECTION)["verdict"] == "deviates"
    assert stored.history().entries
    changed = of(json.loads((folder / rundir.CHANGES).read_text())["changed"], DETECTION)
    assert (changed["before"], changed["after"]) == ("conforms", "deviates")
    assert f"{DETECTION} · deviates" in (stored.folder / "timeline.svg").read_text()
    assert f"{CLAIMS[DETECTION].statement} ({DETECTION})" in cases(run, "failure")
    run_digest = digest.read(folder, CLAIMS)
    judged_page = (folder / "site" / page.FILE).read_text()
    assert "too early" in judged_page
    assert "again, from the recordings" in judged_page
    assert "too early" in tables.summary(run_digest)
    assert f"{run.name}/recheck" in comparison.matrix_markdown(comparison.compare([run_digest]))


def test_last_try_in_allure_has_the_new_verdict_and_keeps_the_rest(run: Path) -> None:
    alter(thaw(run))
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
    (skipped,) = (
        json.loads(path.read_text())
        for path in (folder / "allure-results").glob("*-result.json")
        if not path.name.startswith("try-")
    )
    assert (skipped["fullName"], skipped["status"]) == (SKIPPED, "skipped")


def test_files_of_the_recorded_run_are_unchanged(run: Path) -> None:
    alter(thaw(run))
    before = files(run)
    recheck.recheck(run, CLAIMS)
    page.write(run / "recheck", CLAIMS)
    recheck.recheck(run / "recheck", CLAIMS)
    assert files(run) == before
    assert of(rundir.read_verdicts(run), DETECTION)["verdict"] == "conforms"
    assert of(rundir.read_json(run / recheck.FILE), DETECTION)["verdict"] == "deviates"
    assert not (run / "recheck" / "site").exists(), "of another judging"
    assert not list(run.rglob("recheck/recheck"))


def test_unchanged_verdict_keeps_the_status(run: Path) -> None:
    scenario = thaw(run)
    # The frozen run has an older wording.
    rebuilt = recheck.recheck(run, CLAIMS).digest.run / "scenarios" / scenario.folder.name
    shutil.copy(rebuilt / "judgments.json", scenario.folder)
    path = run / "allure-results" / "try-2-result.json"
    changed_result = {**json.loads(path.read_text()), "statusDetails": {"message": "m", "trace": "t"}}
    path.write_text(json.dumps(changed_result))
    outcome = recheck.recheck(run, CLAIMS)
    assert outcome.changed == ()
    assert json.loads((run / recheck.FILE).read_text()) == list(outcome.digest.rows)
    assert result(outcome.digest.run, "try-2")["statusDetails"] == changed_result["statusDetails"]


def test_scenario_that_failed_otherwise_still_fails(run: Path) -> None:
    scenario = thaw(run)
    stored = json.loads((scenario.folder / JUDGMENTS).read_text())
    for row in stored["verdicts"]:
        row.update(verdict="deviates", code=None)
    (scenario.folder / JUDGMENTS).write_text(json.dumps(stored))
    path = run / "allure-results" / "try-2-result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "broken"}))
    outcome = recheck.recheck(run, CLAIMS)
    assert of(outcome.digest.rows, DETECTION)["verdict"] == "conforms"
    assert result(outcome.digest.run, "try-2")["status"] == "broken"


def test_earlier_runs_are_found_beside_the_recorded_one(run: Path) -> None:
    alter(thaw(run))
    for name, day, verdict in (("before", 19, DEVIATES), ("long-before", 18, CONFORMS)):
        facts = replace(FACTS, began=f"2026-11-{day}T14:15:30+00:00")
        tell(run.parent / name, [("s.py::test_before", DETECTION, verdict)], facts)
    outcome = recheck.recheck(run, CLAIMS)
    assert [facts.run for facts in outcome.digest.since[DETECTION].runs] == ["before", run.name]
    assert site.history(outcome.digest.run, outcome.facts) == site.history(run, outcome.facts)
    assert site.history(run, outcome.facts).parent == run.parent.resolve()


def test_killed_run_is_judged_and_marked_incomplete(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = thaw(run, None)
    rundir.write_json(run / rundir.DECLARED, {scenario.nodeid: [DETECTION], "s.py::test_b": ["cordon.taint"]})
    lab = {"kubernetes_version": "v1.36.3", "components": {"kubelet": {"version": "v1.36.3"}}}
    rundir.write_json(run / "labs" / "p-1.json", {**lab, "quarantined": ["node-2"], "calibration": {}})
    assert rechecked_by_command(run, NO_SITE) == 2
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
    assert "The run is whole" in cases(run, "error")


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


def test_report_is_rebuilt_without_nodejs(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> site.Node:
        raise Problem("no Node.js 20 or newer", "PATH", "install Node.js")

    monkeypatch.setattr(site, "find_node", none)
    thaw(run)
    assert rechecked_by_command(run) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "nodeproof: no Allure site, the rest is done: no Node.js 20 or newer (PATH); install Node.js"
    )
    assert (run / "recheck" / "site" / page.FILE).is_file()


def test_failed_write_is_one_line_and_keeps_the_earlier_result(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    thaw(run)
    recheck.recheck(run, CLAIMS)
    before = files(run / "recheck")

    def full(*_arguments: object) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(timeline, "render", full)
    assert rechecked_by_command(run, NO_SITE) == 2
    (line, detail) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodeproof: the run that was judged again cannot be written")
    assert detail == "no space left on device"
    assert not (run / ".recheck").exists()
    assert files(run / "recheck") == before


def test_failing_check_costs_only_its_own_verdict(run: Path) -> None:
    scenario = thaw(run)
    content = json.loads((scenario.folder / JUDGMENTS).read_text())
    content["judgments"][0]["check"] = {"name": "tea-leaves", "args": {}}
    rundir.write_json(scenario.folder / JUDGMENTS, content)
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


@pytest.mark.parametrize("torn", [HISTORY, JUDGMENTS, CONFIGURATION])
@pytest.mark.parametrize("is_declared", [True, False])
def test_torn_file_costs_only_its_scenario_and_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], torn: str, is_declared: bool
) -> None:
    scenario = thaw(run)
    if is_declared:
        rundir.write_json(run / rundir.DECLARED, {scenario.nodeid: [DETECTION]})
    path = scenario.folder / torn
    path.write_text(path.read_text()[:-20])
    assert rechecked_by_command(run, NO_SITE) == 3
    stderr, file = capsys.readouterr(), path.relative_to(run).as_posix()
    lost = f"A scenario cannot be judged again: a file of the run is malformed ({file})"
    assert f"nodeproof: the run is not whole: {lost}; restore the file" in stderr.err
    assert f"changed: {DETECTION} in {scenario.nodeid}: conforms -> absent: " in stderr.out
    assert {row["scenario"] for row in rundir.read_verdicts(run / "recheck")} == {SKIPPED}
    assert cases(run, "error") >= {"The run is whole", f"{CLAIMS[DETECTION].statement} ({DETECTION})"}
    assert lost in page.write(run / "recheck", CLAIMS).read_text()
    try_result = result(run / "recheck", "try-2")
    assert (try_result["status"], try_result["statusDetails"]["message"][: len(lost)]) == ("broken", lost)
    assert [attachment["name"] for attachment in try_result["attachments"]] == ["kubelet.log"]
    assert result(run, "try-2")["status"] == "passed"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *product((HISTORY, CONFIGURATION, JUDGMENTS), ('{"t": 1}', "[]")),
        (HISTORY, None),
        (CONFIGURATION, None),
    ],
)
def test_malformed_or_missing_file_is_named(run: Path, name: str, content: str | None) -> None:
    path = thaw(run).folder / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(Problem) as caught:
        recheck.rejudge(rundir.read_scenario(path.parent), CLAIMS)
    assert str(path) in str(caught.value)


def test_run_without_its_recordings_is_refused(run: Path) -> None:
    thaw(run)
    shutil.rmtree(run / "scenarios")
    assert rechecked_by_command(run, NO_SITE) == 2
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
    assert rechecked_by_command(run, NO_SITE) == expected


@pytest.mark.parametrize("text", ["{", '{"run": "x"}', "[]"])
def test_run_without_facts_is_not_reported_as_running(
    run: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    thaw(run)
    (run / "run.json").write_text(text)
    assert rechecked_by_command(run, NO_SITE) == 2
    output = capsys.readouterr().err + page.write(run / "recheck", CLAIMS).read_text()
    assert output.count("run.json is malformed: when the run ended, and whether it did, nothing says.") == 2
    assert "The run has no end" not in output
