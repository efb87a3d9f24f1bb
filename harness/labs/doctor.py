"""What a lab needs of this machine, whether it is there, and the command that mends it. Changes nothing.

Where a lab would refuse, its own check is asked, so that both say the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import proc
from harness.labs import components, image
from harness.labs.component_build import cache_dir
from harness.labs.components import DEFAULT_KUBERNETES_VERSION
from harness.labs.guest import hypervisor, kvm
from harness.labs.guest.nodes import MEMORY_MIB
from harness.labs.kinds import LIBVIRT, PROCESS, check_kind
from harness.labs.process.network import TRACKING
from harness.labs.process.spec import check_node_count
from harness.labs.process_lab import client, find_sshd, memory_line, running
from harness.labs.remedy import remedy
from harness.labs.root import TOOLS, become_root, missing_tools
from harness.labs.supervisor import NAMESPACES
from harness.model.problem import Problem

OK, NOTE, MISSING = "ok", "note", "missing"
_TRY_LIMIT_S = 10.0
_MEMORY_INFO = Path("/proc/meminfo")
_LIBVIRT_SOCKET = Path("/run/libvirt/libvirt-sock")
_PLUGIN = "vagrant-libvirt"

# Measured: a control plane takes 370 MiB, a hollow node 30; a guest its own and what QEMU and its disk take.
_CONTROL_PLANE_MIB = 512
_NODE_MIB = {PROCESS: 40, LIBVIRT: MEMORY_MIB + 256}
_BUILD_GIB, _IMAGE_GIB, _SNAPSHOT_GIB, _LEFT_GIB = 6, 4, 0.5, 1


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok`, a `note` that stops no lab, or `missing` with what mends it."""

    state: str
    what: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"  {self.state:<8} {self.what}"
        return f"{line}; {self.mend}" if self.mend else line


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


def diagnose(kind: str, nodes: int) -> Diagnosis:
    """Look at everything that a lab of that kind and size needs here. Raises Problem for an unknown kind."""
    check_kind(kind)
    check_node_count(nodes, kind)
    return Diagnosis(kind, tuple(_findings(kind, nodes)))


def _findings(kind: str, nodes: int) -> Iterator[Finding]:
    kept = _Kept()
    yield Finding(NOTE, f"Python {sys.version.split()[0]}, {sys.executable}")
    yield _tools(kind, kept)
    yield _asked(_sshd)
    if kind == LIBVIRT:
        yield _asked(hypervisor.binding)
    root = _asked(_root)
    yield root
    if root.state == OK and not missing_tools(TOOLS):
        yield from _tried(kind)
    else:
        yield Finding(NOTE, "namespaces, networks and KVM were not tried for lack of the above")
    yield _memory(kind, nodes)
    yield _disk(kind, nodes, kept)
    yield from kept.notes(kind)


class _Kept:
    """What earlier builds left in the cache."""

    def __init__(self) -> None:
        self.components = components.kept(DEFAULT_KUBERNETES_VERSION)
        self.image = image.kept(self.components) if self.components else None

    def notes(self, kind: str) -> Iterator[Finding]:
        """Whether the first start has to build."""
        version = f"Kubernetes {DEFAULT_KUBERNETES_VERSION}"
        built = "is built" if self.components else "is not built yet: the first start does it, about 8 min"
        yield Finding(NOTE, f"{version} {built}")
        if kind == LIBVIRT:
            built = "is built" if self.image else "is not built yet: the first start does it, 2 to 5 min"
            yield Finding(NOTE, f"the guests' image {built}")


def _asked(look: Callable[[], str]) -> Finding:
    """What a check that raises Problem says."""
    try:
        return Finding(OK, look())
    except Problem as problem:
        return Finding(MISSING, problem.what, problem.next_step)


def _tools(kind: str, kept: _Kept) -> Finding:
    wanted = set(TOOLS)
    if kind == LIBVIRT:
        wanted |= {*hypervisor.TOOLS, *(() if kept.image else image.TOOLS)}
    missing = missing_tools(sorted(wanted))
    if missing:
        return Finding(MISSING, f"programs: {', '.join(missing)}", remedy(kind))
    return Finding(OK, f"programs: {', '.join(sorted(wanted))}")


def _sshd() -> str:
    return f"sshd for nodes: {find_sshd()}"


def _root() -> str:
    return "root: " + ("sudo asks for no password" if become_root() else "this is root")


@dataclass(frozen=True)
class _Trial:
    """Something done in namespaces of its own, which go with it."""

    what: str
    script: str
    mend: str


