"""Commands of README and docs about a lab work as shown; those of the tutorial in order, with exit codes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodeproof import probes, proc
from nodeproof.actions import Action, ActionContext
from nodeproof.cluster.resources import pods
from nodeproof.cluster.workloads import Pod, run_pod
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.judgment import with_effect
from nodeproof.report import rundir
from tests import examples
from tests.acceptance.altered import lab_option
from tests.acceptance.command import nodeproof, the_run
from tests.documented import ON_A_LAB, TUTORIAL, Command, checkout, commands_of, runnable
from tests.waiting import eventually

TIMEOUT_S = 600.0
ENDED = "@@ ended with"


def run_in_one_shell(sequence: list[Command], top: Path, **variables: str) -> list[tuple[int, str]]:
    """Run commands in one shell; return the exit code and output of each."""
    ended = f"s=$?; echo; echo {shlex.quote(ENDED)} $s"
    lines = "\n".join(f"{command.text}\n{ended}" for command in sequence)
    process = proc.run(("bash", "-c", lines), timeout_s=TIMEOUT_S, cwd=top, env={**os.environ, **variables})
    print(process.stdout, process.stderr)
    outputs = process.stdout.split(ENDED)
    # Each part begins with the exit code of the previous command.
    return [(int(after.split(maxsplit=1)[0]), before) for before, after in pairwise(outputs)]


def test_tutorial_commands_do_what_the_tutorial_says(whole_lab: LabHandle, tmp_path: Path) -> None:
    sequence = runnable(TUTORIAL)
    checkout(tmp_path, sys.executable, whole_lab.name)
    policy = (tmp_path / "docs" / "examples" / "no-cordon-taint.yaml").read_text()
    try:
        results = run_in_one_shell(sequence, tmp_path, LAB=whole_lab.name)
    finally:
        whole_lab.cluster.run_kubectl(("delete", "--ignore-not-found", "-f", "-"), TIMEOUT_S, policy)
    assert [(command.text, status) for command, (status, _output) in zip(sequence, results, strict=True)] == [
        (command.text, command.status) for command in sequence
    ]
    outputs = {command.text: output for command, (_status, output) in zip(sequence, results, strict=True)}
    before, altered = (output for text, output in outputs.items() if " run " in text)
    assert "conforms 4  deviates 0" in before
    assert "did not occur within" in altered
    assert "no taint for a cordon here" in next(
        output for text, output in outputs.items() if " logs " in text
    )
    assert "cordon.taint: conforms -> deviates" in next(
        out for text, out in outputs.items() if "compare" in text
    )


@pytest.mark.parametrize("command", commands_of(ON_A_LAB))
def test_documented_lab_command_works(whole_lab: LabHandle, tmp_path: Path, command: str) -> None:
    # The pages name node-1. In a lab shared by zones it may be another worker's, and cut off just then.
    checkout(tmp_path, sys.executable, whole_lab.name)
    ((status, output),) = run_in_one_shell([Command(command, 0)], tmp_path)
    assert status == 0
    assert output.strip()


def test_example_scenario_proves_its_claims(lab: LabHandle, tmp_path: Path) -> None:
    for file, content in examples.files(examples.SCENARIOS).items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    assert labels_of(lab, tmp_path) == {
        "team.one-way-cut-keeps-ready": ["conforms"],
        "team.power-loss-is-noticed": ["conforms"],
    }


def test_documented_scenarios_prove_their_claims(whole_lab: LabHandle, tmp_path: Path) -> None:
    examples.write(examples.scenarios(examples.fragments()), tmp_path)
    assert labels_of(whole_lab, tmp_path) == {
        examples.CLAIM: ["conforms"] * 3 + ["lab-lacks"] * 2,
        "node-restriction.modify-own-only": ["conforms"],
    }


def labels_of(lab: LabHandle, folder: Path) -> Mapping[str, list[str]]:
    """Return the verdicts on a user's scenarios, by claim."""
    nodeproof("run", ".", "--no-site", "--lab", lab_option(lab), cwd=folder)
    run = the_run(folder)
    assert run is not None
    labels: dict[str, list[str]] = {}
    for row in rundir.read_verdicts(run):
        labels.setdefault(row["claim"], []).append(row["code"] or row["verdict"])
    return {claim: sorted(outcomes) for claim, outcomes in labels.items()}


def test_documented_probes_actions_and_kinds_work(lab: LabHandle) -> None:
    lab.prepare()
    node = lab.fleet.node_names()[0]
    added = examples.added(examples.CONTRIBUTING)
    probe = added["harness/nodeproof/probes.py"]
    assert definitions(probe, probes.Probe, probes.output_of, with_effect)["uptime"](node).read(lab) > 0
    running = run_pod(lab.cluster.api, node)
    definitions(added["harness/nodeproof/actions.py"], Action)["drop_pods"](node).do(
        ActionContext(lab, None, lambda _node: None)
    )
    assert eventually(lambda: not exists(lab, running), TIMEOUT_S)
    assert definitions(added["harness/nodeproof/labs/kinds/nothing/kind.py"])["NOTHING"].name == "nothing"


def definitions(code: str, *names: Any) -> Mapping[str, Any]:
    """Return the names that a file of code defines, given what it imports from its folder."""
    defined = {value.__name__: value for value in names}
    exec(compile(f"from __future__ import annotations\n{code}", "page", "exec"), defined)  # noqa: S102
    return defined


def exists(lab: LabHandle, pod: Pod) -> bool:
    items = lab.cluster.api.get(pods(pod.namespace))["items"]
    return pod.name in {item["metadata"]["name"] for item in items}
