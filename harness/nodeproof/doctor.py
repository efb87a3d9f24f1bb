"""What a lab needs of this machine, whether it is there, and the command that mends it. Changes nothing.

Where a lab would refuse, its own check is asked, so that both say the same.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc, room
from nodeproof.artifacts import components
from nodeproof.artifacts.components import DEFAULT_KUBERNETES_VERSION
from nodeproof.kept import cache_dir
from nodeproof.labs.client.registry import client, memory_line, running
from nodeproof.labs.client.starting import find_sshd
from nodeproof.labs.ground.network import TRACKING
from nodeproof.labs.ground.spec import AS_ALL, NAMESPACES
from nodeproof.labs.kinds import kind_named
from nodeproof.labs.kinds.kind import MISSING, NOTE, OK, Finding, Image, Kind, Trial
from nodeproof.model.problem import Problem
from nodeproof.remedy import VAGRANT, remedy
from nodeproof.root import TOOLS, become_root, missing_tools

_TRY_LIMIT_S = 10.0
_LIBVIRT_SOCKET = Path("/run/libvirt/libvirt-sock")
_PLUGIN = "vagrant-libvirt"

# Measured.
_BUILD_GIB, _LEFT_GIB = 6, 1
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_CONTROL_PLANE_INOTIFY, _ENOUGH_INOTIFY = 8, 1024
"""Measured: inotify instances of a lab without nodes."""
_MODULE = "as root: `modprobe {}`"
_TRIALS = (
    Trial("namespaces", "true", "use a machine, or a privileged container, where root may make them"),
    Trial(
        "bridges and veth pairs",
        "ip link add control type bridge && ip link add one type veth peer name two",
        _MODULE.format("-a bridge veth"),
    ),
    Trial(
        "nftables with connection tracking",
        f"nft -f - <<'END'\n{TRACKING}\nEND",
        _MODULE.format("-a nf_tables nf_conntrack"),
    ),
    Trial("file systems in memory", "mount -t tmpfs nodeproof /tmp", "use a machine where root may mount"),
)
"""What every lab does."""


@dataclass(frozen=True)
class Diagnosis:
    """All findings about one kind of lab."""

    kind: str
    findings: tuple[Finding, ...]

    @property
    def can_start(self) -> bool:
        """Whether nothing is missing."""
        return all(finding.state != MISSING for finding in self.findings)

    def __str__(self) -> str:
        missing = sum(finding.state == MISSING for finding in self.findings)
        head = f"{self.kind} lab: " + (f"cannot start, {missing} missing" if missing else "can start")
        return "\n".join([head, *map(str, self.findings)])


def diagnose(name: str, nodes: int) -> Diagnosis:
    """Look at everything that a lab of that kind and size needs here. Raises Problem for an unknown kind."""
    kind = kind_named(name)
    kind.check_nodes(nodes)
    return Diagnosis(name, tuple(_findings(kind, nodes)))


def _findings(kind: Kind, nodes: int) -> Iterator[Finding]:
    needs = kind.host
    built = components.kept(DEFAULT_KUBERNETES_VERSION)
    image = needs.image
    to_build = image if image and not (built and image.is_kept(built)) else None
    yield Finding(NOTE, f"Python {sys.version.split()[0]}, {sys.executable}")
    yield _tools(kind, to_build)
    yield _asked(_sshd)
    yield from map(_asked, needs.checks)
    root = _asked(_root)
    yield root
    if root.state == OK and not missing_tools(TOOLS):
        yield from map(_try, (*_TRIALS, *needs.trials))
        yield from needs.notes()
    else:
        yield Finding(NOTE, "namespaces, networks and KVM were not tried for lack of the above")
    yield _memory(kind, nodes)
    yield _disk(kind, nodes, 0 if built else _BUILD_GIB, to_build)
    yield from _inotify(kind, nodes)
    yield Finding(NOTE, f"Kubernetes {DEFAULT_KUBERNETES_VERSION} {_built(bool(built), 'about 8 min')}")
    if image:
        yield Finding(NOTE, f"the guests' image {_built(not to_build, '2 to 5 min')}")


def _built(is_built: bool, takes: str) -> str:
    return "is built" if is_built else f"is not built yet: the first start does it, {takes}"


def _asked(look: Callable[[], str]) -> Finding:
    """What a check that raises Problem says."""
    try:
        return Finding(OK, look())
    except Problem as problem:
        return Finding(MISSING, problem.what, problem.next_step)


def _tools(kind: Kind, to_build: Image | None) -> Finding:
    wanted = sorted({*TOOLS, *kind.host.tools, *(to_build.tools if to_build else ())})
    missing = missing_tools(wanted)
    if missing:
        return Finding(MISSING, f"programs: {', '.join(missing)}", remedy(kind.host.remedy))
    return Finding(OK, f"programs: {', '.join(wanted)}")


def _sshd() -> str:
    return f"sshd for nodes: {find_sshd()}"


def _root() -> str:
    return "root: " + ("sudo asks for no password" if become_root() else "this is root")


def _try(trial: Trial) -> Finding:
    argv = [*become_root(), "unshare", *NAMESPACES, "--", "bash", "-c", trial.script]
    try:
        proc.run(argv, timeout_s=_TRY_LIMIT_S)
    except proc.CommandFailed as failed:
        said = failed.output.strip().splitlines()[-1:] or [f"no answer within {_TRY_LIMIT_S:g} s"]
        return Finding(MISSING, f"{trial.what}: {said[0]}", trial.mend)
    return Finding(OK, trial.what)


def _memory(kind: Kind, nodes: int) -> Finding:
    needed_mib, free_mib = room.lab_mib(kind, [AS_ALL] * nodes), room.available_mib()
    what = f"memory for {nodes} nodes: {needed_mib / 1024:.1f} GiB of {free_mib / 1024:.1f} GiB available"
    if free_mib < needed_mib:
        return Finding(MISSING, what, "end other programs, or ask for fewer nodes (`--nodes`)")
    return Finding(OK, what)


def _disk(kind: Kind, nodes: int, build_gib: float, to_build: Image | None) -> Finding:
    needed_gib = _LEFT_GIB + build_gib + nodes * kind.host.node_gib
    needed_gib += to_build.space_gib if to_build else 0
    place = _existing(cache_dir())
    free_gib = _free_gib(place)
    what = f"disk: {needed_gib:g} GiB of {free_gib:.1f} GiB free in {place}"
    if not os.access(place, os.W_OK):
        return Finding(MISSING, f"{place} cannot be written", "set XDG_CACHE_HOME to a folder of yours")
    if free_gib < needed_gib:
        return Finding(MISSING, what, "free some space, or set XDG_CACHE_HOME to a larger disk")
    return Finding(OK, what)


def _inotify(kind: Kind, nodes: int) -> Iterator[Finding]:
    """Whether kubelets on this machine's kernel get what they watch their files with: one that gets none
    complains, and goes on.
    """
    if not kind.host.node_inotify or not _INOTIFY.exists():
        return
    needed, had = _CONTROL_PLANE_INOTIFY + nodes * kind.host.node_inotify, int(_INOTIFY.read_text())
    what = f"inotify instances for {nodes} nodes: {needed} of the {had} that a user may have"
    enough = max(_ENOUGH_INOTIFY, 2 * needed)
    mend = f"kubelets will complain; as root: `sysctl -w fs.inotify.max_user_instances={enough}`"
    yield Finding(NOTE, what, mend) if had < needed else Finding(OK, what)


def _free_gib(place: Path) -> float:
    return shutil.disk_usage(place).free / 2**30


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def vagrant_notes(box: Path) -> list[Finding]:
    """What `vagrant up` needs, with the folder of its box; no lab needs any of it."""
    set_up = remedy(VAGRANT)
    found = shutil.which("vagrant")
    notes = [Finding(NOTE, f"vagrant: {found}") if found else Finding(NOTE, "no vagrant", set_up)]
    if not any(plugin.exists() and _PLUGIN in plugin.read_text() for plugin in _plugin_lists()):
        notes.append(Finding(NOTE, f"no {_PLUGIN}", set_up))
    if not _LIBVIRT_SOCKET.exists():
        mend = "install libvirt-daemon-system, and add yourself to the group libvirt"
        notes.append(Finding(NOTE, "no libvirtd of your own runs, which vagrant speaks to", mend))
    if not (box / "settings.json").exists():
        notes.append(Finding(NOTE, f"no box in {box}", "run `make box`"))
    return notes


def _plugin_lists() -> Iterator[Path]:
    """Where Vagrant writes down its plugins: the distribution's and the user's."""
    yield from Path("/usr/share/vagrant-plugins/plugins.d").glob("*.json")
    yield Path(os.environ.get("VAGRANT_HOME") or Path.home() / ".vagrant.d") / "plugins.json"


def _memory_of(lab: str) -> str:
    """How full a lab's own memory is; one that gives no answer is no reason to tell nothing."""
    try:
        return memory_line(client(lab).status())
    except Problem as problem:
        return problem.what


def report(kinds: Sequence[str], nodes: int, write: Callable[[str], None]) -> bool:
    """Say all about these kinds; gives whether each of them can start. Raises Problem."""
    diagnoses = [diagnose(kind, nodes) for kind in kinds]
    for diagnosis in diagnoses:
        write(str(diagnosis))
    for name in running():
        write(f"lab {name}: {_memory_of(name)}")
    write("Vagrantfile, which no other than a vagrant lab needs:")
    for note in vagrant_notes(Path(os.environ.get("NODEPROOF_BOX", ".box"))):
        write(str(note))
    return all(diagnosis.can_start for diagnosis in diagnoses)
