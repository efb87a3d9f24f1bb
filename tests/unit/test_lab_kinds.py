"""What differs between the kinds of lab, as far as it needs no lab."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.labs import profiles
from harness.labs.kinds import KIND_FEATURES, LAB_KINDS, LIBVIRT, PROCESS, check_kind
from harness.labs.process import kubelet
from harness.labs.process.spec import MAX_NODES, LabSpec, NodeSpec, check_node_count
from harness.labs.profiles import FAST, flags_set, settings
from harness.model.needs import FEATURES
from harness.model.problem import Problem

NODE = NodeSpec("node-1", 0, "zone-a", "0" * 32)
SPEC = LabSpec("p-000000", os.getuid(), os.getgid(), "v1.36.3", {}, True, "", "fast", (NODE,), False)
GUEST = replace(SPEC, kind=LIBVIRT, guest={"disk": "/somewhere/disk.qcow2"})
FOLDER = Path("/etc/kubernetes")


@pytest.fixture
def _cgroup_v1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with cgroup v1."""
    monkeypatch.setattr(profiles, "CGROUP_V2", tmp_path / "none")


def test_a_spec_survives_its_way_to_the_supervisor() -> None:
    assert LabSpec.from_json(GUEST.to_json()) == GUEST


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"nodes": [{}]}', '{"nodes": []}', '{"nodes": 1}'])
def test_what_is_no_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        LabSpec.from_json(text)


@pytest.mark.usefixtures("_cgroup_v1")
def test_a_guest_has_its_own_cgroups_whatever_the_host_has() -> None:
    process, guest = (kubelet.configuration(spec, NODE, FOLDER) for spec in (SPEC, GUEST))

    assert process["failCgroupV1"] is False
    assert "failCgroupV1" not in guest
    assert guest["cgroupDriver"] == "systemd"


def test_a_real_kubelet_is_not_said_to_be_hollow() -> None:
    assert any("hollow" in line for line in settings(FAST, PROCESS))
    assert not any("hollow" in line for line in settings(FAST, LIBVIRT))


def test_what_a_kind_of_lab_sets_is_no_default_to_look_at() -> None:
    assert "cgroupDriver" in flags_set(FAST, LIBVIRT)["kubelet"]
    assert "cgroupDriver" not in flags_set(FAST, PROCESS)["kubelet"]


@pytest.mark.parametrize("kind", LAB_KINDS)
def test_each_kind_has_a_limit_of_nodes_and_power(kind: str) -> None:
    check_kind(kind)
    check_node_count(MAX_NODES[kind], kind)
    assert "power" in KIND_FEATURES[kind]
    assert KIND_FEATURES[kind] <= FEATURES.keys()
    with pytest.raises(Problem, match=f"a {kind} lab has 1 to"):
        check_node_count(MAX_NODES[kind] + 1, kind)


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(Problem, match="process, libvirt"):
        check_kind("vmware")
