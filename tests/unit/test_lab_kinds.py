"""Differences between the kinds of lab that need no lab."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.doctor import diagnose
from nodeproof.labs import kinds
from nodeproof.labs.base import kubelet
from nodeproof.labs.base.nodes import NodeEnvironment, Nodes
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.base.spec import LabSpec, NodeSpec, Shape
from nodeproof.labs.client import starting
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
NO_COMPONENTS = Components("v1.36.3", {}, True)


@pytest.fixture
def _cgroup_v1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a host with cgroup v1."""
    monkeypatch.setattr(seed, "CGROUP_V2", tmp_path / "none")


def test_spec_survives_its_way_to_the_supervisor() -> None:
    for nodes in ((NODE,), (NODE, SHAPED)):
        spec = replace(GUEST, nodes=nodes)
        assert LabSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"nodes": [{}]}', '{"nodes": []}', '{"nodes": 1}'])
def test_invalid_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        LabSpec.from_json(text)


@pytest.mark.usefixtures("_cgroup_v1")
def test_guest_has_its_own_cgroups_regardless_of_the_host() -> None:
    process, guest = (
        kubelet.configuration(spec, NODE, FOLDER, kind_named(spec.kind).kubelet()) for spec in (SPEC, GUEST)
    )

    assert process["failCgroupV1"] is False
    assert "failCgroupV1" not in guest
    assert guest["cgroupDriver"] == "systemd"


def test_real_kubelet_is_not_described_as_hollow() -> None:
    assert any("hollow" in line for line in PROCESS.settings(FAST))
    assert not any("hollow" in line for line in LIBVIRT.settings(FAST))


@pytest.mark.parametrize("hollow_from_tree", [True, False])
def test_real_kubelet_is_the_tested_one(hollow_from_tree: bool) -> None:
    components = Components("v1.36.3", {}, hollow_from_tree)
    assert PROCESS.runs_tested_kubelet(components) == hollow_from_tree
    assert LIBVIRT.runs_tested_kubelet(components)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_power_and_a_node_limit(name: str) -> None:
    kind = kind_named(name)
    kind.check_nodes(kind.limits.nodes)
    assert "power" in kind.features
    assert kind.features <= FEATURES.keys()
    with pytest.raises(Problem, match=f"a {name} lab has 1 to"):
        kind.check_nodes(kind.limits.nodes + 1)


def test_kind_without_behaviour_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_on: NodeEnvironment) -> Nodes:
        raise NotImplementedError

    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "nothing": Kind("nothing", refuse)})
    starting.check(starting.LabRequest("p-000000", 3, 2, "fast", False, "nothing"))
    assert str(diagnose("nothing", 3)).startswith("nothing lab: ")
    assert kind_named("nothing").settings(FAST)
    with pytest.raises(Problem, match="process, libvirt, vagrant, nothing"):
        kind_named("vmware")


def test_kind_without_a_supervisor_is_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(Path(__file__).parent / "kinds")])
    monkeypatch.setattr(kinds, "KINDS", kinds.discover())
    assert [*kinds.KINDS] == [*KINDS, "dummy"]
    lab = starting.up(starting.LabRequest("mine", 2, 1, "documented", False, "dummy"), NO_COMPONENTS, print)
    assert (lab.kind, lab.profile.name, lab.usable_nodes()) == (
        kind_named("dummy"),
        "documented",
        ["node-1", "node-2"],
    )
    assert str(diagnose("dummy", 2)).startswith("dummy lab: ")
    lab.down()
    assert not lab.dir.exists()


def test_no_module_tests_the_name_of_a_kind() -> None:
    """Differences between kinds are in their objects; `model` reads stored names of earlier versions."""
    top = Path(kinds.__file__).parents[2]
    asking = [
        path.relative_to(top).as_posix()
        for path in top.rglob("*.py")
        if not any(path.is_relative_to(top / room) for room in ("labs/kinds", "model"))
        and re.search(r"\b(LIBVIRT|PROCESS)\b|\"(libvirt|process)\"", path.read_text())
    ]
    assert asking == []
