"""`python -m tests.large_run DIR`: a run of 300 scenarios on 100 nodes, as large as real ones and told.

Each is one of the frozen runs (`tests/runs`) on a wider cluster: what its quietest node did, so many others
do as well. The same arguments give the same run. Allure's results are written by what writes them in a run.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.model.history import History
from nodeproof.model.shard import Shard
from nodeproof.report import rates, rundir, shards, timeline
from nodeproof.report.outcome import verdict_of
from nodeproof.report.rundir import Scenario
from tests.freeze import FIELDS, RUNS, thawed
from tests.unit.told_runs import FACTS

Json = Any
SCENARIOS, NODES = 300, 100
TOLD = "told.json"
LIMIT_S = 1800.0
_APART_S = 0.004
"""Between what one node does and what the next one does."""
_LOG = 'E1124 23:29:45.123456 12345 node_lifecycle.go:632] "Something" node="node-%d" err="as it happens"\n'
_LOG_BYTES = 64 * 1024
_TELLS = """
import json
from pathlib import Path

import allure
import pytest

from nodeproof.report import rundir
from nodeproof.report.outcome import verdict_of
from nodeproof.session import judging, recording

RUN = Path({run!r})
TOLD = json.loads((RUN / {told!r}).read_text())


@pytest.mark.parametrize("nodeid", TOLD)
def test_it(nodeid):
    scenario = rundir.read_scenario(rundir.scenario_dir(RUN, nodeid))
    rows = scenario.rows[: len(scenario.judgments)]
    judged = tuple(zip(scenario.judgments, map(verdict_of, rows), strict=True))
    closed = judging.Closed(judged, ())
    for claim in sorted({{row["claim"] for row in rows}}):
        allure.dynamic.label("epic", claim.partition(".")[0])
        allure.dynamic.label("feature", claim)
    with allure.step("a step"), allure.step("in another"):
        pass
    recording.attach(RUN, nodeid, closed, scenario.configuration())
    is_well = closed.worst().outcome == "conforms"
    recording.attach_logs([RUN / "labs" / "p-000001"], {{"node-1", "node-2"}}, short=is_well)
    assert is_well, closed.worst().label
