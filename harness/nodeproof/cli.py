"""The command line: doctor, run, up, status, shell, logs, claims, kubectl, exec, proxy, down, heal, recheck,
junit, merge, report, page, matrix, compare, summary, publish, components, box.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nodeproof import commands, terminal
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report import commands as readers

Json = Any
DEFAULT_RUN = Path("reports/out/latest")


@dataclass(frozen=True)
class Argument:
    """As argparse takes it."""

    names: tuple[str, ...]
    how: dict[str, Json]


@dataclass(frozen=True)
class Command:
    """A command: what it does, a line about it, what it takes; one that `passes_on` takes others' options."""

    name: str
    do: Callable[[argparse.Namespace, list[str]], int]
    text: str
    arguments: tuple[Argument, ...] = ()
    about: str = ""
    passes_on: bool = False
    has_help: bool = True


def argument(*names: str, **how: Json) -> Argument:
    """An argument of a command."""
    return Argument(names, how)


OPTIONS = (
    argument("--debug", action="store_true", help="show tracebacks"),
    argument(
        "--version", action="version", version=f"nodeproof {version('nodeproof')}", help="which this is"
    ),
)
"""Of nodeproof itself, before a command."""
_LAB_NAME = argument("--lab-name", default=None, help="which lab, when several are up")
_ARGV = argument("argv", nargs="*", metavar="COMMAND", help="what to run there; default: a shell")
_PORT = argument("--port", type=int, default=0, help="default: a free one")
_RUN = argument("run_folder", metavar="RUN", type=Path, help="the folder of a run")
_LAST_RUN = argument(
    "run_folder", metavar="RUN", type=Path, nargs="?", default=DEFAULT_RUN, help="default: the last one"
)
_RUNS = argument("runs", metavar="RUN", type=Path, nargs="+", help="the folders of runs")
_CLAIMS = argument(
    "--claims", type=Path, action="append", default=[], help="a folder with claims of your own"
)
_COMPONENTS = (
    argument("--kubernetes-version", default="", help="default v1.36.3"),
    argument("--components", default="build", help="'build', or a folder with the executables"),
)
COMMANDS = (
    Command(
        "doctor",
        commands.doctor,
        "what is missing for a lab to start",
        (
            argument(
                "--lab",
                action="append",
                default=None,
                help="a kind of lab; default: all that need no Vagrant",
            ),
            argument("--nodes", type=int, default=2, help="for how many nodes; default 2"),
        ),
    ),
    Command(
        "run",
        commands.run,
        "run scenarios; verdicts and the site",
        (argument("--no-site", action="store_true", help="write no site"),),
        about="Other options go to pytest: -k, -m, -x, -n, --claim, --profile, --lab, --nodes, ...",
        passes_on=True,
    ),
    Command(
        "plan",
        commands.plan,
        "which scenario would run in which slot, until when; starts nothing",
        about="Takes the options that `nodeproof run` gives to pytest; -n is the number of slots.",
        passes_on=True,
    ),
    Command(
        "up",
        commands.up,
        "start a lab to use by hand",
        (
            argument("--lab", default="", help="kind of lab; default: process nodes"),
            argument("--nodes", type=int, default=3, help="default 3"),
            argument("--zones", type=int, default=1, help="over which the nodes are spread; default 1"),
            argument("--topology", metavar="FILE", default="", help="which nodes, instead (infra/topology)"),
            argument("--profile", default="fast", help="timing of the components; default fast"),
            *_COMPONENTS,
        ),
    ),
    Command("status", commands.status, "what runs in a lab", (_LAB_NAME,)),
    Command("down", commands.down, "tear a lab down, and sweep what killed ones left", (_LAB_NAME,)),
    Command("heal", commands.heal, "heal every fault that an interrupted run left", (_LAB_NAME,)),
    Command(
        "shell",
        commands.shell,
        "a shell on a node, or a command after --",
        (argument("node", help="its name"), _ARGV, _LAB_NAME),
    ),
    Command(
        "logs",
        commands.logs,
        "a component's log, or which there are",
        (
            argument("name", nargs="?", default="", help="etcd, kubelet-node-1, console-node-1, ..."),
            _LAB_NAME,
        ),
    ),
    Command(
        "kubectl", commands.kubectl, "the lab's own kubectl", (_LAB_NAME,), passes_on=True, has_help=False
    ),
    Command(
        "exec",
        commands.inside,
        "a program in the lab's network, after --",
        (_LAB_NAME, argument("argv", nargs="+", metavar="COMMAND", help="what to run")),
    ),
    Command("proxy", commands.proxy, "the lab's API on a loopback port", (_LAB_NAME, _PORT)),
    Command(
        "recheck",
        readers.recheck,
        "judge a saved run again, without a cluster, and rebuild its reports in RUN/recheck",
        (_RUN, argument("--no-site", action="store_true", help="leave Allure's site out"), _CLAIMS),
    ),
    Command(
        "merge",
        readers.merge,
        "one run of several shards, also of those that died; verdicts and the site",
        (
            _RUNS,
            argument(
                "--run", metavar="DIR", type=Path, default=None, help="default: a new one beside the first"
            ),
            argument("--no-site", action="store_true", help="write no site"),
            _CLAIMS,
        ),
    ),
    Command(
        "report",
        readers.report,
        "serve a run's site on loopback",
        (_LAST_RUN, _PORT, _CLAIMS),
    ),
    Command(
        "page",
        readers.page,
        "write the page, judged, into a run's site, also of one that broke off",
        (_LAST_RUN, _CLAIMS),
    ),
    Command(
        "junit",
        readers.junit,
        "a run's verdicts as JUnit XML, also of one that broke off",
        (
            _LAST_RUN,
            argument("--output", metavar="FILE", default="-", help="default: -, standard output"),
            _CLAIMS,
        ),
    ),
    Command(
        "matrix",
        readers.matrix,
        "the page's claims across several runs",
        (
            _RUNS,
            argument("--markdown", metavar="FILE", default="", help="write Markdown; - is standard output"),
            argument("--html", metavar="FILE", default="", help="write a page; - is standard output"),
            _CLAIMS,
        ),
    ),
    Command(
        "compare",
        readers.compare,
        "other verdicts, times and settings of two runs; 1 where something regressed",
        (
            argument("before", metavar="RUN_A", type=Path, help="the earlier run"),
            argument("after", metavar="RUN_B", type=Path, help="the later one"),
            _CLAIMS,
        ),
    ),
    Command(
        "summary",
        readers.summary,
        "runs in Markdown, for the page of a CI run",
        (_RUNS, _CLAIMS),
    ),
    Command(
        "publish",
        readers.publish,
        "runs as a web site: of each what may be seen, and a page that lists them",
        (
            argument("folder", metavar="DIR", type=Path, help="runs that it has already stay listed"),
            argument("runs", metavar="RUN", type=Path, nargs="*", help="the folders of runs"),
            argument("--keep", metavar="N", type=int, default=30, help="how many runs stay; default 30"),
            argument("--mib", metavar="N", type=int, default=0, help="how large they may be together"),
            _CLAIMS,
        ),
    ),
    Command(
        "claims",
        commands.claims,
        "every claim, and where it is judged",
        (argument("paths", nargs="*", metavar="PATH", help="scenarios; default: the shipped ones"),),
    ),
    Command("components", commands.components, "build or check the components", _COMPONENTS),
    Command(
        "box",
        commands.box,
        "the guest as a Vagrant box, for the Vagrantfile",
        (
            argument(
                "--folder", type=Path, default=Path(".box"), help="default: .box, where the Vagrantfile is"
            ),
            *_COMPONENTS,
        ),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. A Problem is one line, its traceback only with --debug."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    arguments, rest = parser.parse_known_args(given)
    if rest and not arguments.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        run: Callable[[argparse.Namespace, list[str]], int] = arguments.do
        status = run(arguments, rest)
        sys.stdout.flush()
        return status
    except (Problem, OutsideError) as problem:
        if arguments.debug:
            traceback.print_exc()
        terminal.say(str(problem))
        return commands.ENVIRONMENT
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        # Python flushes once more as it ends, and would complain of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        terminal.say("interrupted")
        return commands.ENVIRONMENT


def _reader_is_gone() -> bool:
    """Whether nobody reads standard output any more; a machine's connection may break the same way."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _file, event in output.poll(0))


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeproof", description=__doc__, allow_abbrev=False)
    for option in OPTIONS:
        parser.add_argument(*option.names, **option.how)
    known = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        added = known.add_parser(
            command.name,
            help=command.text,
            description=command.about or None,
            add_help=command.has_help,
            allow_abbrev=False,
        )
        for entry in command.arguments:
            added.add_argument(*entry.names, **entry.how)
        added.set_defaults(do=command.do, passes_on=command.passes_on)
    return parser


if __name__ == "__main__":
    sys.exit(main())
