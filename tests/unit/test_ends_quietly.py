"""A command whose reader has gone ends as Unix tools do; what breaks elsewhere in the same way is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeproof import cli
from tests.unit.told_runs import CONFORMS, Told, tell

LIMIT_S = 240.0
TOLD: list[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]


@pytest.mark.parametrize(
    "command", [("compare", "RUN", "RUN"), ("matrix", "--markdown", "-", "RUN"), ("summary", "RUN", "RUN")]
)
def test_nobody_reads_any_more(tmp_path: Path, command: tuple[str, ...]) -> None:
    run = tell(tmp_path / "run", TOLD)
    argv = [sys.executable, "-m", "nodeproof.cli", *(str(run) if each == "RUN" else each for each in command)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        said = started.stderr.read()
        assert started.wait(LIMIT_S) == 128 + signal.SIGPIPE
    assert said == b""


def test_another_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_told: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_reader_is_gone", lambda: False)
    monkeypatch.setattr(cli, "COMMANDS", (cli.Command("break", broken, ""),))
    with pytest.raises(BrokenPipeError):
        cli.main(["break"])
