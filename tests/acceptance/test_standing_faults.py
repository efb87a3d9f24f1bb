"""Standing faults: injected once, visible to each scenario, healed when no scenario needs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeproof.faults import Fault
from nodeproof.labs.client.handle import LabHandle
from nodeproof.report import rundir
from tests.acceptance.altered import Cluster, lab_option, unaltered
from tests.acceptance.command import running
from tests.acceptance.conftest import Run
from tests.leftovers import file_of

SCENARIOS = '''
"""Kubelets with other settings, and an unchanged one."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Lab, claims, condition_became, default_of, kubelet_field, kubelet_settings, needs, recording_began,
    shows, standing, windows,
)

few_pods = standing(kubelet_settings, maxPods=40, registerNode=False)


@claims("registration.self-register-default")
@needs(nodes=2, faulted=1)
@few_pods
def test_first(lab: Lab, judge: Judge) -> None:
    node = lab.target
    with lab.record():
        seen = lab.observe(kubelet_field(node, "maxPods"))
        stays = condition_became(node, "Ready", "False").never_after(recording_began(), windows.absence(4))
        lab.wait_for(stays)
    judge("registration.self-register-default", shows(seen, 40))


@claims("registration.self-register-default")
@needs(nodes=2)
def test_as_it_is(lab: Lab, judge: Judge) -> None:
    with lab.record():
        seen = lab.observe(kubelet_field(lab.target, "maxPods"))
    judge("registration.self-register-default", shows(seen, 110))
    judge("registration.self-register-default", default_of("registerNode"))


@claims("registration.self-register-default")
@needs(nodes=2, faulted=1)
@few_pods
def test_second(lab: Lab, judge: Judge) -> None:
    with lab.record():
        seen = lab.observe(kubelet_field(lab.target, "maxPods"))
    judge("registration.self-register-default", shows(seen, 40))
    judge("registration.self-register-default", default_of("registerNode"))
'''


@pytest.fixture
def scenarios(tmp_path: Path) -> str:
    path = tmp_path / "test_standing_faults.py"
    path.write_text(SCENARIOS)
    return str(path)


def steps(lab: LabHandle, since: int) -> list[str]:
    """Return the ledger steps of the kubelet's settings from line `since` on."""
    entries = map(json.loads, file_of(lab.safety.ledger).read_text().splitlines()[since:])
    in_zone = (entry for entry in entries if entry["fault"].get("node") in lab.fleet.node_names())
    return [entry["step"] for entry in in_zone if entry["fault"]["fault"] == "kubelet-settings"]


def ledger_length(lab: LabHandle) -> int:
    path = file_of(lab.safety.ledger)
    return len(path.read_text().splitlines()) if path.exists() else 0


def standing_fault_is_healed_early(cluster: Cluster) -> None:
    """Heal the standing fault externally while the first of its scenarios records."""
    cluster.until_recorded('"stands":true')
    (entry,) = cluster.lab.safety.ledger.unfinished()
    Fault.from_json(entry.fault).heal(cluster.lab.fleet.machine(cluster.target))


def verdicts(run: Path) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for row in rundir.read_verdicts(run):
        labels.setdefault(str(row["scenario"]).rpartition("::")[2], []).append(
            str(row["code"] or row["verdict"])
        )
    return labels


def test_standing_fault_is_injected_once_for_scenarios_that_share_it(
    lab: LabHandle, run: Run, scenarios: str
) -> None:
    since = ledger_length(lab)
    result = run(lab, unaltered, scenarios)

    assert verdicts(result.run) == {
        "test_as_it_is": ["conforms", "conforms"],
        "test_first": ["conforms"],
        "test_second": ["conforms", "scaled"],
    }
    reasons = [row["reason"] for row in rundir.read_verdicts(result.run) if row["code"] == "scaled"]
    assert "registerNode of kubelet was set by fault" in reasons[0]
    assert steps(lab, since) == ["planned", "armed", "injecting", "injected", "healing", "healed", "closed"]
    assert lab.fleet.machine(lab.fleet.node_names()[0]).kubelet_configuration()["maxPods"] == 110


def test_standing_fault_that_ended_early_is_injected_again(lab: LabHandle, run: Run, scenarios: str) -> None:
    since = ledger_length(lab)
    result = run(lab, standing_fault_is_healed_early, scenarios)

    assert verdicts(result.run)["test_first"] == ["not-injected"]
    assert verdicts(result.run)["test_second"] == ["conforms", "scaled"]
    assert steps(lab, since).count("injected") == 2
    assert lab.safety.ledger.unfinished() == []


def test_standing_fault_of_a_killed_run_is_healed_by_the_next(
    lab: LabHandle, run: Run, scenarios: str, tmp_path: Path
) -> None:
    options = ("--lab", lab_option(lab), scenarios, "-k", "first")
    with running(*options, cwd=tmp_path, until=has_standing_fault):
        pass
    assert len(lab.safety.ledger.unfinished()) == 1
    result = run(lab, unaltered, scenarios, "-k", "as_it_is")

    assert verdicts(result.run) == {"test_as_it_is": ["conforms", "conforms"]}
    assert lab.safety.ledger.unfinished() == []


def has_standing_fault(run: Path) -> bool:
    """Return whether a recording shows a standing fault."""
    return any('"stands":true' in path.read_text() for path in run.glob("scenarios/*/history.jsonl"))
