"""Boots of two nodes, again and again: none may panic or be missing.

Run `make soak-boots`, or `.venv/bin/python -m infra.bench.soak --help`. In each round both nodes lose power
and get it back at the same time, and have to be Ready by another boot. Every few rounds the lab is a new one,
so that nodes join as well. The exit code is 1 when a guest panicked or a node was missing.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.bench.boots import posted_boots, wait_booted
from infra.bench.host import load, machine_description
from nodeproof.artifacts.components import Components, obtain
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

NODES = 2
_PANIC = re.compile(rb"Kernel panic|Oops: |general protection fault")


@dataclass(frozen=True)
class Round:
    """One boot of all nodes: seconds from power-on to sshd and to Ready by node, and what went wrong."""

    number: int
    sshd_s: Mapping[str, float]
    ready_s: Mapping[str, float]
    panics: Sequence[str]
    missing: Sequence[str]
    messages: Sequence[str]
    load: str


@dataclass(frozen=True)
class SoakRecord:
    """What was done so far: all rounds, and how long (s) each new lab took to Ready nodes."""

    rounds: list[Round]
    labs_s: list[float]


def main() -> None:
    """Boot as often as asked for, print each round and the sum."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    machine = machine_description()
    components = obtain(options.components, DEFAULT_KUBERNETES_VERSION, _say)
    rounds = SoakRecord([], [])
    broke_off = ""
    try:
        soak(components, options, rounds)
    except (KeyboardInterrupt, Problem, OutsideError) as error:
        broke_off = f"broke off: {type(error).__name__} {error}"
    print(summary(machine, rounds))
    if options.json:
        options.json.write_text(json.dumps({"machine": dict(machine), **asdict(rounds)}, indent=1) + "\n")
    if broke_off:
        print(broke_off)
    if broke_off or any(entry.panics or entry.missing for entry in rounds.rounds):
        sys.exit(1)


def soak(components: Components, options: argparse.Namespace, progress: SoakRecord) -> None:
    """Boot all nodes so often, and add to `made`. Raises Problem, ApiError when a lab does not come up."""
    rounds, fresh_every = options.rounds, options.fresh_every
    for first in range(0, rounds, fresh_every):
        began = time.monotonic()
        with _lab(components) as lab:
            progress.labs_s.append(time.monotonic() - began)
            for number in range(first, min(rounds, first + fresh_every)):
                progress.rounds.append(boot(lab, number + 1, options.timeout_s))
                _say(_line(progress.rounds[-1]))


def boot(lab: LabHandle, number: int, timeout_s: float) -> Round:
    """Cut all nodes' power, give it back, and wait until each is Ready by another boot."""
    names = lab.fleet.node_names()
    before = {**dict.fromkeys(names, ""), **posted_boots(lab)}
    ends = {name: _console(lab, name).stat().st_size for name in names}
    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(lambda name: registry.client(lab.name).power(name, "off"), names))
        began = time.monotonic()
        powered = list(pool.map(lambda name: _power_on(lab, name), names))
    ready = wait_booted(lab, before, timeout_s)
    consoles = {name: _console(lab, name).read_bytes()[ends[name] :] for name in names}
    return Round(
        number,
        {name: at - began for name, (at, _problem) in zip(names, powered, strict=True) if at},
        {name: at - began for name, at in ready.items()},
        tuple(name for name in names if _PANIC.search(consoles[name])),
        tuple(name for name in names if name not in ready),
        tuple(problem for _at, problem in powered if problem),
        load(),
    )


def summary(machine: Mapping[str, str], progress: SoakRecord) -> str:
    """Return the machine and the statistics of all rounds, as lines of text."""
    rounds = progress.rounds
    sshd = [value for entry in rounds for value in entry.sshd_s.values()]
    ready = [value for entry in rounds for value in entry.ready_s.values()]
    panics = sum(len(entry.panics) for entry in rounds)
    missing = sum(len(entry.missing) for entry in rounds)
    labs = len(progress.labs_s)
    lines = [
        ", ".join(f"{key} {value}" for key, value in machine.items()),
        f"{len(rounds)} boots of {NODES} nodes in {labs} labs: {panics} panics, {missing} missing",
        f"power-on to sshd, clock set: {_spread(sshd)}",
        f"power-on to Ready: {_spread(ready)}",
        f"a new lab to Ready nodes: {_spread(progress.labs_s)}",
    ]
    return "\n".join(lines)


@contextmanager
def _lab(components: Components) -> Iterator[LabHandle]:
    request = starting.LabRequest(starting.new_name(), NODES, 1, "fast", False, LIBVIRT.name)
    lab = starting.up(request, components, _say)
    try:
        yield lab
    finally:
        lab.down()


def _power_on(lab: LabHandle, name: str) -> tuple[float, str]:
    """When the node's sshd let in, or 0 and why it did not."""
    try:
        registry.client(lab.name).power(name, "on")
    except Problem as problem:
        return 0.0, str(problem)
    return time.monotonic(), ""


def _console(lab: LabHandle, name: str) -> Path:
    return lab.life.logs / f"console-{name}.log"


def _line(round: Round) -> str:
    ready = ", ".join(f"{name} {value:.1f} s" for name, value in sorted(round.ready_s.items()))
    wrong = [f"panic: {name}" for name in round.panics] + [f"missing: {name}" for name in round.missing]
    return "; ".join(
        [f"round {round.number}: Ready {ready or 'none'}", *wrong, *round.messages, f"load {round.load}"]
    )


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"median {statistics.median(values):.1f} s, worst {max(values):.1f} s, n {len(values)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="boots of all nodes")
    parser.add_argument("--fresh-every", type=int, default=5, help="rounds after which the lab is a new one")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="a node not Ready then is missing")
    parser.add_argument("--json", type=Path, help="write all rounds to this file, too")
    parser.add_argument("--components", default="build", help="as for nodeproof")
    return parser


def _say(line: str) -> None:
    print(f"soak: {line}", file=sys.stderr, flush=True)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    main()
