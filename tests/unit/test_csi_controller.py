"""The CSI driver's controller over its table: who may have which volume, and what a table forgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from infra.csi import MAX_VOLUMES
from infra.csi.client import WRITER
from infra.csi.controller import MIB, Controller
from infra.csi.hypervisor import Refused, volume_id
from infra.csi.protocol import SPECIFICATION
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.stubs import specification
from infra.csi.table import Table
from nodeproof.artifacts.csi import recipe_dir

Code = grpc.StatusCode
CSI_READER = csi.VolumeCapability.AccessMode.MULTI_NODE_READER_ONLY


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table", ["node-1", "node-2"])


@pytest.fixture
def controller(table: Table) -> Controller:
    return Controller(table)


def create(controller: Controller, name: str = "one", **capacity: int) -> str:
    request = csi.CreateVolumeRequest(
        name=name, volume_capabilities=[WRITER], capacity_range=csi.CapacityRange(**capacity)
    )
    return controller.CreateVolume(request).volume.volume_id


def attach(controller: Controller, volume: str, node: str) -> None:
    controller.ControllerPublishVolume(
        csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, volume_capability=WRITER)
    )


def detach(controller: Controller, volume: str, node: str) -> None:
    controller.ControllerUnpublishVolume(csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node))


def delete(controller: Controller, volume: str) -> None:
    controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id=volume))


def refused(do: Callable[[], object], code: grpc.StatusCode, *named: str) -> None:
    """It is, with that code and a message that names all of that."""
    with pytest.raises(Refused) as raised:
        do()
    assert raised.value.code is code
    assert [name for name in named if name not in raised.value.why] == []


def test_the_stubs_are_of_the_protocol_that_the_programs_speak() -> None:
    assert specification(recipe_dir()) == SPECIFICATION, "run `make stubs`"


def test_a_volume_is_attached_twice_to_its_node_and_once_to_the_next(
    controller: Controller, table: Table
) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    attach(controller, volume, "node-1")
    assert table.holders(volume) == ["node-1"]
    detach(controller, volume, "node-1")
    detach(controller, volume, "node-1")
    attach(controller, volume, "node-2")
    assert table.holders(volume) == ["node-2"]


def test_a_volume_that_another_has_is_refused(controller: Controller, table: Table) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    refused(
        lambda: attach(controller, volume, "node-2"), Code.FAILED_PRECONDITION, volume, "node-1", "node-2"
    )
    refused(lambda: delete(controller, volume), Code.FAILED_PRECONDITION, volume, "node-1")
    assert table.holders(volume) == ["node-1"]


def test_a_detach_from_another_node_takes_it_from_nobody(controller: Controller, table: Table) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    detach(controller, volume, "node-2")
    assert table.holders(volume) == ["node-1"]
    detach(controller, volume, "")
    assert table.holders(volume) == []


def test_the_ninth_volume_of_a_node_is_refused(controller: Controller, table: Table) -> None:
    volumes = [create(controller, f"v{number}") for number in range(MAX_VOLUMES + 1)]
    for volume in volumes[:-1]:
        attach(controller, volume, "node-1")
    refused(lambda: attach(controller, volumes[-1], "node-1"), Code.RESOURCE_EXHAUSTED, volumes[-1], "node-1")
    attach(controller, volumes[0], "node-1")
    attach(controller, volumes[-1], "node-2")
    detach(controller, volumes[0], "node-1")
    detach(controller, volumes[-1], "node-2")
    attach(controller, volumes[-1], "node-1")
    assert table.held("node-1") == MAX_VOLUMES


@pytest.mark.parametrize("strange", ["no-such", "np-0123456789abcdef0", "../machines/node-1"])
def test_what_is_not_there_is_not_found(controller: Controller, strange: str) -> None:
    volume = create(controller)
    refused(lambda: attach(controller, strange, "node-1"), Code.NOT_FOUND, strange)
    refused(lambda: attach(controller, volume, strange), Code.NOT_FOUND, volume, strange)
    detach(controller, strange, "node-1")
    detach(controller, volume, strange)
    delete(controller, strange)


def test_the_volume_of_a_machine_that_ended_can_be_attached_elsewhere(
    controller: Controller, table: Table
) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    table.power_off("node-1")
    refused(lambda: attach(controller, create(controller, "two"), "node-1"), Code.UNAVAILABLE, "node-1")
    attach(controller, volume, "node-2")
    table.power_on("node-1")
    assert table.holders(volume) == ["node-2"]
    refused(lambda: attach(controller, volume, "node-1"), Code.FAILED_PRECONDITION, volume, "node-2")


def test_a_machine_that_boots_again_has_no_volume_that_nobody_attached(
    controller: Controller, table: Table
) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    table.power_off("node-1")
    table.power_on("node-1")
    assert table.holders(volume) == []
    assert table.held("node-1") == 0
    attach(controller, volume, "node-1")
    assert table.holders(volume) == ["node-1"]


def test_a_name_is_one_volume(controller: Controller, table: Table) -> None:
    volume = create(controller, "one", required_bytes=100 * MIB)
    assert create(controller, "one", required_bytes=100 * MIB) == volume == volume_id("one")
    assert len(volume) <= 20, "a SCSI disk's serial has no more"
    refused(lambda: create(controller, "one", required_bytes=200 * MIB), Code.ALREADY_EXISTS, "one")
    refused(lambda: create(controller, "one", limit_bytes=50 * MIB), Code.ALREADY_EXISTS, "one")
    delete(controller, volume)
    delete(controller, volume)
    assert table.find(volume) is None


@pytest.mark.parametrize(
    ("capacity", "size"),
    [({}, 64), ({"required_bytes": 1}, 16), ({"limit_bytes": 32 * MIB}, 32), ({"limit_bytes": 99 * MIB}, 64)],
)
def test_a_volume_is_as_large_as_it_has_to_be(
    controller: Controller, table: Table, capacity: Any, size: int
) -> None:
    found = table.find(create(controller, **capacity))
    assert found is not None
    assert found.size == size * MIB


@pytest.mark.parametrize("capacity", [{"limit_bytes": MIB}, {"required_bytes": 1 << 50}])
def test_a_size_that_no_volume_has_is_refused(controller: Controller, capacity: Any) -> None:
    refused(lambda: create(controller, **capacity), Code.OUT_OF_RANGE, "one")


def test_what_a_volume_cannot_be_used_as_is_refused(controller: Controller) -> None:
    volume = create(controller)
    mode = WRITER.access_mode
    lacking = [
        csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=mode),
        csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type="xfs"), access_mode=mode),
        csi.VolumeCapability(
            mount=WRITER.mount, access_mode=csi.VolumeCapability.AccessMode(mode=CSI_READER)
        ),
    ]
    for each in lacking:
        asked = csi.ControllerPublishVolumeRequest(volume_id=volume, node_id="node-1", volume_capability=each)
        refused(partial(controller.ControllerPublishVolume, asked), Code.INVALID_ARGUMENT, volume)
        answer = controller.ValidateVolumeCapabilities(
            csi.ValidateVolumeCapabilitiesRequest(volume_id=volume, volume_capabilities=[WRITER, each])
        )
        assert not answer.HasField("confirmed")
        assert volume in answer.message


def test_a_driver_that_begins_anew_finds_all_as_it_was(tmp_path: Path, table: Table) -> None:
    volume = create(Controller(table))
    attach(Controller(table), volume, "node-1")
    table.power_off("node-2")
    anew = Table(tmp_path / "table", ["node-1", "node-2"])
    anew.take()
    assert anew.holders(volume) == ["node-1"]
    assert not anew.runs("node-2")


def test_a_file_that_was_half_written_is_not_read(tmp_path: Path, table: Table) -> None:
    volume = create(Controller(table))
    attach(Controller(table), volume, "node-1")
    half = tmp_path / "table" / "volumes" / f".{volume}"
    half.write_text('{"size": 6')
    assert table.holders(volume) == ["node-1"]
    table.take()
    assert not half.exists()
    assert table.holders(volume) == ["node-1"]


def test_a_table_has_one_driver(tmp_path: Path, table: Table) -> None:
    table.take()
    with pytest.raises(BlockingIOError):
        Table(tmp_path / "table").take()


def test_a_machine_is_a_file_that_a_lab_can_write(tmp_path: Path, table: Table) -> None:
    volume = create(Controller(table))
    attach(Controller(table), volume, "node-1")
    (tmp_path / "table" / "machines" / "node-1").write_text(json.dumps({"boot": 2, "runs": True}))
    assert table.holders(volume) == []
