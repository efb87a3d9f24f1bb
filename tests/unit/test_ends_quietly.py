"""A command with a closed output pipe ends like Unix tools; other broken pipes are errors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeproof import cli
from tests.unit.synthetic_runs import CONFORMS, ScenarioVerdict, tell

TIMEOUT_S = 240.0
ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]


@pytest.mark.parametrize(
    "command", [("compare", "RUN", "RUN"), ("matrix", "--markdown", "-", "RUN"), ("summary", "RUN", "RUN")]
)
def test_closed_output_pipe_ends_quietly(tmp_path: Path, command: tuple[str, ...]) -> None:
    run = tell(tmp_path / "run", ROWS)
    argv = [
        sys.executable,
        "-m",
        "nodeproof.cli",
        *(str(run) if argument == "RUN" else argument for argument in command),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        errors = started.stderr.read()
        assert started.wait(TIMEOUT_S) == 128 + signal.SIGPIPE
    assert errors == b""


def test_other_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_reader_is_gone", lambda: False)
    monkeypatch.setattr(cli, "COMMANDS", (cli.Command("break", broken, ""),))
    with pytest.raises(BrokenPipeError):
        cli.main(["break"])
