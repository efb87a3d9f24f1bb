"""What a fault of the recording set is not what was read of the configuration before."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.checks.checks import default_of
from nodeproof.checks.judge import judge
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict
from tests.unit.given import CLAIM, DETECTION, EVICTION, FROM_FAULT, TAINT
from tests.unit.histories import CUT_T, NODE, configuration, partition

Json = Any
MANAGER = "kube-controller-manager"


def judged(check: Check, fault: Json) -> Verdict:
    story = partition()
    for step in ("injecting", "injected", "healed"):
        story.say(CUT_T - 1, "fault", id="set", fault={"id": "set", **fault}, node=fault["node"], step=step)
    story.fence(60.0)
    return judge(CLAIM, check, story.history(), configuration())


@pytest.mark.parametrize(
    ("check", "component", "flag"),
    [
        (DETECTION, MANAGER, "node-monitor-grace-period"),
        (DETECTION, MANAGER, "node-monitor-period"),
        (TAINT, MANAGER, "node-eviction-rate"),
        (default_of("node-monitor-grace-period"), MANAGER, "node-monitor-grace-period"),
    ],
)
def test_a_figure_that_was_set_by_a_flag_is_not_known(check: Check, component: str, flag: str) -> None:
    verdict = judged(check, {"fault": "settings", "node": component, "flags": {flag: "1"}})
    assert verdict.label == "unproven: scaled", verdict
    assert f"of {component} was set by fault set" in verdict.reason


@pytest.mark.parametrize(
    ("check", "component", "flag"),
    [
        (DETECTION, MANAGER, "node-eviction-rate"),
        (DETECTION, "kube-scheduler", "node-monitor-period"),
        (EVICTION, MANAGER, "node-monitor-period"),
    ],
)
def test_another_figure_does_not_matter(check: Check, component: str, flag: str) -> None:
    verdict = judged(check, {"fault": "settings", "node": component, "flags": {flag: "1"}})
    assert verdict.label == "conforms", verdict


@pytest.mark.parametrize(
    ("field", "label"), [("nodeLeaseDurationSeconds", "unproven: scaled"), ("maxPods", "conforms")]
)
def test_a_kubelets_fields_are_figures_too(field: str, label: str) -> None:
    fault = {"fault": "kubelet-settings", "node": NODE, "settings": {field: 40}}
    assert judged(FROM_FAULT, fault).label == label
