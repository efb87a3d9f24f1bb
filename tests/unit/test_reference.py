"""docs/commands.md names all that can be typed, and says of each what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.reference import commands_page
from nodeproof import cli

TOP = Path(__file__).resolve().parents[2]
PAGE = commands_page()


def test_the_page_is_the_parsers() -> None:
    assert (TOP / "docs" / "commands.md").read_text() == PAGE


@pytest.mark.parametrize("command", [each.name for each in cli.COMMANDS])
def test_every_command_is_there(command: str) -> None:
    assert f"### nodeproof {command}\n" in PAGE


def test_nothing_is_without_a_word_about_it() -> None:
    assert not re.findall(r"^\| `[^|]*` \|  \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("said", ["`--shard K/N`", "`--settings`", "`RUN...`", "`[RUN]`", "`make soak`"])
def test_values_and_numbers_are_said(said: str) -> None:
    assert said in PAGE


def test_options_before_a_command_are_there() -> None:
    assert "| `--debug` |" in PAGE
    assert "| `--version` |" in PAGE


@pytest.mark.parametrize(
    "row",
    [
        "| `make run` | `LAB=process`, `PROFILE=fast`, `WORKERS=auto`, `ARGS` |",
        "| `make soak` | `N=10`, `SEED=12`, `LAB=process` |",
        "| `make times` | `RUN` |",
        "| `make setup` | `LAB=process` |",
        "| `make lint` |  |",
        "| `make test-vm` |  |",
    ],
)
def test_targets_say_which_variables_they_take(row: str) -> None:
    assert row in PAGE
