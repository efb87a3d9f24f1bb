"""The cluster's own kubectl."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.ask import ADMIN
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

_LIMIT_S = 60.0
_CORDONS = ("cordon", "drain")
_SECRETS = frozenset({"secret", "secrets", "token"})
_INSIDE = frozenset({"exec", "attach", "cp", "debug"})
"""Commands that say what is in a container: its environment and its mounted Secrets among it."""
_OPTIONS = ("--from-", "--token", "--raw", "-f", "--filename", "-k", "--kustomize")


def kubectl(*arguments: str, may_fail: bool = False) -> Action[Observation]:
    """Run it; what it says is observed: `status` (its exit code), `stdout` and `stderr`.

    What it cordons is undone when the scenario is over, unless somebody else had cordoned it.

    The action raises Problem where kubectl fails, unless it `may_fail`. Raises Problem on what could show a
    secret, as what it says is in the report: Secrets and tokens by name, objects that only a file names, what
    is inside a container, a dump of all there is; and where what is cordoned is not named.
    """
    is_dump = {"cluster-info", "dump"} <= {*arguments}
    refused = "cluster-info dump" if is_dump else next(filter(_may_show_secret, arguments), "")
    if refused:
        raise Problem(f"kubectl {refused} may show a secret", "scenario", "it would be in the report")
    verb, named = next(iter(arguments), ""), _named(arguments[1:])
    if verb in _CORDONS and any(map(_selects, arguments)):
        raise Problem(f"kubectl {verb} by a selector", "scenario", "name the nodes: their cordons are undone")
    command = f"kubectl {' '.join(arguments)}"

    def do(doing: Doing) -> Observation:
        for node in named if verb in _CORDONS else ():
            doing.lab.safety.expect_cordon(node)
        asked_t = time.monotonic()
        done = doing.lab.cluster.run_kubectl(arguments, _LIMIT_S, "")
        value = {name: done[name] for name in ("status", "stdout", "stderr")}
        seen = doing.observed(command, ADMIN, value, asked_t)
        if done["status"] != 0 and not may_fail:
            said = str(done["stderr"]).strip().replace("\n", " ")
            raise Problem(f"{command}: {said}", f"lab {doing.lab.name}", "try `nodeproof kubectl`")
        for node in named if verb == "uncordon" and done["status"] == 0 else ():
            doing.lab.safety.forget_cordon(node)
        return seen

    return Action(command, do)


def _named(arguments: Sequence[str]) -> Sequence[str]:
    """What may be a node's name, such as `node-1` or `node/node-1`."""
    return [argument.rpartition("/")[2] for argument in arguments if not argument.startswith("-")]


def _selects(argument: str) -> bool:
    return argument.startswith(("-l", "--selector"))


def _may_show_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & _SECRETS) or argument in _INSIDE or argument.startswith(_OPTIONS)
