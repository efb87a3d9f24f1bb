"""`python -m tests.large_run DIR`: write a run of 300 scenarios on 100 nodes.

Each is one of the frozen runs (`tests/runs`) on a wider cluster, with copies of its quietest node. The same
arguments give the same recordings.
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

from nodeproof.model.history import History
from nodeproof.model.shard import Shard
from nodeproof.report import allure, digest, rundir, timeline
from nodeproof.report.digest import verdict_of
from nodeproof.report.rundir import Scenario
from nodeproof.session import scenario_report
from tests.golden_runs import FIELDS, RUNS, thawed
from tests.unit.synthetic_runs import CLAIMS, FACTS

Json = Any
SCENARIOS, NODES = 300, 100
_APART_S = 0.004
"""Between the events of one node and those of the next."""
_LOG = 'E1124 23:29:45.123456 12345 node_lifecycle.go:632] "Something" node="node-%d" err="as it happens"\n'
_LOG_BYTES = 64 * 1024


def build(run: Path, scenarios: int = SCENARIOS, nodes: int = NODES) -> Path:
    """Make the run in an empty folder, without its site."""
    rundir.create(run)
    shutil.copy(RUNS / FIELDS, run)
    logs = run / "labs" / "p-000001"
    logs.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        _write_log(logs / f"{name}.log", 0)
    for number in range(1, nodes + 1):
        _write_log(logs / f"kubelet-node-{number}.log", number)
        _write_log(logs / f"node-node-{number}.log", number)
    nodeids = [nodeid for nodeid, _folder in _write_scenarios(run, scenarios, nodes)]
    rows = rundir.merge_verdicts(run)
    selected = tuple(sorted({row["claim"] for row in rows}))
    rundir.write_facts(run, replace(FACTS, run=run.name, selected=selected))
    _write_results(run, nodeids)
    return run


def divided(run: Path, into: Path, of: int) -> list[Path]:
    """Divide a large run into the runs of `of` shards.

    Each has its own part of what the run recorded and attached, and logs like the run's. The last shard died
    before its last scenario was judged.
    """
    facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
    claims: dict[str, list[str]] = {}
    for row in rows:
        claims.setdefault(row["scenario"], []).append(row["claim"])
    judged_claims = {nodeid: tuple(sorted(set(judged))) for nodeid, judged in sorted(claims.items())}
    parts = tuple(
        {name: judged_claims[name] for name in list(judged_claims)[number::of]} for number in range(of)
    )
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
        rundir.write_shard(own, shard)
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


def _write_scenarios(run: Path, scenarios: int, nodes: int) -> Iterator[tuple[str, Path]]:
    """Write each scenario, and yield its id and folder; frozen runs are repeated."""
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
    timeline.render_rates(history, judged, folder / "rates.svg")


def widened(entries: Sequence[dict[str, Json]], nodes: int) -> list[Mapping[str, Json]]:
    """Add copies of each scenario's quietest node until there are `nodes`."""
    begun = next(entry for entry in entries if entry["kind"] == "begun")
    faulted = {str(entry.get("node")) for entry in entries if entry["kind"] == "fault"}
    names = list(begun["nodes"])
    quiet = next((name for name in reversed(names) if name not in faulted), names[-1])
    others = [f"node-x{number}" for number in range(len(names) + 1, nodes + 1)]
    widened_nodes: list[Mapping[str, Json]] = []
    for entry in entries:
        if entry["kind"] == "begun":
            entry = {**entry, "nodes": [*names, *others]}
        if entry["kind"] == "listed":
            of_quiet = [item for item in entry["items"] if item["metadata"]["name"] == quiet]
            more = [_of(item, quiet, other) for other in others for item in of_quiet]
            entry = {**entry, "items": [*entry["items"], *more]}
        widened_nodes.append(entry)
        if entry["kind"] == "watch" and entry["object"]["metadata"]["name"] == quiet:
            for number, other in enumerate(others, 1):
                widened_nodes.append(
                    {**_of(entry, quiet, other), "t": round(entry["t"] + number * _APART_S, 6)}
                )
    return sorted(widened_nodes, key=lambda entry: float(entry["t"]))


def _of(entry: Mapping[str, Json], quiet: str, other: str) -> Mapping[str, Json]:
    """Return the same data for another node."""
    changed: Mapping[str, Json] = json.loads(json.dumps(entry).replace(f'"{quiet}"', f'"{other}"'))
    return changed


def _write_results(run: Path, nodeids: Sequence[str]) -> None:
    """Write Allure's results, with the attachments that a run has."""
    for number, nodeid in enumerate(nodeids):
        scenario = rundir.read_scenario(rundir.scenario_dir(run, nodeid))
        verdicts = [(row["claim"], verdict_of(row)) for row in scenario.rows[: len(scenario.judgments)]]
        status = allure.status_of([verdict for _claim, verdict in verdicts])
        claims, message = (
            [claim for claim, _verdict in verdicts],
            digest.failure_message(verdicts, CLAIMS, "v1"),
        )
        result = allure.new_result(nodeid, claims, CLAIMS, status, message, 1_700_000_000.0 + number)
        logs = scenario_report.log_tails(
            [run / "labs" / "p-000001"], {"node-1", "node-2"}, short=status == "passed"
        )
        added = [*allure.attachments(scenario.folder, verdicts), *logs]
        allure.write_result(run / allure.RESULTS / f"{number}-result.json", result, added)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
