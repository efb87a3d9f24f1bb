"""Report a run's progress: to its user, and to the command of `--notify`.

The user sees a line for each finished scenario, and on a terminal a line for each worker. Both replace
pytest's letters in nodeproof's own runs, unless the user changed pytest's verbosity. Each process writes its
progress into a file of JSON lines, which the process that receives pytest's reports shows.

The command gets each event as one JSON object on standard input. It runs in the background, so that it
neither delays nor fails the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TextIO

import allure
import pytest
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nodeproof import proc
from nodeproof.cache import time_left
from nodeproof.faults import Fault
from nodeproof.model import redact
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem, printable
from nodeproof.report import plain
from nodeproof.report.digest import count_codes
from nodeproof.session.judging import LABEL, RERUN
from nodeproof.session.planning import planned_s
from nodeproof.terminal import styled

FOLDER = "live"
_MIN_CHANGE_S = 1.0
"""A change of a step's end below this is not reported."""
_REFRESHES_PER_S = 2


@dataclass(frozen=True)
class Progress:
    """The scenario of one process and its step, with the latest end of the step; 0 if that is unknown."""

    scenario: str = ""
    since_t: float = 0.0
    step: str = ""
    until_t: float = 0.0


@dataclass
class ProgressWriter:
    """Writes the progress of one process.

    It creates the folder with the first line. Once the folder is removed, there is no reader any more.
    """

    run: Path
    name: str
    _progress: Progress = field(default_factory=Progress, init=False)
    _has_begun: bool = field(default=False, init=False)

    def began(self, scenario: str) -> None:
        """Report that a scenario begins."""
        self._report(Progress(scenario, round(time.monotonic(), 3), "preparing a clean lab"))

    def ended(self) -> None:
        """Report that the scenario is over."""
        self._write({})

    def step(self, text: str) -> AbstractContextManager[object]:
        """Report that a step of the scenario begins, also to Allure."""
        self._report(replace(self._progress, step=text, until_t=0.0))
        step: AbstractContextManager[object] = allure.step(text)
        return step

    def until(self, t: float) -> None:
        """Report the latest end of the step (s, monotonic)."""
        if abs(t - self._progress.until_t) > _MIN_CHANGE_S:
            self._report(replace(self._progress, until_t=round(t, 3)))

    def say(self, line: str) -> bool:
        """Report a message; return False if there is no reader."""
        return self._write({"message": line})

    def _report(self, progress: Progress) -> None:
        self._progress = progress
        self._write(asdict(progress))

    def _write(self, line: Mapping[str, Json]) -> bool:
        folder = self.run / FOLDER
        try:
            if not self._has_begun:
                folder.mkdir(parents=True, exist_ok=True)
                self._has_begun = True
            with (folder / f"{self.name}.jsonl").open("a") as out:
                out.write(json.dumps(redact.value(line)) + "\n")
        except OSError:
            return False
        return True


class ProgressReader:
    """The progress of all processes, read from their files; for use by one thread."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._offsets: dict[str, int] = {}
        self.progress: dict[str, Progress] = {}

    def read(self) -> Iterator[str]:
        """Read new lines, and yield the messages."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in self._read_new(path):
                if "message" in line:
                    yield str(line["message"])
                elif line:
                    self.progress[path.stem] = Progress(**line)
                else:
                    self.progress.pop(path.stem, None)

    def _read_new(self, path: Path) -> Iterator[dict[str, Json]]:
        with path.open() as lines:
            lines.seek(self._offsets.get(path.stem, 0))
            for line in lines:
                if line.endswith("\n"):
                    self._offsets[path.stem] = self._offsets.get(path.stem, 0) + len(line.encode())
                    yield json.loads(line)


