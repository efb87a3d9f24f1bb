"""The command line for somebody new: next steps, help that fits a screen, and missing extras."""

from __future__ import annotations

import shlex
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name

import pytest

from nodeproof import cli
from nodeproof.run_options import RUN_OPTIONS

LINES, COLUMNS = 24, 80
HELPS = [(), *((command.name,) for command in cli.COMMANDS)]


def test_next_steps_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    steps = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line[4:14] == "nodeproof "]
    assert {step[0] for step in steps} >= {"audit", "doctor", "run", "claims"}
    for step in steps:
        assert cli._parser().parse_known_args(step)[0].command == step[0]


@pytest.mark.parametrize("command", HELPS)
def test_help_fits_a_screen(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert any(line.startswith("example: nodeproof") for line in lines)


def test_each_command_is_in_the_help_and_described_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    names = {command.name for command in cli.COMMANDS}
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert names <= set(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        cli.main(["--commands"])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == names


def test_options_of_runs_are_described_without_a_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--options"]) == 0
    described = capsys.readouterr().out
    assert all(f"  {option.names[0]}" in described for option in RUN_OPTIONS)


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_example_is_accepted(command: cli.Command) -> None:
    arguments, rest = cli._parser().parse_known_args(shlex.split(command.example))
    assert arguments.command == command.name
    assert command.passes_on or not rest
    parameters = signature(resolve_name(f"nodeproof.{command.place}")).parameters
    assert len(parameters) == 1 + command.passes_on


def test_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = tmp_path / "nodeproof-0.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Metadata-Version: 2.4\nName: nodeproof\nVersion: 0.1.0\nProvides-Extra: lab\n"
        "Requires-Dist: no-such-package>=1; extra == 'lab'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.main(["doctor"]) == 2
    message = capsys.readouterr().err
    assert "not installed: no-such-package (nodeproof doctor)" in message
    assert "pip install 'nodeproof[lab]'" in message
