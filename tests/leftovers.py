"""What a lab is on its host while it lives, and what of that is still there afterwards.

Only what belongs to one lab counts: other people's labs may come and go on the same host.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.root import root_prefix
from tests.waiting import eventually

_COMMAND_TIMEOUT_S = 20.0
GONE_TIMEOUT_S = 15.0
IMAGE_BUILD = ".build-"
"""Contained in each mount point of a golden image that is being built in parallel."""
_KINDS = ("mnt", "net", "pid")
_INIT = "-m nodeproof.labs.supervisor.init"
_CONNECTION = "sshd: root@"
"""Serves one connection and ends with its client; a program run through it is a process, too."""


@dataclass(frozen=True)
class Process:
    """A process of the host."""

    pid: int
    parent: int
    command: str


@dataclass(frozen=True)
class Footprint:
    """A lab's supervisor, its first child processes, its namespaces, and the host's own nft tables."""

    lab: str
    supervisor: int
    init: int
    namespaces: frozenset[str]
    host_tables: str


def host_tables() -> str:
    """Return the host's nft tables."""
    return _root(["nft", "list", "tables"])


def footprint(lab: str) -> Footprint:
    """Return what a running lab consists of on its host."""
    supervisor = _supervisor(lab)
    family = _descendants(supervisor)
    namespaces = _namespaces([process.pid for process in family]) - _namespaces([supervisor])
    init = next(process.pid for process in family if process.parent == supervisor)
    return Footprint(lab, supervisor, init, namespaces, host_tables())


def leftovers(footprint: Footprint) -> list[str]:
    """Return what is left of a lab after it had time to end."""
    return eventually_empty(lambda: _leftovers(footprint))


def leftovers_of(lab: str, tables_before: str) -> list[str]:
    """Return the same for a lab of which only the name is known."""
    return leftovers(Footprint(lab, 0, 0, frozenset(), tables_before))


def eventually_empty(look: object) -> list[str]:
    """Return what is left, as soon as that is nothing, or at the end of the timeout."""
    assert callable(look)
    last: list[str] = []

    def nothing() -> bool:
        last[:] = look()
        return not last

    eventually(nothing, GONE_TIMEOUT_S)
    return last


def family(lab: str) -> list[Process]:
    """Return the supervisor of a running lab and all its descendants."""
    supervisor = _supervisor(lab)
    return [process for process in _processes() if process.pid == supervisor] + _descendants(supervisor)


def of_host(lab: str) -> list[str]:
    """Yield objects of a running lab on the host: processes, namespaces, mounts, nft tables."""
    supervisor = _supervisor(lab)
    family = _descendants(supervisor)
    links = [f"/proc/{process.pid}/ns/{kind}" for process in family for kind in _KINDS]
    process = proc.run([*root_prefix(), "readlink", *links], timeout_s=_COMMAND_TIMEOUT_S, check=False)
    kinds = [name.partition(":")[0] for name in sorted(set(process.stdout.splitlines()))]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "nodeproof" in line]
    own = [f"mount {line}" for line in mounts if IMAGE_BUILD not in line]
    persistent = (process for process in family if not process.command.startswith(_CONNECTION))
    commands = [f"process {_without_pid(process.command)}" for process in persistent]
    return [*commands, *(f"namespace {kind}" for kind in kinds), *own, f"nft {host_tables()}"]


def _without_pid(command: str) -> str:
    """Return the program of a command line; a booted node is entered by another number."""
    return " ".join(command.split()[:2]).partition("=")[0]


def child_of(pid: int) -> int:
    """Return the next process of a lab's init: first process, then server; there may be orphans, too."""
    children = (process for process in _processes() if process.parent == pid)
    (child,) = (process.pid for process in children if _INIT in process.command)
    return child


def kill(pid: int) -> None:
    """Send SIGKILL to a process of the host."""
    proc.run([*root_prefix(), "kill", "-KILL", str(pid)], timeout_s=_COMMAND_TIMEOUT_S)


def _leftovers(footprint: Footprint) -> list[str]:
    namespaces = proc.run(
        [*root_prefix(), "lsns", "-n", "-o", "NS"], timeout_s=_COMMAND_TIMEOUT_S, check=False
    )
    if namespaces.status != 0:
        return ["nobody knows which namespaces: a process ended while lsns looked at it"]
    alive = {line.split()[0] for line in namespaces.stdout.splitlines()}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    problems = [
        f"process {entry.pid}: {entry.command[:120]}"
        for entry in _processes()
        if footprint.lab in entry.command
    ]
    problems += [
        f"namespace {name}" for name in sorted((footprint.namespaces & alive) - _of_other_labs(footprint.lab))
    ]
    problems += [f"mount {line}" for line in mounts if footprint.lab in line]
    problems += [f"folder {RUNTIME_ROOT / footprint.lab}"] if (RUNTIME_ROOT / footprint.lab).exists() else []
    problems += ["nft tables"] if host_tables() != footprint.host_tables else []
    return problems


def _of_other_labs(lab: str) -> frozenset[str]:
    """Return the namespaces of other running labs: freed numbers are reused."""
    others = [
        entry.pid
        for entry in _processes()
        if "-m nodeproof.labs.supervisor.supervisor" in entry.command and lab not in entry.command
    ]
    families = [process.pid for pid in others for process in _descendants(pid)]
    return _namespaces(families) - _namespaces(others)


def _supervisor(lab: str) -> int:
    wanted = [
        entry.pid
        for entry in _processes()
        if "-m nodeproof.labs.supervisor.supervisor" in entry.command
        and f'"lab": "{lab}"' in entry.command
        and not entry.command.startswith("sudo")
    ]
    assert len(wanted) == 1, wanted
    return wanted[0]


def _descendants(root: int) -> list[Process]:
    family, everybody = {root}, _processes()
    for _generation in range(8):
        family |= {entry.pid for entry in everybody if entry.parent in family}
    return [entry for entry in everybody if entry.pid in family and entry.pid != root]


def _processes() -> list[Process]:
    lines = proc.run(
        ["ps", "-eww", "-o", "pid=,ppid=,args="], timeout_s=_COMMAND_TIMEOUT_S
    ).stdout.splitlines()
    fields = (line.split(None, 2) for line in lines)
    return [Process(int(pid), int(parent), " ".join(command)) for pid, parent, *command in fields]


def _namespaces(pids: list[int]) -> frozenset[str]:
    links = [f"/proc/{pid}/ns/{kind}" for pid in pids for kind in _KINDS]
    process = proc.run([*root_prefix(), "readlink", *links], timeout_s=_COMMAND_TIMEOUT_S, check=False)
    return frozenset(line.partition("[")[2].rstrip("]") for line in process.stdout.splitlines())


def _root(argv: list[str]) -> str:
    return proc.run([*root_prefix(), *argv], timeout_s=_COMMAND_TIMEOUT_S).stdout
