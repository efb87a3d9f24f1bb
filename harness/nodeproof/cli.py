"""Chaos tests for Kubernetes nodes: run scenarios, use labs, read recorded runs."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from pkgutil import resolve_name

from packaging.requirements import Requirement

from nodeproof import new, terminal
from nodeproof.model.problem import ENVIRONMENT, OutsideError, Problem
from nodeproof.run_options import Argument, run_options


def require(extra: str, where: str) -> None:
    """Check that all packages of an extra are installed. Raises Problem if one is missing."""
    missing = [name for name in _packages(extra) if not _is_installed(name)]
    if missing:
        install = f"run `{sys.executable} -m pip install 'nodeproof[{extra}]'`"
        raise Problem(f"not installed: {', '.join(missing)}", where, install)


def _packages(extra: str) -> Iterator[str]:
    """Yield the packages that an extra adds; metadata lists those of the extras in it, too."""
    for requirement in map(Requirement, requires("nodeproof") or ()):
        marker = requirement.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield requirement.name


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


DEFAULT_RUN = Path("reports/out/latest")
_START = """\
Nodeproof tests whether a Kubernetes cluster behaves as the Kubernetes "Nodes" page documents.

Audit your own cluster, read-only, through your kubeconfig:
    nodeproof audit

Judge a version or a patch of Kubernetes in a lab on this machine (Linux, root; extra `lab`):
    pip install 'nodeproof[lab]'
    nodeproof doctor
    nodeproof run --kubernetes-version VERSION
    nodeproof run --source DIR

Write a scenario for a claim, and run it:
    nodeproof claims
    nodeproof new scenario my-claim --folder my-scenarios
    nodeproof run my-scenarios

All commands: nodeproof --commands
"""


@dataclass(frozen=True)
class Command:
    """A subcommand; with `passes_on` it accepts unknown options and passes them to another program.

    `function` is `module:function` below `nodeproof`, by default that of its name in `commands`. It is
    imported when the command runs, so that --help is fast, gets the parsed arguments, with `passes_on` also
    the unknown ones, and returns the exit code. `example` is the command's arguments in the example of its
    help, and `usage` replaces a usage that would fill the screen. With a value of `base_option` it needs no
    extra.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...] = ()
    function: str = ""
    about: str = ""
    passes_on: bool = False
    example: str = ""
    usage: str = ""
    base_option: str = ""

    @property
    def description(self) -> str:
        """What the command does, in sentences."""
        return f"{self.text[:1].upper()}{self.text[1:]}. {self.about}".rstrip()

    @property
    def place(self) -> str:
        """The `module:function` that runs it."""
        return self.function or f"commands:{self.name}"


@dataclass(frozen=True)
class Group:
    """Commands that help lists together; `extra` is the extra of the package that they need."""

    title: str
    commands: tuple[Command, ...]
    extra: str = ""


