"""Restarts of a node's services, and the exit of a component whose flags may be invalid."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from nodeproof import proc
from nodeproof.actions.action import Action, ActionContext
from nodeproof.artifacts.components import ROLES
from nodeproof.machines.machine import checked
from nodeproof.model.judgment import Observation, words_in
from nodeproof.model.problem import Problem

_TIMEOUT_S = 30.0


def restart_unit(node: str, unit: str) -> Action[None]:
    """Restart a unit of a target by systemd, such as `dbus.service`; needs the feature `systemd`.

    The action raises MachineError.
    """
    return Action(
        f"restart {unit} of {node}", lambda context: restart(context, node, unit), affected_nodes=(node,)
    )


def restart(context: ActionContext, node: str, unit: str) -> None:
    """Restart a unit of a node. Raises MachineError."""
    argv = ["systemctl", "restart", unit]
    checked(context.lab.fleet.machine(node).run(argv, timeout_s=_TIMEOUT_S), f"{node}: {unit}")


def restart_kubelet(node: str) -> Action[None]:
    """Restart a target's kubelet by systemd, without waiting for its health; needs the feature `systemd`."""

    def do(context: ActionContext) -> None:
        # The clock dates the kubelet's messages. The step comes first, so that its effects follow it.
        context.keep_clock(node)
        if context.recording is not None:
            context.recording.append("machine", node=node, step="kubelet-restarted")
        restart(context, node, "kubelet.service")

    return Action(f"restart the kubelet of {node}", do, affected_nodes=(node,))


def try_flags(component: str, *flags: str) -> Action[Observation]:
    """Start a component with flags and observe its end: `status` (its exit code), `stdout`, `stderr`.

    It also gets `--version`, so it prints the version and exits once it has accepted all flags. The action
    raises Problem for an unknown component.
    """

    def do(context: ActionContext) -> Observation:
        if component not in ROLES:
            raise Problem(f"unknown component {component!r}", "try_flags", f"use one of {', '.join(ROLES)}")
        requested_t = time.monotonic()
        argv = [str(context.lab.components.path(component)), *flags, "--version"]
        completed = proc.run(argv, timeout_s=_TIMEOUT_S, check=False)
        what = f"exit of {component} {' '.join(flags)}"
        return context.observed(what, component, asdict(completed), requested_t)

    return Action(f"start {component} {' '.join(flags)}", do)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
