"""A lab runs with the feature gates, flags and fields of a user, and refuses unknown ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodeproof.cluster.published import configz, kubelet_configz
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import MANAGER, LabHandle
from nodeproof.model.cluster import flags_of
from nodeproof.report import rundir
from tests.acceptance.altered import shipped
from tests.acceptance.command import check_refused, nodeproof

SETTINGS = (
    *("--feature-gates", "AllAlpha=false"),
    *("--set", "kubelet.maxPods=50"),
    *("--set", "kube-controller-manager.terminated-pod-gc-threshold=77"),
)
DEFAULTS = shipped("registration/test_kubelet_defaults.py")
UP, RUN = ("up",), ("run", "--no-site", "--run", "run", "-n", "2", DEFAULTS)


@pytest.fixture
def own_settings_lab(tmp_path: Path) -> Iterator[LabHandle]:
    """Return a lab that was started by hand with settings."""
    up = nodeproof("up", "--nodes", "2", *SETTINGS, cwd=tmp_path)
    assert up.status == 0
    name = up.stdout.strip()
    try:
        yield registry.attach(name)
    finally:
        nodeproof("down", "--lab-name", name, cwd=tmp_path)


def test_components_run_with_the_settings_of_the_user(own_settings_lab: LabHandle, tmp_path: Path) -> None:
    """A claim that assumes a default of one of them does not deviate."""
    lab = own_settings_lab
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert flags_of(lab.fleet.command_lines()[component])["feature-gates"] == "AllAlpha=false"
    manager = configz(lab.cluster.api, MANAGER)
    assert manager["PodGCController"]["TerminatedPodGCThreshold"] == 77
    for node in lab.fleet.node_names():
        kubelet = kubelet_configz(lab.cluster.api, node)
        assert (kubelet["maxPods"], kubelet["featureGates"]) == (50, {"AllAlpha": False})

    run = tmp_path / "run"
    options = ("--no-site", "--lab", lab.name, "--run", str(run), "-k", "defaults")
    assert nodeproof("run", *options, DEFAULTS, cwd=tmp_path).status == 0
    facts = rundir.read_facts(run)
    assert facts.overrides == registry.spec_of(lab.name).overrides.texts
    assert {"kubelet maxPods=50", "kube-scheduler feature-gates=AllAlpha=false"} <= {*facts.settings}
    codes = {row["code"] for row in rundir.read_verdicts(run) if row["claim"] == "capacity.max-pods"}
    assert codes == {"scaled"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("--feature-gates", "Nonsense=true"), "knows the feature gate Nonsense (--feature-gates)"),
        (("--set", "kube-scheduler.nonsense=1"), "kube-scheduler refuses its settings: unknown flag"),
        (("--set", "kubelet.nonsense=1"), "KubeletConfiguration has no field nonsense"),
        (("--set", "kubelet.maxPods=many"), "cannot unmarshal string"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)  # fmt: skip
@pytest.mark.parametrize("command", [UP, RUN], ids=lambda command: command[0])
def test_setting_that_a_component_refuses_starts_nothing(
    tmp_path: Path, command: Sequence[str], setting: Sequence[str], message: str
) -> None:
    check_refused(nodeproof(*command, *setting, cwd=tmp_path), message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "setting", "message", "status"),
    [
        (UP, "kube-apiserver.max-requests-inflight=-5", "died while the lab started: --max-requests", 2),
        (RUN, "kubelet.tlsMinVersion=foo", 'exited 1: unknown tls version "foo"', 3),
    ],
    ids=("up", "run"),
)
def test_value_that_a_component_refuses_at_its_start_is_one_line(
    tmp_path: Path, command: Sequence[str], setting: str, message: str, status: int
) -> None:
    """A dry run ends before the component looks at these values; the claims of a run are then unproven."""
    check_refused(nodeproof(*command, "--set", setting, cwd=tmp_path), message, status=status)
