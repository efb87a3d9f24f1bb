"""The components of a lab's control plane, started with the lab's flags and those that faults override."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.labs.ground.processes import EventLog, Processes
from nodeproof.labs.ground.spec import API_ADDRESS
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, MachineError, PowerAction, Shell
from nodeproof.model.problem import Problem

Json = Any
STATE_FOLDER = ".state"
"""The `state_folder` of components, below the folder of their settings."""
_FIND_FIRST = 'PATH=$0:$PATH; export PATH; exec "$@"'


@dataclass(frozen=True)
class Kubectl:
    """The lab's own kubectl, with its administrator's kubeconfig."""

    path: str
    kubeconfig: Path

    def at_hand(self, folder: str, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs in `folder`, with this kubectl on PATH and its KUBECONFIG."""
        tools = str(Path(self.path).parent)
        settings = [f"--chdir={folder}", f"KUBECONFIG={self.kubeconfig}"]
        return ["env", *settings, "sh", "-c", _FIND_FIRST, tools, *argv]


class Services:
    """The components by name.

    `folder` contains a folder per component for the flags that faults set; `machine` returns the shell of any
    machine of the lab.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        events: EventLog,
        kubectl: Kubectl,
        machine: Callable[[str], Shell],
    ) -> None:
        self._processes = processes
        self._folder = folder
        self._events = events
        self._kubectl = kubectl
        self._machine = machine
        self._argv: dict[str, Sequence[str]] = {}
        self._lock = threading.Lock()
        folder.mkdir(exist_ok=True)

    def __contains__(self, name: str) -> bool:
        return name == CONTROL_PLANE or name in self._argv

    def know(self, name: str, argv: Sequence[str]) -> None:
        """Register the command of a component that only faults start."""
        self._argv[name] = argv
        (self._folder / name).mkdir(exist_ok=True)

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Register a component's command and start it. Raises CommandFailed."""
        self.know(name, argv)
        self._processes.start(name, self.command(name))

    def command(self, name: str) -> list[str]:
        """Return a component's command line, in which the flags of faults replace the lab's."""
        argv = list(self._argv[name])
        for path in sorted((self._folder / name).glob("*.json")):
            for flag, value in json.loads(path.read_text()).items():
                argv = [entry for entry in argv if not entry.startswith(f"--{flag}=")]
                argv.append(f"--{flag}={value}")
        return argv

    def power(self, name: str, action: PowerAction) -> None:
        """Stop (SIGKILL), start, freeze or thaw a component; if its state is already as wanted, do nothing.

        Raises:
            Problem: the component or the action is unknown.
            CommandFailed: the component does not start.
        """
        verbs: Mapping[PowerAction, Callable[[str], None]] = {
            "off": self._off,
            "on": self._on,
            "freeze": lambda name: self._signal(name, signal.SIGSTOP, "frozen"),
            "thaw": lambda name: self._signal(name, signal.SIGCONT, "thawed"),
        }
        if name not in self._argv or action not in verbs:
            raise Problem(f"no {action} for {name}", "control plane", f"there are: {', '.join(verbs)}")
        with self._lock:
            verbs[action](name)

    def told(self) -> Mapping[str, Json]:
        """Return each component's process id (None while it is off) and command line."""
        pids = self._processes.pids()
        return {name: {"pid": pids.get(name), "argv": self.command(name)} for name in list(self._argv)}

    def shell(self, name: str) -> ServiceShell:
        """Return the component's shell for the supervisor."""
        return ServiceShell(self, name, self._folder, self._kubectl, self._machine)

    def is_running(self, name: str) -> bool:
        """Return whether the component's process runs; the control plane as a whole always does."""
        return name == CONTROL_PLANE or name in self._processes.pids()

    def _off(self, name: str) -> None:
        self._processes.expect_end([name])
        self._processes.kill(name)
        self._events.write("machine", node=name, step="powered-off")

    def _on(self, name: str) -> None:
        if not self.is_running(name):
            self._processes.start(name, self.command(name))
            self._events.write("machine", node=name, step="booted")

    def _signal(self, name: str, number: signal.Signals, step: str) -> None:
        pid = self._processes.pids().get(name)
        if pid is not None:
            os.kill(pid, number)
            self._events.write("machine", node=name, step=step)


class ServiceShell:
    """Shell and power of one component; commands run in the folder of its settings."""

    state_folder = STATE_FOLDER

    def __init__(
        self,
        services: Services,
        name: str,
        folder: Path,
        kubectl: Kubectl,
        machine: Callable[[str], Shell],
    ) -> None:
        self.name = name
        self.data_address = self.control_plane_address = API_ADDRESS
        self._services = services
        self._folder = folder
        self._kubectl = kubectl
        self._machine = machine

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the lab's namespaces. Raises MachineError if it does not end in time."""
        command = self._kubectl.at_hand(str(self._folder), argv)
        try:
            completed = proc.run(command, timeout_s=deadline_s, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(str(error)) from error
        return CommandResult(completed.status, completed.stdout, completed.stderr)

    def is_powered(self) -> bool:
        """Return whether the component's process runs."""
        return self._services.is_running(self.name)

    def power(self, action: PowerAction) -> None:
        """Do a power action to the component. Raises Problem, CommandFailed."""
        self._services.power(self.name, action)

    def beside(self, name: str) -> Shell:
        """Return the shell of another machine of the lab. Raises MachineError if there is none."""
        try:
            return self._machine(name)
        except Problem as problem:
            raise MachineError(problem.line) from problem
