"""What a machine is seen as from outside, by more than one fault."""

from __future__ import annotations

from nodeproof.faults.fault import COMMAND_LIMIT_S
from nodeproof.machines.machine import Machine, Shell

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""A kernel's own PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h): who is in it has the kernel to
itself.
"""


def is_silent(machine: Machine) -> bool:
    """Nobody answers on either network."""
    return not machine.answers_on_control() and not machine.reached_from_control_plane()


def is_up(machine: Machine) -> bool:
    """It runs, lets us in, and both ways of the data network are open. Raises MachineError."""
    if not machine.is_powered() or not machine.answers_on_control():
        return False
    return machine.reaches_control_plane() and machine.reached_from_control_plane()


def has_booted(machine: Machine) -> bool:
    """It is up, and its kubelet with it: a node without one is no better than one that is off. Raises
    MachineError.
    """
    return is_up(machine) and machine.serves_kubelet()


def has_systemd(machine: Shell) -> bool:
    """Whether systemd is the machine's first process (sd_booted(3)). Raises MachineError."""
    asked = machine.run(["test", "-d", "/run/systemd/system"], deadline_s=COMMAND_LIMIT_S)
    return asked.status == 0


def has_own_kernel(machine: Shell) -> bool:
    """Whether no host shares its kernel with the machine. Raises MachineError."""
    where = machine.run(["readlink", "/proc/1/ns/pid"], deadline_s=COMMAND_LIMIT_S).stdout.strip()
    return where == _FIRST_PID_NAMESPACE
