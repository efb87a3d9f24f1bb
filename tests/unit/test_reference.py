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
