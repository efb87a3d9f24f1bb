"""Figures of virtual machines: image, start, power, memory, tear-down."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import tenacity

from infra.bench.boots import reboot
from infra.bench.figure import MIB, Bench, Figure
from infra.bench.host import load_after, measure_inside, running_lab, settle
from infra.bench.volumes import plugging
from nodeproof.artifacts.image import Image, golden_image
from nodeproof.cache import cache_dir
from nodeproof.cluster import workloads
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.labs.kinds.libvirt.guests import MEMORY_MIB
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH

NODES, PROFILE = 2, "fast"
IMAGE_TARGET_S, NOTHING_TARGET_S, RESTORED_TARGET_S, OFF_TARGET_S = 300, 150, 25, 1
MEMORY_TARGET_MIB = 1536
BOOT_TIMEOUT_S, OFF_TIMEOUT_S, POD_TIMEOUT_S = 400.0, 30.0, 120.0
IMAGE, UP, POWER, MEMORY, VOLUMES = "image", "up", "power", "memory", "volumes"
FIGURES = (IMAGE, UP, POWER, MEMORY, VOLUMES)
_BEGIN, _CUSTOMIZE = "image: installing", "image: adding"


def guests(bench: Bench, wanted: Collection[str]) -> Iterator[Figure]:
    """Measure the wanted figures of a libvirt lab; images and snapshots are made in a cache of their own."""
    if IMAGE in wanted:
        with scratch_cache():
            yield image(bench)
            if UP in wanted:
                yield from roads(bench)
    elif UP in wanted:
        there = golden_image(bench.components, bench.say)
        with scratch_cache():
            take_image(there)
            yield from roads(bench)
    if {POWER, MEMORY, VOLUMES} & set(wanted):
        yield from _inside(bench, wanted)


def _inside(bench: Bench, wanted: Collection[str]) -> Iterator[Figure]:
    with running_lab(bench, NODES, PROFILE, LIBVIRT.name) as (lab, _took):
        if MEMORY in wanted:
            yield memory(bench, lab)
        if VOLUMES in wanted:
            yield from plugging(bench, lab)
        if POWER in wanted:
            yield from power(bench, lab)


def image(bench: Bench) -> Figure:
    """Measure the golden image from an empty cache, beside the bare installation of its packages within."""
    loads = [settle(bench)]
    at: list[tuple[float, str]] = []
    began = time.monotonic()
    built = golden_image(bench.components, lambda line: at.append((time.monotonic(), line)))
    took = time.monotonic() - began
    installing, rest = (
        next(t for t, line in at if line.startswith(prefix)) for prefix in (_BEGIN, _CUSTOMIZE)
    )
    notes = [f"disk of {built.facts['disk_bytes'] / MIB:.0f} MiB, {len(built.facts['packages'])} packages"]
    return Figure(
        "golden image from an empty cache", "s", [took], "its mmdebstrap alone", [rest - installing],
        f"<= {IMAGE_TARGET_S} s", took <= IMAGE_TARGET_S, [*loads, load_after("")], notes,
    )  # fmt: skip


def roads(bench: Bench) -> list[Figure]:
    """`nodeproof up` without and with snapshots, beside a reboot of the same nodes from inside."""
    nothing: list[float] = []
    restored: list[float] = []
    reboots: list[float] = []
    loads: list[list[str]] = [[], []]
    notes: list[list[str]] = [[], []]
    for _ in range(bench.repeats):
        forget_snapshots()
        loads[0].append(settle(bench))
        with running_lab(bench, NODES, PROFILE, LIBVIRT.name) as (lab, took):
            nothing.append(took)
            notes[0] = [_accelerator(lab), _steps(lab, took)]
            reboots.append(_reboot_s(lab))
        bench.say(f"from nothing {took:.1f} s, reboot {reboots[-1]:.1f} s")
    for _ in range(bench.repeats):
        loads[1].append(settle(bench))
        with running_lab(bench, NODES, PROFILE, LIBVIRT.name) as (lab, took):
            restored.append(took)
            notes[1] = [_steps(lab, took)]
            _check_restored(lab)
    return [
        Figure(
            f"up: control plane and {NODES} nodes Ready, {name}", "s", took_s, f"reboot of {NODES} nodes",
            reboots, f"<= {target} s", statistics.median(took_s) <= target, load, label,
        )
        for name, took_s, target, load, label in (
            ("from nothing", nothing, NOTHING_TARGET_S, loads[0], notes[0]),
            ("from snapshots", restored, RESTORED_TARGET_S, loads[1], notes[1]),
        )
    ]  # fmt: skip


def memory(bench: Bench, lab: LabHandle) -> Figure:
    """Measure what a Ready node with one pod costs: its process, and its disks in the lab's memory."""
    workloads.prepare(lab.cluster.api)
    for name in lab.fleet.node_names():
        workloads.run_pod(lab.cluster.api, node_name=name, timeout_s=POD_TIMEOUT_S)
    memories = measure_inside(lab, "guest_memory", str(lab.dir), timeout_s=60)
    values = [(entry["process"] + entry["disks"]) / MIB for entry in memories.values()]
    notes = [
        f"{name}: process {entry['process'] / MIB:.0f} MiB PSS, disks {entry['disks'] / MIB:.0f} MiB"
        for name, entry in sorted(memories.items())
    ]
    bench.say("; ".join(notes))
    return Figure(
        "memory of a node with one pod", "MiB", values, "what the guest is given", [MEMORY_MIB],
        f"<= {MEMORY_TARGET_MIB} MiB each", max(values) <= MEMORY_TARGET_MIB, [load_after(lab.name)], notes,
    )  # fmt: skip


