"""Huge pages: a machine keeps memory for huge pages, of which it had none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_own_kernel
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_LIMIT_S = 60.0
"""How long a kernel may take to make room for them."""
_KEEP = 'echo "$0" >/proc/sys/vm/nr_hugepages'
_COUNT = "sed -n 's/^HugePages_Total: *//p' /proc/meminfo"


@dataclass(frozen=True)
class HugePages:
    """Lets `node` keep `many` huge pages of its default size (2 MiB); healing gives their memory back.

    It ends with a power cycle. A kubelet counts them when it starts.
    """

    name: ClassVar[str] = "huge-pages"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    many: int = 16

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Keep none."""
        return ["sh", "-c", _KEEP, "0"]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "many": self.many}

    def available(self, machine: Shell) -> str:
        """The kernel must be the machine's own, or its host would keep them; there are none yet."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        kept = self._kept(machine)
        return f"{self.node} keeps {kept} huge pages without it" if kept else ""

    def inject(self, machine: Shell) -> None:
        """Keep so many, whatever was kept."""
        self._run(machine, ["sh", "-c", _KEEP, str(self.many)])

    def heal(self, machine: Shell) -> None:
        """Keep none. A node that is off keeps none, and one that shares its kernel never did."""
        if machine.is_powered() and has_own_kernel(machine):
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """The kernel counts all of them: it keeps fewer where it finds no room."""
        return self._kept(machine) == self.many

    def is_healed(self, machine: Machine) -> bool:
        """The kernel counts none."""
        return self._kept(machine) == 0

    def _kept(self, machine: Shell) -> int:
        return int(machine.run(["sh", "-c", _COUNT], deadline_s=COMMAND_LIMIT_S).stdout.strip() or 0)

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: huge pages: {done.stderr.strip()}")
