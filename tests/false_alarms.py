"""`python -m tests.false_alarms --rounds N`: the `fast` profile N times on the unaltered build.

A quarter of the rounds run beside two busy loops. No claim may deviate, and none may be unproven except those
that this lab cannot prove, or for which the host was too loaded. Prints a line for each round. Runs with a
false alarm stay below `reports/out/false-alarms/`; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nodeproof import proc
from nodeproof.model.problem import Problem
from nodeproof.report import digest, rundir
from nodeproof.report.digest import worst_by_claim

OUT = Path("reports/out/false-alarms")
ROUND_TIMEOUT_S = 1200.0
BUSY_LOOPS = 2
ROUNDS_PER_BUSY_ROUND = 4
"""One of this many rounds runs beside busy loops."""
TOO_LOADED = "host-too-loaded"
IGNORED_CODES = frozenset({"lab-lacks", "scaled", "not-applicable", TOO_LOADED})
ENDED = (digest.CONFORMS, digest.DEVIATES, digest.UNPROVEN)
END_TIMEOUT_S = 10.0


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.false_alarms")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("arguments", nargs="*", help="for nodeproof run, after --")
    arguments = parser.parse_args()
    # SIGTERM must clean up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(OUT, ignore_errors=True)
    raised = [one_round(number, arguments.arguments) for number in range(arguments.rounds)]
    (OUT / rundir.LATEST).unlink(missing_ok=True)
    print(f"{sum(raised)} of {len(raised)} rounds raised a false alarm")
    return int(any(raised))


def one_round(number: int, arguments: list[str]) -> bool:
    """Run the suite once; return whether it raised an alarm."""
    run, is_busy = (OUT / str(number)).resolve(), number % ROUNDS_PER_BUSY_ROUND == ROUNDS_PER_BUSY_ROUND - 1
    began = time.monotonic()
    with busy_loops(BUSY_LOOPS if is_busy else 0):
        argv = [sys.executable, "-m", "nodeproof.cli", "run", "--no-site", "-n", "auto", "--run", str(run)]
        aborts = _abort_reasons([*argv, *arguments])
    rows = _rows(run)
    problems = [*alarms(rows), *aborts]
    suffix = f" beside {BUSY_LOOPS} busy loops" if is_busy else ""
    loaded = sum(row["code"] == TOO_LOADED for row in worst_by_claim(rows).values())
    line = f"round {number}{suffix}: {time.monotonic() - began:.0f} s, {loaded} too loaded to tell"
    print(line, *problems, sep="\n  ", flush=True)
    if not problems:
        shutil.rmtree(run, ignore_errors=True)
    return bool(problems)


def _abort_reasons(argv: Sequence[str]) -> list[str]:
    """Run the suite; return why it was aborted, or nothing."""
    try:
        process = proc.run(argv, timeout_s=ROUND_TIMEOUT_S, check=False)
    except proc.CommandFailed as failed:
        return [str(failed)]
    return [] if process.status in ENDED else [f"status {process.status}: {process.stderr[-500:]}"]


def _rows(run: Path) -> Sequence[rundir.Row]:
    try:
        return rundir.read_verdicts(run)
    except Problem:
        return ()


def alarms(rows: Iterable[rundir.Row]) -> list[str]:
    """Return verdicts that an unaltered cluster must not give, one line per claim."""
    return [
        f"{claim}: {row['verdict']} {row['code']}: {row['reason']} ({row['scenario']})"
        for claim, row in sorted(worst_by_claim(rows).items())
        if row["verdict"] != "conforms" and row["code"] not in IGNORED_CODES
    ]


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Start this many processes that never wait."""
    argv = [sys.executable, "-c", "while True: pass"]
    loops: list[proc.Process] = []
    try:
        for _ in range(count):
            loops.append(proc.start(argv, log=Path("/dev/null")))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait(END_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
