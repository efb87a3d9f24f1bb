"""The interface of a hypervisor to the driver, and the exception for refused calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

_ID = re.compile(r"np-[0-9a-f]{17}")


class Refused(Exception):
    """A refused call, with the status for its caller and a reason that names volume and node."""

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
    """Volumes and machines. It decides nothing: the controller checks what is allowed.

    All state is the hypervisor's, so that a killed driver loses nothing. Each method is idempotent, and
    raises Refused if it is not possible now.
    """

    def create(self, volume: Volume) -> None:
        """Create an empty volume; the caller has checked that it does not exist."""

    def delete(self, volume: str) -> None:
        """Delete a volume; the caller has checked that it is detached."""

    def find(self, volume: str) -> Volume | None:
        """Return the volume with this id, if there is one."""

    def all(self) -> Sequence[str]:
        """Return the ids of all volumes."""

    def has(self, node: str) -> bool:
        """Return whether there is a machine with this name, running or off."""

    def runs(self, node: str) -> bool:
        """Return whether this machine runs; False if it does not exist."""

    def holders(self, volume: str) -> Sequence[str]:
        """Return the running machines that have the volume: at most one, unless the driver was bypassed."""

    def volume_count(self, node: str) -> int:
        """Return the number of volumes of this machine, if it runs."""

    def attach(self, volume: str, node: str) -> None:
        """Attach the volume to a running machine, until it is detached or the machine ends."""

    def detach(self, volume: str, node: str) -> None:
        """Detach the volume from a running machine, and wait until it is gone."""


def volume_id(name: str) -> str:
    """Return the id for a volume's name, which makes creation idempotent.

    It has 20 characters, the maximum for the serial of a SCSI disk.
    """
    return f"np-{hashlib.sha256(name.encode()).hexdigest()[:17]}"


def is_id(text: str) -> bool:
    """Return whether the text is a valid volume id."""
    return _ID.fullmatch(text) is not None
