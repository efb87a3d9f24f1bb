"""What a scenario does to a kubelet, short of a fault."""

from __future__ import annotations

from nodeproof.actions.action import Action, Doing
from nodeproof.machines.machine import MachineError

_LIMIT_S = 30.0


def restart_kubelet(node: str) -> Action[None]:
    """Let systemd restart a target's kubelet, whatever becomes of it; needs the feature `systemd`."""

    def do(doing: Doing) -> None:
        doing.keep_clock(node)
        if doing.recording is not None:
            doing.recording.append("machine", node=node, step="kubelet-restarted")
        argv = ["systemctl", "restart", "kubelet.service"]
        done = doing.lab.fleet.machine(node).run(argv, deadline_s=_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{node}: {argv[0]}: {done.stderr.strip()}")

    return Action(f"restart the kubelet of {node}", do, harms=(node,))
