"""`nodeproof doctor` on this machine, where labs start."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.kinds import KINDS, LIBVIRT, VAGRANT
from nodeproof.labs.kinds.libvirt import hypervisor
from nodeproof.labs.kinds.vagrant.kind import TOOLS as VAGRANT_TOOLS
from nodeproof.root import TOOLS, become_root, missing_tools
from tests.acceptance.command import nodeproof
from tests.leftovers import host_tables


@pytest.mark.parametrize("kind", KINDS)
def test_a_lab_that_starts_here_is_said_to(kind: str, tmp_path: Path) -> None:
    needs = {LIBVIRT.name: hypervisor.TOOLS, VAGRANT.name: (*hypervisor.TOOLS, *VAGRANT_TOOLS)}.get(kind, ())
    if needs and (missing_tools(needs) or find_spec("libvirt") is None):
        pytest.skip("set-up for virtual machines was not run here")

    done = nodeproof("doctor", "--lab", kind, cwd=tmp_path)

    assert done.status == 0, done
    assert f"{kind} lab: can start" in done.stdout
    assert "missing" not in done.stdout


def test_a_path_without_virsh_gets_the_command_that_brings_it(tmp_path: Path) -> None:
    for tool in {*TOOLS, *hypervisor.TOOLS, "sudo"} - {"virsh"}:
        found = shutil.which(tool)
        if found is not None:
            (tmp_path / tool).symlink_to(found)

    done = nodeproof("doctor", "--lab", "libvirt", cwd=tmp_path, env={"PATH": str(tmp_path)})

    assert done.status == 1, done
    (line,) = [line for line in done.stdout.splitlines() if "programs:" in line]
    assert "virsh" in line
    assert "infra/setup.sh libvirt" in line


@pytest.mark.alone
def test_it_changes_nothing(tmp_path: Path) -> None:
    before = _state()

    nodeproof("doctor", cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert _state() == before
    assert list(tmp_path.iterdir()) == []


def _state() -> tuple[str, ...]:
    """Of the host's own network and mounts, what a trial outside of namespaces would show in."""
    links = proc.run([*become_root(), "ip", "-o", "link"], timeout_s=10).stdout
    names = sorted(line.split(":")[1].strip() for line in links.splitlines())
    return host_tables(), *names, Path("/proc/self/mounts").read_text()
