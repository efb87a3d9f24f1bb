"""The service `Node`: what becomes of a volume on the node that it is attached to."""

from __future__ import annotations

import threading

import grpc

from infra.csi import MAX_VOLUMES, capability
from infra.csi.hypervisor import Refused
from infra.csi.machine import Machine
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.service import needed

_STAGES = csi.NodeServiceCapability.RPC.STAGE_UNSTAGE_VOLUME


class Node:
    """The node service of one node; all calls of a node are done one after the other."""

    def __init__(self, name: str, machine: Machine) -> None:
        self._name = name
        self._machine = machine
        self._lock = threading.Lock()

    def NodeGetInfo(self, _request: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        """Its id is its name."""
        return csi.NodeGetInfoResponse(node_id=self._name, max_volumes_per_node=MAX_VOLUMES)

    def NodeGetCapabilities(
        self, _request: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        """Volumes are staged before they are published."""
        rpc = csi.NodeServiceCapability.RPC(type=_STAGES)
        return csi.NodeGetCapabilitiesResponse(capabilities=[csi.NodeServiceCapability(rpc=rpc)])

    def NodeStageVolume(self, request: csi.NodeStageVolumeRequest) -> csi.NodeStageVolumeResponse:
        """Once for a volume, before any pod has it."""
        volume = needed(request.volume_id, "volume_id")
        staging = needed(request.staging_target_path, "staging_target_path")
        _insist(request, volume)
        with self._lock:
            self._machine.stage(volume, staging)
        return csi.NodeStageVolumeResponse()

    def NodeUnstageVolume(self, request: csi.NodeUnstageVolumeRequest) -> csi.NodeUnstageVolumeResponse:
        """After the last pod."""
        volume = needed(request.volume_id, "volume_id")
        staging = needed(request.staging_target_path, "staging_target_path")
        with self._lock:
            self._machine.unstage(volume, staging)
        return csi.NodeUnstageVolumeResponse()

    def NodePublishVolume(self, request: csi.NodePublishVolumeRequest) -> csi.NodePublishVolumeResponse:
        """For each pod."""
        volume = needed(request.volume_id, "volume_id")
        target = needed(request.target_path, "target_path")
        _insist(request, volume)
        if not request.staging_target_path:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f"volume {volume}: staging_target_path is missing"
            )
        with self._lock:
            self._machine.publish(volume, request.staging_target_path, target, request.readonly)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(self, request: csi.NodeUnpublishVolumeRequest) -> csi.NodeUnpublishVolumeResponse:
        """For each pod that goes."""
        volume = needed(request.volume_id, "volume_id")
        target = needed(request.target_path, "target_path")
        with self._lock:
            self._machine.unpublish(volume, target)
        return csi.NodeUnpublishVolumeResponse()


def _insist(request: csi.NodeStageVolumeRequest | csi.NodePublishVolumeRequest, volume: str) -> None:
    if not request.HasField("volume_capability"):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "volume_capability is missing")
    capability.insist([request.volume_capability], volume)
