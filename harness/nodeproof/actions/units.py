"""Actions on a node's services that are not a fault: none has to be undone."""

from __future__ import annotations

from nodeproof.actions.action import Action, Doing
from nodeproof.machines.machine import MachineError

_TIMEOUT_S = 30.0


def restart_unit(node: str, unit: str) -> Action[None]:
    """Restart a unit of a target by systemd, such as `dbus.service`; needs the feature `systemd`.

    The action raises MachineError.
    """
    return Action(f"restart {unit} of {node}", lambda doing: restart(doing, node, unit), harms=(node,))


def restart(doing: Doing, node: str, unit: str) -> None:
    """Restart a unit of a node. Raises MachineError."""
    argv = ["systemctl", "restart", unit]
    completed = doing.lab.fleet.machine(node).run(argv, deadline_s=_TIMEOUT_S)
    if completed.status != 0:
        raise MachineError(f"{node}: {unit}: {completed.stderr.strip()}")
