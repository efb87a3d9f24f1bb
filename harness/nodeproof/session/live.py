"""Show the progress of a run: a line for each slot on a terminal, else a line for each finished scenario.

Both replace pytest's dots in nodeproof's own runs, unless the user changed pytest's verbosity.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest
from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from nodeproof.model.printable import printable
from nodeproof.report import plain
from nodeproof.report.table import counted
from nodeproof.session.again import RERUN
from nodeproof.session.planning import planned_s
from nodeproof.session.run import LIVE
from nodeproof.session.telling import FOLDER, Board, Doing
from nodeproof.session.times import LABEL

_REFRESHES_PER_S = 2
_STYLES = {"conforms": "green", "deviates": "bold red"}


class Live:
    """A pytest plugin of the process that receives all reports."""

    def __init__(self, terminal: Any) -> None:
        self._run = Path()
        self._planned_s: Mapping[str, float] = {}
        self._setup_s: dict[str, float] = {}
        self._is_over = False
        self._retried: set[str] = set()
        self._skipped: Counter[str] = Counter()
        self._out = _past_capture(terminal._tw._file)
        # Ignore FORCE_COLOR: a log file is not a terminal.
        self._console = Console(file=self._out, force_terminal=self._out.isatty(), soft_wrap=True)
        self._progress: Board | None = None
        self._screen: Screen | None = None
        self._dead_workers: set[str] = set()
        # Without this, pytest begins a line with the name of each file.
        terminal.showfspath = False

    def follow(self, run: Path) -> None:
        """Show the progress that this run's processes report."""
        self._run, self._progress = run, Board(run)

    @property
    def is_drawn(self) -> bool:
        """Whether the output is a terminal that can be drawn on."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def say(self, line: str) -> bool:
        """Print a line above those of the slots; return False if they are not drawn."""
        if self._screen is None:
            return False
        self._print(f"nodeproof: {line}")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, tuple[str, str, str]]:
        """Keep pytest's and the plugin's categories, but print no letters during the run."""
        category, letter, word = yield
        return (category, letter, word) if self._is_over else (category, "", "")

    def pytest_runtest_logstart(self) -> None:
        """Draw the slots from the first scenario on."""
        if self.is_drawn and self._screen is None:
            self._planned_s = planned_s(self._run)
            self._screen = Screen(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._screen.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a line for each finished scenario: its worst verdict and its duration.

        It is finished after its call, after a failed setup, or when its worker died.
        """
        took_s = self._setup_s.pop(report.nodeid, 0.0) + report.duration
        if report.when == "setup" and report.passed:
            self._setup_s[report.nodeid] = took_s
        elif report.when != "teardown" and not self._is_omitted(report):
            label = str(dict(report.user_properties).get(LABEL, report.outcome))
            remark = " (retried)" if report.nodeid in self._retried else ""
            self._print(f"{label:<28}{took_s:5.0f} s {report.nodeid}{remark}", label)

    def _is_omitted(self, report: pytest.TestReport) -> bool:
        """Remember a scenario that is retried or skipped, and return whether it gets no line (in a log)."""
        if report.outcome == RERUN:
            self._retried.add(report.nodeid)
            return not self.is_drawn
        label = str(dict(report.user_properties).get(LABEL, ""))
        if report.when == "setup" and report.skipped and label:
            self._skipped[label.removeprefix("unproven: ")] += 1
            return not self.is_drawn
        return False

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Stop drawing while xdist reports a dead worker, and remove its slot."""
        if error:
            self._dead_workers.add(node.gateway.id)
            self._stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Print the number of skipped scenarios, and stop drawing: the summary follows."""
        if self._skipped:
            total = plain.counted(self._skipped.total(), "scenario")
            self._print(f"skipped: {total} that cannot prove anything here {counted(self._skipped)}")
        self._is_over = True
        self.close()

    def close(self) -> None:
        """Remove the lines of the slots; processes of the run cannot report progress from now on."""
        self._stop()
        folder = self._run / FOLDER
        with contextlib.suppress(OSError):
            shutil.rmtree(folder.rename(folder.with_name(f".{FOLDER}")))
        with contextlib.suppress(OSError):
            self._out.close()

    def _stop(self) -> None:
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.stop()
            self._print_messages()

    def _print(self, line: str, label: str = "") -> None:
        with contextlib.suppress(OSError):
            if self.is_drawn:
                self._console.print(Text(printable(line), style=_STYLES.get(label, "")))
            else:
                self._out.write(f"{printable(line)}\n")

    def _print_messages(self) -> None:
        for line in self._progress.look() if self._progress else ():
            self._print(f"nodeproof: {line}")

    def _draw(self) -> Table:
        self._print_messages()
        now = time.monotonic()
        slots = self._progress.doing.items() if self._progress else ()
        alive = sorted((name, doing) for name, doing in slots if name not in self._dead_workers)
        return table(row(name, doing, self._planned_s.get(doing.scenario, 0.0), now) for name, doing in alive)


def table(rows: Iterable[Sequence[str]]) -> Table:
    """Make a table of the slots as wide as the terminal; longer text is cut off."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    for cells in rows:
        grid.add_row(*(Text(printable(cell)) for cell in cells))
    return grid


def row(name: str, doing: Doing, lasts_s: float, now_t: float) -> tuple[str, str, str, str, str]:
    """Return a slot's cells: name, elapsed and planned time, scenario, longest rest of its step, step."""
    planned = f"/{lasts_s:.0f}" if lasts_s else ""
    left_s = doing.until_t - now_t
    at_most = f"≤ {left_s:.0f} s" if left_s > 0 else ""
    elapsed = f"{now_t - doing.since_t:.0f}{planned} s"
    return name, elapsed, doing.scenario.rpartition("::")[2], at_most, doing.step


def _past_capture(out: TextIO) -> TextIO:
    """Reopen the stream on a descriptor that pytest's capture does not redirect."""
    try:
        return os.fdopen(os.dup(out.fileno()), "w", buffering=1)
    except OSError:
        return out


def show(config: pytest.Config) -> None:
    """Show the progress, unless the user changed pytest's verbosity or only collects."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or config.option.verbose or config.option.collectonly:
        return
    config.stash[LIVE] = Live(terminal)
    config.pluginmanager.register(config.stash[LIVE])
