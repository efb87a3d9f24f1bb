"""Starts and watches the long-running processes of a lab, records their ends, and limits their logs.

/run is mostly memory. Limiting works like logrotate's `copytruncate`: a process that appends to a file
continues at its beginning.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from nodeproof import proc
from nodeproof.machines.machine import CommandResult, MachineError
from nodeproof.model.pattern import Json

_KILL_TIMEOUT_S = 10.0
_RETRY_PERIOD_S = 0.5
_INHERITED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"),
        *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GOTRACEBACK"),
    }
)
"""The environment variables that components and commands on nodes inherit. Others may hold credentials (of a
cloud, of a CI job), and a component's logs become part of a report.
"""
LIMIT_BYTES = 8 << 20
"""Size limit of a component's log or a guest's console; one earlier part of each is kept."""
AUDIT_LIMIT_MB = 32
"""Size limit of the audit log; one earlier part is kept."""
CHECK_PERIOD_S = 1.0
"""How often the size of the logs and the free space are checked."""
STEP = "step"
"""The kind of event that tells the user about a slow start; `text` is the message."""
_PANIC = "Kernel panic"
_REFUSAL = re.compile(
    r'"command failed" err="(.+)"$|^(?:Error|panic): (.+)$|^((?:invalid value|flag provided) .+)$',
    re.MULTILINE,
)


class EventLog:
    """Appends events of machines and components to the lab's `events.jsonl`, on the monotonic clock.

    A full disk blocks no caller: lines that cannot be written are kept, with their times, until there is
    space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._pending: list[str] = []
        os.close(open_owned(path))

    def write(self, kind: str, **data: Json) -> None:
        """Append one entry with the present time; never a part of a line."""
        line = json.dumps({"t": round(time.monotonic(), 6), "kind": kind, **data})
        with self._lock:
            is_retrying = bool(self._pending)
            self._pending.append(line)
            if not self._write_pending() and not is_retrying:
                threading.Thread(target=self._retry, daemon=True).start()

    def _write_pending(self) -> bool:
        """Write all pending lines; return whether the disk took them."""
        with contextlib.suppress(OSError):
            size_bytes = self.path.stat().st_size
            try:
                with os.fdopen(open_owned(self.path), "a") as out:
                    out.write("".join(f"{line}\n" for line in self._pending))
                self._pending.clear()
            except OSError:
                os.truncate(self.path, size_bytes)
        return not self._pending

    def _retry(self) -> None:
        """Write the pending lines as soon as there is space."""
        while True:
            threading.Event().wait(_RETRY_PERIOD_S)
            with self._lock:
                if not self._pending or self._write_pending():
                    return


def open_owned(path: Path) -> int:
    """Open a file in the owner's folder to append; root follows no link there. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def enter(pid: int) -> list[str]:
    """Return the command prefix that enters the namespaces of a node's first process."""
    return ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]


def kill_and_wait(pid: int) -> None:
    """Kill a process and wait until it ended: up to then its ports are in use."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], _KILL_TIMEOUT_S)
        finally:
            os.close(descriptor)


def inherited_environment() -> dict[str, str]:
    """Return the part of this process's environment that components and commands on nodes may read."""
    return {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}


