"""The recording of a terminal in docs: the commands work on the kept recordings, without a lab."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from infra import recording
from infra.showpiece import write_run
from nodeproof import proc
from nodeproof.cli import main
from tests.documented import TOP


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the run of the kept recordings."""
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def cast(run: Path) -> str:
    """Record the commands."""
    return recording.record(run)


def test_recording_takes_half_a_minute_and_shows_verdicts(cast: str) -> None:
    header, *entries = map(json.loads, cast.splitlines())
    times, text = [entry[0] for entry in entries], "".join(entry[2] for entry in entries)
    assert (header["version"], times) == (2, sorted(times))
    assert 25 <= times[-1] <= 40
    assert re.search(r"conforms [1-9]\d*  deviates 0", text)
    assert "not whole" not in text
    assert "/tmp" not in text


def test_picture_of_a_recording_has_its_text_and_loads_nothing(cast: str) -> None:
    text = recording.picture(cast)
    picture = Tree.fromstring(text)  # noqa: S314  our own
    assert "nodeproof page kept-recordings" in "".join(picture.itertext())
    assert set(re.findall(r'(?:href|src)="([^#"]*)', text)) == {""}
    assert "url(" not in text


def test_documented_picture_shows_the_start_text_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    picture = "".join(Tree.parse(TOP / "docs" / "terminal.svg").getroot().itertext())  # noqa: S314  our own
    assert [line for line in capsys.readouterr().out.splitlines() if line not in picture] == []


def test_command_that_fails_fails_the_recording(tmp_path: Path) -> None:
    with pytest.raises(proc.CommandFailed):
        recording.record(tmp_path / "nothing")
