"""From the command to the first dropped packet."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from nodeproof.faults import Fault, Partition
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.wire import SupervisorClient
from nodeproof.machines.machine import CommandResult, Machine
from nodeproof.safety.guard import Declared
from nodeproof.safety.ledger import Ledger
from nodeproof.scenario import outage
from tests.bench.figure import Bench, Figure, Json
from tests.bench.ground import load_after, run_inside, settle


@dataclass
class Marks:
    """When the parts of one injection were done."""

    spent: dict[str, float] = field(default_factory=dict)
    command_t: float = 0.0
    script: str = ""

    @contextlib.contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Book the context's time on a part, as long as the command is not sent."""
        began = time.monotonic()
        try:
            yield
        finally:
            if not self.command_t:
                self.spent[part] = self.spent.get(part, 0.0) + time.monotonic() - began


class ClockedMachine:
    """A machine that notes when the rules are handed to it."""

    def __init__(self, machine: Machine, marks: Marks) -> None:
        self._machine = machine
        self._marks = marks

    def __getattr__(self, name: str) -> Json:
        return getattr(self._machine, name)

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command; the first nft script is the injection."""
        if stdin and not self._marks.command_t:
            self._marks.command_t = time.monotonic()
            self._marks.script = stdin
        with self._marks.spending("available"):
            return self._machine.run(argv, deadline_s=deadline_s, stdin=stdin)


class ClockedLedger(Ledger):
    """A ledger that books its time."""

    def __init__(self, lab: str, marks: Marks) -> None:
        super().__init__(lab)
        self._marks = marks

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Append a step."""
        with self._marks.spending("ledger"):
            super().write(step, fault)


