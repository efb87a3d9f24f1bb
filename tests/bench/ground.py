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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from nodeproof import proc
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.spec import API_ADDRESS, API_PORT
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from tests.bench.figure import Bench, Json

HERE = Path(__file__).resolve().parent
ANNOTATION = "nodeproof.dev/bench"
UP_LIMIT_S = {PROCESS.name: 300.0, LIBVIRT.name: 900.0}
"""How long `nodeproof up` may take, by kind of lab."""
QUIET_SHARE, QUIET_LIMIT_S = 0.25, 20.0
_LAB_NAME = re.compile(r"^p-[0-9a-f]{6}$", re.MULTILINE)


def machine_description() -> Mapping[str, str]:
    """The machine that the figures hold for."""
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
    """The load averages now."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def settle(bench: Bench, own: str = "") -> str:
    """Wait until others leave the machine alone, at most QUIET_LIMIT_S; gives what is left, for the
    record.
    """
    until = time.monotonic() + QUIET_LIMIT_S
    busy, labs = _others(own)
    while (busy > QUIET_SHARE or labs) and time.monotonic() < until:
        busy, labs = _others(own)
    beside = f", {len(labs)} other labs" if labs else ""
    if busy > QUIET_SHARE or labs:
        bench.say(f"what follows is measured beside other work: {busy:.0%} busy{beside}")
    return f"{load().split()[0]} ({busy:.0%} busy{beside})"


def _others(own: str) -> tuple[float, list[str]]:
    """The busy share of the processor over a second, and the labs that are not ours."""
    return _busy_share(1.0), [name for name in registry.running() if name != own]


def load_after(own: str) -> str:
    """The load when a figure was done; other labs that came meanwhile spoil it."""
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


def processes_of(lab: Lab) -> list[Mapping[str, Json]]:
    """What the processes of a lab use."""
    return cast("list[Mapping[str, Json]]", run_inside(lab, "processes.py", limit_s=60))


def run_inside(lab: Lab, script: str, *arguments: str, limit_s: float) -> Json:
    """Run one of the scripts beside this one in the lab's outer namespaces; gives what it printed as JSON."""
    argv = [sys.executable, "-I", str(HERE / script), *arguments]
    done = registry.client(lab.name).spawn_command(argv, limit_s)
    if done["status"] != 0:
        raise RuntimeError(f"{script}: {done['stderr'][-2000:]}")
    return json.loads(done["stdout"])


@contextlib.contextmanager
def running_lab(
    bench: Bench, nodes: int, profile: str, kind: str = PROCESS.name, zones: int = 1
) -> Iterator[tuple[Lab, float]]:
    """A lab by `nodeproof up`, and how long (s) that took from the command to Ready nodes."""
    name, took = _command_up(bench, nodes, profile, kind, zones)
    try:
        lab = registry.attach(name)
        try:
            yield lab, took
        finally:
            lab.close()
    finally:
        if name in registry.running():
            registry.down(name)


def _command_up(bench: Bench, nodes: int, profile: str, kind: str, zones: int) -> tuple[str, float]:
    """Run `nodeproof up`; when we are interrupted it gets a Ctrl-C and tears its lab down itself."""
    out = bench.scratch / f"up-{uuid.uuid4().hex[:6]}.log"
    options = [f"--lab={kind}", f"--nodes={nodes}", f"--zones={zones}", f"--profile={profile}"]
    options.append(f"--components={bench.source}")
    began = time.monotonic()
    child = proc.start([sys.executable, "-m", "nodeproof.cli", "up", *options], log=out)
    try:
        status = child.wait(timeout=UP_LIMIT_S[kind])
    except BaseException:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=60)
        raise
    took = time.monotonic() - began
    found = _LAB_NAME.search(out.read_text())
    if status != 0 or not found:
        said = [line for line in out.read_text().splitlines() if "not upstream's default" not in line]
        raise RuntimeError("\n".join([f"nodeproof up ended with {status}", *said[-20:]]))
    return found.group(), took


def kind_of(process: Mapping[str, Json]) -> str:
    """What a process is, by the name of its executable."""
    name = str(process["name"])
    return "sshd" if name.startswith("sshd") else name


def core_shares(
    before: Mapping[int, Mapping[str, Json]], after: Sequence[Mapping[str, Json]], seconds: float
) -> str:
    """The cores that each component used in between (a process counts from its start), largest first."""
    used: dict[str, float] = {}
    for entry in after:
        earlier = before.get(entry["pid"], {}).get("cpu_s", 0.0)
        used[kind_of(entry)] = used.get(kind_of(entry), 0.0) + entry["cpu_s"] - earlier
    largest = sorted(used.items(), key=lambda item: -item[1])[:6]
    return ", ".join(f"{name} {100 * value / seconds:.0f} %" for name, value in largest) + " of a core"


def watch_setting(lab: Lab, paths: Sequence[str], seconds: float) -> Mapping[str, Json]:
    """What raw_watch.py is told."""
    pki = lab.dir / "pki"
    return {
        "api": [API_ADDRESS, API_PORT],
        "ca": str(pki / "ca.crt"),
        "cert": str(pki / "admin.crt"),
        "key": str(pki / "admin.key"),
        "paths": list(paths),
        "seconds": seconds,
        "annotation": ANNOTATION,
    }
