"""Stops and continues all processes of a node's PID namespace by signals: the cgroups are the host's."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import tenacity

from nodeproof.model.problem import Problem

_STOP_LIMIT_S = 10.0
_STILL = frozenset("TtZX")
"""States of processes that do not run: stopped, traced, zombie, dead (proc_pid_stat(5))."""


def stop(first: int, around: Sequence[int]) -> None:
    """Stop the processes `around` a node, and then the PID namespace of its process `first`.

    `around` are the processes that started the node's from outside. They have to be stopped first: nsenter
    stops itself once its child has stopped, and would miss a SIGCONT that arrives before that.

    Raises:
        Problem: a process still runs after 10 s.
    """
    _signal(around, signal.SIGSTOP)
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_STOP_LIMIT_S),
        wait=tenacity.wait_fixed(0.01),
        retry=tenacity.retry_if_result(bool),
        retry_error_callback=lambda _state: True,
    )
    if retry(_stop_running, first):
        raise Problem(f"processes still run after {_STOP_LIMIT_S:g} s", f"node of process {first}", "thaw it")


def go_on(first: int, around: Sequence[int]) -> None:
    """Continue the PID namespace of process `first`, and then the processes `around` it."""
    _signal(_inside(first), signal.SIGCONT)
    _signal(around, signal.SIGCONT)


def _stop_running(first: int) -> list[int]:
    """Signal the processes that are not stopped yet and return them: they may have new children."""
    running = [pid for pid in _inside(first) if _state(pid) not in _STILL]
    _signal(running, signal.SIGSTOP)
    return running


def _inside(first: int) -> list[int]:
    own = _namespace(first)
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if own and _namespace(pid) == own]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
