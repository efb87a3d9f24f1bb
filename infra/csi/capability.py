"""The supported use of a volume: an ext4 file system that one node mounts."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from infra.csi.hypervisor import Refused
from infra.csi.protocol import csi_pb2 as csi

FILE_SYSTEM = "ext4"
_MODES = (
    csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER,
    csi.VolumeCapability.AccessMode.SINGLE_NODE_READER_ONLY,
)


def why_unsupported(capability: csi.VolumeCapability) -> str:
    """Return why a volume does not support this capability; empty if it does."""
    if not capability.HasField("mount"):
        return "a volume is mounted, never a block device"
    if capability.mount.fs_type not in ("", FILE_SYSTEM):
        return f"a volume has {FILE_SYSTEM}, not {capability.mount.fs_type}"
    if capability.access_mode.mode not in _MODES:
        mode = csi.VolumeCapability.AccessMode.Mode.Name(capability.access_mode.mode)
        return f"a volume is one node's at a time, not {mode}"
    return ""


def check(capabilities: Iterable[csi.VolumeCapability], volume: str) -> None:
    """Check that a volume supports all these capabilities. Raises Refused."""
    for capability in capabilities:
        if why := why_unsupported(capability):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"volume {volume}: {why}")
