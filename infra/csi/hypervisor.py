"""What the driver asks of a hypervisor, and how a call is refused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

_ID = re.compile(r"np-[0-9a-f]{17}")


class Refused(Exception):
    """A call that is not done: the status that its caller gets, and why, naming volume and node."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


@dataclass(frozen=True)
class Volume:
    """A volume and its size in bytes."""

    id: str
    size: int


class Hypervisor(Protocol):
    """Volumes and machines. It only tells and does: what may be done, the controller decides.

    It keeps no state but its own, so that a driver that was killed has forgotten nothing. Each verb may be
    repeated, and raises Refused where it cannot be done now.
    """

    def create(self, volume: Volume) -> None:
        """Make an empty volume; the caller has seen that there is none."""

    def delete(self, volume: str) -> None:
        """Remove a volume for good; the caller has seen that nobody holds it."""

    def find(self, volume: str) -> Volume | None:
        """The volume of that id, if there is one."""

    def all(self) -> Sequence[str]:
        """The ids of all volumes there are."""

    def knows(self, node: str) -> bool:
        """Whether there is a machine of that name, running or off."""

    def runs(self, node: str) -> bool:
        """Whether that machine runs; False for one that is not known."""

    def holders(self, volume: str) -> Sequence[str]:
        """The running machines that have it: one at the most, unless somebody went past the driver."""

    def held(self, node: str) -> int:
        """How many volumes that machine has, as long as it runs."""

    def attach(self, volume: str, node: str) -> None:
        """Plug the volume into a machine that runs, until it is detached or the machine ends."""

    def detach(self, volume: str, node: str) -> None:
        """Pull the volume out of a machine that runs, and wait until it is out."""


def volume_id(name: str) -> str:
    """The id of the volume of that name: always the same, so that a repeated creation finds the first one.

    It has 20 characters, which is what a SCSI disk's serial may have.
    """
    return f"np-{hashlib.sha256(name.encode()).hexdigest()[:17]}"


def is_id(text: str) -> bool:
    """Whether that can be a volume's id at all."""
    return _ID.fullmatch(text) is not None
