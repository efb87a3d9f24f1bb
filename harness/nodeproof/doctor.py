"""Check what a lab needs of this machine, and suggest the command that fixes it. Changes nothing.

It uses the same checks as a lab start, so that both agree.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import capacity, proc
from nodeproof.artifacts import components
from nodeproof.cache import cache_dir
from nodeproof.existing.power import DRIVERS
from nodeproof.faults import PLUGINS
from nodeproof.hints import BOX, VAGRANT, hint_for
from nodeproof.labs.base.network import TRACKING
from nodeproof.labs.base.spec import DEFAULT_SHAPE, NAMESPACES
from nodeproof.labs.client.registry import client, describe_memory, running
from nodeproof.labs.client.starting import find_sshd
from nodeproof.labs.kinds import KINDS, kind_named
from nodeproof.labs.kinds import VAGRANT as VAGRANT_LAB
from nodeproof.labs.kinds.kind import MISSING, NOTE, OK, Finding, Image, Kind, Trial
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.root import TOOLS, become_root, missing_tools
from nodeproof.scenario.probes import PROBES

_TRIAL_TIMEOUT_S = 10.0
_ARCHITECTURE = "x86_64"
_LIBVIRT_SOCKET = Path("/run/libvirt/libvirt-sock")
_PLUGIN = "vagrant-libvirt"

# Measured.
_BUILD_GIB, _SPARE_GIB = 6, 1
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_CONTROL_PLANE_INOTIFY, _ENOUGH_INOTIFY = 8, 1024
"""Inotify instances of a lab without nodes (measured), and the limit that the hint suggests at least."""
_MODULE = "as root: `modprobe {}`"
_TRIALS = (
    Trial("namespaces", "true", "use a machine, or a privileged container, where root may create them"),
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
"""What every lab does on its host."""


@dataclass(frozen=True)
class Diagnosis:
    """All findings about one kind of lab."""

    kind: str
    findings: tuple[Finding, ...]

    @property
    def can_start(self) -> bool:
        """Whether a lab of this kind can start, i.e. nothing is missing."""
        return all(finding.state != MISSING for finding in self.findings)

    def __str__(self) -> str:
        missing = sum(finding.state == MISSING for finding in self.findings)
        head = f"{self.kind} lab: " + (f"cannot start, {missing} missing" if missing else "can start")
        return "\n".join([head, *map(str, self.findings)])


def diagnose(name: str, nodes: int) -> Diagnosis:
    """Check everything that a lab of this kind and size needs here.

    Raises:
        Problem: There is no such kind, or it cannot have this many nodes.
    """
    kind = kind_named(name)
    kind.check_nodes(nodes)
    return Diagnosis(name, tuple(_check_all(kind, nodes)))


def _check_all(kind: Kind, nodes: int) -> Iterator[Finding]:
    needs = kind.host
    built = components.cached(DEFAULT_KUBERNETES_VERSION)
    image = needs.image
    to_build = image if image and not (built and image.is_cached(built)) else None
    yield Finding(NOTE, f"Python {sys.version.split()[0]}, {sys.executable}")
    yield from _architecture(kind)
    yield _check_tools(kind, to_build)
    yield _run_check(lambda: f"sshd for nodes: {find_sshd()}")
    yield from map(_run_check, needs.checks)
    sudo = "sudo needs no password"
    root_finding = _run_check(lambda: f"root: {sudo if become_root() else 'this user is root'}")
    yield root_finding
    if root_finding.state == OK and not missing_tools(TOOLS):
        yield from map(_run_trial, (*_TRIALS, *needs.trials))
        yield from needs.notes()
    else:
        yield Finding(NOTE, "namespaces, networks and KVM were not tried, as the above is missing")
    yield _memory(kind, nodes)
    yield _disk(kind, nodes, 0 if built else _BUILD_GIB, to_build)
    yield from _inotify(kind, nodes)
    yield Finding(NOTE, f"Kubernetes {DEFAULT_KUBERNETES_VERSION} {_build_state(bool(built), 'about 8 min')}")
    if image:
        yield Finding(NOTE, f"the guest image {_build_state(not to_build, '2 to 5 min')}")


def _architecture(kind: Kind) -> Iterator[Finding]:
    """Check the machine: guests are x86_64, and only there does everything run that the tests cover."""
    machine = platform.machine()
    if machine == _ARCHITECTURE:
        return
    if kind.host.image:
        what = f"the guest image and its QEMU are for {_ARCHITECTURE}, and this machine is {machine}"
        yield Finding(MISSING, what, "use a process lab, or another machine")
    else:
        what = f"{machine} was not tried: a process lab needs Go here, which compiles its components for it"
        yield Finding(NOTE, what, "--components takes a folder with executables for it, instead")


def _build_state(is_built: bool, duration: str) -> str:
    return "is built" if is_built else f"is not built yet: the first start builds it, {duration}"


def _run_check(check: Callable[[], str]) -> Finding:
    """Turn a check's text, or the Problem that it raises, into a finding."""
    try:
        return Finding(OK, check())
    except Problem as problem:
        return Finding(MISSING, problem.what, problem.next_step)


