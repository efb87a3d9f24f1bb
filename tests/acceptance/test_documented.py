"""What README and docs show of a lab works as shown: the tutorial in order, with the exit codes it says, and
the code of scenarios, probes and actions.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.actions.action import Action, Doing
from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import pods
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.probes import probe as probes
from nodeproof.report import rundir
from tests import examples
from tests.acceptance.altered import named
from tests.acceptance.command import nodeproof, the_run
from tests.documented import ON_A_LAB, REASONS, SETTINGS, TUTORIAL, Command, checkout, commands
from tests.waiting import eventually

LIMIT_S = 600.0
ENDED = "@@ ended with"


def shown(page: Path) -> list[Command]:
    """The commands of a page that a test can run."""
    return [command for command in commands(page) if command.text not in REASONS]


def carried_out(told: list[Command], top: Path, **variables: str) -> list[tuple[int, str]]:
    """Commands in one shell: the exit code and the output of each."""
    ended = f"s=$?; echo; echo {shlex.quote(ENDED)} $s"
    lines = "\n".join(f"{command.text}\n{ended}" for command in told)
    done = proc.run(("bash", "-c", lines), timeout_s=LIMIT_S, cwd=top, env={**os.environ, **variables})
    print(done.stdout, done.stderr)
    said = done.stdout.split(ENDED)
    # What a part begins with is how the command before it ended.
    return [(int(after.split(maxsplit=1)[0]), before) for before, after in pairwise(said)]


def test_the_tutorial_does_what_it_says(whole_lab: Lab, tmp_path: Path) -> None:
    told = shown(TUTORIAL)
    checkout(tmp_path, sys.executable, whole_lab.name)
    policy = (tmp_path / "docs" / "examples" / "no-cordon-taint.yaml").read_text()
    try:
        seen = carried_out(told, tmp_path, LAB=whole_lab.name)
    finally:
        whole_lab.cluster.run_kubectl(("delete", "--ignore-not-found", "-f", "-"), LIMIT_S, policy)
    assert [(command.text, status) for command, (status, _said) in zip(told, seen, strict=True)] == [
        (command.text, command.status) for command in told
    ]
    said = {command.text: output for command, (_status, output) in zip(told, seen, strict=True)}
    before, altered = (output for text, output in said.items() if " run " in text)
    assert "conforms 4  deviates 0" in before
    assert "did not occur within" in altered
    assert "no taint for a cordon here" in next(output for text, output in said.items() if " logs " in text)
    assert "cordon.taint: conforms -> deviates" in next(
        out for text, out in said.items() if "compare" in text
    )


@pytest.mark.parametrize("command", ON_A_LAB)
def test_what_is_shown_of_a_lab_works(whole_lab: Lab, tmp_path: Path, command: str) -> None:
    # The pages name node-1. In a lab shared by zones it may be another worker's, and cut off just then.
    checkout(tmp_path, sys.executable, whole_lab.name)
    ((status, said),) = carried_out([Command(command, 0)], tmp_path)
    assert status == 0
    assert said.strip()


def test_a_folder_of_executables_is_made_as_shown(components: Components, tmp_path: Path) -> None:
    checkout(tmp_path, sys.executable)
    seen = carried_out(shown(SETTINGS), tmp_path)
    assert {status for status, _said in seen} == {0}
    (line,) = (line for line in seen[-1][1].splitlines() if line.startswith("kube-controller-manager"))
    assert components.kubernetes_version in line
    script = tmp_path / "reports" / "out" / "mine" / "kube-controller-manager"
    assert "--node-monitor-grace-period=25s" in script.read_text()


def test_the_example_of_a_scenario_proves_its_claims(lab: Lab, tmp_path: Path) -> None:
    for file, content in examples.files(examples.SCENARIOS).items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    assert labels_of(lab, tmp_path) == {
        "team.one-way-cut-keeps-ready": ["conforms"],
        "team.power-loss-is-noticed": ["conforms"],
    }


def test_what_is_shown_of_scenarios_proves_its_claims(whole_lab: Lab, tmp_path: Path) -> None:
    examples.write(examples.scenarios(examples.fragments(examples.SCENARIOS)), tmp_path)
    assert labels_of(whole_lab, tmp_path) == {
        examples.CLAIM: ["conforms"] * 3 + ["lab-lacks"] * 2,
        "node-restriction.modify-own-only": ["conforms"],
    }


def labels_of(lab: Lab, folder: Path) -> Mapping[str, list[str]]:
    """The verdicts on a user's scenarios, by claim."""
    nodeproof("run", ".", "--no-site", "--lab", named(lab), cwd=folder)
    run = the_run(folder)
    assert run is not None
    labels: dict[str, list[str]] = {}
    for row in rundir.read_verdicts(run):
        labels.setdefault(row["claim"], []).append(row["code"] or row["verdict"])
    return {claim: sorted(found) for claim, found in labels.items()}


def test_what_is_shown_of_probes_actions_and_kinds_works(lab: Lab) -> None:
    lab.prepare()
    node = lab.fleet.node_names()[0]
    probe, action, kind = examples.new_files(examples.CONTRIBUTING).values()
    assert made(probe, probes.Probe, probes.output_of)["uptime"](node).read(lab) > 0
    running = lab.cluster.run_pod(node)
    made(action, Action)["drop_pods"](node).do(Doing(lab, None, lambda _node: None))
    assert eventually(lambda: not is_there(lab, running), LIMIT_S)
    assert made(kind)["NOTHING"].name == "nothing"


def made(code: str, *known: Any) -> Mapping[str, Any]:
    """What a file of code defines; of what it imports in its folder the page shows nothing."""
    defined = {each.__name__: each for each in known}
    exec(compile(f"from __future__ import annotations\n{code}", "page", "exec"), defined)  # noqa: S102
    return defined


def is_there(lab: Lab, made_pod: Pod) -> bool:
    items = lab.cluster.api.get(pods(made_pod.namespace))["items"]
    return made_pod.name in {item["metadata"]["name"] for item in items}