class ScenarioLog:
    """A pytest plugin that prints a line for each finished scenario, until the session ends.

    It belongs to the process that receives all reports.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._setup_s: dict[str, float] = {}
        self._retried: set[str] = set()
        self._finished: set[str] = set()
        self._skipped: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, tuple[str, str, str]]:
        """Keep pytest's and the plugin's categories, but print no letters."""
        category, _letter, _word = yield
        return category, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a line after a scenario's call, after a failed setup, or when its worker died."""
        took_s = self._setup_s.pop(report.nodeid, 0.0) + report.duration
        if report.when == "setup" and report.passed:
            self._setup_s[report.nodeid] = took_s
        elif report.when != "teardown":
            self._print_finished(report, took_s)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Print the number of skipped scenarios; pytest's summary follows."""
        if self._skipped:
            scenarios = f"{plain.counted(self._skipped.total(), 'scenario')} that cannot prove anything here"
            self._print(Text(f"skipped: {scenarios} {count_codes(self._skipped)}"))
        session.config.pluginmanager.unregister(self)

    def _print_finished(self, report: pytest.TestReport, took_s: float) -> None:
        """Print a scenario's worst verdict and its duration, and remember if it is retried or skipped."""
        label = str(dict(report.user_properties).get(LABEL, ""))
        is_retried = report.outcome == RERUN
        is_skipped = report.when == "setup" and report.skipped and bool(label)
        if is_retried:
            self._retried.add(report.nodeid)
        else:
            self._finished.add(report.nodeid)
        if is_skipped:
            self._skipped[label.removeprefix("unproven: ")] += 1
        remark = " (retried)" if report.nodeid in self._retried else ""
        line = f"{label or report.outcome:<28}{took_s:5.0f} s {report.nodeid}{remark}"
        show = self._print_detail if is_retried or is_skipped else self._print
        show(styled(printable(line)))

    def _print(self, line: Text) -> None:
        with contextlib.suppress(OSError):
            self._out.write(f"{line.plain}\n")

    def _print_detail(self, line: Text) -> None:
        """Print a line for a user at a terminal; a log does not get it."""


class LiveDisplay(ScenarioLog):
    """Also draws a line for each worker below the finished scenarios, on a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.file)
        self._console = console
        self._run: Path | None = None
        self._reader = ProgressReader(Path())
        self._planned_s: Mapping[str, float] = {}
        self._live: Live | None = None
        self._dead_workers: set[str] = set()

    def follow(self, run: Path) -> ProgressWriter:
        """Show this run, and return the writer of this process's progress."""
        self._run, self._reader = run, ProgressReader(run)
        return ProgressWriter(run, "run")

    def say(self, line: str) -> bool:
        """Print a message above the workers' lines; return False if they are not drawn."""
        if self._live is None:
            return False
        self._print_message(line)
        return True

    def pytest_runtest_logstart(self) -> None:
        """Draw a line for each worker from the first scenario on."""
        if self._live is None and self._run is not None:
            self._planned_s = planned_s(self._run)
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Stop drawing while xdist reports a dead worker, and remove its line."""
        if error:
            self._dead_workers.add(node.gateway.id)
            self._stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remove the workers' lines; processes of the run cannot report progress from now on."""
        super().pytest_sessionfinish(session)
        self._stop()
        if self._run is None:
            return
        folder = self._run / FOLDER
        with contextlib.suppress(OSError):
            shutil.rmtree(folder.rename(folder.with_name(f".{FOLDER}")))

    def _draw(self) -> Group:
        self._print_messages()
        now_t = time.monotonic()
        progress_of = self._reader.progress
        workers = {name: progress_of[name] for name in sorted(progress_of.keys() - self._dead_workers)}
        rows = [
            row(name, progress, self._planned_s.get(progress.scenario, 0.0), now_t)
            for name, progress in workers.items()
        ]
        return Group(table(rows), Text(total(self._planned_s, self._finished, workers.values(), now_t)))

    def _print_messages(self) -> None:
        for line in self._reader.read():
            self._print_message(line)

    def _print_message(self, line: str) -> None:
        self._print(Text(printable(f"nodeproof: {line}")))

    def _print(self, line: Text) -> None:
        with contextlib.suppress(OSError):
            self._console.print(line)

    def _print_detail(self, line: Text) -> None:
        self._print(line)

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            self._print_messages()


def table(rows: Iterable[Sequence[str]]) -> Table:
    """Make a table of the workers' lines as wide as the terminal; longer text is cut off."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    for cells in rows:
        grid.add_row(*(Text(printable(cell)) for cell in cells))
    return grid


def row(name: str, progress: Progress, duration_s: float, now_t: float) -> tuple[str, str, str, str, str]:
    """Return a worker's cells: name, elapsed and planned time, scenario, longest rest of its step, step."""
    planned = f"/{duration_s:.0f}" if duration_s else ""
    left_s = progress.until_t - now_t
    at_most = f"≤ {left_s:.0f} s" if left_s > 0 else ""
    elapsed = f"{now_t - progress.since_t:.0f}{planned} s"
    return name, elapsed, progress.scenario.rpartition("::")[2], at_most, progress.step


