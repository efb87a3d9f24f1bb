"""What the CSI driver says of a call that it does not do: the volume and the node, whatever the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from infra.csi.client import WRITER, Driver
from infra.csi.hypervisor import volume_id
from infra.csi.protocol import csi_pb2 as csi
from tests.csi_driver import NODES, Ground, driver, ground

VOLUME = volume_id("one")
NODE, OTHER = NODES
_BLOCK = csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=WRITER.access_mode)
_HERE: Mapping[str, Any] = {"volume_id": VOLUME, "node_id": NODE}
_STAGED: Mapping[str, Any] = {"volume_id": VOLUME, "staging_target_path": "/nowhere"}
_attach = csi.ControllerPublishVolumeRequest
FAILING: Mapping[str, Any] = {
    "no such volume": _attach(volume_id=volume_id("other"), node_id=NODE, volume_capability=WRITER),
    "no such node": _attach(volume_id=VOLUME, node_id="node-9", volume_capability=WRITER),
    "elsewhere": _attach(volume_id=VOLUME, node_id=OTHER, volume_capability=WRITER),
    "as what": _attach(**_HERE),
    "as a block device": _attach(**_HERE, volume_capability=_BLOCK),
    "read-only": _attach(**_HERE, volume_capability=WRITER, readonly=True),
    "held": csi.DeleteVolumeRequest(volume_id=VOLUME),
    "staged as what": csi.NodeStageVolumeRequest(**_STAGED),
    "not staged": csi.NodePublishVolumeRequest(**_STAGED, target_path="/target", volume_capability=WRITER),
}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path) as made:
        yield made


def said_of(on: Ground, request: Any) -> str:
    """Why that is not done."""
    method = type(request).__name__.removesuffix("Request")
    service = "Node" if method.startswith("Node") else "Controller"
    endpoint = on.node(NODE) if service == "Node" else on.controller
    with Driver(endpoint) as asked, pytest.raises(grpc.RpcError) as raised:
        asked.call(service, method, request)
    return str(raised.value.details())


@pytest.mark.parametrize("why", FAILING)
def test_whatever_is_refused_names_its_volume_and_its_node(on: Ground, why: str) -> None:
    request = FAILING[why]
    with driver(on), Driver(on.controller) as controller:
        controller.attach(controller.create("one"), NODE)
        said = said_of(on, request)
    about = (request.volume_id, getattr(request, "node_id", NODE))
    assert [name for name in about if name not in said] == [], said


def test_a_table_that_cannot_be_read_names_the_volume_and_the_node(on: Ground) -> None:
    with driver(on), Driver(on.controller) as controller:
        controller.create("one")
        (on.folder / "table" / "volumes" / VOLUME).write_text("{")
        said = said_of(on, _attach(**_HERE, volume_capability=WRITER))
    assert [name for name in (VOLUME, NODE) if name not in said] == [], said
