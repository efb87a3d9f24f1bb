"""What stands for several scenarios: put in once, seen by each, healed when nobody asks for it any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeproof.faults import fault_from_json
from nodeproof.labs.client.lab import Lab
from nodeproof.report import rundir
from tests.acceptance.altered import Cluster, named, unaltered
from tests.acceptance.command import start
from tests.acceptance.conftest import Run
from tests.waiting import eventually

PHASE_LIMIT_S = 120.0
SCENARIOS = '''
"""Kubelets with other settings, and one as it is."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage, claims, condition_became, default_of, kubelet_field, kubelet_settings, needs, recording_began,
    shows, standing, windows,
)

few_pods = standing(kubelet_settings, maxPods=40, registerNode=False)


@claims("registration.self-register-default")
@needs(nodes=2, faulted=1)
@few_pods
def test_first(lab: Stage, judge: Judge) -> None:
    node = lab.target
    with lab.record():
        seen = lab.look(kubelet_field(node, "maxPods"))
        stays = condition_became(node, "Ready", "False").never_after(recording_began(), windows.absence(4))
        lab.wait_for(stays)
    judge("registration.self-register-default", shows(seen, 40))


@claims("registration.self-register-default")
@needs(nodes=2)
def test_as_it_is(lab: Stage, judge: Judge) -> None:
    with lab.record():
        seen = lab.look(kubelet_field(lab.target, "maxPods"))
    judge("registration.self-register-default", shows(seen, 110))
    judge("registration.self-register-default", default_of("registerNode"))


@claims("registration.self-register-default")
@needs(nodes=2, faulted=1)
@few_pods
def test_second(lab: Stage, judge: Judge) -> None:
    with lab.record():
        seen = lab.look(kubelet_field(lab.target, "maxPods"))
    judge("registration.self-register-default", shows(seen, 40))
    judge("registration.self-register-default", default_of("registerNode"))
'''


@pytest.fixture
def scenarios(tmp_path: Path) -> str:
    path = tmp_path / "test_standing.py"
    path.write_text(SCENARIOS)
    return str(path)


def steps(lab: Lab, since: int) -> list[str]:
    """What the ledger has of the kubelet's settings, from its line `since` on."""
    entries = map(json.loads, lab.safety.ledger.path.read_text().splitlines()[since:])
    ours = (entry for entry in entries if entry["fault"].get("node") in lab.fleet.node_names())
    return [entry["step"] for entry in ours if entry["fault"]["fault"] == "kubelet-settings"]


def lines(lab: Lab) -> int:
    path = lab.safety.ledger.path
    return len(path.read_text().splitlines()) if path.exists() else 0


def somebody_heals_it(cluster: Cluster) -> None:
    """Behind the back of whoever put it in, while the first scenario that asks for it records."""
    cluster.until_recorded('"stands":true')
    (entry,) = cluster.lab.safety.ledger.unfinished()
    fault_from_json(entry.fault).heal(cluster.lab.fleet.machine(cluster.target))


def verdicts(run: Path) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for row in rundir.read_verdicts(run):
        told.setdefault(str(row["scenario"]).rpartition("::")[2], []).append(
            str(row["code"] or row["verdict"])
        )
    return told


def test_it_is_put_in_once_and_scenarios_that_ask_for_it_come_together(
    lab: Lab, run: Run, scenarios: str
) -> None:
    since = lines(lab)
    ended = run(lab, unaltered, scenarios)

    assert verdicts(ended.run) == {
        "test_as_it_is": ["conforms", "conforms"],
        "test_first": ["conforms"],
        "test_second": ["conforms", "scaled"],
    }
    reasons = [row["reason"] for row in rundir.read_verdicts(ended.run) if row["code"] == "scaled"]
    assert "registerNode of kubelet was set by fault" in reasons[0]
    assert steps(lab, since) == ["planned", "armed", "injecting", "injected", "healing", "healed", "closed"]
    assert lab.fleet.machine(lab.fleet.node_names()[0]).kubelet_configuration()["maxPods"] == 110


def test_what_did_not_stand_to_the_end_proves_nothing_and_is_put_in_again(
    lab: Lab, run: Run, scenarios: str
) -> None:
    since = lines(lab)
    ended = run(lab, somebody_heals_it, scenarios)

    assert verdicts(ended.run)["test_first"] == ["not-injected"]
    assert verdicts(ended.run)["test_second"] == ["conforms", "scaled"]
    assert steps(lab, since).count("injected") == 2
    assert lab.safety.ledger.unfinished() == []


def test_what_a_killed_run_left_standing_is_healed_by_the_next_in_its_zone(
    lab: Lab, run: Run, scenarios: str, tmp_path: Path
) -> None:
    log, first = tmp_path / "log", tmp_path / "first"
    options = ("--no-site", "--lab", named(lab), "--run", str(first), scenarios, "-k", "first")
    child = start("run", *options, cwd=tmp_path, log=log)
    try:
        assert eventually(lambda: _is_recorded(first, '"stands":true'), PHASE_LIMIT_S), log.read_text()
    finally:
        child.kill()
        child.wait()
    assert len(lab.safety.ledger.unfinished()) == 1
    ended = run(lab, unaltered, scenarios, "-k", "as_it_is")

    assert verdicts(ended.run) == {"test_as_it_is": ["conforms", "conforms"]}
    assert lab.safety.ledger.unfinished() == []


def _is_recorded(run: Path, text: str) -> bool:
    return any(text in path.read_text() for path in run.glob("scenarios/*/history.jsonl"))
