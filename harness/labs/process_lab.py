"""Process labs from outside: start one, find those that run, tear down, sweep what a killed one left."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import tenacity

from harness import proc
from harness.labs.component_build import make_folder
from harness.labs.components import Component, Components
from harness.labs.guest.hypervisor import TOOLS, binding
from harness.labs.guest.snapshots import half_taken
from harness.labs.image import KERNEL_ARGUMENTS, golden_image
from harness.labs.kinds import LIBVIRT, PROCESS, check_kind
from harness.labs.lab import Lab, wait_gone
from harness.labs.process.spec import RUNTIME_ROOT, LabSpec, NodeSpec, check_node_count
from harness.labs.profiles import profile_named
from harness.labs.remedy import remedy
from harness.labs.root import check_tools, root_prefix
from harness.labs.wire import SupervisorClient
from harness.model.problem import Problem
from harness.safety.ledger import Ledger, labs_with_ledgers

Json = Any
READY_LIMIT_S = {PROCESS: 180.0, LIBVIRT: 500.0}
"""How long a control plane, and guests up to their sshd, may take, by kind of lab."""
END_LIMIT_S = 30.0
_LAB_NAME = re.compile(r"p-[0-9a-f]{6}")


@dataclass(frozen=True)
class Request:
    """What kind of process lab is wanted; `keep` lets it outlive the process that asked."""

    lab: str
    nodes: int
    zones: int
    profile: str
    keep: bool
    kind: str = PROCESS


def components_of(spec: LabSpec) -> Components:
    """The components that a lab was started with, as its spec tells."""
    parts = {
        role: Component(role, Path(part["path"]), part["version"], part["sha256"], part["origin"])
        for role, part in spec.components.items()
    }
    return Components(spec.kubernetes_version, parts, spec.hollow_from_tree)


def new_name() -> str:
    """A name for a lab that is to be."""
    return f"p-{uuid.uuid4().hex[:6]}"


def check(request: Request) -> None:
    """Refuse a request that no process lab can meet. Raises Problem."""
    check_kind(request.kind)
    check_node_count(request.nodes, request.kind)
    if not 1 <= request.zones <= request.nodes:
        raise Problem(
            f"{request.zones} zones for {request.nodes} nodes", "--zones", "ask for 1 to as many as nodes"
        )
    profile_named(request.profile)


def up(request: Request, components: Components, report: Callable[[str], None]) -> Lab:
    """Start a lab and wait until its nodes are Ready.

    Raises Problem; nothing of a lab that did not come up is left behind.
    """
    check(request)
    become_root = root_prefix()
    spec = _spec(request, components, _guest(request, components, report))
    report(f"lab {spec.lab}: {request.nodes} nodes in {request.zones} zones, profile {request.profile}")
    # -P: root must not import what happens to lie in the caller's working folder; -B: nor leave a __pycache__
    # beside what it imports.
    argv = [*become_root, sys.executable, "-P", "-B", "-m", "harness.labs.supervisor", spec.to_json()]
    # It has no name: whoever is killed here leaves no file.
    with tempfile.TemporaryFile() as startup:
        child = proc.start(argv, log=startup.fileno(), own_session=True)
        lab = _wait_up(spec, components, child, startup)
    if request.kind == LIBVIRT:
        accelerator = "KVM" if lab.supervisor.status()["kvm"] else "QEMU's emulation, as no guest runs on KVM"
        report(f"virtual machines on {accelerator}")
        for line in _without_snapshot((spec.dir / "events.jsonl").read_text().splitlines()):
            report(line)
    return lab


def _guest(request: Request, components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """What the nodes boot where they are virtual machines: the golden image. Raises Problem."""
    if request.kind != LIBVIRT:
        return {}
    mend = f"{remedy(LIBVIRT)}, or see `nodeproof doctor`"
    check_tools(TOOLS, "libvirt lab", mend)
    binding()
    image = golden_image(components, report)
    make_folder(image.snapshots)
    files = {"kernel": image.kernel, "initrd": image.initrd, "disk": image.disk, "snapshots": image.snapshots}
    return {**{role: str(path) for role, path in files.items()}, "arguments": " ".join(KERNEL_ARGUMENTS)}


_SNAPSHOT_STEPS = {
    "snapshot-taken": "booted, and a snapshot taken for later labs",
    "snapshot-refused": "its snapshot was no good",
    "no-snapshot": "no snapshot taken",
}


def _without_snapshot(events: Sequence[str]) -> Iterator[str]:
    """A line about each guest that did not just go on from its snapshot."""
    for entry in map(json.loads, events):
        if entry["kind"] == "machine" and entry["step"] in _SNAPSHOT_STEPS:
            yield f"{entry['node']}: {_SNAPSHOT_STEPS[entry['step']]} ({entry['detail']})"


def attach(name: str) -> Lab:
    """Use a lab that runs, with the components that it was started with. Raises Problem."""
    return Lab(_folder(name), components_of(spec_of(name)), None)


def spec_of(name: str) -> LabSpec:
    """What a lab was started as. Raises Problem when there is no such lab."""
    return LabSpec.from_json((_folder(name) / "spec.json").read_text())


def client(name: str) -> SupervisorClient:
    """Speak to the supervisor of a lab. Raises Problem when there is no such lab."""
    return SupervisorClient(_folder(name) / "s")


def memory_line(status: Mapping[str, Json]) -> str:
    """How full a lab's own memory is, as its status tells; an earlier version's tells nothing."""
    parts = [
        f"{name} {(told['size_bytes'] - told['free_bytes']) >> 20} of {told['size_bytes'] >> 20} MiB"
        for name, told in status.get("memory", {}).items()
    ]
    return ", ".join(parts) or "it does not say how full its memory is"


def running() -> list[str]:
    """Names of the labs whose supervisor lives."""
    return [folder.name for folder in _folders() if _is_held(folder)]


def the_lab(name: str | None) -> str:
    """The lab of that name; else the one that a person started, whatever labs runs hold beside it.

    Raises Problem when that is not clear.
    """
    names = running()
    if name in names:
        return str(name)
    by_hand = [lab for lab in names if _is_by_hand(lab)]
    for chosen in (by_hand, names):
        if name is None and len(chosen) == 1:
            return chosen[0]
    what = "no lab is up" if not names else f"{len(names)} labs are up: {', '.join(names)}"
    raise Problem(
        what if name is None else f"no lab {name!r}; {what}", "--lab-name", "run `nodeproof up`, or name one"
    )


def _is_by_hand(lab: str) -> bool:
    """Whether a lab is kept; one that just went, or that another version wrote, is not meant."""
    try:
        return spec_of(lab).keep
    except (OSError, ValueError, TypeError, KeyError, Problem):
        return False


def down(name: str) -> None:
    """Tear a lab down by name, whether its supervisor lives or was killed. Raises Problem."""
    folder = _folder(name)
    if _is_held(folder):
        SupervisorClient(folder / "s").down()
        wait_gone(folder)
    else:
        _remove(folder)
    Ledger(name).forget()


def sweep() -> list[str]:
    """Remove what killed supervisors left: only folders whose lock can be taken. Gives their names."""
    left = [folder for folder in [*_folders(), *_stillborn()] if not _is_held(folder)]
    for folder in left:
        _remove(folder)
    alive = set(running())
    for lab in labs_with_ledgers():
        if _LAB_NAME.fullmatch(lab) and lab not in alive:
            Ledger(lab).forget()
    return [folder.name for folder in left]


def find_sshd() -> str:
    """The sshd that nodes run: the system's, or the one that set-up unpacked. Raises Problem."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeproof" / "sshd"
    for path in (Path("/usr/sbin/sshd"), cache / "usr/sbin/sshd"):
        if path.exists():
            # Its own version's, for as long as the lab runs: sshd starts itself for each connection.
            return str(path.resolve())
    raise Problem("no sshd", "process lab", remedy(PROCESS))


