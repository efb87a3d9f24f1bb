"""From the command to the first dropped packet."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from infra.bench.figure import Bench, Figure, Json
from infra.bench.host import load_after, run_inside, running_lab, settle
from nodeproof.faults.partition import Partition
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import CommandResult, Machine
from nodeproof.safety.guard import Declared


@dataclass
class Injection:
    """When an injection was entered, sent its command, and was proven, and the command's nft script."""

    entered_t: float
    command_t: float = 0.0
    proven_t: float = 0.0
    script: str = ""


class ClockedMachine:
    """A machine that notes when the rules are handed to it."""

    def __init__(self, machine: Machine, injection: Injection) -> None:
        self._machine = machine
        self._injection = injection

    def __getattr__(self, name: str) -> Json:
        return getattr(self._machine, name)

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command; the first nft script is the injection."""
        if stdin and not self._injection.command_t:
            self._injection.command_t = time.monotonic()
            self._injection.script = stdin
        return self._machine.run(argv, timeout_s=timeout_s, stdin=stdin)


def first_drop(bench: Bench) -> Iterator[Figure]:
    """Inject partitions under a stream of packets, by the injector and by a bare nft in turn."""
    with running_lab(bench, 2, "fast") as (lab, _took):
        target = next(entry for entry in lab.fleet.nodes() if entry.name == lab.fleet.node_names()[0])
        pid = int(target.pid or 0)
        stop = bench.scratch / f"stop-{uuid.uuid4().hex[:6]}"
        loads = [settle(bench, lab.name)]
        injections: list[Injection] = []
        bare: list[float] = []
        with ThreadPoolExecutor(1) as pool:
            sender = ("probe.py", "send", target.data_address, str(pid), str(stop))
            stream = pool.submit(run_inside, lab, *sender, timeout_s=300)
            try:
                lab.fleet.machine(target.name).run(["true"], timeout_s=10)
                for _ in range(bench.injections):
                    injections.append(_inject(lab, target.name))
                    bare.append(_bare_nft(lab, pid, injections[-1].script))
            finally:
                stop.touch()
            probe = stream.result()
            stop.unlink()
        loads.append(load_after(lab.name))
    yield from _figures(probe, injections, bare, loads)


def _inject(lab: LabHandle, node: str) -> Injection:
    injection, fault = Injection(time.monotonic()), Partition(node)
    injector = dataclasses.replace(
        lab.safety.injector,
        machine=lambda name: cast(Machine, ClockedMachine(lab.fleet.machine(name), injection)),
    )
    declared = Declared(fault.affected_nodes, (), "zone")
    with injector.inject(fault, declared, lambda *_arguments, **_data: None):
        injection.proven_t = time.monotonic()
    return injection


def _bare_nft(lab: LabHandle, pid: int, script: str) -> float:
    """Run the same transaction without SSH and without protocol, and return when it was sent."""
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "nft", "-f", "-"]
    sent = time.monotonic()
    registry.client(lab.name).spawn_command(enter, 10, script)
    threading.Event().wait(0.1)
    registry.client(lab.name).spawn_command(enter, 10, "\n".join(script.splitlines()[:2]) + "\n")
    threading.Event().wait(0.1)
    return sent


def _figures(
    probe: Mapping[str, Json], injections: Sequence[Injection], bare: Sequence[float], loads: Sequence[str]
) -> Iterator[Figure]:
    sent: list[float] = probe["sent"]
    arrived = set(probe["arrived"])
    lost = [t for number, t in enumerate(sent) if number not in arrived]

    def until_lost(t: float) -> float:
        return 1000 * (next(when for when in lost if when >= t) - t)

    ours = [until_lost(one.command_t) for one in injections]
    anchors = [until_lost(t) for t in bare]
    before = [1000 * (one.command_t - one.entered_t) for one in injections]
    proof = [1000 * (one.proven_t - one.command_t) for one in injections]
    period = statistics.median(later - earlier for earlier, later in pairwise(sent))
    notes = [
        f"slowest of {len(ours)}: {max(ours):.1f} ms; a packet each {1000 * period:.2f} ms, {len(sent)} sent",
        f"command sent to harm proven by the probes: {statistics.median(proof):.0f} ms",
    ]
    met = statistics.median(ours) <= 50
    yield Figure(
        "nft command sent to first dropped packet", "ms", ours, "bare nft through nsenter", anchors,
        "<= 50 ms", met, loads, notes,
    )  # fmt: skip
    yield Figure(
        "what the protocol adds before the command", "ms", before, "the drop itself", ours, "as measured",
        None, loads,
    )  # fmt: skip
