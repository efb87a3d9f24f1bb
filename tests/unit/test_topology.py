"""Topologies: valid and invalid files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.labs.base.spec import Shape
from nodeproof.labs.client import starting
from nodeproof.labs.client.starting import Entry, LabRequest, Topology
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.model.problem import Problem
from tests.acceptance.command import TOP

LARGE = Entry("big", "zone-b", Shape(memory_mib=2048, cpus=2))
SMALL = Entry("small", "zone-a")
TOPOLOGY = Topology((LARGE, SMALL))
REQUEST = LabRequest("p-000000", 2, 2, "fast", False, LIBVIRT.name, (1, 1), TOPOLOGY)


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "path", sorted((TOP / "infra" / "topology").glob("*.yaml")), ids=lambda path: path.stem
)
def test_each_shipped_topology_is_valid(path: Path) -> None:
    shipped = starting.read_topology(str(path))
    spread = shipped.spread
    starting.check(replace(REQUEST, nodes=sum(spread), zones=len(spread), spread=spread, topology=shipped))


def test_nodes_follow_the_file_and_its_order(tmp_path: Path) -> None:
    text = "nodes: [{name: big, zone: zone-b, memory_mib: 2048, cpus: 2}, {name: small, zone: zone-a}]"
    assert starting.read_topology(_file(tmp_path, text)) == TOPOLOGY
    assert REQUEST.node_entries == (LARGE, SMALL)


def test_nodes_without_a_topology_are_numbered_across_zones() -> None:
    plain = replace(REQUEST, nodes=3, spread=(), topology=Topology())
    assert [(entry.name, entry.zone) for entry in plain.node_entries] == [
        ("node-1", "zone-a"),
        ("node-2", "zone-b"),
        ("node-3", "zone-a"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"nodes: [{{name: n, zone: z, memory_mib: [&a [x, x], {'*a, ' * 9}*a]}}]",
            "cannot read the topology: the alias",
        ),
        ("- " * 3000 + "x", "cannot read the topology: .*(collections|deep|level)"),
        ("[" * 5000, "cannot read the topology: "),
        ("nodes: !!python/object/apply:os.system [id]", "cannot read the topology: "),
        (f"nodes: ['{'x' * 2**20}']", "cannot read the topology: "),
        (f"nodes: ['{'x' * 10000}']", "is not a node"),
    ],
)
def test_malicious_file_is_refused_with_a_short_message(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        starting.read_topology(_file(tmp_path, text))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a list of `nodes`"),
        ("nodes: []", "a list of `nodes`"),
        ("nodes: {}\nzones: 2", "a list of `nodes`"),
        ("nodes: [", "cannot read the topology"),
        ("nodes: [{name: one}]", "is not a node"),
        ("nodes: [{name: one, zone: a, disk: 3}]", "is not a node"),
        ("nodes: [{name: One, zone: a}]", "not a DNS label"),
        ("nodes: [{name: one, zone: a}, {name: one, zone: b}]", "2 nodes are called one"),
        ("nodes: [{name: one, zone: a, memory_mib: 12}]", "memory_mib is 12"),
        ("nodes: [{name: one, zone: a, cpus: true}]", "cpus is True"),
    ],
)
def test_invalid_topology_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Problem, match=words):
        starting.read_topology(_file(tmp_path, text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="No such file") as caught:
        starting.read_topology(str(tmp_path / "none.yaml"))
    assert "none.yaml" in caught.value.where


def test_node_memory_is_refused_if_the_kind_cannot_set_it() -> None:
    with pytest.raises(Problem, match=r"memory and processors of a .* cannot be set"):
        starting.check(replace(REQUEST, kind=PROCESS.name))
    starting.check(
        replace(REQUEST, kind=PROCESS.name, topology=Topology((replace(SMALL, name="one"), SMALL)))
    )
