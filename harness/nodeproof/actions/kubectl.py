"""The cluster's own kubectl."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.ask import ADMIN
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

_TIMEOUT_S = 60.0
_CORDONS = ("cordon", "drain")
_SECRETS = frozenset({"secret", "secrets", "token"})
_INSIDE = frozenset({"exec", "attach", "cp", "debug"})
"""Commands that show the inside of a container: its environment and its mounted Secrets among it."""
_OPTIONS = ("--from-", "--token", "--raw", "-f", "--filename", "-k", "--kustomize")


def kubectl(*arguments: str, may_fail: bool = False) -> Action[Observation]:
    """Run kubectl and observe `status` (its exit code), `stdout` and `stderr`.

    Nodes that it cordons are uncordoned when the scenario ends, unless they were cordoned before.

    Raises:
        Problem: The command could show a secret, as its output is in the report: Secrets and tokens by name,
            objects that only a file names, the inside of a container, a dump of everything; or it cordons
            nodes that it does not name. The action raises it if kubectl fails, unless it `may_fail`.
    """
    is_dump = {"cluster-info", "dump"} <= {*arguments}
    secret = "cluster-info dump" if is_dump else next(filter(_may_show_secret, arguments), "")
    if secret:
        raise Problem(
            f"kubectl {secret} may show a secret",
            "scenario",
            "its output is in the report: use another command",
        )
    verb, names = next(iter(arguments), ""), _possible_names(arguments[1:])
    if verb in _CORDONS and any(map(_selects, arguments)):
        raise Problem(
            f"kubectl {verb} by a selector", "scenario", "name the nodes, so that they can be uncordoned"
        )
    command = f"kubectl {' '.join(arguments)}"

    def do(doing: Doing) -> Observation:
        for node in names if verb in _CORDONS else ():
            doing.lab.safety.expect_cordon(node)
        requested_t = time.monotonic()
        completed = doing.lab.cluster.run_kubectl(arguments, _TIMEOUT_S, "")
        value = {name: completed[name] for name in ("status", "stdout", "stderr")}
        observation = doing.observed(command, ADMIN, value, requested_t)
        if completed["status"] != 0 and not may_fail:
            message = str(completed["stderr"]).strip().replace("\n", " ")
            raise Problem(f"{command}: {message}", f"lab {doing.lab.name}", "try `nodeproof kubectl`")
        for node in names if verb == "uncordon" and completed["status"] == 0 else ():
            doing.lab.safety.forget_cordon(node)
        return observation

    return Action(command, do)


def _possible_names(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments that may be a node's name, such as `node-1` or `node/node-1`."""
    return [argument.rpartition("/")[2] for argument in arguments if not argument.startswith("-")]


def _selects(argument: str) -> bool:
    return argument.startswith(("-l", "--selector"))


def _may_show_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & _SECRETS) or argument in _INSIDE or argument.startswith(_OPTIONS)
