"""`python -m tests.sensitivity [--some N --seed S] [--of NAME] [--go-on] [NAME...]`: what falls by a bug.

Each bug of `infra/bugs` has a lab of its own; the claims that it names must fall there, and nothing else
but what it lists. Prints a table, and keeps it, with the runs of what was not caught, below
`reports/out/sensitivity/`. Exits with 1 where a bug was not caught. `--go-on` takes over what the table there
has of the same bugs in the same scenarios, which is as far as it came when it was ended.
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
from tests.sensitivity.bugs import BadBug, Bug, load, some
from tests.sensitivity.build import build, digest_of, recipe
from tests.sensitivity.running import CAUGHT, TABLE, Keeper, Tried, read_caught, run_bug

OUT = Path("reports/out/sensitivity")
SLOTS = 2 * (os.cpu_count() or 1)
"""Labs side by side: a core bears two scenarios that wait."""
_LARGE_SLOTS = 3
"""What a lab of dozens of nodes takes of them."""


def main() -> int:
    """Run the command line; its exit code."""
    arguments = _parser().parse_args()
    # SIGTERM must clean up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        bugs = load()
        chosen = _chosen(arguments, [bug for bug in bugs if not bug.machine])
        executables = build(bugs, _say)
    except (BadBug, Problem) as error:
        print(f"nodeproof: {error}", file=sys.stderr)
        return 2
    digest = partial(digest_of, recipe())
    results = read_caught(arguments.out / TABLE, digest, chosen) if arguments.go_on else []
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    keep = Keeper(arguments.out / TABLE, digest, results)
    began, names = time.monotonic(), {result.bug.name for result in results}
    missing = [bug for bug in chosen if bug.name not in names]
    tried = [*results, *_run_all(missing, executables, arguments.slots, arguments.out, keep)]
    (arguments.out / LATEST).unlink(missing_ok=True)
    keep.write(tried)
    caught = _tell(tried, arguments.out, time.monotonic() - began)
    return 0 if caught == len(tried) else 1


def _tell(tried: Sequence[Tried], out: Path, took_s: float) -> int:
    """Print the table and keep it; how many were caught."""
    lines = table(tried)
    print("\n".join(lines))
    (out / "table.md").write_text("\n".join(lines) + "\n")
    caught = [result for result in tried if result.outcome == CAUGHT]
    print(f"{len(caught)} of {len(tried)} bugs caught, {took_s:.0f} s")
    late = [f"{result.bug.name} ({result.at_first})" for result in caught if result.at_first]
    if late:
        print(f"caught at the second try only: {', '.join(late)}")
    return len(caught)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sensitivity")
    parser.add_argument("names", nargs="*", help="these bugs; without any, all")
    parser.add_argument("--some", type=int, default=0, help="so many that are not slow, chosen by the seed")
    parser.add_argument("--seed", default="", help="for --some: a commit")
    parser.add_argument("--slots", type=int, default=SLOTS, help="labs side by side")
    parser.add_argument("--of", default="", help="bugs of one component only")
    parser.add_argument("--go-on", action="store_true", help="leave out what the last table has as caught")
    parser.add_argument("--out", type=Path, default=OUT, help="where the table goes, and runs to look at")
    return parser


def _chosen(arguments: argparse.Namespace, bugs: Sequence[Bug]) -> list[Bug]:
    unknown = set(arguments.names) - {bug.name for bug in bugs}
    if unknown:
        raise BadBug(f"no bug is named {', '.join(sorted(unknown))} (infra/bugs); look for its name there")
    chosen = [bug for bug in bugs if not arguments.names or bug.name in arguments.names]
    chosen = [bug for bug in chosen if not arguments.of or bug.of == arguments.of]
    return some(chosen, arguments.some, arguments.seed) if arguments.some else chosen


def _run_all(bugs: Sequence[Bug], executables: Path, slots: int, out: Path, keep: Keeper) -> list[Tried]:
    """Run the bugs side by side, one large lab at a time.

    A bug that was not caught is tried once more, with nothing beside it, and that try counts.
    """
    room = BoundedSemaphore(slots)

    def attempt(bug: Bug, suffix: str = "") -> Tried:
        run = (out / f"{bug.name}{suffix}").resolve()
        with _taken(room, min(slots, _LARGE_SLOTS) if bug.large else 1):
            tried = run_bug(bug, executables, run)
        _say(f"{bug.name}: {tried.outcome} ({tried.took_s:.0f} s)")
        if tried.outcome == CAUGHT:
            shutil.rmtree(run, ignore_errors=True)
            keep.add(tried)
        return tried

    with ThreadPoolExecutor(slots) as pool, ThreadPoolExecutor(1) as large_pool:
        in_order = sorted(bugs, key=lambda bug: not bug.slow)
        first = [(large_pool if bug.large else pool).submit(attempt, bug) for bug in in_order]
        try:
            tried = [future.result() for future in first]
        finally:
            for future in first:
                future.cancel()
    return [
        result if result.outcome == CAUGHT else _second(result, attempt(result.bug, "-again"))
        for result in tried
    ]


@contextmanager
def _taken(room: BoundedSemaphore, slots: int) -> Iterator[None]:
    """So many slots, for as long as it lasts. Only one thread may take more than one."""
    for _ in range(slots):
        room.acquire()
    try:
        yield
    finally:
        room.release(slots)


def _second(first: Tried, second: Tried) -> Tried:
    return replace(second, at_first=first.outcome)


def table(tried: Iterable[Tried]) -> list[str]:
    """Return the alteration, what it should make fall, and what fell, as lines of Markdown."""
    head = ["| bug | of | should fall | fell | outcome | s |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {row.bug.name} | {row.bug.of} | {', '.join(row.bug.falls)} | {', '.join(sorted(row.fell))} "
        f"| {row.outcome}{_at_first(row)} | {row.took_s:.0f} |"
        for row in tried
    ]


def _at_first(tried: Tried) -> str:
    return f"; at first: {tried.at_first}" if tried.at_first else ""


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
