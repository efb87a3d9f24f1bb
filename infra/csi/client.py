"""Call a driver from Python, or by hand: `python -m infra.csi.client --endpoint unix://PATH create NAME`."""

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

_TIMEOUT_S = 30.0

WRITER = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode=csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER),
)
"""The capability that Kubernetes requests for a ReadWriteOnce volume."""


class Driver:
    """A driver's endpoint. A call raises grpc.RpcError; with `waits` it first waits for the server."""

    def __init__(self, endpoint: str, timeout_s: float = _TIMEOUT_S, waits: bool = True) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._timeout_s = timeout_s
        self._waits = waits

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, service: str, method: str, request: Message) -> Any:
        """Call a method of a service of the protocol, such as `Controller`."""
        descriptor = csi.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        parse_response = GetMessageClass(descriptor.output_type).FromString
        path = f"/{descriptor.containing_service.full_name}/{method}"
        send = self._channel.unary_unary(path, type(request).SerializeToString, parse_response)
        return send(request, timeout=self._timeout_s, wait_for_ready=self._waits)

    def create(self, name: str, size: int = 64 * MIB) -> str:
        """Create the volume with this name, unless it exists, and return its id."""
        request = csi.CreateVolumeRequest(
            name=name,
            capacity_range=csi.CapacityRange(required_bytes=size),
            volume_capabilities=[WRITER],
        )
        return str(self.call("Controller", "CreateVolume", request).volume.volume_id)

    def delete(self, volume: str) -> None:
        """Delete a detached volume."""
        self.call("Controller", "DeleteVolume", csi.DeleteVolumeRequest(volume_id=volume))

    def attach(self, volume: str, node: str) -> None:
        """Attach a volume like external-attacher does for a VolumeAttachment."""
        request = csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, volume_capability=WRITER)
        self.call("Controller", "ControllerPublishVolume", request)

    def detach(self, volume: str, node: str) -> None:
        """Detach a volume like external-attacher does for a deleted VolumeAttachment."""
        request = csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node)
        self.call("Controller", "ControllerUnpublishVolume", request)


def main(arguments: Sequence[str]) -> int:
    """Create a volume and print its id, or delete a volume by its id."""
    parser = argparse.ArgumentParser(prog="python -m infra.csi.client", description=__doc__)
    parser.add_argument("--endpoint", required=True, metavar="unix://PATH")
    parser.add_argument("verb", choices=("create", "delete"))
    parser.add_argument("what", metavar="NAME|ID")
    parser.add_argument("--mib", type=int, default=64, help="size of a new volume")
    options = parser.parse_args(arguments)
    with Driver(options.endpoint) as driver:
        try:
            if options.verb == "create":
                print(driver.create(options.what, options.mib * MIB))
            else:
                driver.delete(options.what)
        except grpc.RpcError as error:
            print(f"csi driver: {options.verb} {options.what}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
