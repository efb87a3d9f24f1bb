"""Actions on a kubelet that are not a fault."""

from __future__ import annotations

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.units import restart


def restart_kubelet(node: str) -> Action[None]:
    """Restart a target's kubelet by systemd, without waiting for its health; needs the feature `systemd`."""

    def do(doing: Doing) -> None:
        doing.keep_clock(node)
        if doing.recording is not None:
            doing.recording.append("machine", node=node, step="kubelet-restarted")
        restart(doing, node, "kubelet.service")

    return Action(f"restart the kubelet of {node}", do, harms=(node,))
