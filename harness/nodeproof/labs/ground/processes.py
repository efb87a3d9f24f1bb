"""The long-running processes of a lab: started, watched, and their ends written down as they happen."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof import proc

Json = Any
_ROOM_PERIOD_S = 0.5
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"),
        *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GOTRACEBACK"),
    }
)
"""What a component has of this process's environment: its logs become part of a report, and whatever else is
there (credentials of a cloud, of a CI job) is none of its business.
"""


class EventLog:
    """Appends what happens to machines and components to the lab's `events.jsonl`, on the monotonic clock.

    A full disk keeps nobody from what is told here: lines that it does not take are kept, with their times,
    and written as soon as there is room.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._kept: list[str] = []
        os.close(open_owned(path))

    def write(self, kind: str, **data: Json) -> None:
        """Append one entry at the present time, whole or not yet."""
        line = json.dumps({"t": round(time.monotonic(), 6), "kind": kind, **data})
        with self._lock:
            waiting = bool(self._kept)
            self._kept.append(line)
            if not self._write_kept() and not waiting:
                threading.Thread(target=self._retry, daemon=True).start()

    def _write_kept(self) -> bool:
        """Whether the disk took all that was kept."""
        try:
            size_bytes = self.path.stat().st_size
            try:
                with os.fdopen(open_owned(self.path), "a") as out:
                    out.write("".join(f"{line}\n" for line in self._kept))
            except OSError:
                os.truncate(self.path, size_bytes)
                return False
        except OSError:
            return False
        self._kept.clear()
        return True

    def _retry(self) -> None:
        """Until there is room, or the lab ends."""
        while True:
            threading.Event().wait(_ROOM_PERIOD_S)
            with self._lock:
                if not self._kept or self._write_kept():
                    return


def open_owned(path: Path) -> int:
    """Append to a file in the folder that is its owner's: root follows no link there. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def enter(pid: int) -> list[str]:
    """The command prefix that runs something inside the namespaces of a node's first process."""
    return ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]


class Processes:
    """Components by name; each has a thread that waits for its end."""

    def __init__(self, logs: Path, events: EventLog) -> None:
        self._logs = logs
        self._events = events
        self._lock = threading.Lock()
        self._running: dict[str, proc.Process] = {}
        self._expected: set[int] = set()
        self._died: dict[str, str] = {}
        self._others: dict[str, int] = {}

    def start(
        self, name: str, argv: Sequence[str], *, node: str = "", env: Mapping[str, str] | None = None
    ) -> proc.Process:
        """Start a component; its output goes to `logs/NAME.log`. Raises CommandFailed."""
        # klog writes local time without a zone.
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        full_env = {**kept, "TZ": "UTC", **(env or {})}
        try:
            log = open_owned(self._logs / f"{name}.log")
        except OSError as error:
            raise proc.CommandFailed(argv, 127, str(error)) from error
        try:
            child = proc.start(argv, log=log, env=full_env)
        finally:
            os.close(log)
        with self._lock:
            self._running[name] = child
            self._died.pop(name, None)
        threading.Thread(target=self._wait, args=(name, node, child), daemon=True).start()
        return child

    def expect_end(self, names: Sequence[str]) -> None:
        """The ends of these components are wanted: they are no component's death."""
        with self._lock:
            self._expected.update(self._running[name].pid for name in names if name in self._running)

    def kill(self, name: str) -> None:
        """Kill one component and wait for its end; one that is not running is fine."""
        with self._lock:
            child = self._running.get(name)
        if child is not None:
            child.send_signal(signal.SIGKILL)
            child.wait(timeout=10)

    def pids(self) -> Mapping[str, int]:
        """The running components and their process ids in the lab's own PID namespace."""
        with self._lock:
            return {name: child.pid for name, child in self._running.items()}

    def died(self) -> Mapping[str, str]:
        """Components that ended and were not meant to, and how."""
        with self._lock:
            return dict(self._died)

    def lost(self, name: str, node: str, how: str) -> None:
        """Write down the unwanted end of a component that is no child of ours."""
        with self._lock:
            self._died[name] = how
            self._others.pop(name, None)
        self._events.write("component", name=name, node=node, status=how, expected=False)

    def found(self, name: str, pid: int | None) -> None:
        """A component that is no child of ours runs, again if it was lost; or it is given up, without one."""
        with self._lock:
            self._died.pop(name, None)
            if pid is None:
                self._others.pop(name, None)
            else:
                self._others[name] = pid

    def others(self) -> Mapping[str, int]:
        """The components that are no children of ours, and their process ids."""
        with self._lock:
            return dict(self._others)

    def _wait(self, name: str, node: str, child: proc.Process) -> None:
        status = child.wait()
        with self._lock:
            expected = child.pid in self._expected
            if not expected:
                self._died[name] = proc.describe_exit(status)
            if self._running.get(name) is child:
                del self._running[name]
        self._events.write(
            "component", name=name, node=node, status=proc.describe_exit(status), expected=expected
        )


def children_of(parent: int) -> list[int]:
    """The processes that one has started and that live; of one that is gone, none."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []
