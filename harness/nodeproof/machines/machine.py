"""A node as a computer, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from nodeproof import proc
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError

PowerAction = Literal["off", "on", "freeze", "reset", "thaw", "link-down", "link-up"]
"""Actions of a machine's host on the machine.

`off` cuts the power: nothing is flushed, and no peer is notified; `on` boots it. `freeze` pauses it with its
memory intact; `reset` returns it to the state before its boot, nothing flushed, and holds it there; `thaw`
resumes it, or boots it after a `reset`, and sets its clock. `link-down` takes the carrier of `data`, even
across power cycles, and `link-up` restores it.
"""
CONTROL_PLANE = "control-plane"
"""The name of a lab's control plane as a machine; each of its components is one by its own name.

As a machine it has power, where `off` is SIGKILL and `freeze` SIGSTOP; a command runs beside it, as its
administrator.
"""
SILENCING: frozenset[PowerAction] = frozenset({"off", "freeze", "reset"})
"""Actions after which no open connection is answered."""


STATE_FOLDER = "/run/nodeproof-state"
"""The `state_folder` of a node; a component's is below the folder in which its commands run."""


class MachineError(OutsideError):
    """A machine could not be reached, or did not answer in time."""


CommandResult = proc.Result


def checked(result: CommandResult, subject: str) -> str:
    """Return a command's output. Raises MachineError of `subject`, with its errors, if it failed."""
    if result.status != 0:
        raise MachineError(f"{subject}: {result.stderr.strip()}")
    return result.stdout


class Runner(Protocol):
    """A place where commands run."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command. Raises MachineError if there is no answer within `timeout_s`."""


class Shell(Runner, Protocol):
    """What a fault needs of a machine: commands and power."""

    name: str
    data_address: str
    state_folder: str
    """A folder on the machine for files that end with its boot."""

    @property
    def control_plane_addresses(self) -> Sequence[str]:
        """The addresses of its API servers, as it reaches them over a network. Raises MachineError."""

    def is_powered(self) -> bool:
        """Return whether the machine's first process runs, as its host reports. Raises MachineError."""

    def power(self, action: PowerAction) -> None:
        """Let the host perform an action; the machine may be in that state already. Raises MachineError."""

    def beside(self, name: str) -> Shell:
        """Return another machine of the lab, which a component of the control plane knows, unlike a node.

        Raises:
            MachineError: It knows no machine of this name.
        """


class Machine(Shell, Protocol):
    """A shell, and observations of the machine from elsewhere, which are all that probes use."""

    def boot_id(self) -> str:
        """Return the kernel's boot id, new with each boot. Raises MachineError."""

    def answers_on_control(self) -> bool:
        """Return whether its SSH port on `control` accepts a connection."""

    def refuses_on_control(self) -> bool:
        """Return whether its kernel answers on `control` and its SSH port is closed."""

    def reached_from_control_plane(self) -> bool:
        """Return whether the control plane's side reaches the machine's data address (a refusal counts)."""

    def serves_kubelet(self) -> bool:
        """Return whether a kubelet accepts the control plane's connections."""

    def reaches_control_plane(self) -> bool:
        """Return whether the machine's packets arrive at the control plane's data address."""

    def kubelet_configuration(self) -> Mapping[str, Json]:
        """Return its kubelet's running configuration, through the API server. Raises MachineError."""

    def close(self) -> None:
        """Close connections; the machine itself is not affected."""