_MODULE = "as root: `modprobe {}`"
_TRIALS = {
    PROCESS: (
        _Trial("namespaces", "true", "use a machine, or a privileged container, where root may make them"),
        _Trial(
            "bridges and veth pairs",
            "ip link add control type bridge && ip link add one type veth peer name two",
            _MODULE.format("-a bridge veth"),
        ),
        _Trial(
            "nftables with connection tracking",
            f"nft -f - <<'END'\n{TRACKING}\nEND",
            _MODULE.format("-a nf_tables nf_conntrack"),
        ),
        _Trial(
            "file systems in memory", "mount -t tmpfs nodeproof /tmp", "use a machine where root may mount"
        ),
    ),
    LIBVIRT: (
        _Trial(
            "overlays of folders",
            "mount -t tmpfs nodeproof /tmp && mkdir /tmp/upper /tmp/work && "
            "mount -t overlay -o lowerdir=/var/lib,upperdir=/tmp/upper,workdir=/tmp/work overlay /var/lib",
            _MODULE.format("overlay"),
        ),
        _Trial("network cards for guests", "ip tuntap add mode tap name one", _MODULE.format("tun")),
    ),
}


def _tried(kind: str) -> Iterator[Finding]:
    """What the kernel lets root do; the libvirt lab needs all that the process lab does."""
    trials = _TRIALS[PROCESS] + (_TRIALS[LIBVIRT] if kind == LIBVIRT else ())
    yield from map(_try, trials)
    if kind == LIBVIRT:
        yield _accelerator()


def _try(trial: _Trial) -> Finding:
    argv = [*become_root(), "unshare", *NAMESPACES, "--", "bash", "-c", trial.script]
    try:
        proc.run(argv, timeout_s=_TRY_LIMIT_S)
    except proc.CommandFailed as failed:
        said = failed.output.strip().splitlines()[-1:] or [f"no answer within {_TRY_LIMIT_S:g} s"]
        return Finding(MISSING, f"{trial.what}: {said[0]}", trial.mend)
    return Finding(OK, trial.what)


def _accelerator() -> Finding:
    slow = "guests are emulated and take half a minute to boot"
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        if kvm.runs_on_kvm(Path(folder, "boot-sector"), become_root()):
            return Finding(OK, "KVM runs guests")
    if not kvm.DEVICE.exists():
        return Finding(
            NOTE, f"no {kvm.DEVICE}, {slow}", "with virtualization in the firmware: `modprobe kvm`"
        )
    return Finding(NOTE, f"{kvm.DEVICE} is there and runs no guest, {slow}")


def _memory(kind: str, nodes: int) -> Finding:
    needed_mib = _CONTROL_PLANE_MIB + nodes * _NODE_MIB[kind]
    free_mib = _available_mib()
    what = f"memory for {nodes} nodes: {needed_mib / 1024:.1f} GiB of {free_mib / 1024:.1f} GiB available"
    if free_mib < needed_mib:
        return Finding(MISSING, what, "end other programs, or ask for fewer nodes (`--nodes`)")
    return Finding(OK, what)


def _available_mib() -> int:
    for line in _MEMORY_INFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise Problem("no MemAvailable", str(_MEMORY_INFO), "use Linux 3.14 or newer")


def _disk(kind: str, nodes: int, kept: _Kept) -> Finding:
    needed_gib: float = _LEFT_GIB + (0 if kept.components else _BUILD_GIB)
    if kind == LIBVIRT:
        needed_gib += nodes * _SNAPSHOT_GIB + (0 if kept.image else _IMAGE_GIB)
    place = _existing(cache_dir())
    free_gib = _free_gib(place)
    what = f"disk: {needed_gib:g} GiB of {free_gib:.1f} GiB free in {place}"
    if not os.access(place, os.W_OK):
        return Finding(MISSING, f"{place} cannot be written", "set XDG_CACHE_HOME to a folder of yours")
    if free_gib < needed_gib:
        return Finding(MISSING, what, "free some space, or set XDG_CACHE_HOME to a larger disk")
    return Finding(OK, what)


def _free_gib(place: Path) -> float:
    return shutil.disk_usage(place).free / 2**30


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def vagrant_notes(box: Path) -> list[Finding]:
    """What `vagrant up` needs, with the folder of its box; no lab needs any of it."""
    set_up = remedy("vagrant")
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
    write("Vagrantfile, which no lab needs:")
    for note in vagrant_notes(Path(os.environ.get("NODEPROOF_BOX", ".box"))):
        write(str(note))
    return all(diagnosis.can_start for diagnosis in diagnoses)
