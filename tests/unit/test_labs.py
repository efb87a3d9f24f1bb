"""Labs: kinds, the identity of a cluster, and topology files."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.doctor import diagnose
from nodeproof.labs import kinds
from nodeproof.labs.base import control_plane
from nodeproof.labs.base.nodes import NodeEnvironment, Nodes, kubelet_configuration
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.base.spec import LabSpec, NodeSpec, Shape
from nodeproof.labs.client import starting
from nodeproof.labs.client.starting import Entry, LabRequest, Topology
from nodeproof.labs.kinds import KINDS, LIBVIRT, PROCESS, kind_named
from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.process import seed
from nodeproof.model.needs import FEATURES
from nodeproof.model.problem import Problem
from tests.acceptance.command import TOP
from tests.fakes import in_turn

# Differences between the kinds of lab that need no lab


NODE = NodeSpec("node-1", 0, "zone-a", "0" * 32)
SHAPED = replace(NODE, shape=Shape(cpus=4, numa_nodes=2, kernel=("quiet",)))
SPEC = LabSpec("p-0", os.getuid(), os.getgid(), "v1.36.3", {}, True, "", "fast", (NODE,), False, "process")
GUEST = replace(SPEC, kind=LIBVIRT.name, guest={"disk": "/somewhere/disk.qcow2"})
FOLDER = Path("/etc/kubernetes")
NO_COMPONENTS = Components("v1.36.3", {}, True)


def test_spec_survives_its_way_to_the_supervisor() -> None:
    for nodes in ((NODE,), (NODE, SHAPED)):
        spec = replace(GUEST, nodes=nodes)
        assert LabSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"nodes": [{}]}', '{"nodes": []}', '{"nodes": 1}'])
def test_invalid_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        LabSpec.from_json(text)


def test_guest_has_its_own_cgroups_regardless_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(seed, "CGROUP_V2", tmp_path / "only-v1")
    process, guest = (
        kubelet_configuration(spec, NODE, FOLDER, kind_named(spec.kind).kubelet()) for spec in (SPEC, GUEST)
    )

    assert process["failCgroupV1"] is False
    assert "failCgroupV1" not in guest
    assert guest["cgroupDriver"] == "systemd"


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_power_and_a_node_limit(name: str) -> None:
    kind = kind_named(name)
    kind.check_nodes(kind.limits.nodes)
    assert "power" in kind.features
    assert kind.features <= FEATURES.keys()
    with pytest.raises(Problem, match=f"a {name} lab has 1 to"):
        kind.check_nodes(kind.limits.nodes + 1)


def test_minimal_kind_of_lab_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_on: NodeEnvironment) -> Nodes:
        raise NotImplementedError

    monkeypatch.setattr(kinds, "KINDS", kinds.with_plugins({**KINDS, "nothing": Kind("nothing", refuse)}))
    starting.check(starting.LabRequest("p-000000", 3, 2, "fast", False, "nothing"))
    assert str(diagnose("nothing", 3)).startswith("nothing lab: ")
    assert kind_named("nothing").settings(FAST)
    with pytest.raises(Problem, match="process, kubeadm, libvirt, vagrant, nothing"):
        kind_named("vmware")


def test_kind_without_a_supervisor_is_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(Path(__file__).parent / "kinds")])
    monkeypatch.setattr(kinds, "KINDS", kinds.with_plugins(kinds.discover()))
    assert [*kinds.KINDS] == [*KINDS, "dummy"]
    lab = starting.up(starting.LabRequest("mine", 2, 1, "documented", False, "dummy"), NO_COMPONENTS, print)
    assert (lab.kind, lab.profile.name) == (kind_named("dummy"), "documented")
    assert lab.usable_nodes() == ["node-1", "node-2"]
    assert str(diagnose("dummy", 2)).startswith("dummy lab: ")
    lab.down()
    assert not lab.dir.exists()


def test_no_module_tests_the_name_of_a_kind() -> None:
    """Differences between kinds are in their objects.

    `model` reads stored names of earlier versions, and `existing` has a power driver of that name.
    """
    top = Path(kinds.__file__).parents[2]
    asking = [
        path.relative_to(top).as_posix()
        for path in top.rglob("*.py")
        if not any(path.is_relative_to(top / room) for room in ("labs/kinds", "model", "existing"))
        and re.search(r"\b(LIBVIRT|PROCESS)\b|\"(libvirt|process)\"", path.read_text())
    ]
    assert asking == []


# The identity of a cluster, from an API server that is busy with the lab's start


NOBODY: Any = None
THERE = json.dumps({"metadata": {"uid": "uid-1"}}).encode()
NOT_YET = json.dumps({"kind": "Status", "code": 404}).encode()


def test_uid_is_requested_until_it_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = in_turn(TimeoutError("The read operation timed out"), NOT_YET, THERE)
    monkeypatch.setattr(control_plane, "get", lambda *_: (200, answer()))
    assert control_plane.kube_system_uid(NOBODY) == "uid-1"


# Topologies: valid and invalid files


LARGE = Entry("big", "zone-b", Shape(memory_mib=2048, cpus=2))
SMALL = Entry("small", "zone-a")
TOPOLOGY = Topology((LARGE, SMALL))
REQUEST = LabRequest("p-000000", 2, 2, "fast", False, LIBVIRT.name, (1, 1), TOPOLOGY)


def _read(folder: Path, text: str | None) -> Topology:
    """Read a topology file with this text, or a missing one."""
    path = folder / "topology.yaml"
    if text is not None:
        path.write_text(text)
    return starting.read_topology(str(path))


SHIPPED = sorted((TOP / "infra" / "topology").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_each_shipped_topology_is_valid(path: Path) -> None:
    shipped = starting.read_topology(str(path))
    spread = shipped.spread
    starting.check(replace(REQUEST, nodes=sum(spread), zones=len(spread), spread=spread, topology=shipped))


def test_nodes_follow_the_file_and_its_order(tmp_path: Path) -> None:
    text = "nodes: [{name: big, zone: zone-b, memory_mib: 2048, cpus: 2}, {name: small, zone: zone-a}]"
    assert _read(tmp_path, text) == TOPOLOGY
    assert REQUEST.node_entries == (LARGE, SMALL)


def test_nodes_without_a_topology_are_numbered_across_zones() -> None:
    plain = replace(REQUEST, nodes=3, spread=(), topology=Topology())
    places = [(entry.name, entry.zone) for entry in plain.node_entries]
    assert places == [("node-1", "zone-a"), ("node-2", "zone-b"), ("node-3", "zone-a")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, r"No such file .*topology\.yaml"),
        ("", "a list of `nodes`"),
        ("nodes: []", "a list of `nodes`"),
        ("nodes: {}\nzones: 2", "a list of `nodes`"),
        ("nodes: [", "cannot read the topology"),
        (f"nodes: ['{'x' * 2**20}']", "cannot read the topology"),
        ("nodes: [{name: one}]", "is not a node"),
        ("nodes: [{name: one, zone: a, disk: 3}]", "is not a node"),
        ("nodes: [{name: One, zone: a}]", "not a DNS label"),
        ("nodes: [{name: one, zone: a}, {name: one, zone: b}]", "2 nodes are called one"),
        ("nodes: [{name: one, zone: a, memory_mib: 12}]", "memory_mib is 12"),
        ("nodes: [{name: one, zone: a, cpus: true}]", "cpus is True"),
        ("nodes: [{name: a, zone: a}, {name: b, zone: a, kubelet_version: 1.36}]", "'1.36' is .*, node 2"),
        ("kubernetes_version: banana\nnodes: [{name: a, zone: a}]", "'banana' is not .*, kubernetes_version"),
    ],
)
def test_invalid_topology_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(Problem, match=words):
        _read(tmp_path, text)


def test_node_memory_is_refused_if_the_kind_cannot_set_it() -> None:
    with pytest.raises(Problem, match=r"memory and processors of a .* cannot be set"):
        starting.check(replace(REQUEST, kind=PROCESS.name))
    starting.check(replace(REQUEST, kind=PROCESS.name, topology=Topology((replace(SMALL, name="a"), SMALL))))
