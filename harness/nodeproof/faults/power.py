"""Faults that a machine's host causes by one action: no power, reset, frozen, unplugged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nodeproof.faults.fault import Fault, has_booted, is_connected, is_silent, is_up
from nodeproof.machines.machine import Machine, PowerAction, Shell


class PowerFault(Fault):
    """Actions of a machine's host, which can perform them on every machine."""

    injection: ClassVar[PowerAction]
    healing: ClassVar[Sequence[PowerAction]]

    def inject(self, machine: Shell) -> None:
        machine.power(self.injection)

    def heal(self, machine: Shell) -> None:
        for action in self.healing:
            machine.power(action)

    def is_injected(self, machine: Machine) -> bool:
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        return has_booted(machine)


@dataclass(frozen=True)
class PowerOff(PowerFault):
    """Power loss of `node`; healing boots it.

    The machine stops at once: nothing is flushed, and no peer is notified.
    """

    name = "power-off"
    places = ("node", "component", "plane")
    ends_components = True
    injection = "off"
    healing = ("on",)

    def is_injected(self, machine: Machine) -> bool:
        return is_silent(machine) and not machine.is_powered()


@dataclass(frozen=True)
class Reset(PowerFault):
    """Reset of `node`, held before its boot; healing releases it, and it boots.

    It is held because a machine that boots undoes the fault by itself: a late probe could not distinguish it
    from one that was never reset. To reset and boot at once, end the context at once. Needs the feature
    `reset`.
    """

    name = "reset"
    ends_components = True
    injection = "reset"
    # A machine whose reset was under way may only lack power.
    healing = ("thaw", "on")


@dataclass(frozen=True)
class Freeze(PowerFault):
    """Pause of all processors of `node`; healing resumes them, with the clock set.

    Memory stays intact, and no peer is notified. Needs the feature `freeze`.
    """

    name = "freeze"
    places = ("node", "component", "plane")
    injection = "freeze"
    healing = ("thaw",)

    def is_healed(self, machine: Machine) -> bool:
        return is_up(machine)


@dataclass(frozen=True)
class LinkDown(PowerFault):
    """Loss of the carrier of `node`'s `data` network, caused by its host; healing restores it.

    As with a real cable, a power cycle of the node does not change it. Needs the feature `link`.
    """

    name = "link-down"
    injection = "link-down"
    healing = ("link-up",)

    def is_injected(self, machine: Machine) -> bool:
        if not machine.answers_on_control():
            return False
        return not machine.reaches_control_plane() and not machine.reached_from_control_plane()

    def is_healed(self, machine: Machine) -> bool:
        return is_connected(machine)
