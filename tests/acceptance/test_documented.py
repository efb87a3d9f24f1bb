"""What README and docs show of a lab works as shown: the tutorial in order, with the exit codes it says."""

from __future__ import annotations

import os
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts.components import Components
from nodeproof.labs.client.lab import Lab
from tests.documented import ON_A_LAB, REASONS, SETTINGS, TUTORIAL, Command, checkout, commands

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
    assert "did not come within" in altered
    assert "no taint for a cordon here" in next(output for text, output in said.items() if " logs " in text)
    assert "cordon.taint: conforms -> deviates" in next(
        out for text, out in said.items() if "compare" in text
    )


@pytest.mark.parametrize("command", ON_A_LAB)
def test_what_is_shown_of_a_lab_works(lab: Lab, tmp_path: Path, command: str) -> None:
    checkout(tmp_path, sys.executable, lab.name)
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