_LAB_NAME = Argument("--lab-name", help="name of the lab, if several are up")
_ARGV = Argument("argv", nargs="*", metavar="COMMAND", help="command to run; default: a shell")
_PORT = Argument("--port", type=int, default=0, help="default: a free port")
_RUN = Argument("run_folder", metavar="RUN", type=Path, help="folder of a run")
_LAST_RUN = Argument(
    "run_folder", metavar="RUN", type=Path, nargs="?", default=DEFAULT_RUN, help="default: the last run"
)
_RUNS = Argument("runs", metavar="RUN", type=Path, nargs="+", help="folders of runs")
_CLAIMS = Argument("--claims", type=Path, action="append", default=[], help="folder with claims of your own")
_COMPONENTS = run_options("--kubernetes-version", "--components", "--source")
_INVENTORY = Argument("--cluster", metavar="FILE", type=Path, required=True, help="inventory of the cluster")
_CLUSTER_COMMANDS = (
    Command(
        "audit",
        "judge your own cluster by observation alone; writes nothing to it",
        (
            Argument("--kubeconfig", metavar="FILE", default="", help="default: as kubectl"),
            Argument("--context", default="", help="default: the kubeconfig's current one"),
            Argument(
                "--claim",
                metavar="ID",
                action="append",
                default=[],
                help="judge only this claim; repeatable; default: all that an observation decides",
            ),
            Argument("--rbac", action="store_true", help="print the ClusterRole that the other options need"),
            Argument(
                "--allow-nodes-proxy",
                action="store_true",
                help="read the settings of kubelets, too; the right nodes/proxy gives access to all pods",
            ),
            Argument(
                "--format",
                metavar="FORMAT",
                choices=("table", "json", "junit"),
                default="table",
                help="table (default), json or junit",
            ),
            Argument(
                "--run",
                metavar="DIR",
                type=Path,
                help="new folder in which to keep the recording, for `recheck` and reports",
            ),
        ),
        example="--context staging --run audit-1",
        function="audit:run",
    ),
    Command(
        "mark",
        "mark nodes of your own cluster that may be harmed",
        (
            _INVENTORY,
            Argument("node", metavar="NODE", nargs="*", help="node to mark"),
            Argument(
                "--until",
                metavar="TIME",
                default="",
                help="when the mark expires, such as 2030-01-31T18:00; default: in 8 hours",
            ),
            Argument("--list", action="store_true", help="list the marks, and which of them are valid"),
        ),
        example="--cluster cluster.yaml worker-7",
        function="existing.marks:mark",
    ),
    Command(
        "unmark",
        "remove the marks of nodes, whoever set them",
        (_INVENTORY, Argument("node", metavar="NODE", nargs="+", help="node whose mark to remove")),
        example="--cluster cluster.yaml worker-7",
        function="existing.marks:unmark",
    ),
)
_SCENARIO_COMMANDS = (
    Command(
        "doctor",
        "check whether a lab can start on this machine",
        (
            Argument("--lab", action="append", help="kind of lab to check; default: process and libvirt"),
            Argument("--nodes", type=int, default=2, help="number of nodes; default 2"),
        ),
        example="--lab process",
    ),
    Command(
        "run",
        "run scenarios, and write verdicts and the report site",
        (
            Argument("--no-site", action="store_true", help="write no report site"),
            Argument("--options", action="store_true", help="describe nodeproof's options of runs, and exit"),
        ),
        about="Other options are passed to pytest: -k, -m, -x, -n, --claim, --profile, --lab, --set, ...",
        passes_on=True,
        base_option="options",
        example="--claim partition.terminating",
    ),
    Command(
        "storm",
        "run random faults, and judge what must hold whatever they are",
        (
            Argument("--minutes", type=float, default=5.0, help="about how long; default 5"),
            Argument("--seed", type=int, default=0, help="seed of the faults; default 0"),
            Argument(
                "--schedule",
                metavar="FILE",
                default="",
                help="the faults of a schedule.json, or of an earlier run's folder, instead",
            ),
            Argument(
                "--coverage",
                metavar="RUN",
                nargs="+",
                default=[],
                help="prefer what the storms of these runs did not meet",
            ),
            Argument("--times", metavar="N", type=int, default=1, help="repeat it N times; default 1"),
            Argument("--no-site", action="store_true", help="write no report site"),
        ),
        about="Other options are passed to `nodeproof run`: --kubernetes-version, --profile, --set, ...",
        passes_on=True,
        example="--minutes 10 --seed 7",
    ),
    Command(
        "shrink",
        "find the smallest schedule with which a storm still deviates",
        (
            _RUN,
            Argument("--minutes", type=float, default=30.0, help="for all storms together; default 30"),
            Argument(
                "--against",
                metavar="OPTION",
                action="append",
                default=[],
                help="then repeat the smallest schedule with this option alone, such as another version",
            ),
        ),
        about="Other options are passed to `nodeproof storm`: pass those of the run, such as --components.",
        passes_on=True,
        example="reports/out/latest --minutes 20 --against=--kubernetes-version=v1.37.2",
    ),
    Command(
        "bisect",
        "find the commit of Kubernetes since which a claim deviates",
        (
            Argument("--source", metavar="DIR", type=Path, required=True, help="repository of Kubernetes"),
            Argument("--good", metavar="REV", required=True, help="revision on which the claim conforms"),
            Argument("--bad", metavar="REV", required=True, help="revision on which the claim deviates"),
            Argument("--claim", metavar="ID", required=True, help="the claim"),
        ),
        about="Other options are passed to `nodeproof run`: -k, --profile, --kubernetes-version, ...",
        passes_on=True,
        example="--source kubernetes --good v1.36.0 --bad v1.37.0 --claim cordon.taint",
    ),
    Command(
        "plan",
        "show the planned worker and time of each scenario",
        (
            Argument(
                "--cluster",
                metavar="FILE",
                type=Path,
                help="show what each fault that this inventory allows would hit, instead",
            ),
            Argument(
                "--ssh", action="store_true", help="with --cluster: check over SSH what the faults need, too"
            ),
        ),
        about="Starts nothing. Takes the options that `nodeproof run` passes to pytest; -n sets the workers.",
        passes_on=True,
        example="-n 3",
        base_option="cluster",
    ),
    Command(
        "claims",
        "list every claim, and where it is judged",
        (Argument("paths", nargs="*", metavar="PATH", help="default: the shipped scenarios"),),
        example="my-scenarios",
    ),
    Command(
        "new",
        "write the smallest scenario, fault or claims, with a test",
        (
            Argument("kind", choices=new.KINDS, metavar="KIND", help=" or ".join(new.KINDS)),
            Argument("name", metavar="NAME", help="lower case, digits and dashes, such as power-loss"),
            Argument("--folder", metavar="DIR", type=Path, default=Path(), help="default: this folder"),
        ),
        about="Overwrites nothing.",
        example="scenario power-loss",
    ),
    Command(
        "components", "build or check the components", _COMPONENTS, example="--kubernetes-version v1.36.3"
    ),
    Command(
        "bundle",
        "pack a lab and nodeproof, for a machine without a network",
        (
            Argument(
                "file",
                metavar="FILE",
                type=Path,
                nargs="?",
                default=Path("nodeproof-bundle.tar.gz"),
                help="default: nodeproof-bundle.tar.gz",
            ),
            *run_options("--kubernetes-version"),
        ),
        about="Its install.sh needs the same platform and version of Python.",
        example="nodeproof-bundle.tar.gz --kubernetes-version v1.36.3",
    ),
    Command(
        "box",
        "build the guest image as a Vagrant box, for the Vagrantfile",
        (
            Argument(
                "--folder", type=Path, default=Path(".box"), help="default: .box, as in the Vagrantfile"
            ),
            *_COMPONENTS,
        ),
        example="--folder .box",
    ),
)
_LAB_COMMANDS = (
    Command(
        "up",
        "start a lab for use by hand",
        (
            Argument("--lab", default="", help="process (default), libvirt, vagrant or kubeadm"),
            Argument("--nodes", type=int, default=3, help="number of nodes; default 3"),
            Argument("--zones", type=int, default=1, help="zones to spread the nodes over; default 1"),
            *run_options("--topology", "--node-versions", "--upgrade-to", "--control-planes"),
            Argument("--profile", default="", help="timing of the components; default: that of the kind"),
            *run_options("--feature-gates", "--set"),
            *_COMPONENTS,
        ),
        example="--nodes 3 --zones 2",
        usage="nodeproof up [option...]",
    ),
    Command("status", "show a lab's nodes and components", (_LAB_NAME,)),
    Command(
        "down",
        "tear a lab down, or all of yours, and remove the remains of killed labs",
        (Argument("--lab-name", help="name of the lab; default: all of this user on this machine"),),
        example="--lab-name LAB",
    ),
    Command(
        "heal",
        "heal every fault that an interrupted run left",
        (
            _LAB_NAME,
            Argument(
                "--cluster",
                metavar="FILE",
                type=Path,
                help="heal the cluster of this inventory, instead; from any machine",
            ),
        ),
    ),
    Command(
        "shell",
        "open a shell on a node, or run a command (after --)",
        (Argument("node", help="name of the node"), _ARGV, _LAB_NAME),
        example="node-1 -- nft list ruleset",
    ),
    Command(
        "logs",
        "print a component's log, or list the logs",
        (
            Argument("name", nargs="?", default="", help="etcd, kubelet-node-1, console-node-1, ..."),
            _LAB_NAME,
        ),
        example="kubelet-node-1",
    ),
    Command(
        "kubectl",
        "run the lab's kubectl",
        (_LAB_NAME,),
        passes_on=True,
        about="kubectl's own help: nodeproof kubectl help COMMAND.",
        example="get nodes -o wide",
    ),
    Command(
        "exec",
        "run a program (after --) in the lab's network",
        (_LAB_NAME, Argument("argv", nargs="+", metavar="COMMAND", help="command to run")),
        example="-- ping -c 1 node-1",
        function="commands:inside",
    ),
    Command("proxy", "serve the lab's API on a loopback port", (_LAB_NAME, _PORT), example="--port 8443"),
)
_RUN_COMMANDS = (
    Command(
        "recheck",
        "judge a recorded run again, without a cluster",
        (_RUN, Argument("--no-site", action="store_true", help="write no Allure site"), _CLAIMS),
        example="reports/out/latest",
        about="Writes all reports to RUN/recheck.",
        function="report.commands:recheck_run",
    ),
    Command(
        "merge",
        "merge shards into one run, and write its reports",
        (
            _RUNS,
            Argument(
                "--run",
                metavar="DIR",
                type=Path,
                help="folder of the merged run; default: a new one beside the first",
            ),
            Argument("--no-site", action="store_true", help="write no report site"),
            _CLAIMS,
        ),
        example="shard-1 shard-2 --run merged",
        about="Shards may be incomplete.",
        function="report.commands:merge_shards",
    ),
    Command(
        "report",
        "serve a run's report site on loopback",
        (_LAST_RUN, _PORT, _CLAIMS),
        example="reports/out/latest",
        function="report.commands:serve_site",
    ),
    Command(
        "page",
        "write the Nodes page with verdicts into a run's site",
        (_LAST_RUN, _CLAIMS),
        example="reports/out/latest",
        about="Also for an aborted run; needs no Node.js.",
        function="report.commands:write_page",
    ),
    Command(
        "junit",
        "write a run's verdicts as JUnit XML",
        (
            _LAST_RUN,
            Argument("--output", metavar="FILE", default="-", help="default: - (standard output)"),
            _CLAIMS,
        ),
        example="reports/out/latest --output junit.xml",
        about="Also for an aborted run.",
        function="report.commands:write_junit",
    ),
    Command(
        "matrix",
        "show the verdicts of several runs side by side, by claim",
        (
            _RUNS,
            Argument("--markdown", metavar="FILE", default="", help="write Markdown; - is standard output"),
            Argument("--html", metavar="FILE", default="", help="write HTML; - is standard output"),
            Argument(
                "--versions", metavar="FILE", default="", help="write what differs, and why, as Markdown"
            ),
            _CLAIMS,
        ),
        example="run-1.36 run-1.37 --html matrix.html",
        function="report.commands:show_matrix",
    ),
    Command(
        "compare",
        "show which verdicts, times and settings of two runs differ",
        (
            Argument("before", metavar="RUN_A", type=Path, help="the earlier run"),
            Argument("after", metavar="RUN_B", type=Path, help="the later run"),
            _CLAIMS,
        ),
        example="run-1.36 run-1.37",
        about="Exits with 1 on a regression.",
        function="report.commands:compare_runs",
    ),
    Command(
        "summary",
        "summarize runs in Markdown, for the job summary of a CI system",
        (_RUNS, Argument("--openmetrics", metavar="FILE", type=Path, help="write metrics, instead"), _CLAIMS),
        example="reports/out/latest",
        function="report.commands:summarize",
    ),
    Command(
        "publish",
        "publish runs as a web site with an index page",
        (
            Argument("folder", metavar="DIR", type=Path, help="the site; runs already in it stay listed"),
            Argument("runs", metavar="RUN", type=Path, nargs="*", help="folders of runs"),
            Argument("--keep", metavar="N", type=int, default=30, help="number of runs to keep; default 30"),
            Argument("--mib", metavar="N", type=int, default=0, help="total size limit (MiB)"),
            _CLAIMS,
        ),
        example="public reports/out/latest --keep 10",
        about="Copies the public part of each run.",
        function="report.commands:publish_runs",
    ),
)
GROUPS = (
    Group("your own cluster", _CLUSTER_COMMANDS),
    Group("scenarios", _SCENARIO_COMMANDS, "lab"),
    Group("a lab by hand", _LAB_COMMANDS, "lab"),
    Group("recorded runs", _RUN_COMMANDS),
)
COMMANDS = tuple(command for group in GROUPS for command in group.commands)


