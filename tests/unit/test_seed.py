"""What a process node's sshd is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.process.seed import _sshd_config

SPEC = NodeSpec("node-1", 0, "zone-a", "0" * 32)


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        ([], []),
        (["sshd-session"], ["SshdSessionPath"]),
        (["sshd-session", "sshd-auth"], ["SshdSessionPath", "SshdAuthPath"]),
    ],
)
def test_an_unpacked_sshd_is_told_where_its_other_programs_are(
    tmp_path: Path, programs: list[str], told: list[str]
) -> None:
    folder = tmp_path / "usr" / "lib" / "openssh"
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).touch()
    lines = _sshd_config(SPEC, tmp_path / "usr" / "sbin" / "sshd").splitlines()
    assert [line.split()[0] for line in lines if line.startswith("Sshd")] == told
    assert all(str(folder) in line for line in lines if line.startswith("Sshd"))