class ClockedDeadman:
    """A supervisor's dead-man's switch that books its time."""

    def __init__(self, supervisor: SupervisorClient, marks: Marks) -> None:
        self._supervisor = supervisor
        self._marks = marks

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm, renew or disarm."""
        with self._marks.spending("deadman"):
            self._supervisor.arm(fault, ttl_s)


def first_drop(bench: Bench, lab: Lab) -> list[Figure]:
    """Inject partitions under a stream of packets, by the injector and by a bare nft in turn."""
    target = next(entry for entry in lab.fleet.nodes() if entry.name == lab.fleet.node_names()[0])
    pid = next(
        entry["pid"] for entry in registry.client(lab.name).status()["nodes"] if entry["name"] == target.name
    )
    stop = bench.scratch / f"stop-{uuid.uuid4().hex[:6]}"
    loads = [settle(bench, lab.name)]
    injected: list[tuple[float, float, Marks]] = []
    bare: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(
            run_inside, lab, "probe.py", "send", target.data_address, str(pid), str(stop), limit_s=300
        )
        try:
            lab.fleet.machine(target.name).run(["true"], deadline_s=10)
            for _ in range(bench.injections):
                injected.append(_inject(lab, Partition(uuid.uuid4().hex[:8], target.name)))
                bare.append(_bare_nft(lab, int(pid), injected[-1][2].script))
        finally:
            stop.touch()
        probe = stream.result()
        stop.unlink()
    loads.append(load_after(lab.name))
    return _drop_figures(probe, injected, bare, loads)


GROUP = 28
"""So many of fifty are more than 55 percent."""


def group_drop(bench: Bench, lab: Lab) -> list[Figure]:
    """Cut a group of nodes at once, by the injector and by a bare nft in turn."""
    loads = [settle(bench, lab.name)]
    lost = lab.fleet.nodes()[:GROUP]
    injected, bare = [], []
    for _ in range(bench.injections):
        injected.append(_inject(lab, outage(*lost)))
        bare.append(_bare_table(lab, injected[-1][2].script))
        lab.wait_nodes_ready()
    loads.append(load_after(lab.name))
    before = [1000 * (marks.command_t - entered) for entered, _proven, marks in injected]
    notes = [_parts(injected)]
    met = statistics.median(before) <= 150
    return [
        Figure(
            f"what the protocol adds before the command, a group of {GROUP}", "ms", before,
            "the same table by a bare nft", bare, "<= 150 ms", met, loads, notes,
        )
    ]  # fmt: skip


def _bare_table(lab: Lab, script: str) -> float:
    """How long loading the table takes without any protocol (ms); it is deleted again."""
    client, nft = registry.client(lab.name), ["nft", "-f", "-"]
    began = time.monotonic()
    client.spawn_command(nft, 10, script)
    took_ms = 1000 * (time.monotonic() - began)
    client.spawn_command(nft, 10, script.splitlines()[0] + "\n")
    return took_ms


def _parts(injected: Sequence[tuple[float, float, Marks]]) -> str:
    parts = {
        part: statistics.median(1000 * marks.spent.get(part, 0.0) for _entered, _proven, marks in injected)
        for part in ("guard", "available", "ledger", "deadman")
    }
    return ", ".join(f"{part} {value:.1f} ms" for part, value in parts.items())


def _inject(lab: Lab, fault: Fault) -> tuple[float, float, Marks]:
    """One injection: when it was entered, when it was proven, and its marks."""
    marks = Marks()
    given = lab.safety.injector

    def targets(place: str, harms: Sequence[str]) -> Json:
        with marks.spending("guard"):
            return given.targets(place, harms)

    injector = dataclasses.replace(
        given,
        machine=lambda node_name: cast(Machine, ClockedMachine(lab.fleet.machine(node_name), marks)),
        targets=targets,
        ledger=ClockedLedger(lab.name, marks),
        deadman=ClockedDeadman(registry.client(lab.name), marks),
    )
    entered = time.monotonic()
    with injector.inject(fault, Declared(fault.harms, (), "zone"), lambda *_arguments, **_data: None):
        proven = time.monotonic()
    return entered, proven, marks


def _bare_nft(lab: Lab, pid: int, script: str) -> float:
    """The same transaction without SSH and without protocol; gives when it was sent."""
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "nft", "-f", "-"]
    sent = time.monotonic()
    registry.client(lab.name).spawn_command(enter, 10, script)
    threading.Event().wait(0.1)
    registry.client(lab.name).spawn_command(enter, 10, "\n".join(script.splitlines()[:2]) + "\n")
    threading.Event().wait(0.1)
    return sent


def _drop_figures(
    probe: Mapping[str, Json], injected: Sequence[tuple[float, float, Marks]], bare: Sequence[float],
    loads: Sequence[str],
) -> list[Figure]:  # fmt: skip
    sent: list[float] = probe["sent"]
    arrived = set(probe["arrived"])
    lost = [t for number, t in enumerate(sent) if number not in arrived]

    def until_lost(t: float) -> float:
        return 1000 * (next(when for when in lost if when >= t) - t)

    ours = [until_lost(marks.command_t) for _entered, _proven, marks in injected]
    anchors = [until_lost(t) for t in bare]
    before = [1000 * (marks.command_t - entered) for entered, _proven, marks in injected]
    proof = [1000 * (proven - marks.command_t) for _entered, proven, marks in injected]
    period = statistics.median(later - earlier for earlier, later in pairwise(sent))
    notes = [
        f"slowest of {len(ours)}: {max(ours):.1f} ms; a packet each {1000 * period:.2f} ms, {len(sent)} sent",
        f"command sent to harm proven by the probes: {statistics.median(proof):.0f} ms",
    ]
    met = statistics.median(ours) <= 50
    return [
        Figure(
            "nft command sent to first dropped packet", "ms", ours, "bare nft through nsenter", anchors,
            "<= 50 ms", met, loads, notes,
        ),
        Figure(
            "what the protocol adds before the command", "ms", before, "the drop itself", ours, "as measured",
            None, loads, [_parts(injected)],
        ),
    ]  # fmt: skip
