"""The cluster's own kubectl."""

from __future__ import annotations

import time

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.ask import ADMIN
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

_LIMIT_S = 60.0


def kubectl(*arguments: str, may_fail: bool = False) -> Action[Observation]:
    """Run it; what it says is observed: `status` (its exit code), `stdout` and `stderr`.

    The action raises Problem where kubectl fails, unless it `may_fail`. Raises Problem on what would show a
    secret: what it says is in the report.
    """
    secret = next(filter(_shows_secret, arguments), None)
    if secret is not None:
        raise Problem(f"kubectl {secret} may show a secret", "scenario", "it would be in the report")
    command = f"kubectl {' '.join(arguments)}"

    def do(doing: Doing) -> Observation:
        asked_t = time.monotonic()
        done = doing.lab.cluster.run_kubectl(arguments, _LIMIT_S, "")
        value = {name: done[name] for name in ("status", "stdout", "stderr")}
        seen = doing.observed(command, ADMIN, value, asked_t)
        if done["status"] != 0 and not may_fail:
            said = str(done["stderr"]).strip().replace("\n", " ")
            raise Problem(f"{command}: {said}", f"lab {doing.lab.name}", "try `nodeproof kubectl`")
        return seen

    return Action(command, do)


def _shows_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & {"secret", "secrets", "token"}) or argument.startswith(
        ("--from-", "--token", "--raw")
    )
