"""What differs between the kinds of lab, as far as it needs no lab."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.doctor import diagnose
from nodeproof.labs import kinds
from nodeproof.labs.client import starting
from nodeproof.labs.ground import kubelet
from nodeproof.labs.ground.nodes import Ground, Nodes
from nodeproof.labs.ground.profiles import FAST
from nodeproof.labs.ground.spec import LabSpec, NodeSpec, Shape
from nodeproof.labs.kinds import KINDS, LIBVIRT, PROCESS, kind_named
from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.process import seed
from nodeproof.model.needs import FEATURES
from nodeproof.model.problem import Problem

NODE = NodeSpec("node-1", 0, "zone-a", "0" * 32)
SHAPED = replace(NODE, shape=Shape(cpus=4, numa_nodes=2, kernel=("quiet",)))
SPEC = LabSpec(
    "p-000000", os.getuid(), os.getgid(), "v1.36.3", {}, True, "", "fast", (NODE,), False, "process"
)
GUEST = replace(SPEC, kind=LIBVIRT.name, guest={"disk": "/somewhere/disk.qcow2"})
FOLDER = Path("/etc/kubernetes")


@pytest.fixture
def _cgroup_v1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with cgroup v1."""
    monkeypatch.setattr(seed, "CGROUP_V2", tmp_path / "none")


def test_a_spec_survives_its_way_to_the_supervisor() -> None:
    for nodes in ((NODE,), (NODE, SHAPED)):
        spec = replace(GUEST, nodes=nodes)
        assert LabSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"nodes": [{}]}', '{"nodes": []}', '{"nodes": 1}'])
def test_what_is_no_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        LabSpec.from_json(text)


@pytest.mark.usefixtures("_cgroup_v1")
def test_a_guest_has_its_own_cgroups_whatever_the_host_has() -> None:
    process, guest = (
        kubelet.configuration(spec, NODE, FOLDER, kind_named(spec.kind).kubelet()) for spec in (SPEC, GUEST)
    )

    assert process["failCgroupV1"] is False
    assert "failCgroupV1" not in guest
    assert guest["cgroupDriver"] == "systemd"


def test_a_real_kubelet_is_not_said_to_be_hollow() -> None:
    assert any("hollow" in line for line in PROCESS.settings(FAST))
    assert not any("hollow" in line for line in LIBVIRT.settings(FAST))


@pytest.mark.parametrize("hollow_from_tree", [True, False])
def test_a_real_kubelet_is_the_tested_one_whatever_the_hollow_one_is(hollow_from_tree: bool) -> None:
    components = Components("v1.36.3", {}, hollow_from_tree)
    assert PROCESS.runs_tested_kubelet(components) == hollow_from_tree
    assert LIBVIRT.runs_tested_kubelet(components)


def test_what_a_kind_of_lab_sets_is_no_default_to_look_at() -> None:
    assert "cgroupDriver" in LIBVIRT.flags_set(FAST)["kubelet"]
    assert "cgroupDriver" not in PROCESS.flags_set(FAST)["kubelet"]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_a_limit_of_nodes_and_power(name: str) -> None:
    kind = kind_named(name)
    kind.check_nodes(kind.limits.nodes)
    assert "power" in kind.features
    assert kind.features <= FEATURES.keys()
    with pytest.raises(Problem, match=f"a {name} lab has 1 to"):
        kind.check_nodes(kind.limits.nodes + 1)


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(Problem, match="process, libvirt"):
        kind_named("vmware")


def test_a_kind_that_does_nothing_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_on: Ground) -> Nodes:
        raise NotImplementedError

    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "nothing": Kind("nothing", refuse)})
    starting.check(starting.Request("p-000000", 3, 2, "fast", False, "nothing"))
    assert str(diagnose("nothing", 3)).startswith("nothing lab: ")
    assert kind_named("nothing").settings(FAST)
    with pytest.raises(Problem, match="process, libvirt, vagrant, nothing"):
        kind_named("vmware")


def test_nobody_asks_for_the_name_of_a_kind() -> None:
    """What differs between kinds is in their objects; `model` reads what earlier versions stored."""
    top = Path(kinds.__file__).parents[2]
    asking = [
        path.relative_to(top).as_posix()
        for path in top.rglob("*.py")
        if not any(path.is_relative_to(top / room) for room in ("labs/kinds", "model"))
        and re.search(r"\b(LIBVIRT|PROCESS)\b|\"(libvirt|process)\"", path.read_text())
    ]
    assert asking == []
