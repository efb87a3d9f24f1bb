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


def kubectl(*arguments: str, may_fail: bool = False) -> Action[Observation]:
    """Run it; what it says is observed: `status` (its exit code), `stdout` and `stderr`.

    What it cordons is undone when the scenario is over, unless somebody else had cordoned it.

    The action raises Problem where kubectl fails, unless it `may_fail`. Raises Problem on what would show a
    secret, as what it says is in the report, and where what is cordoned is not named.
    """
    secret = next(filter(_shows_secret, arguments), None)
    if secret is not None:
        raise Problem(f"kubectl {secret} may show a secret", "scenario", "it would be in the report")
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
    return [each.rpartition("/")[2] for each in arguments if not each.startswith("-")]


def _selects(argument: str) -> bool:
    return argument.startswith(("-l", "--selector"))


def _shows_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & {"secret", "secrets", "token"}) or argument.startswith(
        ("--from-", "--token", "--raw")
    )
