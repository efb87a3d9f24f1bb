"""`python3 tests/table.py PARTS RESULTS...`: print the parts and slowest tests of CI.

PARTS has a line for each part: name, seconds, limit, exit status, separated by tabs. RESULTS are JUnit files.
It needs no package, so that it can report a part that failed before there was a virtual environment.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 10
ENDED = (124, 137)
"""Exit codes of `timeout` if its command ended by SIGTERM, or was killed."""


@dataclass(frozen=True)
class Part:
    """One part of CI: how long it took and may take (s), and its exit status."""

    name: str
    took_s: int
    limit_s: int
    status: int

    @property
    def ending(self) -> str:
        """The result in words."""
        if self.status in ENDED and self.took_s >= self.limit_s:
            return f"over its limit of {self.limit_s} s"
        return f"failed ({self.status})" if self.status else "passed"


def read_parts(lines: Sequence[str]) -> list[Part]:
    """Return the parts in the order in which they ended. Raises ValueError on an invalid line."""
    fields = (line.split("\t") for line in lines)
    return [Part(name, int(took), int(limit), int(status)) for name, took, limit, status in fields]


def slowest(results: Sequence[Path], most: int = SLOWEST) -> list[tuple[float, str]]:
    """Return the tests that took longest, with their seconds."""
    return sorted((case for path in results for case in _cases(path)), reverse=True)[:most]


def render(parts: Sequence[Part], tests: Sequence[tuple[float, str]]) -> str:
    """Return the parts and the slowest tests as lines of text."""
    width = max((len(part.name) for part in parts), default=0)
    rows = [
        f"  {part.name:<{width}} {part.took_s:>5} s of {part.limit_s:>5} s  {part.ending}" for part in parts
    ]
    cases = [f"  {took:7.1f} s  {name}" for took, name in tests]
    return "\n".join(["CI, part by part:", *rows, "slowest tests:", *cases])


def _cases(path: Path) -> Iterator[tuple[float, str]]:
    try:
        cases = ET.parse(path).iter("testcase")  # noqa: S314  our own file
    except ET.ParseError:
        return  # Its writer was killed.
    for case in cases:
        yield float(case.get("time", 0.0)), f"{case.get('classname')}::{case.get('name')} ({path.stem})"


def main() -> None:
    """Print the table."""
    parts_file, *results = map(Path, sys.argv[1:])
    parts = read_parts(parts_file.read_text().splitlines())
    print(render(parts, slowest([path for path in results if path.exists()])))


if __name__ == "__main__":
    main()
