"""Volumes of a lab: names that two parts must agree on, and where a node's folders are for the driver."""

from __future__ import annotations

from pathlib import Path

from infra.csi.hypervisor import Volume, volume_id
from infra.csi.machine import Marked
from infra.csi.table import Table
from nodeproof.cluster.workloads import pod_spec
from nodeproof.faults import fault_from_json
from nodeproof.faults.volumes import Volumes, attachment, handle
from nodeproof.scenario import holding

CLAIM = "volume-0123abcd-0"


def test_the_driver_knows_a_claims_volume_by_the_handle_that_it_would_give_it() -> None:
    assert handle(CLAIM) == volume_id(CLAIM)


def test_an_attachment_is_named_as_the_attach_detach_controller_names_it() -> None:
    # printf 'np-...csi.nodeproof.devnode-1' | sha256sum
    assert attachment(CLAIM, "node-1").startswith("csi-")
    assert len(attachment(CLAIM, "node-1")) == len("csi-") + 64
    assert attachment(CLAIM, "node-1") != attachment(CLAIM, "node-2")


def test_volumes_are_made_again_from_a_ledger() -> None:
    made = Volumes("0123abcd", 2)
    assert fault_from_json(dict(made.to_json())) == made
    assert made.claims == [CLAIM, "volume-0123abcd-1"]


def test_a_pod_mounts_each_of_its_volumes() -> None:
    spec = pod_spec(holding(CLAIM))
    (container,) = spec["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [
        each["name"] for each in spec["volumes"]
    ]
    assert "volumeMounts" not in pod_spec({})["containers"][0]


def test_what_a_node_calls_a_path_is_below_its_root(tmp_path: Path) -> None:
    root = tmp_path / "node-1"
    (root / "run").mkdir(parents=True)
    table = Table(tmp_path / "table", ["node-1"])
    table.create(Volume(handle(CLAIM), 1 << 24))
    table.attach(handle(CLAIM), "node-1")
    marked = Marked(table, "node-1", root)
    marked.stage(handle(CLAIM), "/run/staged")
    marked.publish(handle(CLAIM), "/run/staged", "/run/shown", read_only=False)
    assert sorted(each.name for each in (root / "run").iterdir()) == ["shown", "staged"]
    marked.unpublish(handle(CLAIM), "/run/shown")
    marked.unstage(handle(CLAIM), "/run/staged")
    assert [each.name for each in (root / "run").iterdir()] == ["staged"]
    assert list((root / "run" / "staged").iterdir()) == []
