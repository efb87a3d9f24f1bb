"""Notifications of a run: `--notify COMMAND` gets each event as one JSON object on standard input.

A command runs in the background, so that it neither delays nor fails the run.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue

from nodeproof import proc
from nodeproof.faults import Fault
from nodeproof.model import redact
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

OPTION = "--notify"
NOTIFY_TIMEOUT_S = 10.0
"""How long a command may run, and how long the end of a run waits for all that are left (s)."""
_EVENTS = {"injected": "inject", "healed": "heal", "unhealed": "heal"}


class Notifier:
    """Runs a command for each event of a process's part of a run, one after the other.

    Args:
        command: the program with its arguments; if empty, nothing runs.
        run: the name of the run.
        say: prints a line.

    Raises:
        Problem: The quotes of the command do not match.
    """

    def __init__(self, command: str, run: str, say: Callable[[str], None]) -> None:
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise Problem(f"{command!r} is not a command: {error}", OPTION, "quote it correctly") from error
        self._run, self._say = run, say
        self.scenario = ""
        """The node id of the current scenario."""
        self._events: SimpleQueue[Mapping[str, Json] | None] = SimpleQueue()
        self._errors: list[str] = []
        self._end_t = float("inf")
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        if self._argv:
            self._thread.start()

    def send(self, event: str, **facts: Json) -> None:
        """Send an event soon, and return at once."""
        if self._argv:
            at = datetime.now(UTC).isoformat()
            self._events.put({"event": event, "at": at, "run": self._run, **facts})

    def send_fault(self, step: str, fault: Fault) -> None:
        """Send that a fault was `injected`, `healed`, or is `unhealed`: no probe proves its healing."""
        facts = {"step": step, "node": fault.node, "fault": dict(fault.to_json())}
        self.send(_EVENTS[step], scenario=self.scenario, **facts)

    def close(self) -> None:
        """Wait `NOTIFY_TIMEOUT_S` at most until all events are sent; print one line if some were not.

        A command that still runs then is ended.
        """
        if not self._argv:
            return
        self._end_t = time.monotonic() + NOTIFY_TIMEOUT_S
        self._events.put(None)
        self._thread.join()
        if self._errors:
            self._say(f"{OPTION}: {len(self._errors)} failed: {self._errors[-1]}")

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            left_s = min(NOTIFY_TIMEOUT_S, self._end_t - time.monotonic())
            if left_s <= 0.0:
                self._errors.append(f"not all events were sent within {NOTIFY_TIMEOUT_S:g} s")
                continue
            try:
                proc.run(self._argv, timeout_s=left_s, stdin=json.dumps(redact.value(event)) + "\n")
            except Exception as error:  # whatever a command does, the next event is sent
                # The command's arguments may hold a token.
                message = str(error).replace(" ".join(self._argv), self._argv[0])
                self._errors.append(" ".join(redact.text(message).split()))