def _list_commands() -> str:
    """Return one line for each command, by group."""
    lines = []
    for group in GROUPS:
        lines += ["", f"{group.title}:"]
        lines += [f"  {command.name:<12}{command.text}" for command in group.commands]
    return "\n".join(lines[1:])


OPTIONS = (
    Argument("--commands", action="version", version=_list_commands(), help="list what each command does"),
    Argument("--debug", action="store_true", help="show tracebacks"),
    Argument(
        "--version",
        action="version",
        version=f"nodeproof {version('nodeproof')}",
        help="print the version and exit",
    ),
)
"""Options of nodeproof itself, before the command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Print a Problem as one line; --debug adds its traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        if argv:
            return _run(argv)
        terminal.document(_START)
        sys.stdout.flush()
        return 0
    except (Problem, OutsideError) as problem:
        if argv[0] == "--debug":
            traceback.print_exc()
        terminal.say(str(problem))
        return ENVIRONMENT
    except BrokenPipeError:
        if not _is_output_closed():
            raise
        # Python flushes standard output again at exit, and would report the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        terminal.say("interrupted")
        return ENVIRONMENT


def _run(argv: Sequence[str]) -> int:
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and not arguments.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if arguments.extra and not getattr(arguments, arguments.base_option, None):
        require(arguments.extra, f"nodeproof {arguments.command}")
    run = resolve_name(f"nodeproof.{arguments.place}")
    status: int = run(arguments, rest) if arguments.passes_on else run(arguments)
    sys.stdout.flush()
    return status


def _is_output_closed() -> bool:
    """Return whether the reader of standard output closed it: a lab's connection may also break a pipe."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _file, event in output.poll(0))


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodeproof",
        usage="nodeproof [option...] COMMAND ...",
        description=_overview(),
        epilog="help for a command: nodeproof COMMAND --help\nexample: nodeproof audit",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    for option in OPTIONS:
        parser.add_argument(*option.names, **option.how)
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="nodeproof", help=argparse.SUPPRESS
    )
    extras_of = {command: group.extra for group in GROUPS for command in group.commands}
    for command, extra in extras_of.items():
        subparser = subparsers.add_parser(
            command.name,
            help=command.text,
            usage=command.usage or None,
            description=command.description,
            epilog=f"example: nodeproof {command.name} {command.example}".rstrip(),
            # Most options have one line: the help must fit a screen.
            formatter_class=partial(argparse.HelpFormatter, max_help_position=32),
            add_help=False,
            allow_abbrev=False,
        )
        subparser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        for argument in command.arguments:
            subparser.add_argument(*argument.names, **argument.how)
        subparser.set_defaults(
            place=command.place,
            passes_on=command.passes_on,
            extra=extra,
            base_option=command.base_option,
        )
    return parser


def _overview() -> str:
    """Return the description of nodeproof, with the names of the commands by group."""
    lines = [str(__doc__)]
    for group in GROUPS:
        names = "  ".join(command.name for command in group.commands)
        lines += [f"{group.title}:", textwrap.indent(textwrap.fill(names, 76), "  ")]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
