"""What a scenario does to a node's services, short of a fault: nothing of it has to be undone."""

from __future__ import annotations

from nodeproof.actions.action import Action, Doing
from nodeproof.machines.machine import MachineError

_LIMIT_S = 30.0


def restart_unit(node: str, unit: str) -> Action[None]:
    """Let systemd restart a unit of a target, such as `dbus.service`; needs the feature `systemd`.

    The action raises MachineError.
    """
    return Action(f"restart {unit} of {node}", lambda doing: restart(doing, node, unit), harms=(node,))


def restart(doing: Doing, node: str, unit: str) -> None:
    """Restart a unit of a node. Raises MachineError."""
    argv = ["systemctl", "restart", unit]
    done = doing.lab.fleet.machine(node).run(argv, deadline_s=_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{node}: {unit}: {done.stderr.strip()}")
