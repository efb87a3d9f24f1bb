"""Child processes. The only module that uses `subprocess`; standard library only."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Process = subprocess.Popen[bytes]
TimeoutExpired = subprocess.TimeoutExpired


class CommandFailed(Exception):
    """A command exited with a status other than 0, or timed out (`status` is None)."""

    def __init__(self, argv: Sequence[str], status: int | None, output: str) -> None:
        ended = f"status {status}" if status is not None else "timed out"
        super().__init__(f"{' '.join(argv)}: {ended}: {output.strip()[-2000:]}")
        self.argv = tuple(argv)
        self.status = status
        self.output = output


@dataclass(frozen=True)
class Result:
    """The exit status and the decoded output of a finished command."""

    status: int
    stdout: str
    stderr: str


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Result:
    """Run `argv` and wait until it exits.

    Raises:
        CommandFailed: The command timed out, could not be started or, with `check`, exited with a status
            other than 0.
    """
    try:
        completed = subprocess.run(
            list(argv),
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            cwd=cwd,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(argv, None, (error.stderr or b"").decode(errors="replace")) from error
    except OSError as error:
        raise CommandFailed(argv, 127, str(error)) from error
    result = Result(
        completed.returncode,
        completed.stdout.decode(errors="replace"),
        completed.stderr.decode(errors="replace"),
    )
    if check and result.status != 0:
        raise CommandFailed(argv, result.status, result.stderr or result.stdout)
    return result


def stream_lines(
    argv: Sequence[str],
    on_line: Callable[[str], None],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run `argv` and pass each line of its output (both streams) to `on_line` as it arrives.

    Raises:
        CommandFailed: The command failed or timed out; the error has its last lines.
    """
    last: list[str] = []
    with subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        has_timed_out = threading.Event()

        def kill() -> None:
            has_timed_out.set()
            child.kill()

        alarm = threading.Timer(timeout_s, kill)
        alarm.daemon = True
        alarm.start()
        try:
            for output in child.stdout or ():
                line = output.decode(errors="replace").rstrip("\n")
                last = [*last[-39:], line]
                on_line(line)
        except BaseException:
            child.terminate()
            raise
        finally:
            alarm.cancel()
        status = child.wait()
    if has_timed_out.is_set() or status != 0:
        raise CommandFailed(argv, None if has_timed_out.is_set() else status, "\n".join(last))


def start(
    argv: Sequence[str],
    *,
    log: Path | int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Iterable[int] = (),
    own_session: bool = False,
) -> Process:
    """Start `argv` in the background, and append both output streams to `log` (a file or a descriptor).

    Raises:
        CommandFailed: The program could not be started.
    """
    try:
        with contextlib.ExitStack() as files:
            out = log if isinstance(log, int) else files.enter_context(log.open("ab"))
            return subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=env,
                pass_fds=tuple(pass_fds),
                start_new_session=own_session,
            )
    except OSError as error:
        raise CommandFailed(argv, 127, str(error)) from error


def describe_exit(status: int) -> str:
    """Describe how a process ended: `exited 1` or `killed by SIGKILL`."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exited {status}"


def foreground(argv: Sequence[str]) -> int:
    """Run `argv` on this process's terminal and return its exit status.

    Raises:
        CommandFailed: The program could not be started.
    """
    # Leave Ctrl-C to the program. A handler, unlike SIG_IGN, is reset by exec.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        return subprocess.call(list(argv))
    except OSError as error:
        raise CommandFailed(argv, 127, str(error)) from error
    finally:
        signal.signal(signal.SIGINT, before)
