"""What a lab is on its host while it lives, and what of that is still there afterwards.

Only what belongs to one lab counts: other people's labs may come and go on the same host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from nodeproof import proc
from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.root import root_prefix
from nodeproof.safety.ledger import FaultLedger, Ledger
from nodeproof.waiting import wait_until_empty

_COMMAND_TIMEOUT_S = 20.0
GONE_TIMEOUT_S = 15.0
IMAGE_BUILD = ".build-"
"""Contained in each mount point of a golden image that is being built in parallel."""
_KINDS = ("mnt", "net", "pid")
_INIT, _SUPERVISOR = "-m nodeproof.labs.supervisor.init", "-m nodeproof.labs.supervisor.supervisor"
_CONNECTION = "sshd: root@"
"""Serves one connection and ends with its client; a program run through it is a process, too."""


@dataclass(frozen=True)
class Footprint:
    """A lab's supervisor, its first child processes, its namespaces, and the host's own nft tables."""

    lab: str
    supervisor: int
    init: int
    namespaces: frozenset[str]
    host_tables: str


def file_of(ledger: FaultLedger) -> Path:
    """Return the file of a ledger that is one."""
    assert isinstance(ledger, Ledger)
    return ledger.path


def host_tables() -> str:
    """Return the host's nft tables."""
    return _as_root("nft", "list", "tables")


def footprint(lab: str) -> Footprint:
    """Return what a running lab consists of on its host."""
    supervisor = _supervisor(lab)
    namespaces = _namespaces(_descendants(supervisor)) - _namespaces([supervisor])
    init = supervisor.children()[0]
    return Footprint(lab, supervisor.pid, init.pid, _numbers(namespaces), host_tables())


def leftovers(footprint: Footprint) -> list[str]:
    """Return what is left of a lab after it had time to end."""
    return eventually_empty(lambda: _leftovers(footprint))


def leftovers_of(lab: str, tables_before: str) -> list[str]:
    """Return the same for a lab of which only the name is known."""
    return leftovers(Footprint(lab, 0, 0, frozenset(), tables_before))


def eventually_empty(look: Callable[[], list[str]]) -> list[str]:
    """Return what is left, as soon as that is nothing, or at the end of the timeout."""
    return wait_until_empty(look, timeout_s=GONE_TIMEOUT_S)


def commands(lab: str) -> list[str]:
    """Return the command lines of the supervisor of a running lab and all its descendants."""
    supervisor = _supervisor(lab)
    return [_command(process) for process in (supervisor, *_descendants(supervisor))]


def of_host(lab: str) -> list[str]:
    """Return objects of a running lab on the host: processes, namespaces, mounts, nft tables."""
    family = _descendants(_supervisor(lab))
    kinds = [name.partition(":")[0] for name in sorted(_namespaces(family))]
    own = [line for line in _mounts("nodeproof") if IMAGE_BUILD not in line]
    # A booted node is entered by another number.
    programs = [" ".join(command.split()[:2]).partition("=")[0] for command in map(_command, family)]
    return [
        *(f"process {program}" for program in programs if not program.startswith(_CONNECTION)),
        *(f"namespace {kind}" for kind in kinds),
        *(f"mount {line}" for line in own),
        f"nft {host_tables()}",
    ]


def child_of(pid: int) -> int:
    """Return the next process of a lab's init: first process, then server; there may be orphans, too."""
    (child,) = (child.pid for child in psutil.Process(pid).children() if _INIT in _command(child))
    return child


def kill(pid: int) -> None:
    """Send SIGKILL to a process of the host."""
    _as_root("kill", "-KILL", str(pid))


def _leftovers(footprint: Footprint) -> list[str]:
    lsns = [*root_prefix(), "lsns", "-n", "-o", "NS"]
    listed = proc.run(lsns, timeout_s=_COMMAND_TIMEOUT_S, check=False)
    if listed.status != 0:
        return ["unknown namespaces: a process ended while lsns read it"]
    alive = footprint.namespaces & {line.split()[0] for line in listed.stdout.splitlines()}
    folder = RUNTIME_ROOT / footprint.lab
    return [
        *(
            f"process {process.pid}: {command[:120]}"
            for process in psutil.process_iter()
            if footprint.lab in (command := _command(process))
        ),
        *(f"namespace {name}" for name in sorted(alive - _of_other_labs(footprint.lab))),
        *(f"mount {line}" for line in _mounts(footprint.lab)),
        *([f"folder {folder}"] if folder.exists() else []),
        *(["nft tables"] if host_tables() != footprint.host_tables else []),
    ]


def _of_other_labs(lab: str) -> frozenset[str]:
    """Return the namespaces of other running labs: freed numbers are reused."""
    others = [
        process
        for process in psutil.process_iter()
        if _SUPERVISOR in (command := _command(process)) and lab not in command
    ]
    families = [child for process in others for child in _descendants(process)]
    return _numbers(_namespaces(families) - _namespaces(others))


def _supervisor(lab: str) -> psutil.Process:
    (supervisor,) = (
        process
        for process in psutil.process_iter()
        if _SUPERVISOR in (command := _command(process))
        and f'"lab": "{lab}"' in command
        and not command.startswith("sudo")
    )
    return supervisor


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _command(process: psutil.Process) -> str:
    """Return a command line, empty if the process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _mounts(part: str) -> list[str]:
    """Return the host's mounts that have a name in them."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if part in line]


def _namespaces(processes: Sequence[psutil.Process]) -> set[str]:
    """Return the namespaces of processes, such as `net:[4026531840]`."""
    links = [f"/proc/{process.pid}/ns/{kind}" for process in processes for kind in _KINDS]
    return set(_as_root("readlink", *links, may_fail=True).splitlines())


def _numbers(namespaces: set[str]) -> frozenset[str]:
    return frozenset(name.partition("[")[2].rstrip("]") for name in namespaces)


def _as_root(*argv: str, may_fail: bool = False) -> str:
    return proc.run([*root_prefix(), *argv], timeout_s=_COMMAND_TIMEOUT_S, check=not may_fail).stdout
