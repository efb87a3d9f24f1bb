"""The settings of somebody's own cluster from which windows are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodeproof.existing.configuration import MANAGER, Evidence, manager_settings
from nodeproof.model.formula import SYMBOLS, read
from nodeproof.model.problem import Problem
from tests.unit.test_audit import CATALOGUE, VERSION, evidence, static_pod

Json = Any
DEFAULTS = {"G": 50.0, "P": 5.0, "E": 0.1, "E2": 0.01, "S": 60.0}


def symbols(of: Evidence, version: str = VERSION) -> Mapping[str, float]:
    reported = {MANAGER: manager_settings(of, CATALOGUE, version, "cluster.yaml")}
    return {name: read(SYMBOLS[name], reported) for name in DEFAULTS}


def test_flag_that_is_not_set_has_the_default_of_the_version() -> None:
    assert symbols(evidence(static_pods=[static_pod()])) == DEFAULTS
    assert symbols(evidence(static_pods=[static_pod()]), "v1.31.0")["G"] == 40.0


def test_flags_of_the_running_cluster_count() -> None:
    flags = ("--node-monitor-grace-period=1m30s", "--node-eviction-rate=0.5")
    assert symbols(evidence(static_pods=[static_pod(*flags)])) == {**DEFAULTS, "G": 90.0, "E": 0.5}


def test_flag_may_have_underscores() -> None:
    assert symbols(evidence(static_pods=[static_pod("--node_monitor_grace_period=16s")]))["G"] == 16.0


def in_a_shell() -> Json:
    """Return a static pod whose flags a shell hides."""
    pod = static_pod()
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"exec {MANAGER} --node-monitor-grace-period=16s"]
    return pod


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (evidence(unread="pods are forbidden"), "pods are forbidden"),
        (evidence(static_pods=[in_a_shell()]), "no command line of a controller manager"),
        (
            evidence(static_pods=[static_pod("--node-monitor-period=2s"), static_pod(name="cp-2")]),
            "controller managers have",
        ),
    ],
)
def test_unknown_setting_is_refused(of: Evidence, reason: str) -> None:
    with pytest.raises(Problem, match=f"is unknown .*{reason}"):
        symbols(of)
