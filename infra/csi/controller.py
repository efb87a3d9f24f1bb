"""The service `Controller`: decides which node may have which volume."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import grpc

from infra.csi import MAX_VOLUMES, capability
from infra.csi.hypervisor import Hypervisor, Refused, Volume, volume_id
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.service import required

MIB = 1 << 20
_MIN_SIZE, _DEFAULT_SIZE, _MAX_SIZE = 16 * MIB, 64 * MIB, 1 << 40
"""Sizes of a volume (bytes): the first is the minimum for ext4 with a journal."""

_Rpc = csi.ControllerServiceCapability.RPC
_CAPABILITIES = (_Rpc.CREATE_DELETE_VOLUME, _Rpc.PUBLISH_UNPUBLISH_VOLUME)


class Controller:
    """Decides by the hypervisor's current state. It has no state of its own."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def ControllerGetCapabilities(
        self, _request: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        """Return no list capabilities, so that external-attacher relies on the driver's answers."""
        rpcs = [csi.ControllerServiceCapability.RPC(type=rpc_type) for rpc_type in _CAPABILITIES]
        return csi.ControllerGetCapabilitiesResponse(
            capabilities=[csi.ControllerServiceCapability(rpc=rpc) for rpc in rpcs]
        )

    def CreateVolume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        """Create the volume with this name, unless it exists."""
        name = required(request.name, "name")
        capability.check(required(request.volume_capabilities, "volume_capabilities"), name)
        if request.HasField("volume_content_source"):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"volume {name}: a new volume is empty")
        volume = Volume(volume_id(name), _size(request.capacity_range, name))
        with self._locked(f"volume {volume.id}"):
            existing = self._hypervisor.find(volume.id)
            if existing is None:
                self._hypervisor.create(volume)
            elif not _fits(existing.size, request.capacity_range):
                raise Refused(
                    grpc.StatusCode.ALREADY_EXISTS, f"volume {name} exists with {existing.size} bytes"
                )
        size = volume.size if existing is None else existing.size
        return csi.CreateVolumeResponse(volume=csi.Volume(volume_id=volume.id, capacity_bytes=size))

    def DeleteVolume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        """Delete a volume that is attached to no node."""
        volume = required(request.volume_id, "volume_id")
        with self._locked(f"volume {volume}"):
            if holders := self._hypervisor.holders(volume):
                raise Refused(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"volume {volume} is attached to {', '.join(holders)}",
                )
            if self._hypervisor.find(volume) is not None:
                self._hypervisor.delete(volume)
        return csi.DeleteVolumeResponse()

    def ValidateVolumeCapabilities(
        self, request: csi.ValidateVolumeCapabilitiesRequest
    ) -> csi.ValidateVolumeCapabilitiesResponse:
        """Check whether a volume supports all these capabilities."""
        volume = self._existing(required(request.volume_id, "volume_id"))
        capabilities = required(request.volume_capabilities, "volume_capabilities")
        if why := next(filter(None, map(capability.why_unsupported, capabilities)), ""):
            return csi.ValidateVolumeCapabilitiesResponse(message=f"volume {volume}: {why}")
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context,
            volume_capabilities=capabilities,
            parameters=request.parameters,
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    def ControllerPublishVolume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        """Attach a volume to a node, unless another running node has it."""
        volume = required(request.volume_id, "volume_id")
        node = required(request.node_id, "node_id")
        if not request.HasField("volume_capability"):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "volume_capability is missing")
        capability.check([request.volume_capability], volume)
        if request.readonly:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"volume {volume} is never attached read-only")
        # No deadlock: all calls lock in this order, and detaching takes only the first lock.
        with self._locked(f"volume {volume}"), self._locked(f"node {node}"):
            self._attach(volume, node)
        return csi.ControllerPublishVolumeResponse()

    def ControllerUnpublishVolume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        """Detach a volume from a node, or from any node if none is given; succeed if it is not attached."""
        volume = required(request.volume_id, "volume_id")
        with self._locked(f"volume {volume}"):
            for holder in self._hypervisor.holders(volume):
                if request.node_id in ("", holder):
                    self._hypervisor.detach(volume, holder)
        return csi.ControllerUnpublishVolumeResponse()

    def _attach(self, volume: str, node: str) -> None:
        self._existing(volume)
        if not self._hypervisor.has(node):
            raise Refused(grpc.StatusCode.NOT_FOUND, f"volume {volume}: no node {node}")
        holders = self._hypervisor.holders(volume)
        if others := [holder for holder in holders if holder != node]:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"volume {volume} is attached to {', '.join(others)}, so not to {node}",
            )
        if node in holders:
            return
        if not self._hypervisor.runs(node):
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"volume {volume}: node {node} is off")
        if self._hypervisor.volume_count(node) >= MAX_VOLUMES:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"volume {volume}: node {node} has {MAX_VOLUMES} volumes already",
            )
        self._hypervisor.attach(volume, node)

    def _existing(self, volume: str) -> str:
        if self._hypervisor.find(volume) is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no volume {volume}")
        return volume

    @contextlib.contextmanager
    def _locked(self, what: str) -> Iterator[None]:
        """Hold the lock of a volume or node."""
        with self._lock:
            lock = self._locks.setdefault(what, threading.Lock())
        with lock:
            yield


def _size(capacity: csi.CapacityRange, name: str) -> int:
    """Return the size (bytes) of a new volume. Raises Refused."""
    default = min(_DEFAULT_SIZE, capacity.limit_bytes or _DEFAULT_SIZE)
    size = max(capacity.required_bytes or default, _MIN_SIZE)
    if size > min(_MAX_SIZE, capacity.limit_bytes or _MAX_SIZE):
        raise Refused(
            grpc.StatusCode.OUT_OF_RANGE, f"volume {name}: sizes are {_MIN_SIZE} to {_MAX_SIZE} bytes"
        )
    return size


def _fits(size: int, capacity: csi.CapacityRange) -> bool:
    return size >= capacity.required_bytes and (not capacity.limit_bytes or size <= capacity.limit_bytes)
