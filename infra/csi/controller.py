"""The service `Controller`: who may have which volume."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import grpc

from infra.csi import MAX_VOLUMES, capability
from infra.csi.hypervisor import Hypervisor, Refused, Volume, volume_id
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.service import needed

MIB = 1 << 20
_LEAST, _USUAL, _MOST = 16 * MIB, 64 * MIB, 1 << 40
"""Sizes of a volume, in bytes: an ext4 with a journal needs the least."""

_Rpc = csi.ControllerServiceCapability.RPC
_CAPABILITIES = (_Rpc.CREATE_DELETE_VOLUME, _Rpc.PUBLISH_UNPUBLISH_VOLUME)


class Controller:
    """Decides by what the hypervisor says at that moment. It remembers nothing itself."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def ControllerGetCapabilities(
        self, _request: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        """No lists: the attacher then believes the driver's answers."""
        rpcs = [csi.ControllerServiceCapability.RPC(type=each) for each in _CAPABILITIES]
        return csi.ControllerGetCapabilitiesResponse(
            capabilities=[csi.ControllerServiceCapability(rpc=rpc) for rpc in rpcs]
        )

    def CreateVolume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        """The volume of a name, made where there is none."""
        name = needed(request.name, "name")
        capability.insist(needed(request.volume_capabilities, "volume_capabilities"), name)
        if request.HasField("volume_content_source"):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"volume {name}: a new volume is empty")
        wanted = Volume(volume_id(name), _size(request.capacity_range, name))
        with self._holding(f"volume {wanted.id}"):
            found = self._hypervisor.find(wanted.id)
            if found is None:
                self._hypervisor.create(wanted)
            elif not _fits(found.size, request.capacity_range):
                raise Refused(
                    grpc.StatusCode.ALREADY_EXISTS, f"volume {name} is there with {found.size} bytes"
                )
        size = wanted.size if found is None else found.size
        return csi.CreateVolumeResponse(volume=csi.Volume(volume_id=wanted.id, capacity_bytes=size))

    def DeleteVolume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        """Remove a volume that nobody holds."""
        volume = needed(request.volume_id, "volume_id")
        with self._holding(f"volume {volume}"):
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
        """Whether a volume can be used like all of that."""
        volume = self._known(needed(request.volume_id, "volume_id"))
        asked = needed(request.volume_capabilities, "volume_capabilities")
        if why := next(filter(None, map(capability.lack, asked)), ""):
            return csi.ValidateVolumeCapabilitiesResponse(message=f"volume {volume}: {why}")
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context, volume_capabilities=asked, parameters=request.parameters
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    def ControllerPublishVolume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        """Attach a volume to a node, unless another one that runs has it."""
        volume = needed(request.volume_id, "volume_id")
        node = needed(request.node_id, "node_id")
        if not request.HasField("volume_capability"):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "volume_capability is missing")
        capability.insist([request.volume_capability], volume)
        if request.readonly:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"volume {volume} is never attached read-only")
        # Always in this order, and a detaching call takes the first only.
        with self._holding(f"volume {volume}"), self._holding(f"node {node}"):
            self._attach(volume, node)
        return csi.ControllerPublishVolumeResponse()

    def ControllerUnpublishVolume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        """Detach a volume from a node, or without one from whichever has it. What is not attached is done."""
        volume = needed(request.volume_id, "volume_id")
        with self._holding(f"volume {volume}"):
            for holder in self._hypervisor.holders(volume):
                if request.node_id in ("", holder):
                    self._hypervisor.detach(volume, holder)
        return csi.ControllerUnpublishVolumeResponse()

    def _attach(self, volume: str, node: str) -> None:
        self._known(volume)
        if not self._hypervisor.knows(node):
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
        if self._hypervisor.held(node) >= MAX_VOLUMES:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"volume {volume}: node {node} has {MAX_VOLUMES} volumes already",
            )
        self._hypervisor.attach(volume, node)

    def _known(self, volume: str) -> str:
        if self._hypervisor.find(volume) is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no volume {volume}")
        return volume

    @contextlib.contextmanager
    def _holding(self, what: str) -> Iterator[None]:
        """One call at a time."""
        with self._lock:
            lock = self._locks.setdefault(what, threading.Lock())
        with lock:
            yield


def _size(asked: csi.CapacityRange, name: str) -> int:
    """How large a new volume becomes. Raises Refused."""
    usual = min(_USUAL, asked.limit_bytes or _USUAL)
    size = max(asked.required_bytes or usual, _LEAST)
    if size > min(_MOST, asked.limit_bytes or _MOST):
        raise Refused(grpc.StatusCode.OUT_OF_RANGE, f"volume {name}: sizes are {_LEAST} to {_MOST} bytes")
    return size


def _fits(size: int, asked: csi.CapacityRange) -> bool:
    return size >= asked.required_bytes and (not asked.limit_bytes or size <= asked.limit_bytes)
