"""`try_kubelet`: what it observes of programs that end, run on, or cannot run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeproof import actions
from nodeproof.actions import ActionContext, try_kubelet
from nodeproof.model.problem import Problem
from tests.fakes import Local, executable, fake_lab

NODE, HOME = "node-1", "/run/nodeproof-tried"
STARTS = "echo I1128 Started kubelet"
RUNS_ON = "exec sleep 60"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times of a trial."""
    monkeypatch.setattr(actions, "_STARTS_S", 3)
    monkeypatch.setattr(actions, "_RUNS_S", 1)


def trial(folder: Path, script: str) -> object:
    """Try a program instead of a kubelet on this machine, and return what was observed."""
    program = executable(folder / "kubelet", script) if script else folder / "missing"
    local = Local(folder, {HOME: f"{folder}/tried"})
    lab = fake_lab(
        {
            "safety.has_joined": lambda _name: True,
            "fleet.machine": lambda _name: local,
            "fleet.nodes": lambda: [SimpleNamespace(name=NODE, kubelet=str(program))],
            "kind.is_hollow": True,
        }
    )
    action = try_kubelet(NODE, "--x=y", maxPods=9)
    try:
        return action.do(ActionContext(lab, None, lambda _node: None)).value
    finally:
        local.end()


@pytest.mark.parametrize(
    ("script", "status", "output"),
    [
        ("echo invalid flag; exit 1", 1, "invalid flag\n"),
        (f"{STARTS}; sleep 0.2; echo invalid; exit 1", 1, "I1128 Started kubelet\ninvalid\n"),
        (f"{STARTS}; {RUNS_ON}", None, "I1128 Started kubelet\n"),
        (f"trap 'exit 0' TERM; {STARTS}; sleep 60 & wait", None, "I1128 Started kubelet\n"),
        (f"trap '' TERM; {STARTS}; sleep 20", None, "I1128 Started kubelet\n"),
        (f"{STARTS}; sleep 0.2; exit 143", 143, "I1128 Started kubelet\n"),
        ("exit 143", 143, ""),
        ("echo panic; echo 'goroutine 1 [running]:'; echo stack; exit 2", 2, "panic\n"),
    ],
)
def test_exit_of_a_kubelet_is_observed(script: str, status: int | None, output: str, tmp_path: Path) -> None:
    assert trial(tmp_path, script) == {"status": status, "output": output}


def test_settings_and_flags_are_passed(tmp_path: Path) -> None:
    value = trial(tmp_path, 'cat "${1#--config=}"; echo; echo "$*"; exit 1')
    assert isinstance(value, dict)
    settings, arguments = value["output"].splitlines()
    assert '"maxPods": 9' in settings
    home = f"{tmp_path}/tried"
    assert arguments == f"--config={home}.json --root-dir={home} --cert-dir={home} --x=y"


@pytest.mark.parametrize("script", [RUNS_ON, "trap 'exit 0' TERM; sleep 60 & wait", "kill -9 $$", ""])
def test_program_that_does_not_start_or_is_killed_is_no_observation(script: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="could not be tried"):
        trial(tmp_path, script)


def test_full_disk_is_no_observation(tmp_path: Path) -> None:
    (tmp_path / "tried.json").symlink_to("/dev/full")
    with pytest.raises(Problem, match="could not be tried"):
        trial(tmp_path, f"{STARTS}; {RUNS_ON}")
