"""What a node does with a volume that is attached to it: by marks in folders, or by commands on a machine."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc

from infra.csi import NAME
from infra.csi.hypervisor import Hypervisor, Refused
from infra.csi.table import replace

Json = Any


class Machine(Protocol):
    """One node as the node service needs it. Each verb may be repeated, and raises Refused where it fails."""

    def stage(self, volume: str, staging: str) -> None:
        """Mount the volume at `staging`, with a file system if it has none yet."""

    def unstage(self, volume: str, staging: str) -> None:
        """Take it off `staging`, which stays."""

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Show what is staged at `staging` at `target` as well, which is made."""

    def unpublish(self, volume: str, target: str) -> None:
        """Take it off `target`, which is removed."""


# Marks -------------------------------------------------------------------------------------------

_MARK = ".csi.nodeproof.dev.json"


class Marked:
    """A node without disks: a folder in which something would be mounted gets a file that says what.

    `root` is the folder that the node sees as its own `/`, where the driver does not run in it.
    """

    def __init__(self, hypervisor: Hypervisor, node: str, root: Path = Path("/")) -> None:
        self._hypervisor = hypervisor
        self._node = node
        self._root = root

    def stage(self, volume: str, staging: str) -> None:
        """Only what is attached to this node can be staged on it."""
        if self._node not in self._hypervisor.holders(volume):
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume} is not attached to node {self._node}"
            )
        _mark(self._folder(staging), {"volume": volume})

    def unstage(self, volume: str, staging: str) -> None:
        """The mark goes."""
        if _marked(self._folder(staging)).get("volume") == volume:
            (self._folder(staging) / _MARK).unlink(missing_ok=True)

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Only what is staged can be published."""
        if _marked(self._folder(staging)).get("volume") != volume:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"volume {volume} is not staged at {staging} on node {self._node}",
            )
        _mark(self._folder(target), {"volume": volume, "read_only": read_only})

    def unpublish(self, volume: str, target: str) -> None:
        """The mark goes, and then the folder, which must be empty."""
        folder = self._folder(target)
        if _marked(folder).get("volume", volume) != volume:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume} is not the one at {target}")
        (folder / _MARK).unlink(missing_ok=True)
        if folder.is_dir():
            folder.rmdir()

    def _folder(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _mark(folder: Path, what: dict[str, Json]) -> None:
    """Mark a folder, made where it is missing. Raises Refused where it is marked as something else."""
    folder.mkdir(exist_ok=True)
    there = _marked(folder)
    if there and there != what:
        code = grpc.StatusCode.ALREADY_EXISTS
        if there["volume"] != what["volume"]:
            code = grpc.StatusCode.FAILED_PRECONDITION
        raise Refused(
            code, f"volume {what['volume']}: {folder} has volume {there['volume']} otherwise already"
        )
    replace(folder / _MARK, what)


def _marked(folder: Path) -> dict[str, Json]:
    try:
        read: dict[str, Json] = json.loads((folder / _MARK).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return read


# Commands ----------------------------------------------------------------------------------------

# The serial is asked of the kernel, after four bytes of header: links below /dev/disk come later than a disk.
# A file system is made only where the first superblock's place reads as zeros: mkfs.ext4 writes that last,
# after a flush. blkid is not asked: it ends alike (2) where it finds nothing and where it cannot read.
_STAGE = """
disk=
for page in "${SYS:-/sys}"/block/sd*/device/vpd_pg80; do
    [ "$(tail -c +5 "$page" 2>/dev/null)" = "$1" ] || continue
    disk=${page%/device/vpd_pg80} disk=${DEV:-/dev}/${disk##*/}
done
[ -n "$disk" ] || { echo "no disk has the serial $1" >&2; exit 3; }
if mountpoint -q "$2"; then
    [ "$(findmnt -n -o SOURCE --mountpoint "$2")" = "$disk" ] && exit 0
    echo "something else than $disk is mounted at $2" >&2; exit 4
fi
cmp -s -n 2048 "$disk" /dev/zero
case $? in
    0) mkfs.ext4 -q -F "$disk" || exit ;;
    1) ;;
    *) echo "$disk cannot be read" >&2; exit 5 ;;
esac
mkdir -p "$2" && mount -t ext4 "$disk" "$2"
"""
_UNSTAGE = 'mountpoint -q "$2" || exit 0; umount "$2"'
_PUBLISH = """
mountpoint -q "$2" || { echo "nothing is staged at $2" >&2; exit 3; }
mkdir -p "$3" && { mountpoint -q "$3" || mount --bind "$2" "$3"; } && mount -o "remount,bind,$4" "$3"
"""
_UNPUBLISH = 'if mountpoint -q "$2"; then umount "$2" || exit; fi; [ ! -d "$2" ] || rmdir "$2"'
# Also of a disk that was taken out while it was mounted, which no serial tells of any more.
_FORGET = """
findmnt -n -r -o TARGET | grep -e /kubernetes.io~csi/ -e /$1/ | while read -r at; do
    umount -l "$at" || exit
done || exit
rm -f "${PLUGINS:-/var/lib/kubelet/plugins_registry}/csi.sock"
"""

_MEANS = {3: grpc.StatusCode.FAILED_PRECONDITION, 4: grpc.StatusCode.FAILED_PRECONDITION}
"""What an exit status of a script says, where it is not the node's fault."""


class Shell(Protocol):
    """Where commands of a node run."""

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        """Status and error output. Raises OSError where the node cannot be reached, or does not end it."""


class Commands:
    """A node with disks. Each verb is one script, and one way to the node and back."""

    def __init__(self, shell: Shell, node: str) -> None:
        self._shell = shell
        self._node = node

    def stage(self, volume: str, staging: str) -> None:
        """The disk is found by its serial, which is the volume's id."""
        self._run(_STAGE, volume, staging)

    def unstage(self, volume: str, staging: str) -> None:
        """Unmount it."""
        self._run(_UNSTAGE, volume, staging)

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Bind it."""
        self._run(_PUBLISH, volume, staging, target, "ro" if read_only else "rw")

    def unpublish(self, volume: str, target: str) -> None:
        """Unmount it there, and remove the folder."""
        self._run(_UNPUBLISH, volume, target)

    def forget(self) -> None:
        """Unmount whatever of the driver's is mounted, used or not, and remove its socket."""
        self._run(_FORGET, NAME)

    def _run(self, script: str, volume: str, *arguments: str) -> None:
        where = f"volume {volume}, node {self._node}"
        try:
            status, said = self._shell(["sh", "-c", script, "csi", volume, *arguments])
        except OSError as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"{where}: {error}") from error
        if status != 0:
            code = _MEANS.get(status, grpc.StatusCode.INTERNAL)
            why = "; ".join(said.strip().splitlines()) or f"status {status}"
            raise Refused(code, f"{where}: {why}")


class Remote:
    """A shell that is reached by a command in front of its own, such as `ssh -F FILE NODE`."""

    def __init__(self, prefix: Sequence[str], limit_s: float = 60.0) -> None:
        self._prefix = tuple(prefix)
        self._limit_s = limit_s

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        """As `Shell` says: ssh's own status 255 is a node that cannot be reached."""
        command = [*self._prefix, shlex.join(argv)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=self._limit_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as late:
            raise TimeoutError(f"no end within {self._limit_s:g} s") from late
        said = done.stderr.decode(errors="replace")
        if done.returncode == 255:
            raise ConnectionError(said.strip() or "not reached")
        return done.returncode, said
