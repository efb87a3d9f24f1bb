"""Machines and labs for unit tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from nodeproof.artifacts.image import KERNEL_ARGUMENTS
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds.libvirt.domain_xml import Disk, Domain, Nic, mac
from nodeproof.machines.machine import CommandResult, MachineError, PowerAction, Shell

Answer = TypeVar("Answer")
LATE_S = 0.5
"""How long after its timeout a late command begins."""
DOMAIN = Domain(
    name="node-1",
    uuid="6c9ce1d0-6a54-4a0b-9c6b-0d7b1a7c3f11",
    lab="l-123456",
    machine_id="0" * 32,
    memory_mib=1280,
    vcpus=1,
    kvm=False,
    kernel=Path("/images/vmlinuz"),
    initrd=Path("/images/initrd.img"),
    arguments=KERNEL_ARGUMENTS,
    root=Disk(Path("/lab/a & b.qcow2"), "qcow2", "sda"),
    seed=Disk(Path("/lab/seed.img"), "raw", "sdb", read_only=True),
    nics=[Nic("control", mac("control", 1), "c1"), Nic("data", mac("data", 1), "d1")],
    console=Path("/lab/console.log"),
)
"""A virtual machine."""


def domain_in(folder: Path, **changed: Any) -> Domain:
    """Return the virtual machine with its files in this folder."""
    root = replace(DOMAIN.root, file=folder / DOMAIN.root.file.name)
    return replace(DOMAIN, root=root, console=folder / "console", **changed)


def fake_lab(parts: Mapping[str, object]) -> LabHandle:
    """Return a lab that has only these parts, by dotted names such as `cluster.api`."""
    lab = SimpleNamespace()
    for path, part in parts.items():
        *owners, name = path.split(".")
        owner = lab
        for owner_name in owners:
            owner = owner.__dict__.setdefault(owner_name, SimpleNamespace())
        setattr(owner, name, part)
    return cast("LabHandle", lab)


def in_turn(*answers: Answer | Exception) -> Callable[[], Answer]:
    """Return a function that returns or raises these, and then the last one repeatedly."""
    left = list(answers)

    def answer() -> Answer:
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, Exception):
            raise now
        return now

    return answer


def executable(path: Path, script: str) -> Path:
    """Write a shell script that stands for a program; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


class FakeMachine:
    """A machine whose commands have the output that `answer` returns for their arguments."""

    data_address = state_folder = ""
    control_plane_addresses: Sequence[str] = ()

    def __init__(self, answer: Callable[[Sequence[str]], str], status: int = 0, name: str = "node-1") -> None:
        self.name = name
        self.commands: list[str] = []
        self._answer, self._status = answer, status

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        del timeout_s, stdin
        self.commands.append(" ".join(argv))
        return CommandResult(self._status, self._answer(argv), "no such file")

    def is_powered(self) -> bool:
        return True

    def power(self, action: PowerAction) -> None:
        raise NotImplementedError(action)

    def beside(self, name: str) -> Shell:
        raise NotImplementedError(name)


@dataclass
class Local:
    """Runs commands here; while it is late they begin after their deadline.

    `places` are paths that the machine has elsewhere, by what a command calls them. With `kills` it kills the
    process that it started after the timeout, as `subprocess.run` does.
    """

    folder: Path
    places: Mapping[str, str] = field(default_factory=dict)
    kills: bool = False
    is_late: bool = False
    is_on: bool = True
    commands: list[subprocess.Popen[str]] = field(default_factory=list)
    name: str = "node-1"
    data_address: str = ""
    control_plane_addresses: Sequence[str] = ()
    state_folder: str = ""

    def __post_init__(self) -> None:
        self.state_folder = str(self.folder / "state")

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        if not self.is_on:
            raise MachineError(f"{self.name} is off")
        command = self.start(
            ["sh", "-c", f'sleep {LATE_S}; exec "$@"', "sh", *argv] if self.is_late else argv
        )
        try:
            stdout, stderr = command.communicate(stdin, timeout=0.01 if self.is_late else timeout_s)
        except subprocess.TimeoutExpired as error:
            if self.kills:
                command.kill()
            raise MachineError(f"{self.name}: no end") from error
        return CommandResult(command.returncode, stdout, stderr)

    def start(self, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command in its own session; it reads its input from a pipe."""
        command = subprocess.Popen(
            [self._placed(argument) for argument in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.commands.append(command)
        return command

    def end(self) -> None:
        """Kill every running command."""
        for command in self.commands:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()

    def _placed(self, argument: str) -> str:
        for path, place in self.places.items():
            argument = argument.replace(path, place)
        return argument

    def is_powered(self) -> bool:
        return self.is_on

    def power(self, action: PowerAction) -> None:
        self.is_on = action != "off"

    def beside(self, name: str) -> Shell:
        del name
        return self
