"""The service `Node`: mounts volumes on the node that they are attached to."""

from __future__ import annotations

import threading

import grpc

from infra.csi import MAX_VOLUMES, capability
from infra.csi.hypervisor import Refused
from infra.csi.machine import Machine
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.service import required

_STAGES = csi.NodeServiceCapability.RPC.STAGE_UNSTAGE_VOLUME


class Node:
    """The node service of one node; it handles one call at a time."""

    def __init__(self, name: str, machine: Machine) -> None:
        self._name = name
        self._machine = machine
        self._lock = threading.Lock()

    def NodeGetInfo(self, _request: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        """Return the node's id, which is its name, and its maximum number of volumes."""
        return csi.NodeGetInfoResponse(node_id=self._name, max_volumes_per_node=MAX_VOLUMES)

    def NodeGetCapabilities(
        self, _request: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        """Report that volumes must be staged before they are published."""
        rpc = csi.NodeServiceCapability.RPC(type=_STAGES)
        return csi.NodeGetCapabilitiesResponse(capabilities=[csi.NodeServiceCapability(rpc=rpc)])

    def NodeStageVolume(self, request: csi.NodeStageVolumeRequest) -> csi.NodeStageVolumeResponse:
        """Stage a volume, once for all pods."""
        volume = required(request.volume_id, "volume_id")
        staging = required(request.staging_target_path, "staging_target_path")
        _check_use(request, volume)
        with self._lock:
            self._machine.stage(volume, staging)
        return csi.NodeStageVolumeResponse()

    def NodeUnstageVolume(self, request: csi.NodeUnstageVolumeRequest) -> csi.NodeUnstageVolumeResponse:
        """Unstage a volume, after the last pod."""
        volume = required(request.volume_id, "volume_id")
        staging = required(request.staging_target_path, "staging_target_path")
        with self._lock:
            self._machine.unstage(volume, staging)
        return csi.NodeUnstageVolumeResponse()

    def NodePublishVolume(self, request: csi.NodePublishVolumeRequest) -> csi.NodePublishVolumeResponse:
        """Publish a staged volume for a pod."""
        volume = required(request.volume_id, "volume_id")
        target = required(request.target_path, "target_path")
        _check_use(request, volume)
        if not request.staging_target_path:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume}: staging_target_path is missing"
            )
        with self._lock:
            self._machine.publish(volume, request.staging_target_path, target, request.readonly)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(self, request: csi.NodeUnpublishVolumeRequest) -> csi.NodeUnpublishVolumeResponse:
        """Unpublish a volume of a deleted pod."""
        volume = required(request.volume_id, "volume_id")
        target = required(request.target_path, "target_path")
        with self._lock:
            self._machine.unpublish(volume, target)
        return csi.NodeUnpublishVolumeResponse()


def _check_use(request: csi.NodeStageVolumeRequest | csi.NodePublishVolumeRequest, volume: str) -> None:
    if not request.HasField("volume_capability"):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "volume_capability is missing")
    capability.check([request.volume_capability], volume)
