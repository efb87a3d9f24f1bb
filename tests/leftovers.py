"""What a lab is on its host while it lives, and what of that is still there afterwards.

Only what belongs to one lab counts: other people's labs may come and go on the same host.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.ground.spec import RUNTIME_ROOT
from nodeproof.root import root_prefix
from tests.waiting import eventually

_COMMAND_LIMIT_S = 20.0
GONE_LIMIT_S = 15.0
IMAGE_BUILD = ".build-"
"""In each mount point of a golden image that somebody builds beside us."""
_KINDS = ("mnt", "net", "pid")
_INIT = "-m nodeproof.labs.supervisor.init"
_CONNECTION = "sshd: root@"
"""What serves one connection: it comes and goes with who looks; what runs through it is a process, too."""


@dataclass(frozen=True)
class Process:
    """One process of the host."""

    pid: int
    parent: int
    command: str


@dataclass(frozen=True)
class Footprint:
    """A lab's supervisor, the first processes below it, its namespaces, and the host's own nft tables."""

    lab: str
    supervisor: int
    init: int
    namespaces: frozenset[str]
    host_tables: str


def host_tables() -> str:
    """The host's nft tables."""
    return _root(["nft", "list", "tables"])


def footprint(lab: str) -> Footprint:
    """What a living lab is on its host."""
    supervisor = _supervisor(lab)
    family = _descendants(supervisor)
    namespaces = _namespaces([process.pid for process in family]) - _namespaces([supervisor])
    init = next(process.pid for process in family if process.parent == supervisor)
    return Footprint(lab, supervisor, init, namespaces, host_tables())


def leftovers(seen: Footprint) -> list[str]:
    """What is still there of a lab, once it had the time to go."""
    return eventually_empty(lambda: _leftovers(seen))


def leftovers_of(lab: str, tables_before: str) -> list[str]:
    """The same for a lab of which only the name is known."""
    return leftovers(Footprint(lab, 0, 0, frozenset(), tables_before))


def eventually_empty(look: object) -> list[str]:
    """Give what is left as soon as that is nothing, else what is left at the end."""
    assert callable(look)
    last: list[str] = []

    def nothing() -> bool:
        last[:] = look()
        return not last

    eventually(nothing, GONE_LIMIT_S)
    return last


def family(lab: str) -> list[Process]:
    """The supervisor of a living lab, and all that descends from it."""
    supervisor = _supervisor(lab)
    return [process for process in _processes() if process.pid == supervisor] + _descendants(supervisor)


def of_host(lab: str) -> list[str]:
    """What the host itself has of a living lab, and beside it: processes, namespaces, mounts, nft tables."""
    supervisor = _supervisor(lab)
    family = _descendants(supervisor)
    links = [f"/proc/{process.pid}/ns/{kind}" for process in family for kind in _KINDS]
    done = proc.run([*root_prefix(), "readlink", *links], timeout_s=_COMMAND_LIMIT_S, check=False)
    kinds = [name.partition(":")[0] for name in sorted(set(done.stdout.splitlines()))]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "nodeproof" in line]
    own = [f"mount {line}" for line in mounts if IMAGE_BUILD not in line]
    lasting = (process for process in family if not process.command.startswith(_CONNECTION))
    commands = [f"process {_without_pid(process.command)}" for process in lasting]
    return [*commands, *(f"namespace {kind}" for kind in kinds), *own, f"nft {host_tables()}"]


def _without_pid(command: str) -> str:
    """The program that a command line begins with; a node that has booted is entered by another number."""
    return " ".join(command.split()[:2]).partition("=")[0]


def child_of(pid: int) -> int:
    """The next process of a lab's init: first process, then server; beside it there may be orphans."""
    children = (process for process in _processes() if process.parent == pid)
    (child,) = (process.pid for process in children if _INIT in process.command)
    return child


def kill(pid: int) -> None:
    """SIGKILL one process of the host."""
    proc.run([*root_prefix(), "kill", "-KILL", str(pid)], timeout_s=_COMMAND_LIMIT_S)


def _leftovers(seen: Footprint) -> list[str]:
    asked = proc.run([*root_prefix(), "lsns", "-n", "-o", "NS"], timeout_s=_COMMAND_LIMIT_S, check=False)
    if asked.status != 0:
        return ["nobody knows which namespaces: a process ended while lsns looked at it"]
    alive = {line.split()[0] for line in asked.stdout.splitlines()}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = [
        f"process {entry.pid}: {entry.command[:120]}" for entry in _processes() if seen.lab in entry.command
    ]
    found += [f"namespace {name}" for name in sorted((seen.namespaces & alive) - _of_other_labs(seen.lab))]
    found += [f"mount {line}" for line in mounts if seen.lab in line]
    found += [f"folder {RUNTIME_ROOT / seen.lab}"] if (RUNTIME_ROOT / seen.lab).exists() else []
    found += ["nft tables"] if host_tables() != seen.host_tables else []
    return found


def _of_other_labs(lab: str) -> frozenset[str]:
    """The namespaces of other living labs: a number that is free is given again."""
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
    lines = proc.run(["ps", "-eww", "-o", "pid=,ppid=,args="], timeout_s=_COMMAND_LIMIT_S).stdout.splitlines()
    fields = (line.split(None, 2) for line in lines)
    return [Process(int(pid), int(parent), " ".join(command)) for pid, parent, *command in fields]


def _namespaces(pids: list[int]) -> frozenset[str]:
    links = [f"/proc/{pid}/ns/{kind}" for pid in pids for kind in _KINDS]
    done = proc.run([*root_prefix(), "readlink", *links], timeout_s=_COMMAND_LIMIT_S, check=False)
    return frozenset(line.partition("[")[2].rstrip("]") for line in done.stdout.splitlines())


def _root(argv: list[str]) -> str:
    return proc.run([*root_prefix(), *argv], timeout_s=_COMMAND_LIMIT_S).stdout
