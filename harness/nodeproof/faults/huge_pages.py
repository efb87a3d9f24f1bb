"""Huge pages: a machine without huge pages reserves memory for some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_own_kernel
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_TIMEOUT_S = 60.0
"""Time for a kernel to free memory for them (s)."""
_RESERVE = 'echo "$0" >/proc/sys/vm/nr_hugepages'
_COUNT = "sed -n 's/^HugePages_Total: *//p' /proc/meminfo"


@dataclass(frozen=True)
class HugePages:
    """Reservation of `many` huge pages of `node`'s default size (2 MiB); healing frees their memory.

    It ends with a power cycle. A kubelet counts huge pages when it starts.
    """

    name: ClassVar[str] = "huge-pages"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    many: int = 16

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that frees all huge pages."""
        return ["sh", "-c", _RESERVE, "0"]

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "many": self.many}

    def available(self, machine: Shell) -> str:
        """Require a kernel of the machine's own (else its host would reserve them) and no huge pages."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        count = self._reserved(machine)
        return f"{self.node} already has {count} huge pages" if count else ""

    def inject(self, machine: Shell) -> None:
        """Reserve exactly `many` huge pages."""
        self._run(machine, ["sh", "-c", _RESERVE, str(self.many)])

    def heal(self, machine: Shell) -> None:
        """Free all huge pages; skip a node that is off or shares its host's kernel."""
        if machine.is_powered() and has_own_kernel(machine):
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel reserved all of them: it reserves fewer if memory is short."""
        return self._reserved(machine) == self.many

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the kernel has none reserved."""
        return self._reserved(machine) == 0

    def _reserved(self, machine: Shell) -> int:
        return int(machine.run(["sh", "-c", _COUNT], deadline_s=COMMAND_LIMIT_S).stdout.strip() or 0)

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=_TIMEOUT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: huge pages: {completed.stderr.strip()}")
