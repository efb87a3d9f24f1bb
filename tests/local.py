"""A machine that is a folder of this one, for what faults do by commands alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeproof.machines.machine import CommandResult, MachineError, PowerAction, Shell

LATE_S = 0.5
"""How long after its deadline a late command begins."""


@dataclass
class Local:
    """Runs commands here; while it is late they begin after their deadline.

    `places` are paths that the machine has elsewhere, by what a command calls them.
    """

    folder: Path
    places: Mapping[str, str] = field(default_factory=dict)
    is_late: bool = False
    is_on: bool = True
    commands: list[subprocess.Popen[str]] = field(default_factory=list)
    name: str = "node-1"
    data_address: str = ""
    control_plane_address: str = ""
    state_folder: str = ""

    def __post_init__(self) -> None:
        self.state_folder = str(self.folder / "state")

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        if not self.is_on:
            raise MachineError(f"{self.name} is off")
        command = self.start(
            ["sh", "-c", f'sleep {LATE_S}; exec "$@"', "sh", *argv] if self.is_late else argv
        )
        try:
            stdout, stderr = command.communicate(stdin, timeout=0.01 if self.is_late else deadline_s)
        except subprocess.TimeoutExpired as error:
            raise MachineError(f"{self.name}: no end") from error
        return CommandResult(command.returncode, stdout, stderr)

    def start(self, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Begin a command with a session of its own; it reads its input from a pipe."""
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
        """End every command that still runs."""
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
