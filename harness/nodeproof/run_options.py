"""The options of runs: pytest gets all of them, and commands that start a lab take some."""

from __future__ import annotations

import argparse
from typing import Any

from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION


class Argument:
    """The arguments of argparse's `add_argument`, which are also those of pytest's `addoption`."""

    def __init__(self, *names: str, **how: Any) -> None:
        self.names, self.how = names, how


RUN_OPTIONS = (
    Argument("--lab", default="",
             help="kind of lab to start, or NAME or NAME/ZONE of a running lab (default: process nodes)"),
    Argument("--cluster", default="", metavar="FILE",
             help="inventory of your own cluster: run on its marked nodes, instead of in a lab"),
    Argument("--profile", default="", help="timing of the components: fast (default) or documented"),
    Argument("--kubernetes-version", default="", metavar="VERSION",
             help=f"of the components (default {DEFAULT_KUBERNETES_VERSION})"),
    Argument(
        "--node-versions", default="", metavar="VERSIONS",
        help="versions of the nodes' kubelets, such as v1.36.3,v1.37.2 (repeated as needed)",
    ),
    Argument("--upgrade-to", default="", metavar="VERSION",
             help="version, or folder with executables, that scenarios upgrade the control plane to"),
    Argument("--control-planes", type=int, default=1, metavar="N",
             help="1 (default), or 3 behind a load balancer"),
    Argument("--components", default="build", metavar="DIR",
             help="folder of executables, instead of a build"),
    Argument("--source", default="", metavar="DIR",
             help="checkout of Kubernetes to build them from"),
    Argument("--feature-gates", action="append", default=[], metavar="GATES",
             help="of all components, such as A=true,B=false"),
    Argument("--set", action="append", default=[], metavar="COMPONENT.FLAG=VALUE",
             help="flag of a component, or field of KubeletConfiguration as kubelet.FIELD=VALUE"),
    Argument("--claim", action="append", default=[], metavar="ID",
             help="only scenarios that judge this claim"),
    Argument("--nodes", type=int, default=0,
             help="nodes of the lab (default: as many as the scenarios need)"),
    Argument("--zones", type=int, default=0,
             help="zones that the lab's nodes are spread over (default: as needed)"),
    Argument("--topology", default="", metavar="FILE",
             help="file with the nodes, instead (infra/topology)"),
    Argument("--run", default="", metavar="DIR",
             help="folder of this run (default: a new one in reports/out)"),
    Argument("--settings", action="store_true",
             help="after the run, list all non-default settings of the lab"),
    Argument("--table", action="store_true", help="after the run, print the table of all claims (table.txt)"),
    Argument("--again", type=int, default=2, metavar="N",
             help="retry a scenario up to N times if the host was too busy, or a watch broke (default 2)"),
    Argument("--shard", default="", metavar="K/N",
             help="run part K of N of the scenarios; `nodeproof merge` merges the parts"),
    Argument("--storm", default="", metavar="MINUTES|FILE",
             help="run the storm: random faults for so many minutes, or those of a schedule.json or a run"),
    Argument("--storm-coverage", action="append", default=[], metavar="RUN",
             help="prefer what the storm of this run did not meet; repeatable"),
    Argument("--storm-seed", type=int, default=0, metavar="N", help="seed of the storm's random faults"),
    Argument("--times", default="", metavar="FILE",
             help="times.json to plan by, instead of earlier runs; must be the same for all shards"),
    Argument(
        "--notify", default="", metavar="COMMAND",
        help="command that gets begin, inject, heal and end of the run, one JSON object each on its stdin",
    ),
    Argument("--shipped", action="store_true", help="run the shipped scenarios when no path is given"),
)  # fmt: skip


def run_options(*names: str) -> tuple[Argument, ...]:
    """Return these options, in this order."""
    options = {option.names[0]: option for option in RUN_OPTIONS}
    return tuple(options[name] for name in names)


def describe() -> str:
    """Return the help of all options of runs."""
    usage = "nodeproof run [option...] [PATH...]"
    parser = argparse.ArgumentParser(usage=usage, add_help=False)
    for option in RUN_OPTIONS:
        parser.add_argument(*option.names, **option.how)
    return f"{parser.format_help()}\npytest has more: python -m pytest --help"
