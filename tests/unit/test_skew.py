"""Kubelets of other versions than their control plane, and its upgrades: refused, started and reported."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.artifacts.components import HOLLOW, ROLES, check_skew, check_upgrade, parse_node_versions
from nodeproof.checks.judge import judge, kubelet_version
from nodeproof.labs.base.spec import LabSpec, NodeSpec
from nodeproof.labs.client.starting import Entry as NodeEntry
from nodeproof.labs.client.starting import Topology, read_topology
from nodeproof.labs.kinds import PROCESS, VAGRANT
from nodeproof.model import window as windows
from nodeproof.model.claim import ReportedBug, Subject
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.overrides import NO_OVERRIDES, Overrides
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import conforms
from nodeproof.report import digest, rundir, tables
from nodeproof.session.judging import with_upgrade
from nodeproof.session.options import Options, resolve
from tests.fakes import executable
from tests.unit.histories import NODE, OTHER, configuration, partition
from tests.unit.sample_checks import CLAIM, EVICTION, TAINT
from tests.unit.synthetic_runs import claim, digest_of

SKEWED = replace(NO_OVERRIDES, node_versions=("v1.36.3", "v1.37.2"))
TOPOLOGY = Topology(
    (NodeEntry("one", "zone-a", kubelet_version="v1.36.3"), NodeEntry("two", "zone-a")), "v1.37.2"
)


def lab_spec(overrides: Overrides) -> LabSpec:
    nodes = tuple(NodeSpec(f"node-{slot + 1}", slot, "zone-a", f"{slot:032}") for slot in range(3))
    return LabSpec(
        "p-000000", os.getuid(), os.getgid(), "v1.37.2", {role: {"path": f"/own/{role}"} for role in ROLES},
        True, "", "fast", nodes, False, "process", overrides=overrides,
        guest={"disk": "/own/disk", "snapshots": "/own/snapshots"}, kubelets={"v1.36.3": "/older/kubelet"},
        guests={"v1.36.3": {"disk": "/older/disk", "snapshots": "/older/snapshots"}},
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


def test_topology_names_versions(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        "kubernetes_version: 1.37.2\n"
        "nodes: [{name: one, zone: zone-a, kubelet_version: 1.36.3}, {name: two, zone: zone-a}]"
    )
    assert read_topology(str(file)) == TOPOLOGY


def test_run_has_the_versions_of_its_topology() -> None:
    options = resolve(Options(PROCESS.name, topology=TOPOLOGY))
    assert options.kubernetes_version == "v1.37.2"
    assert options.overrides == SKEWED
    same = resolve(Options(PROCESS.name, topology=TOPOLOGY, kubernetes_version="1.37.2"))
    assert same.overrides == SKEWED
    plain = Topology(TOPOLOGY.entries[1:])
    assert resolve(Options(PROCESS.name, topology=plain, overrides=SKEWED)).overrides == SKEWED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"kubernetes_version": "v1.36.3"},
            r"the topology file has .* v1.37.2 \(--kubernetes-version v1.36.3",
        ),
        ({"overrides": SKEWED}, r"the topology file has versions of kubelets \(--node-versions\)"),
        (
            {"topology": replace(TOPOLOGY, kubernetes_version="v1.35.0")},
            r"kubelet v1.36.3 is newer than kube-apiserver v1.35.0 \(--topology, node one\)",
        ),
        ({"lab": VAGRANT.name}, "versions of a vagrant lab's nodes cannot be set"),
    ],
)
def test_conflicts_with_a_topology_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Problem, match=words) as caught:
        resolve(Options(**{"lab": PROCESS.name, "topology": TOPOLOGY, **options}))
    assert "\n" not in str(caught.value)


def test_nodes_get_the_versions_in_turn() -> None:
    spec = LabSpec.from_json(lab_spec(SKEWED).to_json())
    assert spec.overrides == SKEWED
    executables = [spec.kubelet(node, HOLLOW) for node in spec.nodes]
    assert executables == ["/older/kubelet", "/own/hollow-kubelet", "/older/kubelet"]
    assert [spec.guest_of(node)["disk"] for node in spec.nodes] == ["/older/disk", "/own/disk", "/older/disk"]
    same = lab_spec(NO_OVERRIDES)
    assert {same.kubelet(node, HOLLOW) for node in same.nodes} == {"/own/hollow-kubelet"}
    assert {same.guest_of(node)["disk"] for node in same.nodes} == {"/own/disk"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("node_versions", {"node-1": "v1.34.0"}, "judged with kubelets node-1 v1.34.0"),
        ("upgraded_to", "v1.37.2", "judged with an upgrade to v1.37.2"),
    ],
)
def test_row_and_table_name_other_versions(field: str, value: Any, words: str) -> None:
    verdict, changed = conforms("it came", None), {field: value}
    row = rundir.row(claim("a.b"), "s.py::test_it", verdict, replace(configuration(), **changed))
    assert (row["kubernetes_version"], row[field]) == (configuration().kubernetes_version, value)
    assert words in tables.render(digest_of([row]), "report", {})
    assert field not in rundir.row(claim("a.b"), "s.py::test_it", verdict, configuration())


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


def test_version_of_an_upgrade_is_read_from_the_recording() -> None:
    entry = {"fault": {"fault": "upgrade", "node": "kube-apiserver", "version": "v1.37.2"}, "id": "u"}
    recorded = History.of([Entry(1.0, "fault", {**entry, "step": "injecting"})])
    assert with_upgrade(configuration(), recorded).upgraded_to == "v1.37.2"
    assert with_upgrade(configuration(), History.of([])) == configuration()


# The kubelet that a claim is about


KUBELET_CLAIM = replace(CLAIM, subject="kubelet", constants=())
OLDER = replace(configuration(), kubernetes_version="v1.37.2", node_versions={NODE: "v1.34.4"})
NEWER = replace(OLDER, node_versions={OTHER: "v1.34.4"})


@pytest.mark.parametrize(
    ("subject", "versions", "settings", "label"),
    [
        ("kubelet", ">=1.36", OLDER, "unproven: not-applicable"),
        ("kubelet", "<1.36", OLDER, "conforms"),
        ("kubelet", ">=1.36", NEWER, "conforms"),
        ("kubelet", "<1.36", NEWER, "unproven: not-applicable"),
        ("control-plane", ">=1.36", OLDER, "conforms"),
    ],
)
@pytest.mark.parametrize("check", [TAINT, EVICTION], ids=["node", "pod"])
def test_kubelet_claim_is_compared_with_the_version_of_its_node(
    subject: Subject, versions: str, settings: Configuration, label: str, check: Check
) -> None:
    judged = replace(KUBELET_CLAIM, subject=subject, versions=versions)
    assert judge(judged, check, evicted(), settings).label == label


def test_row_table_and_recheck_have_the_version_of_the_kubelet() -> None:
    newer = replace(KUBELET_CLAIM, versions=">=1.36")
    verdict = judge(newer, TAINT, evicted(), OLDER)
    assert verdict.reason == "the claim holds for >=1.36, the kubelet runs v1.34.4"
    row = rundir.row(newer, "s.py::test_it", verdict, OLDER)
    assert (row["kubelet_version"], row["kubernetes_version"]) == ("v1.34.4", "v1.37.2")
    assert row["page"]["agreement"] == "unknown"
    assert digest.verdict_of(row).kubelet_version == "v1.34.4"
    assert "kubelet v1.34.4" in tables.render(digest_of([row]), "report", {}).splitlines()[2]


def test_claim_about_several_kubelets_holds_if_it_holds_for_all() -> None:
    both = replace(OLDER, node_versions={NODE: "v1.36.3", OTHER: "v1.34.4"})
    history = evicted()
    no_node = Check("counted", {})
    for versions, version in ((">=1.18", "v1.34.4"), ("<1.36", "v1.36.3"), (">=1.36", "v1.34.4")):
        judged = replace(KUBELET_CLAIM, versions=versions)
        assert kubelet_version(judged, no_node, history, both) == version


def test_reported_bug_is_one_of_the_version_of_the_kubelet() -> None:
    bug = ReportedBug("a/b#1", "<1.36", windows.formula("period", "5", "4", "6 + slack"))
    reported = replace(KUBELET_CLAIM, reported=bug)
    late = partition(taint_s=5.0).fence(90.0).history()
    assert judge(reported, TAINT, late, OLDER).label == "deviates: reported"
    assert judge(reported, TAINT, late, NEWER).label == "deviates"


def evicted() -> History:
    return partition().fence(90.0).history()
