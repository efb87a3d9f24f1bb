"""`python -m tests.sensitivity [--some N --seed S] [--of NAME] [--go-on] [NAME...]`: bugs of infra/bugs.

Each bug gets its own lab. There, the claims that the bug names must deviate, and no others but those that it
lists. Prints a table, and writes it below `reports/out/sensitivity/`, with the runs of bugs that were not
caught. Exits with 1 if a bug was not caught. `--go-on` continues an interrupted run: it leaves out bugs that
the table there has as caught with the same scenarios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore

from nodeproof.model.problem import Problem
from nodeproof.report.rundir import LATEST
from tests.sensitivity.bugs import BadBug, Bug, load, sample
from tests.sensitivity.build import build, digest_of, recipe
from tests.sensitivity.running import CAUGHT, TABLE, CaughtFile, Try, read_caught, run_bug

OUT = Path("reports/out/sensitivity")
SLOTS = 2 * (os.cpu_count() or 1)
"""Labs at the same time: two for each core, because scenarios mostly wait."""
SLOTS_OF_LARGE_LAB = 3
"""Slots that a lab of dozens of nodes takes."""


def main() -> int:
    """Run the command line; its exit code."""
    arguments = _parser().parse_args()
    # SIGTERM must clean up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        bugs = load()
        chosen = _chosen(arguments, [bug for bug in bugs if not bug.machine])
        executables = build(bugs, _print)
    except (BadBug, Problem) as error:
        print(f"nodeproof: {error}", file=sys.stderr)
        return 2
    digest = partial(digest_of, recipe())
    results = read_caught(arguments.out / TABLE, digest, chosen) if arguments.go_on else []
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    caught_file = CaughtFile(arguments.out / TABLE, digest, results)
    began, names = time.monotonic(), {result.bug.name for result in results}
    missing = [bug for bug in chosen if bug.name not in names]
    tries = [*results, *_run_all(missing, executables, arguments.slots, arguments.out, caught_file)]
    (arguments.out / LATEST).unlink(missing_ok=True)
    caught_file.write(tries)
    caught = _report(tries, arguments.out, time.monotonic() - began)
    return 0 if caught == len(tries) else 1


def _report(tries: Sequence[Try], out: Path, took_s: float) -> int:
    """Print the table and write it; return the number of caught bugs."""
    lines = table(tries)
    print("\n".join(lines))
    (out / "table.md").write_text("\n".join(lines) + "\n")
    caught = [result for result in tries if result.outcome == CAUGHT]
    print(f"{len(caught)} of {len(tries)} bugs caught, {took_s:.0f} s")
    second_tries = [f"{result.bug.name} ({result.at_first})" for result in caught if result.at_first]
    if second_tries:
        print(f"caught at the second try only: {', '.join(second_tries)}")
    return len(caught)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sensitivity")
    parser.add_argument("names", nargs="*", help="these bugs; without any, all")
    parser.add_argument("--some", type=int, default=0, help="number of bugs, none slow, chosen by the seed")
    parser.add_argument("--seed", default="", help="for --some: a commit")
    parser.add_argument("--slots", type=int, default=SLOTS, help="labs at the same time")
    parser.add_argument("--of", default="", help="bugs of one component only")
    parser.add_argument(
        "--go-on", action="store_true", help="leave out bugs that the last table has as caught"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder of the table and of runs that caught no bug"
    )
    return parser


def _chosen(arguments: argparse.Namespace, bugs: Sequence[Bug]) -> list[Bug]:
    unknown = set(arguments.names) - {bug.name for bug in bugs}
    if unknown:
        raise BadBug(f"no bug is named {', '.join(sorted(unknown))} (infra/bugs); look for its name there")
    chosen = [bug for bug in bugs if not arguments.names or bug.name in arguments.names]
    chosen = [bug for bug in chosen if not arguments.of or bug.of == arguments.of]
    return sample(chosen, arguments.some, arguments.seed) if arguments.some else chosen


def _run_all(
    bugs: Sequence[Bug], executables: Path, slots: int, out: Path, caught_file: CaughtFile
) -> list[Try]:
    """Run the bugs in parallel, one large lab at a time.

    A bug that was not caught gets a second try, alone; that try counts.
    """
    free_slots = BoundedSemaphore(slots)

    def attempt(bug: Bug, suffix: str = "") -> Try:
        run = (out / f"{bug.name}{suffix}").resolve()
        with _slots_taken(free_slots, min(slots, SLOTS_OF_LARGE_LAB) if bug.large else 1):
            bug_try = run_bug(bug, executables, run)
        _print(f"{bug.name}: {bug_try.outcome} ({bug_try.took_s:.0f} s)")
        if bug_try.outcome == CAUGHT:
            shutil.rmtree(run, ignore_errors=True)
            caught_file.add(bug_try)
        return bug_try

    with ThreadPoolExecutor(slots) as pool, ThreadPoolExecutor(1) as large_pool:
        in_order = sorted(bugs, key=lambda bug: not bug.slow)
        first = [(large_pool if bug.large else pool).submit(attempt, bug) for bug in in_order]
        try:
            tries = [future.result() for future in first]
        finally:
            for future in first:
                future.cancel()
    return [
        result if result.outcome == CAUGHT else _after_first(result, attempt(result.bug, "-again"))
        for result in tries
    ]


@contextmanager
def _slots_taken(free_slots: BoundedSemaphore, slots: int) -> Iterator[None]:
    """Take slots until the context ends. Only one thread may take more than one."""
    for _ in range(slots):
        free_slots.acquire()
    try:
        yield
    finally:
        free_slots.release(slots)


def _after_first(first: Try, second: Try) -> Try:
    return replace(second, at_first=first.outcome)


def table(tries: Iterable[Try]) -> list[str]:
    """Return each bug, the claims that must deviate and those that do, as lines of Markdown."""
    head = ["| bug | component | must deviate | deviates | outcome | s |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {row.bug.name} | {row.bug.of} | {', '.join(row.bug.falls)} | {', '.join(sorted(row.deviating))} "
        f"| {row.outcome}{_at_first(row)} | {row.took_s:.0f} |"
        for row in tries
    ]


def _at_first(bug_try: Try) -> str:
    return f"; at first: {bug_try.at_first}" if bug_try.at_first else ""


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
