"""The dead-man's switch of a power cut: a timer on a host that keeps its power."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.existing.inventory import Inventory
from nodeproof.existing.power import TIMEOUT_S, Power, limited
from nodeproof.faults.machine import PowerOff
from nodeproof.machines.machine import MachineError
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.pattern import Json
from nodeproof.safety.deadman import Timer


@dataclass(frozen=True)
class PowerSwitch:
    """Timers on the switch hosts of an inventory, which restore the power of nodes.

    `ssh` is the configuration that reaches the hosts.
    """

    inventory: Inventory
    ssh: Path

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch of a power cut; a `ttl_s` of 0 disarms it. Raises MachineError.

        A timer that cannot be disarmed restores the power once, and then deletes its input.
        """
        if fault["fault"] != PowerOff.name:
            return
        if ttl_s > 0:
            self._arm(fault, ttl_s)
        else:
            with contextlib.suppress(MachineError):
                self._timer(fault).disarm()

    def _arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        command = self._power(fault).command("on", fault["node"])
        self._timer(fault).arm_with_input(ttl_s, limited(command.argv, TIMEOUT_S["on"]), command.stdin)

    def _timer(self, fault: Mapping[str, Json]) -> Timer:
        host = self._power(fault).switch
        return Timer(OpenSsh(host, self.ssh), host, str(fault["id"]))

    def _power(self, fault: Mapping[str, Json]) -> Power:
        """Return the power driver of a node, with its switch. Raises MachineError."""
        listed = self.inventory.nodes.get(fault["node"])
        if listed is None or listed.power is None or not listed.power.switch:
            raise MachineError(f"{fault['node']}: {self.inventory.path} has no power driver with a switch")
        return listed.power
