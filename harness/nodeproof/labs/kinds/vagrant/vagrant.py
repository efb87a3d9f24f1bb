"""Vagrant inside a lab: its home and its records of machines are in the lab's memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc

UP_LIMIT_S = 240.0
"""How long machines may take until their sshd serves, all at once: under emulation, on a busy host. A join
waits up to twice this time, a power-on once.
"""
_LIMIT_S = 120.0
_MOUNT_LIMIT_S = 10.0
_PLUGINS = Path("/usr/share/vagrant-plugins")
"""Debian's list of plugins, which its Vagrant rewrites when root starts it for the first time."""


@dataclass(frozen=True)
class Reached:
    """How Vagrant reaches a machine: address, user and key."""

    address: str
    user: str
    key: Path


class Vagrant:
    """Runs Vagrant commands, whose output goes to a log. Every verb raises CommandFailed.

    `folder` belongs to the lab, `project` contains the Vagrantfile, and `box` the files that it reads.
    """

    def __init__(self, folder: Path, project: Path, box: Path, log: Path) -> None:
        self.home = folder / "home"
        self._machines = folder / "machines"
        self._project = project
        self._box = box
        self._log = log

    def prepare(self) -> None:
        """Give Vagrant a private copy of the plugin list that it rewrites. Raises CommandFailed, OSError."""
        if _PLUGINS.is_dir():
            own = shutil.copytree(_PLUGINS, self.home.parent / "plugins")
            proc.run(["mount", "-n", "--bind", str(own), str(_PLUGINS)], timeout_s=_MOUNT_LIMIT_S)

    def up(self, names: Sequence[str]) -> None:
        """Create and start machines, all at once, and wait until their sshd answers."""
        self._run("up", "--provider=libvirt", *names, limit_s=UP_LIMIT_S)

    def destroy(self, name: str) -> None:
        """Remove a machine from Vagrant and libvirt; do nothing if it is unknown."""
        self._run("destroy", "--force", name)

    def machine_id(self, name: str) -> str:
        """Return the id by which Vagrant and libvirt know a machine; empty if Vagrant knows none."""
        file = self._id_file(name)
        return file.read_text().strip() if file.exists() else ""

    def remember(self, name: str, machine_id: str) -> None:
        """Restore the id of a machine that Vagrant has lost from its folder."""
        file = self._id_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(machine_id)

    def forget(self, name: str) -> None:
        """Remove Vagrant's records of a machine."""
        shutil.rmtree(self._id_file(name).parent, ignore_errors=True)

    def reached(self, names: Sequence[str]) -> Mapping[str, Reached]:
        """Return how Vagrant reaches running machines, by name."""
        return read_ssh_config("\n".join(self._run("ssh-config", *names)))

    def _id_file(self, name: str) -> Path:
        return self._machines / "machines" / name / "libvirt" / "id"

    def _run(self, *arguments: str, limit_s: float = _LIMIT_S) -> list[str]:
        lines: list[str] = []
        env = {
            **os.environ,
            "HOME": str(self.home),
            "VAGRANT_HOME": str(self.home),
            "VAGRANT_CWD": str(self._project),
            "VAGRANT_DOTFILE_PATH": str(self._machines),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_NO_COLOR": "1",
            "NODEPROOF_BOX": str(self._box),
        }
        with self._log.open("a") as log:
            print(f"$ vagrant {' '.join(arguments)}", file=log, flush=True)

            def log_line(line: str) -> None:
                lines.append(line)
                print(line, file=log, flush=True)

            proc.stream_lines(["vagrant", *arguments], log_line, timeout_s=limit_s, env=env)
        return lines


def read_ssh_config(text: str) -> Mapping[str, Reached]:
    """Parse the output of `vagrant ssh-config`, by machine name; leave out incomplete entries."""
    hosts: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        key, _blank, value = line.strip().partition(" ")
        name = value if key == "Host" else name
        hosts.setdefault(name, {})[key] = value.strip('"')
    return {
        name: Reached(entry["HostName"], entry["User"], Path(entry["IdentityFile"]))
        for name, entry in hosts.items()
        if {"HostName", "User", "IdentityFile"} <= entry.keys()
    }
