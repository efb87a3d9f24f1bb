"""Asks a driver from Python, or by hand: `python -m infra.csi.client --endpoint unix://PATH create NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from infra.csi.controller import MIB
from infra.csi.protocol import csi_pb2 as csi

_LIMIT_S = 30.0

WRITER = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode=csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER),
)
"""What Kubernetes asks for a volume that is ReadWriteOnce."""


class Driver:
    """A driver's endpoint. A call raises grpc.RpcError; one that `waits` does so until somebody serves."""

    def __init__(self, endpoint: str, limit_s: float = _LIMIT_S, waits: bool = True) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._limit_s = limit_s
        self._waits = waits

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, service: str, method: str, request: Message) -> Any:
        """One call of a service of the protocol, such as `Controller`."""
        described = csi.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        answer = GetMessageClass(described.output_type).FromString
        path = f"/{described.containing_service.full_name}/{method}"
        send = self._channel.unary_unary(path, type(request).SerializeToString, answer)
        return send(request, timeout=self._limit_s, wait_for_ready=self._waits)

    def create(self, name: str, size: int = 64 * MIB) -> str:
        """The id of the volume of that name, made where there is none."""
        request = csi.CreateVolumeRequest(
            name=name,
            capacity_range=csi.CapacityRange(required_bytes=size),
            volume_capabilities=[WRITER],
        )
        return str(self.call("Controller", "CreateVolume", request).volume.volume_id)

    def delete(self, volume: str) -> None:
        """Remove a volume that nobody holds."""
        self.call("Controller", "DeleteVolume", csi.DeleteVolumeRequest(volume_id=volume))

    def attach(self, volume: str, node: str) -> None:
        """As the attacher does for a VolumeAttachment."""
        request = csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, volume_capability=WRITER)
        self.call("Controller", "ControllerPublishVolume", request)

    def detach(self, volume: str, node: str) -> None:
        """As the attacher does for a VolumeAttachment that goes."""
        request = csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node)
        self.call("Controller", "ControllerUnpublishVolume", request)


def main(arguments: Sequence[str]) -> int:
    """Create a volume and print its id, or delete one by its id."""
    parser = argparse.ArgumentParser(prog="python -m infra.csi.client", description=__doc__)
    parser.add_argument("--endpoint", required=True, metavar="unix://PATH")
    parser.add_argument("verb", choices=("create", "delete"))
    parser.add_argument("what", metavar="NAME|ID")
    parser.add_argument("--mib", type=int, default=64, help="size of a new volume")
    asked = parser.parse_args(arguments)
    with Driver(asked.endpoint) as driver:
        try:
            if asked.verb == "create":
                print(driver.create(asked.what, asked.mib * MIB))
            else:
                driver.delete(asked.what)
        except grpc.RpcError as error:
            print(f"csi driver: {asked.verb} {asked.what}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
