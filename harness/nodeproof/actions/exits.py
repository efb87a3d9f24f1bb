"""What a component says of flags that it may refuse."""

from __future__ import annotations

import time

from nodeproof import proc
from nodeproof.actions.action import Action, Doing
from nodeproof.artifacts.components import ROLES
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

_LIMIT_S = 30.0


def try_flags(component: str, *flags: str) -> Action[Observation]:
    """Start a component with flags; how it ends is observed: `status` (its exit code), `stdout`, `stderr`.

    It is also told `--version`, which it prints in place of beginning its work once it has taken all flags.
    The action raises Problem on a component that there is none of.
    """

    def do(doing: Doing) -> Observation:
        if component not in ROLES:
            raise Problem(f"no component {component!r}", "try_flags", f"there are: {', '.join(ROLES)}")
        asked_t = time.monotonic()
        argv = [str(doing.lab.components.path(component)), *flags, "--version"]
        done = proc.run(argv, timeout_s=_LIMIT_S, check=False)
        value = {"status": done.status, "stdout": done.stdout, "stderr": done.stderr}
        return doing.observed(f"exit of {component} {' '.join(flags)}", component, value, asked_t)

    return Action(f"start {component} {' '.join(flags)}", do)