def power(bench: Bench, lab: LabHandle) -> list[Figure]:
    """Power-off of a node and tear-down, beside a bare `virsh destroy` of the same node."""
    name = lab.fleet.node_names()[0]
    ours: list[float] = []
    bare: list[float] = []
    loads = [settle(bench, lab.name)]
    for _ in range(bench.repeats):
        ours.append(_off_s(lab, name))
        registry.client(lab.name).power(name, "on")
        bare.append(_destroyed_s(lab, name))
        registry.client(lab.name).power(name, "on")
    loads.append(load_after(lab.name))
    began = time.monotonic()
    registry.down(lab.name)
    down = time.monotonic() - began
    anchor = "bare virsh destroy of one"
    met = statistics.median(ours) <= OFF_TARGET_S
    return [
        Figure(
            "power-off to domain gone", "s", ours, anchor, bare, f"<= {OFF_TARGET_S} s", met, loads,
        ),
        Figure(
            f"tear-down of {NODES} nodes", "s", [down], anchor, bare, "as measured", None, [load_after("")],
        ),
    ]  # fmt: skip


def _off_s(lab: LabHandle, name: str) -> float:
    """How long (s) from asking the supervisor until it sees no virtual machine any more."""
    began = time.monotonic()
    registry.client(lab.name).power(name, "off")
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(OFF_TIMEOUT_S),
        wait=tenacity.wait_fixed(0.002),
        retry=tenacity.retry_if_result(lambda pid: pid is not None),
    )
    retry(_pid, lab, name)
    return time.monotonic() - began


def _destroyed_s(lab: LabHandle, name: str) -> float:
    """How long (s) `virsh destroy` takes until the virtual machine's process is gone."""
    return float(
        measure_inside(
            lab, "exit_time", str(_pid(lab, name)), *VIRSH, "destroy", name, timeout_s=OFF_TIMEOUT_S + 10
        )
    )


def _pid(lab: LabHandle, name: str) -> int | None:
    return next(entry.pid for entry in lab.fleet.nodes() if entry.name == name)


def _reboot_s(lab: LabHandle) -> float:
    """How long (s) a reboot of all nodes takes until the last is Ready. Raises RuntimeError."""
    took = reboot(lab, BOOT_TIMEOUT_S)
    if len(took) < NODES:
        raise RuntimeError(f"Ready again after a reboot: {', '.join(took) or 'none'} of {NODES} nodes")
    return max(took.values())


def _accelerator(lab: LabHandle) -> str:
    return (
        "guests run on KVM"
        if registry.client(lab.name).status().kvm
        else "guests are emulated: KVM runs none here"
    )


def _steps(lab: LabHandle, took: float) -> str:
    """Return what the lab recorded of its machines, from the command on."""
    lines = (lab.dir / "events.jsonl").read_text().splitlines()
    events = [entry for entry in map(json.loads, lines) if entry["kind"] == "machine"]
    began = time.monotonic() - took
    return ", ".join(f"{entry['node']} {entry['step']} at {entry['t'] - began:.1f} s" for entry in events)


def _check_restored(lab: LabHandle) -> None:
    """Refuse a lab of which a node was booted instead. Raises RuntimeError."""
    lines = (lab.dir / "events.jsonl").read_text().splitlines()
    restored = {entry["node"] for entry in map(json.loads, lines) if entry.get("step") == "restored"}
    missing = set(lab.fleet.node_names()) - restored
    if missing:
        raise RuntimeError(f"not restored from a snapshot: {', '.join(sorted(missing))}")


_IMAGES, _PREFIX, _VARIABLE = "images", ".bench-", "XDG_CACHE_HOME"


@contextlib.contextmanager
def scratch_cache() -> Iterator[None]:
    """Use the user's cache without its images, here and in children, until the context ends."""
    users = cache_dir()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=users) as folder:
        Path(folder).chmod(0o755)
        own = Path(folder, users.name)
        own.mkdir()
        for entry in users.iterdir():
            if entry.name != _IMAGES and not entry.name.startswith(_PREFIX):
                (own / entry.name).symlink_to(entry)
        with _environment(folder):
            yield


def take_image(image: Image) -> None:
    """Put an image of another cache into the present one, without its snapshots."""
    theirs = image.disk.parent
    ours = cache_dir() / _IMAGES / theirs.name
    ours.mkdir(parents=True)
    for file in theirs.iterdir():
        if file.is_file():
            (ours / file.name).symlink_to(file)


def forget_snapshots() -> None:
    """Remove every snapshot of the present cache."""
    for folder in (cache_dir() / _IMAGES).glob("*/snapshots"):
        shutil.rmtree(folder)


@contextlib.contextmanager
def _environment(folder: str) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
