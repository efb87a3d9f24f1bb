"""States of a machine that several faults observe from outside."""

from __future__ import annotations

from nodeproof.faults.fault import COMMAND_LIMIT_S
from nodeproof.machines.machine import Machine, Shell

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""A kernel's initial PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).

A machine in this namespace does not share its kernel.
"""


def is_silent(machine: Machine) -> bool:
    """Return whether nothing answers on either network."""
    return not machine.answers_on_control() and not machine.reached_from_control_plane()


def is_up(machine: Machine) -> bool:
    """Return whether it runs, accepts SSH and reaches the control plane both ways. Raises MachineError."""
    if not machine.is_powered() or not machine.answers_on_control():
        return False
    return machine.reaches_control_plane() and machine.reached_from_control_plane()


def has_booted(machine: Machine) -> bool:
    """Return whether it is up and its kubelet serves: without a kubelet a node is no better than off.

    Raises:
        MachineError: The machine did not answer.
    """
    return is_up(machine) and machine.serves_kubelet()


def has_systemd(machine: Shell) -> bool:
    """Return whether systemd is the machine's first process (sd_booted(3)). Raises MachineError."""
    completed = machine.run(["test", "-d", "/run/systemd/system"], deadline_s=COMMAND_LIMIT_S)
    return completed.status == 0


def has_own_kernel(machine: Shell) -> bool:
    """Return whether the machine has a kernel of its own, not its host's. Raises MachineError."""
    pid_namespace = machine.run(["readlink", "/proc/1/ns/pid"], deadline_s=COMMAND_LIMIT_S).stdout.strip()
    return pid_namespace == _FIRST_PID_NAMESPACE
