"""Kubelets of other versions than their control plane, and its upgrades: refused, started and reported."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import ROLES
from nodeproof.artifacts.skew import check_skew, check_upgrade, parse_node_versions
from nodeproof.labs.base.spec import LabSpec, NodeSpec
from nodeproof.labs.client.starting import check_versions
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.model.history import Entry, History
from nodeproof.model.overrides import NO_OVERRIDES, Overrides, suffix
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import conforms
from nodeproof.report import rundir, tables
from nodeproof.session.judging import with_upgrade
from tests.fakes import executable
from tests.unit.histories import configuration
from tests.unit.test_tables import claim

SKEWED = replace(NO_OVERRIDES, node_versions=("v1.36.3", "v1.37.2"))


def lab_spec(overrides: Overrides) -> LabSpec:
    nodes = tuple(NodeSpec(f"node-{slot + 1}", slot, "zone-a", f"{slot:032}") for slot in range(3))
    return LabSpec(
        "p-000000", os.getuid(), os.getgid(), "v1.37.2", {role: {"path": f"/own/{role}"} for role in ROLES},
        True, "", "fast", nodes, False, "process", overrides=overrides,
        kubelets={"v1.36.3": "/older/kubelet"},
    )  # fmt: skip


def test_node_versions_are_parsed() -> None:
    assert parse_node_versions("") == ()
    assert parse_node_versions("1.36.3, v1.37.2") == ("v1.36.3", "v1.37.2")
    with pytest.raises(Problem, match=r"'banana' is not a version of Kubernetes \(--node-versions\)"):
        parse_node_versions("v1.36.3,banana")


@pytest.mark.parametrize("versions", [(), ("v1.37.9",), ("v1.37.2", "v1.34.0"), ("v1.36.0-rc.1",)])
def test_kubelets_of_the_last_four_minors_are_supported(versions: tuple[str, ...]) -> None:
    check_skew("v1.37.2", versions)


@pytest.mark.parametrize(
    ("version", "relation"),
    [("v1.38.0", "is newer than"), ("v1.33.9", "is more than 3 minor versions older than")],
)
def test_other_kubelets_are_refused_with_the_rule(version: str, relation: str) -> None:
    with pytest.raises(Problem, match=f"kubelet {version} {relation} kube-apiserver v1.37.2") as caught:
        check_skew("v1.37.2", ("v1.37.2", version))
    assert "the version skew policy allows kubelets of 1.34 to 1.37" in str(caught.value)


def test_only_kinds_with_hollow_kubelets_have_other_versions() -> None:
    check_versions(PROCESS, "v1.37.2", SKEWED)
    check_versions(LIBVIRT, "v1.37.2", NO_OVERRIDES)
    with pytest.raises(Problem, match="versions of a libvirt lab's nodes cannot be set"):
        check_versions(LIBVIRT, "v1.37.2", SKEWED)


def test_nodes_get_the_versions_in_turn() -> None:
    spec = LabSpec.from_json(lab_spec(SKEWED).to_json())
    assert spec.overrides == SKEWED
    executables = [spec.hollow_kubelet(node) for node in spec.nodes]
    assert executables == ["/older/kubelet", "/own/hollow-kubelet", "/older/kubelet"]
    same = lab_spec(NO_OVERRIDES)
    assert {same.hollow_kubelet(node) for node in same.nodes} == {"/own/hollow-kubelet"}


def test_runs_with_skew_are_told_apart() -> None:
    assert SKEWED.texts == ("--node-versions v1.36.3,v1.37.2",)
    assert suffix(SKEWED.texts) != suffix(NO_OVERRIDES.texts)


def test_row_and_table_name_the_other_kubelets() -> None:
    skewed = replace(configuration(), node_versions={"node-1": "v1.34.0"})
    verdict = conforms("it came", None)
    row = rundir.row(claim("a.b"), "s.py::test_it", verdict, skewed)
    assert row["node_versions"] == {"node-1": "v1.34.0"}
    assert "judged with kubelets node-1 v1.34.0" in tables.render([row], 1.0, "report")
    assert "node_versions" not in rundir.row(claim("a.b"), "s.py::test_it", verdict, configuration())


def test_kubelet_constant_is_that_of_the_kubelet() -> None:
    older = replace(configuration(), kubernetes_version="v1.37.2", kubelet_version="v1.34.0")
    assert older.version_of("kubelet") == "v1.34.0"
    assert older.version_of("kube-scheduler") == "v1.37.2"


@pytest.mark.parametrize(
    ("old", "new"), [("v1.36.3", "v1.37.2"), ("v1.36.3", "v1.36.4"), ("v1.36.3+abc", "v1.37.0-rc.1")]
)
def test_upgrade_to_the_next_minor_or_a_newer_patch_is_supported(old: str, new: str) -> None:
    check_upgrade(old, new, ("v1.35.0",))


@pytest.mark.parametrize("new", ["v1.36.3", "v1.36.2", "v1.35.9", "v1.38.0"])
def test_other_upgrades_are_refused_with_the_rule(new: str) -> None:
    with pytest.raises(Problem, match=f"kube-apiserver v1.36.3 cannot be upgraded to {new}") as caught:
        check_upgrade("v1.36.3", new, ())
    assert "the version skew policy allows a newer patch of 1.36, or 1.37" in str(caught.value)
    assert caught.value.where == "--upgrade-to"


def test_upgrade_that_its_kubelets_do_not_support_is_refused() -> None:
    with pytest.raises(Problem, match=r"kubelet v1.33.0 is more than 3 .* kube-apiserver v1.37.2"):
        check_upgrade("v1.36.3", "v1.37.2", ("v1.33.0",))


def test_upgrade_needs_a_version_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"'banana' is not a version of Kubernetes \(--upgrade-to\)"):
        check_upgrade("v1.36.3", "banana", ())
    with pytest.raises(Problem, match="no executable kube-apiserver"):
        check_upgrade("v1.36.3", str(tmp_path), ())
    executable(tmp_path / "kube-apiserver", "echo Kubernetes v1.37.2")
    check_upgrade("v1.36.3", str(tmp_path), ())


def test_row_table_and_settings_name_the_upgrade() -> None:
    upgraded = replace(configuration(), kubernetes_version="v1.36.3", upgraded_to="v1.37.2")
    row = rundir.row(claim("a.b"), "s.py::test_it", conforms("it came", None), upgraded)
    assert (row["kubernetes_version"], row["upgraded_to"]) == ("v1.36.3", "v1.37.2")
    assert "judged with an upgrade to v1.37.2" in tables.render([row], 1.0, "report")
    assert replace(NO_OVERRIDES, upgrade_to="v1.37.2").texts == ("--upgrade-to v1.37.2",)


def test_version_of_an_upgrade_is_read_from_the_recording() -> None:
    entry = {"fault": {"fault": "upgrade", "node": "kube-apiserver", "version": "v1.37.2"}, "id": "u"}
    recorded = History.of([Entry(1.0, "fault", {**entry, "step": "injecting"})])
    assert with_upgrade(configuration(), recorded).upgraded_to == "v1.37.2"
    assert with_upgrade(configuration(), History.of([])) == configuration()