def _spec(request: Request, components: Components, guest: Mapping[str, str]) -> LabSpec:
    nodes = tuple(
        NodeSpec(f"node-{slot + 1}", slot, f"zone-{chr(ord('a') + slot % request.zones)}", uuid.uuid4().hex)
        for slot in range(request.nodes)
    )
    return LabSpec(
        lab=request.lab,
        owner_uid=os.getuid(),
        owner_gid=os.getgid(),
        kubernetes_version=components.kubernetes_version,
        components={
            role: {
                "path": str(part.path),
                "version": part.version,
                "sha256": part.sha256,
                "origin": part.origin,
            }
            for role, part in components.by_role.items()
        },
        hollow_from_tree=components.hollow_from_tree,
        sshd=find_sshd(),
        profile=request.profile,
        nodes=nodes,
        keep=request.keep,
        kind=request.kind,
        guest=guest,
    )


def _wait_up(spec: LabSpec, components: Components, child: proc.Process, startup: IO[bytes]) -> Lab:
    """From a started supervisor to Ready nodes; whatever goes wrong, the lab goes too."""
    hold = None
    try:
        _wait_socket(spec, child, startup)
        client = SupervisorClient(spec.dir / "s")
        hold = client.hold()
        _wait_phase(client, READY_LIMIT_S[spec.kind])
        lab = Lab(spec.dir, components, hold)
        lab.wait_nodes_ready()
        return lab
    except BaseException:
        if hold is not None:
            hold.close()
        _end(spec, child)
        raise


