"""Mount attached volumes on a node: simulated by marker files, or by commands on a machine."""

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
    """A node for the node service. Each method is idempotent, and raises Refused if it fails."""

    def stage(self, volume: str, staging: str) -> None:
        """Mount the volume at `staging`; make a file system if it has none yet."""

    def unstage(self, volume: str, staging: str) -> None:
        """Unmount it from `staging`, which stays."""

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Mount what is staged at `staging` also at `target`, which is created."""

    def unpublish(self, volume: str, target: str) -> None:
        """Unmount it from `target`, which is removed."""


# Marks -------------------------------------------------------------------------------------------

_MARKER = ".csi.nodeproof.dev.json"


class Marked:
    """A node without disks: a marker file in a folder stands for a mounted volume.

    `root` is the folder that the node sees as its `/`, if the driver runs outside of the node.
    """

    def __init__(self, hypervisor: Hypervisor, node: str, root: Path = Path("/")) -> None:
        self._hypervisor = hypervisor
        self._node = node
        self._root = root

    def stage(self, volume: str, staging: str) -> None:
        """Mark `staging`; the volume must be attached to this node."""
        if self._node not in self._hypervisor.holders(volume):
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume} is not attached to node {self._node}"
            )
        _write_marker(self._folder(staging), {"volume": volume})

    def unstage(self, volume: str, staging: str) -> None:
        """Remove the marker."""
        if _read_marker(self._folder(staging)).get("volume") == volume:
            (self._folder(staging) / _MARKER).unlink(missing_ok=True)

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Mark `target`; the volume must be staged."""
        if _read_marker(self._folder(staging)).get("volume") != volume:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"volume {volume} is not staged at {staging} on node {self._node}",
            )
        _write_marker(self._folder(target), {"volume": volume, "read_only": read_only})

    def unpublish(self, volume: str, target: str) -> None:
        """Remove the marker, then the folder, which must be empty."""
        folder = self._folder(target)
        if _read_marker(folder).get("volume", volume) != volume:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume} is not the one at {target}")
        (folder / _MARKER).unlink(missing_ok=True)
        if folder.is_dir():
            folder.rmdir()

    def _folder(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _write_marker(folder: Path, marker: dict[str, Json]) -> None:
    """Mark a folder, creating it if needed. Raises Refused if it has a different marker."""
    folder.mkdir(exist_ok=True)
    existing = _read_marker(folder)
    if existing and existing != marker:
        code = grpc.StatusCode.ALREADY_EXISTS
        if existing["volume"] != marker["volume"]:
            code = grpc.StatusCode.FAILED_PRECONDITION
        raise Refused(
            code, f"volume {marker['volume']}: {folder} has volume {existing['volume']} otherwise already"
        )
    replace(folder / _MARKER, marker)


def _read_marker(folder: Path) -> dict[str, Json]:
    try:
        marker: dict[str, Json] = json.loads((folder / _MARKER).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return marker


# Commands ----------------------------------------------------------------------------------------

# Read the serial from the kernel, after a header of four bytes: links in /dev/disk appear later than a disk.
# Make a file system only if the first superblock reads as zeros: mkfs.ext4 writes it last, after a flush.
# blkid is of no use: its exit status is 2 both if it finds nothing and if it cannot read.
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
# This includes a disk that was detached while it was mounted, whose serial cannot be read any more.
_FORGET = """
findmnt -n -r -o TARGET | grep -e /kubernetes.io~csi/ -e /$1/ | while read -r at; do
    umount -l "$at" || exit
done || exit
rm -f "${PLUGINS:-/var/lib/kubelet/plugins_registry}/csi.sock"
"""

_STATUS_CODES = {3: grpc.StatusCode.FAILED_PRECONDITION, 4: grpc.StatusCode.FAILED_PRECONDITION}
"""The gRPC status for an exit status of a script that is not the node's fault."""


class Shell(Protocol):
    """Runs commands on a node."""

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        """Return status and error output. Raises OSError if the node is unreachable or the command hangs."""


class Commands:
    """A node with disks. Each method runs one script on the node."""

    def __init__(self, shell: Shell, node: str) -> None:
        self._shell = shell
        self._node = node

    def stage(self, volume: str, staging: str) -> None:
        """Find the disk by its serial, which is the volume's id, and mount it."""
        self._run(_STAGE, volume, staging)

    def unstage(self, volume: str, staging: str) -> None:
        """Unmount it."""
        self._run(_UNSTAGE, volume, staging)

    def publish(self, volume: str, staging: str, target: str, read_only: bool) -> None:
        """Bind-mount it."""
        self._run(_PUBLISH, volume, staging, target, "ro" if read_only else "rw")

    def unpublish(self, volume: str, target: str) -> None:
        """Unmount it, and remove the folder."""
        self._run(_UNPUBLISH, volume, target)

    def forget(self) -> None:
        """Unmount all volumes of the driver, even if they are in use, and remove its socket."""
        self._run(_FORGET, NAME)

    def _run(self, script: str, volume: str, *arguments: str) -> None:
        where = f"volume {volume}, node {self._node}"
        try:
            status, output = self._shell(["sh", "-c", script, "csi", volume, *arguments])
        except OSError as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"{where}: {error}") from error
        if status != 0:
            code = _STATUS_CODES.get(status, grpc.StatusCode.INTERNAL)
            why = "; ".join(output.strip().splitlines()) or f"status {status}"
            raise Refused(code, f"{where}: {why}")


class Remote:
    """A shell behind a command prefix, such as `ssh -F FILE NODE`."""

    def __init__(self, prefix: Sequence[str], timeout_s: float = 60.0) -> None:
        self._prefix = tuple(prefix)
        self._timeout_s = timeout_s

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        """Run a command as in `Shell`. Status 255, ssh's own, means that the node is unreachable."""
        command = [*self._prefix, shlex.join(argv)]
        try:
            completed = subprocess.run(
                command, capture_output=True, timeout=self._timeout_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"timed out after {self._timeout_s:g} s") from error
        output = completed.stderr.decode(errors="replace")
        if completed.returncode == 255:
            raise ConnectionError(output.strip() or "not reached")
        return completed.returncode, output
