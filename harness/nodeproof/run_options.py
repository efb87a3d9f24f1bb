"""The options of runs: pytest gets all of them, and commands that start a lab take some."""

from __future__ import annotations

import argparse
from typing import Any

from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION


class Argument:
    """The arguments of argparse's `add_argument`, which are also those of pytest's `addoption`."""

    def __init__(self, *names: str, **how: Any) -> None:
        self.names, self.how = names, how


def option(usage: str, text: str, **how: Any) -> Argument:
    """Return an option with a value, such as `--run DIR`: by default empty, or None if it has a type."""
    name, _blank, metavar = usage.partition(" ")
    named = {"metavar": metavar} if metavar else {}
    return Argument(name, **{"default": None if "type" in how else "", **named, **how}, help=text)


def repeatable(usage: str, text: str, **how: Any) -> Argument:
    """Return an option that may be given several times; its value is the list of all values."""
    return option(usage, text, action="append", default=[], **how)


def flag(name: str, text: str) -> Argument:
    """Return an option without a value."""
    return Argument(name, action="store_true", help=text)


RUN_OPTIONS = (
    option("--lab", "kind of lab to start, or NAME or NAME/ZONE of a running lab (default: process nodes)"),
    option("--cluster FILE", "inventory of your own cluster: run on its marked nodes, instead of in a lab"),
    option("--profile", "timing of the components: fast (default) or documented"),
    option("--kubernetes-version VERSION", f"of the components (default {DEFAULT_KUBERNETES_VERSION})"),
    option(
        "--node-versions VERSIONS",
        "versions of the nodes' kubelets, such as v1.36.3,v1.37.2 (repeated as needed)",
    ),
    option(
        "--upgrade-to VERSION",
        "version, or folder with executables, that scenarios upgrade the control plane to",
    ),
    option("--control-planes N", "1 (default), or 3 behind a load balancer", type=int, default=1),
    option("--components DIR", "folder of executables, instead of a build", default="build"),
    option("--source DIR", "checkout of Kubernetes to build them from"),
    repeatable("--feature-gates GATES", "of all components, such as A=true,B=false"),
    repeatable(
        "--set COMPONENT.FLAG=VALUE",
        "flag of a component, or field of KubeletConfiguration as kubelet.FIELD=VALUE",
    ),
    repeatable("--claim ID", "only scenarios that judge this claim"),
    option("--nodes", "nodes of the lab (default: as many as the scenarios need)", type=int, default=0),
    option("--zones", "zones that the lab's nodes are spread over (default: as needed)", type=int, default=0),
    option("--topology FILE", "file with the nodes, instead (infra/topology)"),
    option("--run DIR", "folder of this run (default: a new one in reports/out)"),
    flag("--settings", "after the run, list all non-default settings of the lab"),
    flag("--table", "after the run, print the table of all claims (table.txt)"),
    option(
        "--again N",
        "retry a scenario up to N times if the host was too busy, or a watch broke (default 2)",
        type=int,
        default=2,
    ),
    option("--shard K/N", "run part K of N of the scenarios; `nodeproof merge` merges the parts"),
    option(
        "--storm MINUTES|FILE",
        "run the storm: random faults for so many minutes, or those of a schedule.json or a run",
    ),
    repeatable("--storm-coverage RUN", "prefer what the storm of this run did not meet; repeatable"),
    option("--storm-faults A,B", "only these kinds of random faults"),
    option("--storm-seed N", "seed of the storm's random faults", type=int, default=0),
    option("--times FILE", "times.json to plan by, instead of earlier runs; must be the same for all shards"),
    option(
        "--notify COMMAND",
        "command that gets begin, inject, heal and end of the run, one JSON object each on its stdin",
    ),
    flag("--shipped", "run the shipped scenarios when no path is given"),
)


def run_options(*names: str) -> tuple[Argument, ...]:
    """Return these options, in this order."""
    options = {option.names[0]: option for option in RUN_OPTIONS}
    return tuple(options[name] for name in names)


def describe() -> str:
    """Return the help of all options of runs."""
    usage = "nodeproof run [option...] [PATH...]"
    parser = argparse.ArgumentParser(usage=usage, add_help=False)
    for argument in RUN_OPTIONS:
        parser.add_argument(*argument.names, **argument.how)
    return f"{parser.format_help()}\npytest has more: python -m pytest --help"
