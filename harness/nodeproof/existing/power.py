"""Power drivers: how the machine of a node is cut off from its power, and gets it back, by another program.

A driver of another package is an entry point of the group `nodeproof.power`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from nodeproof import proc
from nodeproof.entry_points import WithPlugins
from nodeproof.machines.machine import CommandResult, MachineError, Runner
from nodeproof.model.pattern import Json

Action = Literal["off", "on", "status"]
TIMEOUT_S: Mapping[Action, float] = {"off": 25.0, "on": 60.0, "status": 25.0}
"""How long a driver may take (s).

A cut of a killed run must not come after its healing: the cluster's lock is valid for longer than `off`.
"""
_LONGEST = 300
"""Characters of a program's output that an error quotes."""
_SLACK_S = 5.0
"""How long timeout(1) may take to end its processes (s)."""
_KILL_S = 2
"""After how long timeout(1) kills a program that does not end (s)."""
_NOT_FOUND, _TIMED_OUT = 127, (124, 137)
"""Exit statuses of env(1) and timeout(1)."""
_FENCE_OFF = 2
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders of fence agents, which may be missing in the PATH of users other than root."""


@dataclass(frozen=True)
class Command:
    """A command of a driver; a secret is in its standard input, never in its arguments."""

    argv: Sequence[str]
    stdin: str = field(default="", repr=False)


class PowerDriver(Protocol):
    """Power over a machine, as one command for each action.

    `off` cuts the power at once, `on` restores it, and both succeed if it is so already. The same commands
    run on the harness's machine and on the host of the dead-man's switch.
    """

    name: str
    """The name in inventories."""
    package: str
    """What to install if its program is missing."""

    def __init__(self, options: Mapping[str, Json]) -> None:
        """Take the options of an inventory. Raises ValueError, with what is wrong with them."""
        ...

    def command(self, action: Action, node: str, secret: str) -> Command:
        """Return the command for an action on a node; `secret` is empty if the inventory names none."""
        ...

    def is_on(self, status: CommandResult) -> bool:
        """Return whether the machine has power, by what `status` returned.

        Raises:
            LookupError, ValueError: It says neither on nor off.
        """
        ...


_VERBS: Mapping[str, tuple[str, str]] = {"off": ("destroy", "shut off"), "on": ("start", "running")}
"""What virsh does for an action, and the state of the domain then."""
# That a domain is in the state already is an error of virsh.
_VIRSH = """
virsh --connect "$0" "$2" --domain "$1" || [ "$(virsh --connect "$0" domstate --domain "$1")" = "$3" ]
"""
_STATES: Mapping[str, bool] = {
    **dict.fromkeys(("running", "idle", "paused", "in shutdown", "pmsuspended"), True),
    **dict.fromkeys(("shut off", "crashed"), False),
}
"""Whether a domain has power, by its state."""


@dataclass(frozen=True)
class Fence:
    """An agent of fence-agents, by the option `agent`; it reads all others from standard input.

    Source: github.com/ClusterLabs/fence-agents, doc/FenceAgentAPI.md: the last value of an option counts, and
    `status` exits with 0 if the machine is on, with 2 if it is off.
    """

    name = "fence"
    package = "fence-agents"
    options: Mapping[str, Json]

    def __post_init__(self) -> None:
        """Raise ValueError if an option is invalid."""
        if not re.fullmatch(r"fence_[a-z0-9_]+", _text(self.options, "agent")):
            raise ValueError("agent must be the name of a fence agent, such as fence_redfish")
        for option, value in self.options.items():
            if isinstance(value, list) or "\n" in str(value):
                raise ValueError(f"{option} must be a text of one line, a number, true or false")

    def command(self, action: Action, node: str, secret: str) -> Command:
        del node
        options = {**self.options, **({"password": secret} if secret else {}), "action": action}
        agent = options.pop("agent")
        texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in options.items()}
        return Command([agent], "".join(f"{name}={text}\n" for name, text in texts.items()))

    def is_on(self, status: CommandResult) -> bool:
        # Status 2 is that of invalid options, too.
        if status.status == _FENCE_OFF and "OFF" not in status.stdout.upper():
            raise ValueError("the agent does not say OFF")
        return {0: True, _FENCE_OFF: False}[status.status]


@dataclass(frozen=True)
class Libvirt:
    """A virtual machine, by the options `uri` and `domain`."""

    name = "libvirt"
    package = "libvirt-clients"
    options: Mapping[str, Json]

    def __post_init__(self) -> None:
        """Raise ValueError if an option is invalid."""
        _check_names(self.options, ("uri", "domain"))
        for option in ("uri", "domain"):
            _text(self.options, option)

    def command(self, action: Action, node: str, secret: str) -> Command:
        del node, secret
        uri, domain = self.options["uri"], self.options["domain"]
        if action == "status":
            argv = ["virsh", "--connect", uri, "dominfo", "--domain", domain]
        else:
            argv = ["sh", "-c", _VIRSH, uri, domain, *_VERBS[action]]
        return Command(["env", "LC_ALL=C", *argv])

    def is_on(self, status: CommandResult) -> bool:
        facts = dict(re.findall(r"^(State|Persistent): +(.*?) *$", status.stdout, re.MULTILINE))
        if facts["Persistent"] != "yes":
            raise ValueError("the domain is transient: it cannot be started again")
        return _STATES[facts["State"]]


@dataclass(frozen=True)
class OwnCommand:
    """A program of the cluster's owner, by the option `argv`, whose arguments may have {action} and {node}.

    It exits with 0 if the action is done, prints `on` or `off` for `status`, and reads the secret from
    standard input.
    """

    name = "command"
    package = ""
    options: Mapping[str, Json]

    def __post_init__(self) -> None:
        """Raise ValueError if an option is invalid."""
        _check_names(self.options, ("argv",))
        argv = self.options.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
            raise ValueError('argv must be a list, such as [/opt/power, "{action}", "{node}"]')
        if "/" in argv[0] and not argv[0].startswith("/"):
            raise ValueError("the program must be on PATH or have an absolute path: the switch host runs it")

    def command(self, action: Action, node: str, secret: str) -> Command:
        argv = self.options["argv"]
        return Command([part.replace("{action}", action).replace("{node}", node) for part in argv], secret)

    def is_on(self, status: CommandResult) -> bool:
        return {(0, "on"): True, (0, "off"): False}[status.status, status.stdout.strip()]


def _check_names(options: Mapping[str, Json], names: Sequence[str]) -> None:
    unknown = ", ".join(sorted(options.keys() - set(names)))
    if unknown:
        raise ValueError(f"unknown option {unknown}; the options are {', '.join(names)}")


def _text(options: Mapping[str, Json], name: str) -> str:
    """Return an option that is a text. Raises ValueError."""
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the option {name}, a text")
    return value


def _name_of(driver: object) -> str:
    name = getattr(driver, "name", None)
    if not isinstance(driver, type) or not isinstance(name, str):
        raise TypeError(f"{driver!r} is no class of a power driver with a name")
    return name


DRIVERS: WithPlugins[type[PowerDriver]] = WithPlugins(
    "nodeproof.power", {driver.name: driver for driver in (Fence, Libvirt, OwnCommand)}, _name_of
)
"""The classes of power drivers by name, those of plugins, too."""


def limited(argv: Sequence[str], timeout_s: float) -> Sequence[str]:
    """Return the command that runs another one, and ends it in time even if nothing waits for it."""
    return ["timeout", f"--kill-after={_KILL_S}", f"{timeout_s:g}", *argv]


class LocalRunner:
    """Runs commands on the harness's machine."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command, which ends in time even if this process is killed. Raises MachineError."""
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
        try:
            return proc.run(
                limited(argv, timeout_s),
                timeout_s=timeout_s + _SLACK_S,
                stdin=stdin,
                env={**os.environ, "PATH": path},
                check=False,
            )
        except proc.CommandFailed as error:
            raise MachineError(f"{argv[0]}: no end within {timeout_s:g} s") from error