"""


def build(run: Path, scenarios: int = SCENARIOS, nodes: int = NODES) -> Path:
    """Make the run in an empty folder, without its site. Raises CommandFailed where pytest does."""
    rundir.create(run)
    shutil.copy(RUNS / FIELDS, run)
    logs = run / "labs" / "p-000001"
    logs.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        _write_log(logs / f"{name}.log", 0)
    for number in range(1, nodes + 1):
        _write_log(logs / f"kubelet-node-{number}.log", number)
        _write_log(logs / f"node-node-{number}.log", number)
    told = [nodeid for nodeid, _folder in _tell(run, scenarios, nodes)]
    (run / TOLD).write_text(json.dumps(told))
    rows = rundir.merge_verdicts(run)
    selected = tuple(sorted({row["claim"] for row in rows}))
    rundir.write_facts(run, replace(FACTS, run=run.name, selected=selected))
    _write_results(run)
    return run


def divided(run: Path, into: Path, of: int) -> list[Path]:
    """The runs of so many shards that make up a large run, each with its own part of what that recorded
    and attached, and with logs like that one's. The last one died before its last scenario was judged.
    """
    facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
    claims: dict[str, list[str]] = {}
    for row in rows:
        claims.setdefault(row["scenario"], []).append(row["claim"])
    told = {nodeid: tuple(sorted(set(judged))) for nodeid, judged in sorted(claims.items())}
    parts = tuple({name: told[name] for name in list(told)[number::of]} for number in range(of))
    runs = []
    for number, part in enumerate(parts, 1):
        own = rundir.create(into / f"{number}")
        shard = Shard(number, facts.lab, facts.profile, facts.kubernetes_version, facts.began, (), parts)
        *_, last = part
        for nodeid in part:
            _link(run / "scenarios" / rundir.slug(nodeid), own / "scenarios" / rundir.slug(nodeid))
        for path in sorted((run / "allure-results").iterdir())[number - 1 :: of]:
            os.link(path, own / "allure-results" / path.name)
        _link(run / "labs", own / "labs")
        shutil.copy(run / FIELDS, own)
        shards.write(own, shard)
        if number < of:
            rundir.merge_verdicts(own)
            rundir.write_facts(
                own, replace(facts, run=own.name, shard=shard.to_json(), selected=shard.claims)
            )
        else:
            (own / "scenarios" / rundir.slug(last) / "judgments.json").unlink()
        runs.append(own)
    return runs


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


def _write_log(path: Path, number: int) -> None:
    line = _LOG % number
    path.write_text(line * (_LOG_BYTES // len(line)))


def _tell(run: Path, scenarios: int, nodes: int) -> Iterator[tuple[str, Path]]:
    """Write each scenario, and give what it is called and where it is; frozen runs come again and again."""
    frozen = sorted(path.parent for path in RUNS.glob("*/history.jsonl.gz"))
    first: dict[Path, Path] = {}
    for number in range(scenarios):
        source = frozen[number % len(frozen)]
        nodeid = f"scenarios/told/test_{source.name.replace('-', '_')}.py::test_{number}"
        folder = rundir.scenario_dir(run, nodeid)
        if source not in first:
            first[source] = folder
            _write_evidence(source, folder, nodes)
        else:
            for path in first[source].iterdir():
                if path.name != "judgments.json":
                    os.link(path, folder / path.name)
        judgments = rundir.read_json(source / "judgments.json")
        rows = [{**row, "scenario": nodeid} for row in judgments["verdicts"]]
        rundir.write_json(folder / "judgments.json", {**judgments, "scenario": nodeid, "verdicts": rows})
        yield nodeid, folder


def _write_evidence(source: Path, folder: Path, nodes: int) -> None:
    lines = gzip.decompress((source / "history.jsonl.gz").read_bytes()).decode().splitlines()
    wider = [
        json.dumps(entry, separators=(",", ":")) for entry in widened(list(map(json.loads, lines)), nodes)
    ]
    (folder / "history.jsonl").write_text("\n".join(wider) + "\n")
    (folder / "configuration.json").write_bytes((source / "configuration.json").read_bytes())
    with thawed(source) as scenario:
        _draw(scenario, History.parse(wider), folder)


def _draw(scenario: Scenario, history: History, folder: Path) -> None:
    judged = list(
        zip(scenario.judgments, map(verdict_of, scenario.rows[: len(scenario.judgments)]), strict=True)
    )
    timeline.render(history, judged, folder / "timeline.svg", folder.name)
    rates.render(history, judged, folder / "rates.svg")


def widened(entries: Sequence[dict[str, Json]], nodes: int) -> list[Mapping[str, Json]]:
    """The entries, and for each of its quietest node those of so many more that there are `nodes`."""
    begun = next(entry for entry in entries if entry["kind"] == "begun")
    faulted = {str(entry.get("node")) for entry in entries if entry["kind"] == "fault"}
    known = list(begun["nodes"])
    quiet = next((name for name in reversed(known) if name not in faulted), known[-1])
    others = [f"node-x{number}" for number in range(len(known) + 1, nodes + 1)]
    made: list[Mapping[str, Json]] = []
    for entry in entries:
        if entry["kind"] == "begun":
            entry = {**entry, "nodes": [*known, *others]}
        if entry["kind"] == "listed":
            of_quiet = [item for item in entry["items"] if item["metadata"]["name"] == quiet]
            more = [_of(item, quiet, other) for other in others for item in of_quiet]
            entry = {**entry, "items": [*entry["items"], *more]}
        made.append(entry)
        if entry["kind"] == "watch" and entry["object"]["metadata"]["name"] == quiet:
            for number, other in enumerate(others, 1):
                made.append({**_of(entry, quiet, other), "t": round(entry["t"] + number * _APART_S, 6)})
    return sorted(made, key=lambda entry: float(entry["t"]))


def _of(told: Mapping[str, Json], quiet: str, other: str) -> Mapping[str, Json]:
    """The same of another node."""
    changed: Mapping[str, Json] = json.loads(json.dumps(told).replace(f'"{quiet}"', f'"{other}"'))
    return changed


def _write_results(run: Path) -> None:
    """Let Allure's results be written as in a run, by a pytest of its own."""
    file = run.parent / f"test_{run.name.replace('-', '_')}.py"
    file.write_text(_TELLS.format(run=str(run), told=TOLD))
    results = f"--alluredir={run / 'allure-results'}"
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, results)
    done = proc.run((*argv, str(file)), timeout_s=LIMIT_S, check=False, cwd=run.parent)
    file.unlink()
    if done.status not in (0, 1):
        raise proc.CommandFailed(argv, done.status, done.stdout + done.stderr)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