def _end(spec: LabSpec, child: proc.Process) -> None:
    """End a supervisor that has not brought its lab up, however far it got."""
    if child.poll() is not None:
        return
    try:
        SupervisorClient(spec.dir / "s").down()
    except Problem:
        # Only root may signal what sudo started.
        proc.run([*root_prefix(), "kill", str(child.pid)], timeout_s=10, check=False)
    try:
        child.wait(timeout=END_LIMIT_S)
    except proc.TimeoutExpired as error:
        raise Problem("its supervisor does not end", f"lab {spec.lab}", "run `nodeproof down`") from error


def _wait_socket(spec: LabSpec, child: proc.Process, startup: IO[bytes]) -> None:
    def look() -> bool:
        if child.poll() is not None:
            startup.seek(0)
            tail = "\n".join(startup.read().decode(errors="replace").splitlines()[-5:])
            raise Problem("the supervisor died on start", f"lab {spec.lab}", "its last lines follow", tail)
        return (spec.dir / "s").is_socket() and (spec.dir / "spec.json").exists()

    _poll(look, 20, f"lab {spec.lab} has no socket")


def _wait_phase(client: SupervisorClient, limit_s: float) -> None:
    def look() -> bool:
        status = client.status()
        if status["phase"] == "failed":
            what, _newline, detail = str(status["failure"]).partition("\n")
            raise Problem(
                what, f"lab {status['lab']}", "see docs/architecture.md, 'When a lab does not start'", detail
            )
        return bool(status["phase"] == "ready")

    _poll(look, limit_s, "the control plane is not ready")


def _poll(look: Callable[[], bool], limit_s: float, what: str) -> None:
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(0.05),
        retry=tenacity.retry_if_result(lambda there: not there),
        retry_error_callback=lambda _state: False,
    )
    if not retry(look):
        raise Problem(
            f"{what} after {limit_s:g} s", "process lab", "look whether the host is overloaded, and try again"
        )


def _folder(name: str) -> Path:
    folder = RUNTIME_ROOT / name
    if not _LAB_NAME.fullmatch(name) or _owner(folder) != os.getuid():
        raise Problem(f"no lab {name!r}", str(RUNTIME_ROOT), f"there are: {', '.join(running()) or 'none'}")
    return folder


def _folders() -> list[Path]:
    """The folders of the caller's own labs; other users' are none of our business."""
    if not RUNTIME_ROOT.is_dir():
        return []
    found = (path for path in RUNTIME_ROOT.iterdir() if _LAB_NAME.fullmatch(path.name))
    return sorted(path for path in found if _owner(path) == os.getuid())


def _stillborn() -> list[Path]:
    """Folders that never got a lab's name, and are too old to get it yet."""
    if not RUNTIME_ROOT.is_dir():
        return []
    # Until it has its name, a folder is root's.
    found = [path for path in RUNTIME_ROOT.glob(".p-*") if _owner(path) in (os.getuid(), 0)]
    return [path for path in found if time.time() - path.stat().st_mtime > END_LIMIT_S]


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


def _is_held(folder: Path) -> bool:
    """Whether somebody holds the lab's lock; only a folder whose lock is free may be swept."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove(folder: Path) -> None:
    try:
        guest = LabSpec.from_json((folder / "spec.json").read_text()).guest
    except (OSError, ValueError):
        guest = {}
    half = half_taken(Path(guest["snapshots"])) if guest else []
    proc.run([*root_prefix(), "rm", "-rf", "--", *map(str, [folder, *half])], timeout_s=30)
