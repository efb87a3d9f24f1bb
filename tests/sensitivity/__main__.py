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
from tests.sensitivity.build import build, made_of, recipe
from tests.sensitivity.kept import TABLE, Keeper, kept
from tests.sensitivity.running import CAUGHT, Tried, run_bug

OUT = Path("reports/out/sensitivity")
SLOTS = 2 * (os.cpu_count() or 1)
"""Labs side by side: a core bears two scenarios that wait."""
_LARGE_SLOTS = 3
"""What a lab of dozens of nodes takes of them."""


def main() -> int:
    """Run the command line; its exit code."""
    asked = _parser().parse_args()
    # What SIGTERM ends is to clean up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        chosen = _chosen(asked, load())
        executables = build(load(), _say)
    except (BadBug, Problem) as error:
        print(f"nodeproof: {error}", file=sys.stderr)
        return 2
    made = partial(made_of, recipe())
    known = kept(asked.out / TABLE, made, chosen) if asked.go_on else []
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    keep = Keeper(asked.out / TABLE, made, known)
    began, names = time.monotonic(), {each.bug.name for each in known}
    missing = [bug for bug in chosen if bug.name not in names]
    tried = [*known, *_run_all(missing, executables, asked.slots, asked.out, keep)]
    (asked.out / LATEST).unlink(missing_ok=True)
    keep.write(tried)
    caught = _tell(tried, asked.out, time.monotonic() - began)
    return 0 if caught == len(tried) else 1


def _tell(tried: Sequence[Tried], out: Path, took_s: float) -> int:
    """Print the table and keep it; how many were caught."""
    lines = table(tried)
    print("\n".join(lines))
    (out / "table.md").write_text("\n".join(lines) + "\n")
    caught = [each for each in tried if each.outcome == CAUGHT]
    print(f"{len(caught)} of {len(tried)} bugs caught, {took_s:.0f} s")
    late = [f"{each.bug.name} ({each.at_first})" for each in caught if each.at_first]
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


def _chosen(asked: argparse.Namespace, bugs: Sequence[Bug]) -> list[Bug]:
    unknown = set(asked.names) - {bug.name for bug in bugs}
    if unknown:
        raise BadBug(f"no bug is named {', '.join(sorted(unknown))} (infra/bugs); look for its name there")
    found = [bug for bug in bugs if not asked.names or bug.name in asked.names]
    found = [bug for bug in found if not asked.of or bug.of == asked.of]
    return some(found, asked.some, asked.seed) if asked.some else found


def _run_all(bugs: Sequence[Bug], executables: Path, slots: int, out: Path, keep: Keeper) -> list[Tried]:
    """Side by side, one large lab at a time; what was not caught is tried once more, with nothing beside it,
    and that counts.
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
            tried = [each.result() for each in first]
        finally:
            for each in first:
                each.cancel()
    return [each if each.outcome == CAUGHT else _second(each, attempt(each.bug, "-again")) for each in tried]


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
    """The alteration, what it should make fall, and what fell, as lines of Markdown."""
    head = ["| bug | of | should fall | fell | outcome | s |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {each.bug.name} | {each.bug.of} | {', '.join(each.bug.falls)} | {', '.join(sorted(each.fell))} "
        f"| {each.outcome}{_at_first(each)} | {each.took_s:.0f} |"
        for each in tried
    ]


def _at_first(tried: Tried) -> str:
    return f"; at first: {tried.at_first}" if tried.at_first else ""


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
