"""What a node is as a computer, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nodeproof.model.problem import OutsideError

Json = Any
PowerAction = Literal[
    "off",
    "on",
    "freeze",
    "reset",
    "thaw",
    "link-down",
    "link-up",
    "kubelet-off",
    "kubelet-on",
    "proxy-off",
    "proxy-on",
]
"""What a machine's host does to it from outside.

`off` cuts the power: nothing is flushed, and no peer is told; `on` boots it. `freeze` lets it stand still
with all that is in its memory; `reset` throws it back to before its boot, nothing flushed, and holds it
there; `thaw` lets it go on, or boot after a `reset`, and sets its clock. `link-down` takes the carrier of
`data`, power cycles or not, `link-up` gives it back. `kubelet-off` and `kubelet-on` are for nodes without a
service manager: a guest's own does that. `proxy-off` kills the node's kube-proxy, which nothing but
`proxy-on` starts.
"""
CONTROL_PLANE = "control-plane"
"""What a lab's control plane is called as a machine; each of its components is one by its own name. It has
power, of which `off` is SIGKILL and `freeze` SIGSTOP; a command runs beside it, as its administrator.
"""
SILENCING: frozenset[PowerAction] = frozenset({"off", "freeze", "reset"})
"""After these nobody answers any more on a connection that was open."""


STATE_FOLDER = "/run/nodeproof-state"
"""The `state_folder` of a node; a component's is below the folder in which its commands run."""


class MachineError(OutsideError):
    """A machine could not be reached, or did not answer within its deadline."""


@dataclass(frozen=True)
class CommandResult:
    """What a finished remote command left."""

    status: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """Enough of a machine to inject a fault and to heal it."""

    name: str
    data_address: str
    control_plane_address: str
    state_folder: str
    """Where commands keep files on the machine that end with its boot."""

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command. Raises MachineError when the machine does not answer within `deadline_s`."""
        ...

    def is_powered(self) -> bool:
        """Whether the machine's first process runs, as its host sees it. Raises MachineError."""
        ...

    def power(self, action: PowerAction) -> None:
        """Let its host do something to it; what is so already is fine. Raises MachineError."""
        ...

    def beside(self, name: str) -> Shell:
        """Another machine of its lab, which a component of the control plane knows, and a node does not.

        Raises MachineError where it knows none of that name.
        """
        ...


class Machine(Shell, Protocol):
    """A shell, and what can be seen of the machine from elsewhere: probes look only at this."""

    def boot_id(self) -> str:
        """The kernel's boot id, new with each boot. Raises MachineError."""
        ...

    def answers_on_control(self) -> bool:
        """Whether its SSH port on `control` accepts a connection."""
        ...

    def refuses_on_control(self) -> bool:
        """Whether its kernel answers on `control`, and nobody listens at its SSH port."""
        ...

    def reached_from_control_plane(self) -> bool:
        """Whether the control plane's side gets through to the machine's data address (a refusal counts)."""
        ...

    def serves_kubelet(self) -> bool:
        """Whether a kubelet accepts the control plane's connections."""
        ...

    def reaches_control_plane(self) -> bool:
        """Whether what the machine sends to the control plane's data address is heard there."""
        ...

    def kubelet_configuration(self) -> Mapping[str, Json]:
        """What its kubelet says of its configuration, asked through the API server. Raises MachineError."""
        ...

    def close(self) -> None:
        """Give up connections; the machine itself is not touched."""
        ...