def run_command(
    argv: Sequence[str], timeout_s: float, stdin: str, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a command for a machine's shell. Raises MachineError if it does not end within `timeout_s`."""
    try:
        return proc.run(argv, timeout_s=timeout_s, stdin=stdin, env=env, check=False)
    except proc.CommandFailed as error:
        raise MachineError(str(error)) from error


OnExit = Callable[[str], bool]
_LAST_OUTPUT_BYTES = 4096


class Processes:
    """Components by name; a thread waits for the end of each."""

    def __init__(self, logs: Path, events: EventLog) -> None:
        self._logs = logs
        self._events = events
        self._lock = threading.Lock()
        self._running: dict[str, proc.Process] = {}
        self._expected: set[int] = set()
        self._died: dict[str, str] = {}
        self._others: dict[str, int] = {}

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        node: str = "",
        env: Mapping[str, str] | None = None,
        on_exit: OnExit | None = None,
    ) -> proc.Process:
        """Start a component; its output goes to `logs/NAME.log`. Raises CommandFailed.

        At an unexpected end, `on_exit` gets its last output, and returns whether it may end like this.
        """
        # klog writes local time without a zone.
        full_env = {**inherited_environment(), "TZ": "UTC", **(env or {})}
        try:
            with os.fdopen(open_owned(self._logs / f"{name}.log"), "ab") as log:
                child = proc.start(argv, log=log.fileno(), env=full_env)
        except OSError as error:
            raise proc.CommandFailed(argv, 127, str(error)) from error
        with self._lock:
            self._running[name] = child
            self._died.pop(name, None)
        threading.Thread(target=self._wait, args=(name, node, child, on_exit), daemon=True).start()
        return child

    def expect_end(self, names: Sequence[str]) -> None:
        """Expect the ends of these components, so that they do not count as deaths."""
        with self._lock:
            self._expected.update(self._running[name].pid for name in names if name in self._running)

    def kill(self, name: str) -> None:
        """Kill one component and wait for its end; do nothing if it is not running."""
        with self._lock:
            child = self._running.get(name)
        if child is not None:
            child.kill()
            child.wait(timeout=_KILL_TIMEOUT_S)
            with self._lock:
                if self._running.get(name) is child:
                    del self._running[name]

    def pids(self) -> Mapping[str, int]:
        """Return the running components' process ids in the lab's own PID namespace."""
        with self._lock:
            return {name: child.pid for name, child in self._running.items()}

    def died(self) -> Mapping[str, str]:
        """Return the components that ended unexpectedly, and how."""
        with self._lock:
            return dict(self._died)

    def record_external_end(self, name: str, node: str, how: str) -> None:
        """Record the unexpected end of a component that is not a child of this process."""
        with self._lock:
            self._died[name] = how
            self._others.pop(name, None)
        self._events.write("component", name=name, node=node, status=how, expected=False)

    def set_external(self, name: str, pid: int | None) -> None:
        """Register a running component that is not a child of this process; with `pid` None, unregister it.

        Either way it no longer counts as lost.
        """
        with self._lock:
            self._died.pop(name, None)
            if pid is None:
                self._others.pop(name, None)
            else:
                self._others[name] = pid

    def external_pids(self) -> Mapping[str, int]:
        """Return the process ids of the components that are not children of this process."""
        with self._lock:
            return dict(self._others)

    def _last_output(self, name: str) -> str:
        try:
            return (self._logs / f"{name}.log").read_bytes()[-_LAST_OUTPUT_BYTES:].decode(errors="replace")
        except OSError:
            return ""

    def _wait(self, name: str, node: str, child: proc.Process, on_exit: OnExit | None) -> None:
        status = child.wait()
        how = proc.describe_exit(status)
        with self._lock:
            expected = child.pid in self._expected
        # An end by a signal, or a panic (2), is never one that the component chose.
        expected = expected or (status == 1 and on_exit is not None and on_exit(self._last_output(name)))
        with self._lock:
            if not expected:
                self._died[name] = how
            if self._running.get(name) is child:
                del self._running[name]
        self._events.write("component", name=name, node=node, status=how, expected=expected)


def children_of(parent: int) -> list[int]:
    """Return the living child processes of `parent`; none if it is gone."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def limit_size(
    folder: Path,
    give_to_owner: Callable[[Iterable[Path]], None],
    look: Callable[[], None],
    limit_bytes: int = LIMIT_BYTES,
) -> None:
    """Truncate the logs in a folder until this process ends.

    `give_to_owner` gets them: consoles and audit logs are created for their writer only. `look` is called
    before logs may be truncated, while a lack of space is still visible.
    """

    def limit_logs() -> None:
        never = threading.Event()
        while not never.wait(CHECK_PERIOD_S):
            with contextlib.suppress(OSError):
                look()
                give_to_owner(folder.iterdir())
            for log in folder.glob("*.log"):
                # Without space for the copy its content is lost: logs must not fill the disk.
                with contextlib.suppress(OSError):
                    truncate(log, limit_bytes)

    threading.Thread(target=limit_logs, daemon=True).start()


def truncate(log: Path, limit_bytes: int) -> None:
    """Move the content of a log above its limit to `NAME.log.1`; drop it if there is no space.

    Root follows no link in a folder of another user. Raises OSError.
    """
    with open(log, "r+b", opener=_no_link) as full:
        if os.fstat(full.fileno()).st_size <= limit_bytes:
            return
        earlier = log.with_name(f"{log.name}.1")
        try:
            earlier.unlink(missing_ok=True)
            with open(earlier, "xb", opener=_no_link) as copy:
                shutil.copyfileobj(full, copy)
        except OSError:
            earlier.unlink(missing_ok=True)
            raise
        finally:
            full.truncate(0)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def refusal(output: str) -> str:
    """Return a component's own reason for its end, from its log; empty if it gives none.

    klog writes it as the field `err`, cobra after `Error:`, Go after `panic:`, and etcd as a line of its own.
    """
    reasons = ["".join(groups) for groups in _REFUSAL.findall(output)]
    return reasons[-1].replace('\\"', '"') if reasons else ""


def last_console_lines(console: str, count: int) -> str:
    """Return the last `count` lines of a guest's console, or the first `count` from its kernel panic on."""
    lines = console.splitlines()
    panic = next((at for at, line in enumerate(lines) if _PANIC in line), None)
    return "\n".join(lines[-count:] if panic is None else lines[panic : panic + count])
