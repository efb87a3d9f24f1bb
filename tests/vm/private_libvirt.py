"""Commands beside a libvirtd of their own, which goes with the last of them.

`python -m tests.vm.private_libvirt FOLDER`, as first process of namespaces of its own: runs what
`FOLDER/commands.json` lists, in its order until one fails, and writes what came of each to
`FOLDER/done.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.mounts import ETC, make_etc
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor

_MOUNT_TIMEOUT_S = 10.0
_LAB = Path("/run/private-libvirt")


@dataclass(frozen=True)
class Command:
    """A command and its timeout."""

    argv: Sequence[str]
    env: Mapping[str, str]
    timeout_s: float
    may_fail: bool = False


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a command; `status` is None after a timeout."""

    argv: Sequence[str]
    status: int | None
    output: str
    took_s: float


def write_commands(folder: Path, commands: Sequence[Command]) -> None:
    """Write the commands for `main`."""
    (folder / "commands.json").write_text(json.dumps([asdict(command) for command in commands]))


def read_completed(folder: Path) -> list[CompletedCommand]:
    """Return what `main` has written so far."""
    file = folder / "done.json"
    return [CompletedCommand(**entry) for entry in json.loads(file.read_text())] if file.exists() else []


def main(folder: Path) -> None:
    """Start libvirtd, run the commands, and end."""
    _start_libvirt(folder)
    results: list[CompletedCommand] = []
    for number, entry in enumerate(json.loads((folder / "commands.json").read_text())):
        command = Command(**entry)
        results.append(_run(command, folder / f"{number}.log"))
        (folder / "done.json").write_text(json.dumps([asdict(phase) for phase in results]))
        if results[-1].status != 0 and not command.may_fail:
            return


def _start_libvirt(folder: Path) -> None:
    for argv in (["ip", "link", "set", "lo", "up"], ["mount", "-t", "tmpfs", "private", "/run"]):
        proc.run(argv, timeout_s=_MOUNT_TIMEOUT_S)
    memory = _LAB / "mem"
    memory.mkdir(parents=True)
    proc.run(["mount", "-t", "tmpfs", "private", str(memory)], timeout_s=_MOUNT_TIMEOUT_S)
    for name in ("scratch", "logs"):
        (memory / name).mkdir()
    own = make_etc(memory / "etc", {"hosts": "127.0.0.1 localhost\n", "resolv.conf": ""})
    proc.run(["mount", "--bind", str(own), str(ETC)], timeout_s=_MOUNT_TIMEOUT_S)
    processes = Processes(folder, EventLog(folder / "events.jsonl"))
    Hypervisor(_LAB, memory, processes).start_daemons()


def _run(command: Command, log: Path) -> CompletedCommand:
    began = time.monotonic()
    child = proc.start(command.argv, log=log, env={**os.environ, **command.env})
    status: int | None = None
    with contextlib.suppress(proc.TimeoutExpired):
        status = child.wait(timeout=command.timeout_s)
    child.kill()
    took_s = round(time.monotonic() - began, 1)
    return CompletedCommand(command.argv, status, log.read_text(errors="replace"), took_s)


def reap_until_ends(pid: int) -> int:
    """Reap children like a first process: libvirtd takes an unreaped machine for a running one."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    child = os.fork()
    if child == 0:
        main(Path(sys.argv[1]))
        sys.exit(0)
    os._exit(reap_until_ends(child))
