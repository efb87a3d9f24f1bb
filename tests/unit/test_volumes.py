"""Volumes of a lab: names shared by two components, and a node's folders as the driver sees them."""

from __future__ import annotations

from pathlib import Path

from infra.csi.hypervisor import Volume, volume_id
from infra.csi.machine import Marked
from infra.csi.table import Table
from nodeproof.cluster.workloads import pod_spec
from nodeproof.faults.volumes import Volumes, attachment, handle
from nodeproof.scenario import using_pvc

PVC = "volume-0123abcd-0"


def test_volume_handle_matches_the_driver() -> None:
    assert handle(PVC) == volume_id(PVC)


def test_volume_attachment_has_the_name_given_by_kubernetes() -> None:
    # printf 'np-...csi.nodeproof.devnode-1' | sha256sum
    assert attachment(PVC, "node-1").startswith("csi-")
    assert len(attachment(PVC, "node-1")) == len("csi-") + 64
    assert attachment(PVC, "node-1") != attachment(PVC, "node-2")


def test_pvcs_are_named_after_the_fault() -> None:
    assert Volumes(2, id="0123abcd").pvcs == [PVC, "volume-0123abcd-1"]


def test_pod_mounts_each_of_its_volumes() -> None:
    spec = pod_spec(using_pvc(PVC))
    (container,) = spec["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [
        volume["name"] for volume in spec["volumes"]
    ]
    assert "volumeMounts" not in pod_spec({})["containers"][0]


def test_node_path_is_below_the_root_of_the_node(tmp_path: Path) -> None:
    root = tmp_path / "node-1"
    (root / "run").mkdir(parents=True)
    table = Table(tmp_path / "table", ["node-1"])
    table.create(Volume(handle(PVC), 1 << 24))
    table.attach(handle(PVC), "node-1")
    marked = Marked(table, "node-1", root)
    marked.stage(handle(PVC), "/run/staged")
    marked.publish(handle(PVC), "/run/staged", "/run/shown", read_only=False)
    assert sorted(path.name for path in (root / "run").iterdir()) == ["shown", "staged"]
    marked.unpublish(handle(PVC), "/run/shown")
    marked.unstage(handle(PVC), "/run/staged")
    assert [path.name for path in (root / "run").iterdir()] == ["staged"]
    assert list((root / "run" / "staged").iterdir()) == []
