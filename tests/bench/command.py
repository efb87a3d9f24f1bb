"""Whole command lines."""

from __future__ import annotations

import shlex
import time
from itertools import pairwise

from nodeproof import proc
from tests.bench.figure import Bench, Figure
from tests.bench.ground import load_after, settle


def command(bench: Bench, line: str) -> list[Figure]:
    """Time a command line, and name its longest silences: between which lines of its output the time went."""
    loads = [settle(bench)]
    began = time.monotonic()
    seen: list[tuple[float, str]] = [(began, "start")]
    failed = ""
    try:
        proc.stream_lines(
            shlex.split(line), lambda text: seen.append((time.monotonic(), text)), timeout_s=3600
        )
    except proc.CommandFailed as error:
        failed = f"ended with status {error.status}"
    took = time.monotonic() - began
    seen.append((time.monotonic(), "end"))
    gaps = sorted(
        ((later[0] - earlier[0], earlier, later) for earlier, later in pairwise(seen)),
        key=lambda gap: -gap[0],
    )[:12]
    notes = [
        f"{gap:6.2f} s  from {earlier[0] - began:6.2f} s: {_short(earlier[1])} -> {_short(later[1])}"
        for gap, earlier, later in sorted(gaps, key=lambda gap: gap[1][0])
    ]
    notes = [failed, *notes] if failed else notes
    is_run = line == "make run"
    target, met = ("<= 90 s", took <= 90) if is_run else ("as measured", None)
    return [
        Figure(f"`{line}`", "s", [took], target=target, met=met, loads=[*loads, load_after("")], notes=notes)
    ]


def _short(text: str) -> str:
    return repr(text.strip()[:60])
