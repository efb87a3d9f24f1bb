"""The machine under the figures, and the labs on it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.bench.figure import Bench, Json
from nodeproof import proc
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT, PROCESS

HERE = Path(__file__).resolve().parent
UP_TIMEOUT_S = {PROCESS.name: 300.0, LIBVIRT.name: 900.0}
"""How long `nodeproof up` may take, by kind of lab."""
QUIET_SHARE, QUIET_TIMEOUT_S = 0.25, 20.0
_LAB_NAME = re.compile(r"^p-[0-9a-f]{6}$", re.MULTILINE)


def machine_description() -> Mapping[str, str]:
    """Describe the machine that the figures hold for."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": str(os.cpu_count()),
        "processor": models[0] if models else platform.machine(),
        "memory": f"{memory:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load at start": load(),
    }


def load() -> str:
    """Return the load averages."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def settle(bench: Bench, own: str = "") -> str:
    """Wait until others leave the machine alone, at most QUIET_TIMEOUT_S; return the load that is left."""
    until = time.monotonic() + QUIET_TIMEOUT_S
    busy, labs = _others(own)
    while (busy > QUIET_SHARE or labs) and time.monotonic() < until:
        busy, labs = _others(own)
    beside = f", {len(labs)} other labs" if labs else ""
    if busy > QUIET_SHARE or labs:
        bench.say(f"what follows is measured beside other work: {busy:.0%} busy{beside}")
    return f"{load().split()[0]} ({busy:.0%} busy{beside})"


def _others(own: str) -> tuple[float, list[str]]:
    """Return the busy share of the processor over a second, and the labs that are not ours."""
    return _busy_share(1.0), [name for name in registry.running() if name != own]


def load_after(own: str) -> str:
    """Return the load after a figure, and the number of other labs, which spoil it."""
    labs = [name for name in registry.running() if name != own]
    return load().split()[0] + (f" ({len(labs)} other labs)" if labs else "")


def _busy_share(seconds: float) -> float:
    before = _ticks()
    threading.Event().wait(seconds)
    after = _ticks()
    return 1 - (after[0] - before[0]) / max(1, after[1] - before[1])


def _ticks() -> tuple[int, int]:
    """Idle and all processor ticks of the machine."""
    fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def measure_inside(lab: LabHandle, figure: str, *arguments: str, timeout_s: float) -> Json:
    """Measure one of the figures of `inside.py` in the lab's outer namespaces."""
    return run_inside(lab, "inside.py", figure, *arguments, timeout_s=timeout_s)


def run_inside(lab: LabHandle, script: str, *arguments: str, timeout_s: float) -> Json:
    """Run a script beside this one in the lab's outer namespaces; return the JSON that it prints."""
    argv = [sys.executable, "-I", str(HERE / script), *arguments]
    output = registry.client(lab.name).spawn_command(argv, timeout_s)
    if output["status"] != 0:
        raise RuntimeError(f"{script}: {output['stderr'][-2000:]}")
    return json.loads(output["stdout"])


@contextlib.contextmanager
def running_lab(
    bench: Bench, nodes: int, profile: str, kind: str = PROCESS.name
) -> Iterator[tuple[LabHandle, float]]:
    """Run a lab by `nodeproof up`; yield it and the time from the command to Ready nodes (s)."""
    name, took = _command_up(bench, nodes, profile, kind)
    try:
        lab = registry.attach(name)
        try:
            yield lab, took
        finally:
            lab.close()
    finally:
        if name in registry.running():
            registry.down(name)


def _command_up(bench: Bench, nodes: int, profile: str, kind: str) -> tuple[str, float]:
    """Run `nodeproof up`; when we are interrupted it gets a Ctrl-C and tears its lab down itself."""
    out = bench.scratch / f"up-{uuid.uuid4().hex[:6]}.log"
    options = [f"--lab={kind}", f"--nodes={nodes}", f"--profile={profile}"]
    options.append(f"--components={bench.source}")
    began = time.monotonic()
    child = proc.start([sys.executable, "-m", "nodeproof.cli", "up", *options], log=out)
    try:
        status = child.wait(timeout=UP_TIMEOUT_S[kind])
    except BaseException:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=60)
        raise
    took = time.monotonic() - began
    match = _LAB_NAME.search(out.read_text())
    if status != 0 or not match:
        lines = [line for line in out.read_text().splitlines() if "not upstream's default" not in line]
        raise RuntimeError("\n".join([f"nodeproof up ended with {status}", *lines[-20:]]))
    return match.group(), took
