"""The project's figures, each beside its anchor measured in the same run.

Run `make bench`, or `.venv/bin/python -m infra.bench --help`. Nothing here is a test: a figure beyond
its target is printed as missed, and the exit code stays 0.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from infra.bench import guests
from infra.bench.drop import first_drop
from infra.bench.figure import Bench, Figure, row, table
from infra.bench.host import machine_description
from infra.bench.up import ready
from infra.bench.volumes import out_of_service
from nodeproof import proc
from nodeproof.artifacts.components import obtain
from nodeproof.cluster.api import ApiError
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

PROCESS_FIGURES: Mapping[str, Callable[[Bench], Iterable[Figure]]] = {
    "up": ready,
    "drop": first_drop,
    "volumes": out_of_service,
}
FIGURES = {PROCESS.name: tuple(PROCESS_FIGURES), LIBVIRT.name: guests.FIGURES}
"""Which figures there are, by kind of lab."""
Part = Callable[[], Iterable[Figure]]


def parts_of(bench: Bench, kind: str, wanted: Sequence[str]) -> list[Part]:
    """Return the parts that measure the wanted figures of a kind of lab."""
    if kind == LIBVIRT.name:
        return [partial(guests.guests, bench, wanted)]
    return [partial(measure, bench) for name, measure in PROCESS_FIGURES.items() if name in wanted]


def measure(bench: Bench, parts: Sequence[Part]) -> Iterator[Figure]:
    """Yield each figure as soon as it is there; one that breaks off does not take the others along."""
    for part in parts:
        try:
            yield from part()
        except (RuntimeError, Problem, proc.CommandFailed, ApiError, MachineError) as error:
            bench.failures.append(f"{type(error).__name__}: {error}")
            bench.say(f"broke off: {bench.failures[-1]}")


def main() -> None:
    """Measure what was asked for, print the table, and write JSON where wanted."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    machine = dict(machine_description())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="np-bench-") as scratch:
        bench = _bench(options, Path(scratch))
        machine["kubernetes"] = bench.components.kubernetes_version
        failures = bench.failures
        try:
            for figure in measure(bench, parts_of(bench, options.lab, options.only)):
                figures.append(figure)
                bench.say(" | ".join(row(figure)))
        except KeyboardInterrupt as interrupt:
            failures.append(f"interrupted {interrupt}")
    print(table(machine, figures))
    for failure in failures:
        print(f"broke off: {failure}")
    if options.json:
        report = {
            "machine": machine,
            "figures": [figure.to_json() for figure in figures],
            "failures": failures,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if failures:
        sys.exit(1)


def _bench(options: argparse.Namespace, scratch: Path) -> Bench:
    def say(line: str) -> None:
        print(line, file=sys.stderr)

    components = obtain(options.components, options.kubernetes_version, say)
    return Bench(components, options.components, scratch, options.repeats, options.injections)


def _options() -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args()
    every = FIGURES[options.lab]
    options.only = every if options.only is None else options.only
    unknown = sorted(set(options.only) - set(every))
    if unknown:
        parser.error(f"--only {' '.join(unknown)}: with --lab {options.lab} there are {', '.join(every)}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    choices = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in FIGURES.items())
    parser.add_argument("--lab", choices=list(FIGURES), default=PROCESS.name, help="whose figures")
    parser.add_argument("--only", nargs="*", help=f"which figures ({choices}; default: all)")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--repeats", type=int, default=3, help="of `up` and power-off, and of their anchors")
    parser.add_argument("--injections", type=int, default=24)
    parser.add_argument("--components", default="build", help="as for nodeproof")
    parser.add_argument("--kubernetes-version", default=DEFAULT_KUBERNETES_VERSION)
    return parser


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    main()
