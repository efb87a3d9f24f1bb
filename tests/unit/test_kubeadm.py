"""A cluster by kubeadm: its parts, its configuration, and what such a lab refuses."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from nodeproof.artifacts import kubeadm
from nodeproof.artifacts.build import build_go_version
from nodeproof.artifacts.components import ROLES, Component, Components, recipe_dir
from nodeproof.labs.client import starting
from nodeproof.labs.client.starting import LabRequest
from nodeproof.labs.kinds import kind_named
from nodeproof.model.overrides import NO_OVERRIDES, Overrides, parse
from nodeproof.model.problem import Problem
from nodeproof.session.coverage import COLUMNS
from nodeproof.session.options import Options, resolve
from tests.fakes import executable

KIND = kind_named("kubeadm")
IMAGES = ["registry.k8s.io/coredns/coredns:v1.14.6", "registry.k8s.io/pause:3.10.2"]


def components_in(folder: Path, script: str) -> Components:
    """Return components whose executables are all one script."""
    path = executable(folder / "kubeadm", script)
    by_role = {role: Component(role, path, "v1.37.2", "aa", "built") for role in ROLES}
    return Components("v1.37.2", MappingProxyType(by_role), True)


def lists(images: list[str]) -> str:
    return f'case "$*" in *=v1.37.2) printf "%s\\n" {" ".join(images)} ;; *) exit 1 ;; esac'


def test_parts_are_what_kubeadm_lists_for_the_version(tmp_path: Path, cache: Path) -> None:
    components = components_in(tmp_path, lists(IMAGES))
    assert kubeadm.cached(components) is None
    entry = cache / "coredns" / f"v1.14.6-go{build_go_version(recipe_dir())}"
    executable(entry / "coredns", "exit 0")
    parts = kubeadm.cached(components)
    assert parts is not None
    assert parts.images == IMAGES
    assert parts.executables["coredns"] == entry / "coredns"
    assert {"etcd", "kube-apiserver", "kube-proxy", "kubeadm", "kubelet"} <= parts.executables.keys()


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo no such version >&2; exit 1", "no such version"), (lists(["other:1"]), "no image of coredns")],
)
def test_kubeadm_without_images_is_a_problem(tmp_path: Path, cache: Path, script: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        kubeadm.cached(components_in(tmp_path, script))


def test_run_neither_starts_nor_plans_a_kubeadm_lab() -> None:
    with pytest.raises(Problem, match="like your own cluster"):
        resolve(Options(lab=KIND.name))
    assert KIND.name not in {kind for kind, _profile in COLUMNS}


def test_fast_profile_is_refused() -> None:
    def request(profile: str) -> LabRequest:
        return LabRequest("p-000000", 2, 1, profile, True, KIND.name)

    starting.check(request(KIND.default_profile.name))
    with pytest.raises(Problem, match="upstream's timing"):
        starting.check(request("fast"))


def test_settings_of_components_are_refused(tmp_path: Path) -> None:
    settings = parse("", ["kube-apiserver.v=4"])
    with pytest.raises(Problem, match="not started by nodeproof"):
        starting.dry_run(settings, components_in(tmp_path, ":"), KIND, KIND.default_profile)


@pytest.mark.parametrize(
    "overrides",
    [Overrides(upgrade_to="v1.37.3"), Overrides(control_planes=3), Overrides(node_versions=("v1.36.3",))],
    ids=["upgrade", "control planes", "node versions"],
)
def test_other_control_planes_and_versions_are_refused(overrides: Overrides) -> None:
    starting.check_versions(KIND, "v1.37.2", NO_OVERRIDES)
    with pytest.raises(Problem, match="kubeadm lab"):
        starting.check_versions(KIND, "v1.37.2", overrides)
