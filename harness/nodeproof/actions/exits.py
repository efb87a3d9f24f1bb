"""The exit of a component whose flags may be invalid."""

from __future__ import annotations

import time

from nodeproof import proc
from nodeproof.actions.action import Action, Doing
from nodeproof.artifacts.components import ROLES
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

_TIMEOUT_S = 30.0


def try_flags(component: str, *flags: str) -> Action[Observation]:
    """Start a component with flags and observe its end: `status` (its exit code), `stdout`, `stderr`.

    It also gets `--version`, so it prints the version and exits once it has accepted all flags. The action
    raises Problem for an unknown component.
    """

    def do(doing: Doing) -> Observation:
        if component not in ROLES:
            raise Problem(f"unknown component {component!r}", "try_flags", f"use one of {', '.join(ROLES)}")
        requested_t = time.monotonic()
        argv = [str(doing.lab.components.path(component)), *flags, "--version"]
        completed = proc.run(argv, timeout_s=_TIMEOUT_S, check=False)
        value = {"status": completed.status, "stdout": completed.stdout, "stderr": completed.stderr}
        return doing.observed(f"exit of {component} {' '.join(flags)}", component, value, requested_t)

    return Action(f"start {component} {' '.join(flags)}", do)
