"""Vagrant, as it is run in a lab: its home, and what it knows of machines, are in the lab's memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc

UP_LIMIT_S = 240.0
"""How long machines may take to their sshd, all at once: under emulation, on a busy host. Whoever lets one
join waits for two of it, whoever gives one its power back for one.
"""
_LIMIT_S = 120.0
_MOUNT_LIMIT_S = 10.0
_PLUGINS = Path("/usr/share/vagrant-plugins")
"""Debian's list of plugins, which its Vagrant writes anew when root starts it for the first time."""


@dataclass(frozen=True)
class Reached:
    """How Vagrant reaches a machine: as whom, where, and with which key."""

    address: str
    user: str
    key: Path


class Vagrant:
    """Runs commands of Vagrant's, whose output goes to a log. `folder` is the lab's own, `project` where the
    Vagrantfile is, `box` where that finds what it reads.

    Every verb raises CommandFailed.
    """

    def __init__(self, folder: Path, project: Path, box: Path, log: Path) -> None:
        self.home = folder / "home"
        self._machines = folder / "machines"
        self._project = project
        self._box = box
        self._log = log

    def prepare(self) -> None:
        """Give it what it writes to beside its home. Raises CommandFailed, OSError."""
        if _PLUGINS.is_dir():
            own = shutil.copytree(_PLUGINS, self.home.parent / "plugins")
            proc.run(["mount", "-n", "--bind", str(own), str(_PLUGINS)], timeout_s=_MOUNT_LIMIT_S)

    def up(self, names: Sequence[str]) -> None:
        """Make machines and start them, all at once, until their sshd answers."""
        self._run("up", "--provider=libvirt", *names, limit_s=UP_LIMIT_S)

    def destroy(self, name: str) -> None:
        """Let a machine be none of Vagrant's any more, nor of libvirt's; one that is not known is fine."""
        self._run("destroy", "--force", name)

    def machine_id(self, name: str) -> str:
        """By which Vagrant, and so libvirt, knows a machine; nothing where it knows none."""
        file = self._id_file(name)
        return file.read_text().strip() if file.exists() else ""

    def remember(self, name: str, machine_id: str) -> None:
        """Let Vagrant know a machine again that it has lost from its folder."""
        file = self._id_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(machine_id)

    def forget(self, name: str) -> None:
        """Let Vagrant know nothing of a machine."""
        shutil.rmtree(self._id_file(name).parent, ignore_errors=True)

    def reached(self, names: Sequence[str]) -> Mapping[str, Reached]:
        """How it reaches machines that run, by their names."""
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

            def keep(line: str) -> None:
                lines.append(line)
                print(line, file=log, flush=True)

            proc.stream_lines(["vagrant", *arguments], keep, timeout_s=limit_s, env=env)
        return lines


def read_ssh_config(text: str) -> Mapping[str, Reached]:
    """What `vagrant ssh-config` prints, by the machines' names; what is not told in full is left out."""
    told: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        key, _blank, value = line.strip().partition(" ")
        name = value if key == "Host" else name
        told.setdefault(name, {})[key] = value.strip('"')
    return {
        name: Reached(entry["HostName"], entry["User"], Path(entry["IdentityFile"]))
        for name, entry in told.items()
        if {"HostName", "User", "IdentityFile"} <= entry.keys()
    }
