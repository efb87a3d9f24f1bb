"""Topologies: what is read of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.labs.client import registry, starting, topology
from nodeproof.labs.client.starting import Request
from nodeproof.labs.client.topology import Entry
from nodeproof.labs.ground.spec import Shape
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.model.problem import Problem
from nodeproof.session import options
from tests.acceptance.command import TOP

LARGE = Entry("big", "zone-b", Shape(memory_mib=2048, cpus=2))
SMALL = Entry("small", "zone-a")
ASKED = Request("p-000000", 2, 2, "fast", False, LIBVIRT.name, (1, 1), (LARGE, SMALL))


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "path", sorted((TOP / "infra" / "topology").glob("*.yaml")), ids=lambda path: path.stem
)
def test_each_topology_that_is_shipped_can_be_asked_for(path: Path) -> None:
    entries = topology.read(path)
    spread = topology.spread(entries)
    starting.check(replace(ASKED, nodes=len(entries), zones=len(spread), spread=spread, entries=entries))


def test_nodes_are_as_the_file_says_and_in_its_order(tmp_path: Path) -> None:
    text = "nodes: [{name: big, zone: zone-b, memory_mib: 2048, cpus: 2}, {name: small, zone: zone-a}]"
    assert topology.read(_file(tmp_path, text)) == (LARGE, SMALL)
    assert ASKED.entry_of_each == (LARGE, SMALL)


def test_without_a_topology_nodes_are_numbered_and_zones_take_turns() -> None:
    plain = replace(ASKED, nodes=3, spread=(), entries=())
    assert [(entry.name, entry.zone) for entry in plain.entry_of_each] == [
        ("node-1", "zone-a"),
        ("node-2", "zone-b"),
        ("node-3", "zone-a"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"nodes: [{{name: n, zone: z, memory_mib: [&a [x, x], {'*a, ' * 9}*a]}}]",
            "cannot read the topology: expected no anchors",
        ),
        ("- " * 3000 + "x", "cannot read the topology: .*(collections|deep|level)"),
        ("[" * 5000, "cannot read the topology: "),
        ("nodes: !!python/object/apply:os.system [id]", "cannot read the topology: "),
        (f"nodes: ['{'x' * 2**20}']", "cannot read the topology: "),
        (f"nodes: ['{'x' * 10000}']", "is not a node"),
    ],
)
def test_what_would_take_memory_or_run_is_refused_in_a_short_message(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(Problem, match=words) as refused:
        topology.read(_file(tmp_path, text))
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
def test_what_is_no_topology_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Problem, match=words):
        topology.read(_file(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="No such file") as caught:
        topology.read(tmp_path / "none.yaml")
    assert "none.yaml" in caught.value.where


def test_nodes_without_memory_of_their_own_are_asked_for_none() -> None:
    with pytest.raises(Problem, match=r"memory and processors of a .* cannot be set"):
        starting.check(replace(ASKED, kind=PROCESS.name))
    starting.check(replace(ASKED, kind=PROCESS.name, entries=(replace(SMALL, name="one"), SMALL)))


def test_a_run_has_the_nodes_of_its_topology() -> None:
    found = options.resolve(LIBVIRT.name, "", "", "build", (), 0, 0, 0, (LARGE, SMALL))
    assert (found.nodes, found.zones, found.spread, found.entries) == (2, 2, (1, 1), (LARGE, SMALL))


def test_a_topology_and_a_number_of_nodes_are_one_too_many() -> None:
    with pytest.raises(Problem, match="topology file already sets"):
        options.resolve(LIBVIRT.name, "", "", "build", (), 2, 0, 0, (LARGE, SMALL))


def test_a_lab_that_was_started_with_another_topology_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = {"name": "big", "zone": "zone-b", "memory_mib": 1280, "cpus": 2}
    status = {"profile": "fast", "kubernetes_version": "v1.36.3", "nodes": [node], "kind": "libvirt"}
    monkeypatch.setattr(registry, "running", lambda: ["p-000001"])
    monkeypatch.setattr(registry, "client", lambda _name: _Told(status))
    with pytest.raises(Problem, match="another topology: big") as caught:
        options.resolve("p-000001", "", "", "build", (), 0, 0, 0, (LARGE,))
    assert "nodeproof down --lab-name p-000001" in caught.value.next_step


def test_who_says_no_topology_is_not_asked_for_shapes_that_an_older_lab_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = {"name": "big", "zone": "zone-b"}
    status = {"profile": "fast", "kubernetes_version": "v1.36.3", "nodes": [node], "kind": "libvirt"}
    monkeypatch.setattr(registry, "running", lambda: ["p-000001"])
    monkeypatch.setattr(registry, "client", lambda _name: _Told(status))
    assert options.resolve("p-000001", "", "", "build", (), 0, 0).nodes == 1


class _Told:
    def __init__(self, status: object) -> None:
        self._status = status

    def status(self) -> object:
        return self._status