def _check_tools(kind: Kind, to_build: Image | None) -> Finding:
    tools = sorted({*TOOLS, *kind.host.tools, *(to_build.tools if to_build else ())})
    missing = missing_tools(tools)
    if missing:
        return Finding(MISSING, f"programs: {', '.join(missing)}", hint_for(kind.host.hint))
    return Finding(OK, f"programs: {', '.join(tools)}")


def _run_trial(trial: Trial) -> Finding:
    argv = [*become_root(), "unshare", *NAMESPACES, "--", "bash", "-c", trial.script]
    try:
        proc.run(argv, timeout_s=_TRIAL_TIMEOUT_S)
    except proc.CommandFailed as failed:
        last_line = failed.output.strip().splitlines()[-1:] or [f"timed out after {_TRIAL_TIMEOUT_S:g} s"]
        return Finding(MISSING, f"{trial.subject}: {last_line[0]}", trial.fix)
    return Finding(OK, trial.subject)


def _memory(kind: Kind, nodes: int) -> Finding:
    needed_mib, free_mib = capacity.lab_mib(kind, [DEFAULT_SHAPE] * nodes), capacity.available_mib()
    what = f"memory for {nodes} nodes: {needed_mib / 1024:.1f} GiB of {free_mib / 1024:.1f} GiB available"
    if free_mib < needed_mib:
        return Finding(MISSING, what, "end other programs, or use fewer nodes (`--nodes`)")
    return Finding(OK, what)


def _disk(kind: Kind, nodes: int, build_gib: float, to_build: Image | None) -> Finding:
    needed_gib = _SPARE_GIB + build_gib + (nodes + len(kind.other_machines)) * kind.host.node_gib
    needed_gib += to_build.space_gib if to_build else 0
    # The cache may have no folder yet.
    folder = next(folder for folder in (cache_dir(), *cache_dir().parents) if folder.exists())
    free_gib = _free_gib(folder)
    what = f"disk: {needed_gib:g} GiB of {free_gib:.1f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Finding(MISSING, f"{folder} cannot be written", "set XDG_CACHE_HOME to a folder of yours")
    if free_gib < needed_gib:
        return Finding(MISSING, what, "free some space, or set XDG_CACHE_HOME to a larger disk")
    return Finding(OK, what)


def _inotify(kind: Kind, nodes: int) -> Iterator[Finding]:
    """Check that there are enough inotify instances for the kubelets; without them a kubelet only warns."""
    if not kind.host.node_inotify or not _INOTIFY.exists():
        return
    needed, limit = _CONTROL_PLANE_INOTIFY + nodes * kind.host.node_inotify, int(_INOTIFY.read_text())
    what = f"inotify instances for {nodes} nodes: {needed} of the {limit} allowed per user"
    enough = max(_ENOUGH_INOTIFY, 2 * needed)
    hint = f"kubelets will warn; as root: `sysctl -w fs.inotify.max_user_instances={enough}`"
    yield Finding(NOTE, what, hint) if limit < needed else Finding(OK, what)


def _free_gib(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 2**30


def vagrant_notes(box: Path) -> list[Finding]:
    """Check what `vagrant up` needs beside the Vagrantfile; `box` is the folder of its box."""
    hint = hint_for(VAGRANT)
    vagrant = shutil.which("vagrant")
    notes = [Finding(NOTE, f"vagrant: {vagrant}") if vagrant else Finding(NOTE, "no vagrant", hint)]
    if not any(plugin.exists() and _PLUGIN in plugin.read_text() for plugin in _plugin_lists()):
        notes.append(Finding(NOTE, f"no {_PLUGIN}", hint))
    if not _LIBVIRT_SOCKET.exists():
        hint = "install libvirt-daemon-system, and add yourself to the group libvirt"
        notes.append(Finding(NOTE, "libvirtd, which vagrant needs, does not run", hint))
    if not (box / "settings.json").exists():
        notes.append(Finding(NOTE, f"no box in {box}", hint_for(BOX)))
    return notes


def _plugin_lists() -> Iterator[Path]:
    """List the files in which Vagrant registers plugins: the distribution's and the user's."""
    yield from Path("/usr/share/vagrant-plugins/plugins.d").glob("*.json")
    yield Path(os.environ.get("VAGRANT_HOME") or Path.home() / ".vagrant.d") / "plugins.json"


def _memory_of(lab: str) -> str:
    """Describe how full a lab's memory is; a lab without an answer must not end the report."""
    try:
        return describe_memory(client(lab).status())
    except Problem as problem:
        return problem.what


def report(kinds: Sequence[str], nodes: int, write: Callable[[str], None]) -> bool:
    """Write the diagnosis of these kinds; return whether each of them can start. Raises Problem."""
    diagnoses = [diagnose(kind, nodes) for kind in kinds]
    for diagnosis in diagnoses:
        write(str(diagnosis))
    for name in running():
        write(f"lab {name}: {_memory_of(name)}")
    for plugin in (*PLUGINS, *KINDS.plugins, *PROBES.plugins, *DRIVERS.plugins):
        write(str(plugin))
    if len(kinds) > 1 or VAGRANT_LAB.name in kinds:
        write("Vagrantfile:")
        for note in vagrant_notes(Path(os.environ.get("NODEPROOF_BOX", ".box"))):
            write(str(note))
    return all(diagnosis.can_start for diagnosis in diagnoses)
