"""Synthetic runs: folders with verdicts, facts and slack, without a lab."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodeproof import catalogue
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.pattern import Json
from nodeproof.model.plan import Shard
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Window
from nodeproof.report import rundir
from nodeproof.report.digest import Digest, Load
from nodeproof.report.rundir import Row, RunFacts
from tests.unit.sample_checks import CLAIM

CLAIMS: Mapping[str, Claim] = catalogue.load()
JUDGED = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
VERSION = "v1.36.3"
DETECTION, TAINT = "monitoring.detection-time", "cordon.taint"
DEFAULT, SWAP = "monitoring.grace-period-default", "swap.fail-on-default"
WINDOW = Window(12.0, 14.62, 12.0, "period", "G", "G + 2P + slack")
CONFORMS = conforms("came 13.1 s after", WINDOW, Measured(13.1, "s"))
DEVIATES = deviates("came 15.2 s after: too late", WINDOW, Measured(15.2, "s"), "node node-1: Ready=True")
KNOWN = replace(DEVIATES, reported="kubernetes/kubernetes#1")
FIXED = replace(CONFORMS, reported="kubernetes/kubernetes#1")
GAP = unproven("gap", "the watch of leases was blind")
LACKS = unproven("lab-lacks", "this lab has no systemd")
FACTS = RunFacts(
    "told",
    "2026-11-20T14:15:30+00:00",
    "2026-11-20T14:21:32+00:00",
    "process",
    "fast",
    VERSION,
    "pytest --shipped",
    {"kubelet": {"path": "kubelet", "version": VERSION, "sha256": "0", "origin": "built"}},
    ("--node-monitor-grace-period=12s",),
    (),
    (),
    "",
)
ScenarioVerdict = tuple[str, str, Verdict]
"""A scenario, a claim and a verdict."""
CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
OTHER = "scenarios/test_other.py::test_other"
ROWS: Sequence[ScenarioVerdict] = [
    (CUT, DETECTION, CONFORMS),
    (CUT, TAINT, DEVIATES),
    (OTHER, DEFAULT, GAP),
    (OTHER, SWAP, LACKS),
]
"""A claim in each state."""
SCENARIO_WITHOUT_A_LAB = """
from nodeproof.scenario import claims

@claims("cordon.taint")
def test_it(judge):
    pass
"""
Parts = Sequence[Mapping[str, tuple[str, ...]]]
"""The scenarios of each shard, with their claims."""


def configuration(version: str = VERSION, grace: str = "12s") -> Configuration:
    """Return the configuration of a cluster with this grace period."""
    life = {"NodeMonitorGracePeriod": grace, "NodeEvictionRate": 0.9}
    manager = {"NodeLifecycleController": life, "KubeCloudShared": {"NodeMonitorPeriod": "1s"}}
    reported = {"kube-controller-manager": manager}
    return Configuration(version, "process", "fast", 1.0, 20.0, Calibration(0.03), reported=reported)


def measured(seconds: float) -> Verdict:
    """Return a verdict with this measurement."""
    return conforms(f"came {seconds} s after", WINDOW, Measured(seconds, "s"))


def tell(
    run: Path,
    verdict_rows: Sequence[ScenarioVerdict],
    facts: RunFacts | None = FACTS,
    settings: Configuration | None = None,
    claims: Mapping[str, Claim] = CLAIMS,
) -> Path:
    """Write a run with these verdicts; without facts it was killed before its end."""
    rundir.create(run)
    of = settings or configuration()
    by_scenario: dict[str, list[Row]] = {}
    for scenario, claim, verdict in verdict_rows:
        by_scenario.setdefault(scenario, []).append(rundir.row(claims[claim], scenario, verdict, of))
    for number, (scenario, rows) in enumerate(by_scenario.items()):
        folder = rundir.write_scenario(run, scenario, [], of, rows, 0.2 + number % 5 / 10)
        (folder / "timeline.svg").write_bytes(b"")
    if facts is not None:
        selected = tuple(sorted({claim for _scenario, claim, _verdict in verdict_rows}))
        rundir.write_facts(run, replace(facts, run=run.name, selected=facts.selected or selected))
        rundir.merge_verdicts(run)
    return run


def claim(claim_id: str, *constants: Constant) -> Claim:
    """Return a claim that is not in the catalogue."""
    return replace(CLAIM, id=claim_id, constants=constants)


def row(claim_id: str, verdict: Verdict, scenario: str = "s.py::test_it", *constants: Constant) -> Row:
    """Return the row of a verdict on such a claim."""
    return rundir.row(claim(claim_id, *constants), scenario, verdict, configuration())


def digest_of(rows: Sequence[Row], facts: RunFacts | None = None) -> Digest:
    """Return a run with these rows, in no folder; without facts it has no end."""
    return Digest(Path("/nonexistent/run"), CLAIMS, facts, tuple(rows), Load((), 0.0, 0), ())


def shard_of(number: int, parts: Parts, **changed: Json) -> Shard:
    """Return one of several shards of the run."""
    return replace(Shard(number, "process", "fast", VERSION, FACTS.began, (), tuple(parts)), **changed)


def shard_run(
    run: Path,
    number: int,
    parts: Parts,
    verdict_rows: Sequence[ScenarioVerdict],
    facts: RunFacts | None = FACTS,
) -> Path:
    """Write a run of one shard; without facts it died."""
    shard = shard_of(number, parts)
    selected = tuple(sorted({claim for claims in shard.parts[number - 1].values() for claim in claims}))
    stored = None if facts is None else replace(facts, shard=shard.to_json(), selected=selected)
    tell(run, verdict_rows, stored)
    rundir.write_shard(run, shard)
    (run / "labs" / "p-000001").mkdir(parents=True)
    (run / "labs" / "p-000001" / "kubelet.log").write_text(f"of shard {number}")
    rundir.write_json(run / "labs" / "p-000001.json", {"shard": number})
    (run / "allure-results" / f"{number}-result.json").write_text("{}")
    rundir.write_json(
        run / rundir.TIMES, {"start": 10.0 * number, **{scenario: 5.0 for scenario, *_ in verdict_rows}}
    )
    return run


def content(folder: Path) -> Mapping[str, bytes]:
    """Return the content of all files of a folder by path."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def alter(path: Path, **changed: Json) -> None:
    """Change the object of a file, or its first row."""
    content = json.loads(path.read_text())
    (content if isinstance(content, dict) else content[0]).update(changed)
    path.write_text(json.dumps(content))