def total(
    planned_s: Mapping[str, float], finished: Collection[str], workers: Collection[Progress], now_t: float
) -> str:
    """Return how much of the plan is done, and how long the rest takes if the workers share it."""
    open_s = {scenario: scenario_s for scenario, scenario_s in planned_s.items() if scenario not in finished}
    if not open_s:
        return ""
    for progress in workers:
        if progress.scenario in open_s:
            open_s[progress.scenario] = max(0.0, open_s[progress.scenario] + progress.since_t - now_t)
    left_s = max(sum(open_s.values()) / max(1, len(workers)), *open_s.values())
    return f"{len(planned_s) - len(open_s)} of {len(planned_s)} scenarios, {time_left(left_s)}"


DISPLAY = pytest.StashKey[LiveDisplay]()


def show(config: pytest.Config) -> None:
    """Show the progress, unless the user changed pytest's verbosity or only collects."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or config.get_verbosity() or config.option.collectonly:
        return
    # As xdist does: without this, pytest begins a line with the name of each file.
    terminal.showfspath = False
    out = _open_stdout(config)
    # Ignore FORCE_COLOR: a log file is not a terminal.
    console = Console(file=out, force_terminal=out.isatty(), soft_wrap=True)
    log = ScenarioLog(out)
    if console.is_terminal and not console.is_dumb_terminal:
        log = config.stash[DISPLAY] = LiveDisplay(console)
    config.pluginmanager.register(log, "nodeproof-progress")


def _open_stdout(config: pytest.Config) -> TextIO:
    """Open standard output again, on a descriptor that pytest's capture does not redirect.

    pytest captures nothing while a session starts, so this is the user's output.
    """
    try:
        out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    except OSError:
        return sys.stdout

    def close() -> None:
        with contextlib.suppress(OSError):
            out.close()

    config.add_cleanup(close)
    return out


OPTION = "--notify"
NOTIFY_TIMEOUT_S = 10.0
"""How long a command may run, and how long the end of a run waits for all that are left (s)."""
_EVENTS = {"injected": "inject", "healed": "heal", "unhealed": "heal"}


class Notifier:
    """Runs a command for each event of a process's part of a run, one after the other.

    Args:
        command: the program with its arguments; if empty, nothing runs.
        run: the name of the run.
        say: prints a line.

    Raises:
        Problem: The quotes of the command do not match.
    """

    def __init__(self, command: str, run: str, say: Callable[[str], None]) -> None:
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise Problem(f"{command!r} is not a command: {error}", OPTION, "quote it correctly") from error
        self._run, self._say = run, say
        self.scenario = ""
        """The node id of the current scenario."""
        self._errors: list[str] = []
        self._end_t = float("inf")
        self._sender = ThreadPoolExecutor(1)

    def send(self, event: str, **facts: Json) -> None:
        """Send an event soon, and return at once; nothing is sent after the end of the run."""
        if self._argv:
            at = datetime.now(UTC).isoformat()
            # A fault may be healed later still, and its healing must not depend on this.
            with contextlib.suppress(RuntimeError):
                self._sender.submit(self._run_command, {"event": event, "at": at, "run": self._run, **facts})

    def send_fault(self, step: str, fault: Fault) -> None:
        """Send that a fault was `injected`, `healed`, or is `unhealed`: no probe proves its healing."""
        facts = {"step": step, "node": fault.node, "fault": dict(fault.to_json())}
        self.send(_EVENTS[step], scenario=self.scenario, **facts)

    def close(self) -> None:
        """Wait `NOTIFY_TIMEOUT_S` at most until all events are sent; print one line if some were not.

        A command that still runs then is ended.
        """
        self._end_t = time.monotonic() + NOTIFY_TIMEOUT_S
        self._sender.shutdown()
        if self._errors:
            self._say(f"{OPTION}: {len(self._errors)} failed: {self._errors[-1]}")

    def _run_command(self, event: Mapping[str, Json]) -> None:
        left_s = min(NOTIFY_TIMEOUT_S, self._end_t - time.monotonic())
        if left_s <= 0.0:
            self._errors.append(f"not all events were sent within {NOTIFY_TIMEOUT_S:g} s")
            return
        try:
            proc.run(self._argv, timeout_s=left_s, stdin=json.dumps(redact.value(event)) + "\n")
        except Exception as error:  # whatever a command does, the next event is sent
            # The command's arguments may hold a token.
            message = str(error).replace(" ".join(self._argv), self._argv[0])
            self._errors.append(" ".join(redact.text(message).split()))
