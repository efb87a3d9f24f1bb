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
from importlib.metadata import Distribution, requires, version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from packaging.requirements import Requirement

from nodeproof import new, terminal
from nodeproof.model.problem import ENVIRONMENT, OutsideError, Problem
from nodeproof.run_options import Argument, flag, option, repeatable, run_options


def require(extra: str, where: str) -> None:
    """Check that all packages of an extra are installed. Raises Problem if one is missing."""
    missing = [name for name in _packages(extra) if not any(Distribution.discover(name=name))]
    if missing:
        install = f"run `{sys.executable} -m pip install 'nodeproof[{extra}]'`"
        raise Problem(f"not installed: {', '.join(missing)}", where, install)


def _packages(extra: str) -> Iterator[str]:
    """Yield the packages that an extra adds; metadata lists those of the extras in it, too."""
    for requirement in map(Requirement, requires("nodeproof") or ()):
        marker = requirement.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield requirement.name


DEFAULT_RUN, _BUNDLE = Path("reports/out/latest"), "nodeproof-bundle.tar.gz"
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

    `example` is a command line for its help; it begins with the name of the command. `function` is
    `module:function` below `nodeproof`, by default that of this name in `commands`. It is imported when the
    command runs, so that --help is fast, gets the parsed arguments, with `passes_on` also the unknown ones,
    and returns the exit code. `usage` replaces a usage that would fill the screen. With a value of
    `base_option` it needs no extra.
    """

    example: str
    text: str
    arguments: tuple[Argument, ...]
    function: str = ""
    about: str = ""
    passes_on: bool = False
    usage: str = ""
    base_option: str = ""

    @property
    def name(self) -> str:
        """The first word of its command line."""
        return self.example.partition(" ")[0]

    @property
    def description(self) -> str:
        """What the command does, in sentences."""
        return f"{self.text[:1].upper()}{self.text[1:]}. {self.about}".rstrip()

    @property
    def place(self) -> str:
        """The `module:function` that runs it."""
        return self.function or f"commands:{self.name}"


def command(example: str, text: str, *arguments: Argument, **details: Any) -> Command:
    """Return a subcommand; `details` are further fields of it."""
    return Command(example, text, arguments, **details)


@dataclass(frozen=True)
class Group:
    """Commands that help lists together; `extra` is the extra of the package that they need."""

    title: str
    commands: tuple[Command, ...]
    extra: str = ""


_LAB_NAME = Argument("--lab-name", help="name of the lab, if several are up")
_PORT = option("--port", "default: a free port", type=int, default=0)
_RUN = Argument("run_folder", metavar="RUN", type=Path, help="folder of a run")
_LAST_RUN = Argument(
    "run_folder", metavar="RUN", type=Path, nargs="?", default=DEFAULT_RUN, help="default: the last run"
)
_RUNS = Argument("runs", metavar="RUN", type=Path, nargs="+", help="folders of runs")
_NO_SITE = flag("--no-site", "write no report site")
_CLAIMS = repeatable("--claims", "folder with claims of your own", type=Path)
_COMPONENTS = run_options("--kubernetes-version", "--components", "--source")
_INVENTORY = option("--cluster FILE", "inventory of the cluster", type=Path, required=True)
_CLUSTER_COMMANDS = (
    command(
        "audit --context staging --run audit-1",
        "judge your own cluster by observation alone; writes nothing to it",
        option("--kubeconfig FILE", "default: as kubectl"),
        option("--context", "default: the kubeconfig's current one"),
        repeatable(
            "--claim ID", "judge only this claim; repeatable; default: all that an observation decides"
        ),
        flag("--rbac", "print the ClusterRole that the other options need"),
        flag("--read-kubelets", "read the settings of kubelets from them, at the nodes' internal addresses"),
        flag(
            "--allow-nodes-proxy",
            "read them through the API server; the right nodes/proxy gives access to all pods",
        ),
        option(
            "--format FORMAT",
            "table (default), json or junit",
            choices=("table", "json", "junit"),
            default="table",
        ),
        option(
            "--run DIR", "new folder in which to keep the recording, for `recheck` and reports", type=Path
        ),
        function="audit:run",
    ),
    command(
        "mark --cluster cluster.yaml worker-7",
        "mark nodes of your own cluster that may be harmed",
        _INVENTORY,
        Argument("node", metavar="NODE", nargs="*", help="node to mark"),
        option("--until TIME", "when the mark expires, such as 2030-01-31T18:00; default: in 8 hours"),
        flag("--list", "list the marks, and which of them are valid"),
        function="existing.marks:mark",
    ),
    command(
        "unmark --cluster cluster.yaml worker-7",
        "remove the marks of nodes, whoever set them",
        _INVENTORY,
        Argument("node", metavar="NODE", nargs="+", help="node whose mark to remove"),
        function="existing.marks:unmark",
    ),
)
_SCENARIO_COMMANDS = (
    command(
        "doctor --lab process",
        "check whether a lab can start on this machine",
        Argument("--lab", action="append", help="kind of lab to check; default: process and libvirt"),
        option("--nodes", "number of nodes; default 2", type=int, default=2),
    ),
    command(
        "run --claim partition.terminating",
        "run scenarios, and write verdicts and the report site",
        _NO_SITE,
        flag("--options", "describe nodeproof's options of runs, and exit"),
        about="Other options are passed to pytest: -k, -m, -x, -n, --claim, --profile, --lab, --set, ...",
        passes_on=True,
        base_option="options",
    ),
    command(
        "storm --minutes 10 --seed 7",
        "run random faults, and judge what must hold whatever they are",
        option("--minutes", "about how long; default 5", type=float, default=5.0),
        option("--seed", "seed of the faults; default 0", type=int, default=0),
        option("--faults A,B", "only these kinds of faults, such as 'freeze,taint NoExecute'"),
        option("--schedule FILE", "the faults of a schedule.json, or of an earlier run's folder, instead"),
        option("--coverage RUN", "prefer what the storms of these runs did not meet", nargs="+", default=[]),
        option("--times N", "repeat it N times; default 1", type=int, default=1),
        _NO_SITE,
        about="Other options are passed to `nodeproof run`: --kubernetes-version, --profile, --set, ...",
        passes_on=True,
    ),
    command(
        "shrink reports/out/latest --minutes 20 --against=--kubernetes-version=v1.37.2",
        "find the smallest schedule with which a storm still deviates",
        _RUN,
        option("--minutes", "for all storms together; default 30", type=float, default=30.0),
        repeatable(
            "--against OPTION",
            "then repeat the smallest schedule with this option alone, such as another version",
        ),
        about="Other options are passed to `nodeproof storm`: pass those of the run, such as --components.",
        passes_on=True,
    ),
    command(
        "bisect --source kubernetes --good v1.36.0 --bad v1.37.0 --claim cordon.taint",
        "find the commit of Kubernetes since which a claim deviates",
        option("--source DIR", "repository of Kubernetes", type=Path, required=True),
        option("--good REV", "revision on which the claim conforms", required=True),
        option("--bad REV", "revision on which the claim deviates", required=True),
        option("--claim ID", "the claim", required=True),
        about="Other options are passed to `nodeproof run`: -k, --profile, --kubernetes-version, ...",
        passes_on=True,
    ),
    command(
        "plan -n 3",
        "show the planned worker and time of each scenario",
        option(
            "--cluster FILE", "show what each fault that this inventory allows would hit, instead", type=Path
        ),
        flag("--ssh", "with --cluster: check over SSH what the faults need, too"),
        about="Starts nothing. Takes the options that `nodeproof run` passes to pytest; -n sets the workers.",
        passes_on=True,
        base_option="cluster",
    ),
    command(
        "claims my-scenarios",
        "list every claim, and where it is judged",
        Argument("paths", nargs="*", metavar="PATH", help="default: the shipped scenarios"),
    ),
    command(
        "new scenario power-loss",
        "write the smallest scenario, fault or claims, with a test",
        Argument("kind", choices=new.KINDS, metavar="KIND", help=" or ".join(new.KINDS)),
        Argument("name", metavar="NAME", help="lower case, digits and dashes, such as power-loss"),
        option("--folder DIR", "default: this folder", type=Path, default=Path()),
        about="Overwrites nothing.",
    ),
    command(
        "components --kubernetes-version v1.36.3",
        "build or check the components",
        *_COMPONENTS,
    ),
    command(
        f"bundle {_BUNDLE} --kubernetes-version v1.36.3",
        "pack a lab and nodeproof, for a machine without a network",
        Argument(
            "file", metavar="FILE", type=Path, nargs="?", default=Path(_BUNDLE), help=f"default: {_BUNDLE}"
        ),
        *run_options("--kubernetes-version"),
        about="Its install.sh needs the same platform and version of Python.",
    ),
    command(
        "box --folder .box",
        "build the guest image as a Vagrant box, for the Vagrantfile",
        option("--folder", "default: .box, as in the Vagrantfile", type=Path, default=Path(".box")),
        *_COMPONENTS,
    ),
)
_LAB_COMMANDS = (
    command(
        "up --nodes 3 --zones 2",
        "start a lab for use by hand",
        option("--lab", "process (default), libvirt, vagrant or kubeadm"),
        option("--nodes", "number of nodes; default 3", type=int, default=3),
        option("--zones", "zones to spread the nodes over; default 1", type=int, default=1),
        *run_options("--topology", "--node-versions", "--upgrade-to", "--control-planes"),
        option("--profile", "timing of the components; default: that of the kind"),
        *run_options("--feature-gates", "--set"),
        *_COMPONENTS,
        usage="nodeproof up [option...]",
    ),
    command("status", "show a lab's nodes and components", _LAB_NAME),
    command(
        "down --lab-name LAB",
        "tear a lab down, or all of yours, and remove the remains of killed labs",
        Argument("--lab-name", help="name of the lab; default: all of this user on this machine"),
    ),
    command(
        "heal",
        "heal every fault that an interrupted run left",
        _LAB_NAME,
        option("--cluster FILE", "heal the cluster of this inventory, instead; from any machine", type=Path),
    ),
    command(
        "shell node-1 -- nft list ruleset",
        "open a shell on a node, or run a command (after --)",
        Argument("node", help="name of the node"),
        Argument("argv", nargs="*", metavar="COMMAND", help="command to run; default: a shell"),
        _LAB_NAME,
    ),
    command(
        "logs kubelet-node-1",
        "print a component's log, or list the logs",
        Argument("name", nargs="?", default="", help="etcd, kubelet-node-1, console-node-1, ..."),
        _LAB_NAME,
    ),
    command(
        "kubectl get nodes -o wide",
        "run the lab's kubectl",
        _LAB_NAME,
        passes_on=True,
        about="kubectl's own help: nodeproof kubectl help COMMAND.",
    ),
    command(
        "exec -- ping -c 1 node-1",
        "run a program (after --) in the lab's network",
        _LAB_NAME,
        Argument("argv", nargs="+", metavar="COMMAND", help="command to run"),
        function="commands:inside",
    ),
    command(
        "proxy --port 8443",
        "serve the lab's API on a loopback port",
        _LAB_NAME,
        _PORT,
    ),
)
_RUN_COMMANDS = (
    command(
        "recheck reports/out/latest",
        "judge a recorded run again, without a cluster",
        _RUN,
        flag("--no-site", "write no Allure site"),
        _CLAIMS,
        about="Writes all reports to RUN/recheck.",
        function="report.commands:recheck_run",
    ),
    command(
        "merge shard-1 shard-2 --run merged",
        "merge shards into one run, and write its reports",
        _RUNS,
        option("--run DIR", "folder of the merged run; default: a new one beside the first", type=Path),
        _NO_SITE,
        _CLAIMS,
        about="Shards may be incomplete.",
        function="report.commands:merge_shards",
    ),
    command(
        "report reports/out/latest",
        "serve a run's report site on loopback",
        _LAST_RUN,
        _PORT,
        _CLAIMS,
        function="report.commands:serve_site",
    ),
    command(
        "page reports/out/latest",
        "write the Nodes page with verdicts into a run's site",
        _LAST_RUN,
        _CLAIMS,
        about="Also for an aborted run; needs no Node.js.",
        function="report.commands:write_page",
    ),
    command(
        "junit reports/out/latest --output junit.xml",
        "write a run's verdicts as JUnit XML",
        _LAST_RUN,
        option("--output FILE", "default: - (standard output)", default="-"),
        _CLAIMS,
        about="Also for an aborted run.",
        function="report.commands:write_junit",
    ),
    command(
        "matrix run-1.36 run-1.37 --html matrix.html",
        "show the verdicts of several runs side by side, by claim",
        _RUNS,
        option("--markdown FILE", "write Markdown; - is standard output"),
        option("--html FILE", "write HTML; - is standard output"),
        option("--versions FILE", "write what differs, and why, as Markdown"),
        _CLAIMS,
        function="report.commands:show_matrix",
    ),
    command(
        "compare run-1.36 run-1.37",
        "show which verdicts, times and settings of two runs differ",
        Argument("before", metavar="RUN_A", type=Path, help="the earlier run"),
        Argument("after", metavar="RUN_B", type=Path, help="the later run"),
        _CLAIMS,
        about="Exits with 1 on a regression.",
        function="report.commands:compare_runs",
    ),
    command(
        "summary reports/out/latest",
        "summarize runs in Markdown, for the job summary of a CI system",
        _RUNS,
        option("--openmetrics FILE", "write metrics, instead", type=Path),
        _CLAIMS,
        function="report.commands:summarize",
    ),
    command(
        "publish public reports/out/latest --keep 10",
        "publish runs as a web site with an index page",
        Argument("folder", metavar="DIR", type=Path, help="the site; runs already in it stay listed"),
        Argument("runs", metavar="RUN", type=Path, nargs="*", help="folders of runs"),
        option("--keep N", "number of runs to keep; default 30", type=int, default=30),
        option("--mib N", "total size limit (MiB)", type=int, default=0),
        _CLAIMS,
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


_VERSION = f"nodeproof {version('nodeproof')}"
OPTIONS = (
    Argument("--commands", action="version", version=_list_commands(), help="list what each command does"),
    flag("--debug", "show tracebacks"),
    Argument("--version", action="version", version=_VERSION, help="print the version and exit"),
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
    command: Command = arguments.definition
    if rest and not command.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if arguments.extra and not getattr(arguments, command.base_option, None):
        require(arguments.extra, f"nodeproof {command.name}")
    run = resolve_name(f"nodeproof.{command.place}")
    status: int = run(arguments, rest) if command.passes_on else run(arguments)
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
    for argument in OPTIONS:
        parser.add_argument(*argument.names, **argument.how)
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="nodeproof", help=argparse.SUPPRESS
    )
    for command, extra in [(command, group.extra) for group in GROUPS for command in group.commands]:
        subparser = subparsers.add_parser(
            command.name,
            help=command.text,
            usage=command.usage or None,
            description=command.description,
            epilog=f"example: nodeproof {command.example}",
            # Most options have one line: the help must fit a screen.
            formatter_class=partial(argparse.HelpFormatter, max_help_position=32),
            add_help=False,
            allow_abbrev=False,
        )
        subparser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        for argument in command.arguments:
            subparser.add_argument(*argument.names, **argument.how)
        subparser.set_defaults(definition=command, extra=extra)
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