LOCAL = LocalRunner()


@dataclass(frozen=True)
class Power:
    """Power over the machine of one node of an inventory.

    `secret_env` is the environment variable with the driver's secret, and `switch` the host of the ssh_config
    whose timer restores the power; either may be empty.
    """

    driver: PowerDriver
    secret_env: str = ""
    switch: str = ""

    def command(self, action: Action, node: str) -> Command:
        """Return the command for an action on a node. Raises MachineError if the secret is missing."""
        return self.driver.command(action, node, self._secret())

    def perform(self, action: Action, node: str) -> None:
        """Perform `off` or `on` by a command on the harness's machine. Raises MachineError."""
        result = self._run(action, node, LOCAL)
        if result.status != 0:
            raise self._error(action, node, result)

    def is_on(self, node: str, runner: Runner = LOCAL) -> bool:
        """Return whether a node has power, by a command that runs at `runner`. Raises MachineError."""
        result = self._run("status", node, runner)
        try:
            return self.driver.is_on(result)
        except LookupError as error:
            raise self._error("status", node, result) from error
        except ValueError as error:
            explained = replace(result, stderr=f"{error}: {result.stderr}")
            raise self._error("status", node, explained) from error

    def _run(self, action: Action, node: str, runner: Runner) -> CommandResult:
        command = self.command(action, node)
        try:
            return runner.run(command.argv, timeout_s=TIMEOUT_S[action], stdin=command.stdin)
        except MachineError as error:
            # The cause has the secret, too.
            raise MachineError(self._without_secret(str(error))) from None

    def _secret(self) -> str:
        secret = os.environ.get(self.secret_env, "") if self.secret_env else ""
        if self.secret_env and (not secret or "\n" in secret):
            message = f"{self.secret_env} must have the power driver's secret in one line"
            raise MachineError(f"the environment variable {message}")
        return secret

    def _without_secret(self, text: str) -> str:
        secret = self._secret()
        return text.replace(secret, "...") if secret else text

    def _error(self, action: Action, node: str, result: CommandResult) -> MachineError:
        """Return an error without the secret, which a program may have repeated."""
        reason = " ".join(self._without_secret(f"{result.stderr} {result.stdout}").split())[:_LONGEST]
        if result.status in _TIMED_OUT:
            reason = f"no end within {TIMEOUT_S[action]:g} s"
        if result.status == _NOT_FOUND and self.driver.package:
            reason = f"{reason}; install {self.driver.package}"
        return MachineError(f"{node}: {action} by the power driver {self.driver.name}: {reason}")
