"""The service manager of a process node: it answers the `systemctl` that the node has on its PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.machines.machine import CommandResult

_PROGRAM = Path(__file__).with_name("systemctl")
_FOLDER = "systemctl"
_REQUESTS = "requests"
_INACTIVE, _UNKNOWN_STATE, _NOT_LOADED = 3, 4, 5
"""Exit statuses of systemctl(1)."""


def install(inside: Path) -> None:
    """Write `systemctl` and its pipe into the folder that the node sees as /run/node. Raises OSError."""
    (inside / "bin").mkdir()
    shutil.copy(_PROGRAM, inside / "bin" / _PROGRAM.name)
    (inside / "bin" / _PROGRAM.name).chmod(0o755)
    (inside / _FOLDER).mkdir()
    os.mkfifo(inside / _FOLDER / _REQUESTS, 0o600)


@dataclass(frozen=True)
class Unit:
    """A service of a node. `start` and `stop` do nothing if it runs, or does not."""

    start: Callable[[], None]
    stop: Callable[[], None]
    is_active: Callable[[], bool]


class ServiceManager:
    """Carries out the requests of one node's `systemctl` in their order, from its construction to `close`.

    `power_lock` is held meanwhile. A request whose caller exited, was killed, or lost its node's power has no
    effect: it would act on whatever came after it.
    """

    def __init__(self, inside: Path, units: Mapping[str, Unit], power_lock: threading.Lock) -> None:
        self._folder = inside / _FOLDER
        self._units = units
        self._power_lock = power_lock
        self._is_closed = False
        # Open for both directions: the pipe has no end then, however many callers come and go.
        self._requests = os.open(self._folder / _REQUESTS, os.O_RDWR)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Carry out no further requests."""
        self._is_closed = True
        os.write(self._requests, b"\n")

    def _serve(self) -> None:
        with os.fdopen(self._requests, errors="replace") as requests:
            for request in requests:
                if self._is_closed:
                    return
                caller, *argv = request.split() or [""]
                with self._power_lock, contextlib.suppress(OSError):
                    self._answer(caller, argv)

    def _answer(self, caller: str, argv: list[str]) -> None:
        """Carry out one request. Raises OSError, before it has an effect if the caller has exited."""
        descriptor = os.open(self._folder / caller, os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "w", errors="replace") as answer:
            try:
                result = self._run(argv)
            except Exception as error:  # the caller needs an answer to any error
                result = CommandResult(1, "", " ".join(str(error).split()) or repr(error))
            answer.write(f"{result.status}\n{result.stdout}\n{result.stderr}\n")

    def _run(self, argv: list[str]) -> CommandResult:
        match [word for word in argv if not word.startswith("-")]:
            case ["daemon-reload"] | ["reset-failed" | "list-units", *_]:
                return CommandResult(0, "", "")
            case ["is-active", name]:
                return self._state(name, is_quiet="--quiet" in argv)
            case ["cat" | "start" | "stop" | "restart" as verb, name]:
                return self._act(verb, name)
        return CommandResult(1, "", f"no systemd: {' '.join(['systemctl', *argv])} is not supported")

    def _state(self, name: str, *, is_quiet: bool) -> CommandResult:
        unit = self._unit(name)
        is_active = unit is not None and unit.is_active()
        status = 0 if is_active else _UNKNOWN_STATE if unit is None else _INACTIVE
        return CommandResult(status, "" if is_quiet else "active" if is_active else "inactive", "")

    def _act(self, verb: str, name: str) -> CommandResult:
        unit = self._unit(name)
        if unit is None:
            return CommandResult(_NOT_LOADED, "", f"no systemd, and so no {name}")
        if verb in ("stop", "restart"):
            unit.stop()
        if verb in ("start", "restart"):
            unit.start()
        return CommandResult(0, "", "")

    def _unit(self, name: str) -> Unit | None:
        return self._units.get(name if "." in name else f"{name}.service")
