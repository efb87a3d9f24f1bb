"""From a check's result to a verdict: obstacles and their precedence, changed settings, faults that end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeproof.checks.judge import judge
from nodeproof.checks.observations import lasted
from nodeproof.checks.settings import default_of
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant, ReportedBug
from nodeproof.model.cluster import Configuration
from nodeproof.model.judgment import Check
from nodeproof.model.needs import CLOUD
from nodeproof.model.verdict import Verdict
from tests.unit.histories import CUT_T, NODE, Story, configuration, partition
from tests.unit.sample_checks import CLAIM, DETECTION, EVICTION, FROM_FAULT, TAINT, TAINTED, UNKNOWN

GRACE_FLAG = Constant(
    "grace", "kcm", "Grace", "node-monitor-grace-period", "s", ((">=1.18", 50.0),), 40.0, "defaults.go"
)
TIMING_CLAIM = Claim(
    "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (GRACE_FLAG,), ("source",)
)
DEFAULT = default_of("grace")
CONFIGURATION = configuration()


def label(
    story: Story, check: Check = TAINT, claim: Claim = TIMING_CLAIM, settings: Configuration = CONFIGURATION
) -> str:
    return judge(claim, check, story.fence(90.0).history(), settings).label


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"kcm": {"node-monitor-grace-period": "9s"}}, "unproven: scaled"),
        ({"kcm": {"node-monitor-period": "9s"}}, "conforms"),
        ({"kubelet": {"node-monitor-grace-period": "9s"}}, "conforms"),
    ],
)
def test_claim_that_assumes_a_default_is_unproven_without_it(
    flags: dict[str, dict[str, str]], expected: str
) -> None:
    claim, settings = replace(CLAIM, defaults=("kcm.nodeMonitorGracePeriod",)), configuration(flags_set=flags)
    assert label(partition(), claim=claim, settings=settings) == expected
    assert label(partition(), settings=settings) == "conforms"


LATE_TAINT = ReportedBug("a/b#1", ">=1.30", windows.formula("period", "5", "4", "6 + slack"))
NO_TAINT = replace(LATE_TAINT, window=windows.formula("negative", "8", "0", "8"))
OF_NEWER = replace(LATE_TAINT, versions=">=1.99")


@pytest.mark.parametrize(
    ("taint_s", "bug", "expected"),
    [
        (0.15, LATE_TAINT, "conforms: fixed?"),
        (0.15, OF_NEWER, "conforms"),
        (5.0, LATE_TAINT, "deviates: reported"),
        (5.0, OF_NEWER, "deviates"),
        (5.0, NO_TAINT, "deviates"),
        (9.0, LATE_TAINT, "deviates"),
        (9.0, NO_TAINT, "deviates: reported"),
    ],
)
def test_deviation_is_known_if_it_is_the_reported_one(
    taint_s: float, bug: ReportedBug, expected: str
) -> None:
    assert label(partition(taint_s=taint_s), claim=replace(CLAIM, reported=bug)) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [(">=1.36", "conforms"), (">=1.37", "not-applicable"), ("<1.37", "not-applicable")],
)
def test_claim_must_hold_for_both_versions_of_an_upgrade(versions: str, expected: str) -> None:
    claim, upgraded = replace(CLAIM, versions=versions), configuration(upgraded_to="v1.37.2")
    verdict = judge(claim, TAINT, partition().fence(90.0).history(), upgraded)
    assert expected in verdict.label
    if expected == "not-applicable":
        assert verdict.reason == f"the claim holds for {versions}, the cluster runs v1.36.3, then v1.37.2"


def test_deviation_that_may_be_the_reported_one_is_a_loaded_host() -> None:
    story = loaded(partition(taint_s=5.9), late_s=0.6)
    assert label(story, claim=CLAIM) == "deviates"
    assert label(story, claim=replace(CLAIM, reported=LATE_TAINT)) == TOO_LOADED


@pytest.mark.parametrize(
    ("taint_s", "expected"),
    [(3.0, "deviates"), (5.0, "deviates: reported"), (7.0, "deviates"), (30.0, "conforms: fixed?")],
)
def test_event_that_must_not_come_is_known_if_it_comes_as_reported(taint_s: float, expected: str) -> None:
    check = TAINTED.never_after(UNKNOWN, windows.absence(20.0))
    assert label(partition(taint_s=taint_s), check, replace(CLAIM, reported=LATE_TAINT)) == expected


def test_check_without_a_window_matches_no_report() -> None:
    assert LATE_TAINT.deviation(DEFAULT) is None


def died(story: Story, *, expected: bool = False) -> Story:
    return story.say(30.0, "component", name="kubelet", node=NODE, status="exited with 1", expected=expected)


def loaded(story: Story, late_s: float = 1.2) -> Story:
    return story.say(31.0, "stall", late_s=late_s)


def deadman(story: Story) -> Story:
    return story.say(29.0, "deadman", id="cut", node=NODE)


def unproven(story: Story) -> Story:
    return story.fault(3.0, "planned", "armed", "unproven", id_="other")


NOT_INJECTED, TOO_LOADED = "unproven: not-injected", "unproven: host-too-loaded"
COMPONENT_DIED = "unproven: component-died"
LATE_S = 5.0


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (partition(), "conforms"),
        (partition(taint_s=LATE_S), "deviates"),
        *((unproven(partition(taint_s=taint_s)), NOT_INJECTED) for taint_s in (0.15, LATE_S)),
        *((deadman(partition(taint_s=taint_s)), NOT_INJECTED) for taint_s in (0.15, LATE_S)),
        *((died(partition(taint_s=taint_s)), COMPONENT_DIED) for taint_s in (0.15, LATE_S)),
        *((loaded(partition(taint_s=taint_s), 0.79), TOO_LOADED) for taint_s in (0.15, LATE_S)),
        (partition().say(29.0, "deadman", id="of-an-earlier-one", node="node-2"), "conforms"),
        (died(partition(), expected=True), "conforms"),
        (loaded(partition(), 0.7), "conforms"),
        # Slack far above the limit makes every window undiscerning; that must not end as a green skip.
        (loaded(partition(), 60.0), TOO_LOADED),
        # The order of precedence.
        (loaded(died(deadman(partition()))), NOT_INJECTED),
        (loaded(died(unproven(partition()))), NOT_INJECTED),
        (loaded(died(partition())), COMPONENT_DIED),
        # An unhealed fault excuses only a deviation.
        (partition(taint_s=LATE_S).fault(70.0, "unhealed"), NOT_INJECTED),
        (partition().fault(70.0, "unhealed"), "conforms"),
    ],
)
def test_obstacle_makes_a_verdict_unproven(story: Story, expected: str) -> None:
    assert label(story) == expected


def test_fault_missing_in_a_later_probe_is_not_injected() -> None:
    story = partition().fault(25.0, "unproven")
    assert label(story) == "unproven: not-injected"
    story.fault(26.0, "injected")
    assert label(story) == "conforms"


@pytest.mark.parametrize(
    ("ends_components", "healed_t", "expected"),
    [
        (True, 40.0, "conforms"),
        (True, 29.0, "unproven: component-died"),
        (False, 40.0, "unproven: component-died"),
    ],
)
def test_component_may_end_only_during_a_fault_that_ends_components(
    ends_components: bool, healed_t: float, expected: str
) -> None:
    story = died(partition())
    story.fault(10.0, "injecting", "injected", id_="down", ends_components=ends_components)
    story.fault(healed_t, "healed", "closed", id_="down", ends_components=ends_components)

    assert label(story) == expected


def test_window_spoiled_by_allowed_slack_is_a_loaded_host() -> None:
    settings = configuration(slack_limit_s=5.0)
    assert label(loaded(partition(), 4.0), settings=settings) == "unproven: host-too-loaded"
    assert label(loaded(died(partition()), 4.0), settings=settings) == "unproven: component-died"


def test_gap_stays_a_gap_on_a_loaded_host() -> None:
    story = partition().gap(20.0, 25.0, "nodes")
    assert label(loaded(story, 0.5), settings=configuration(slack_limit_s=0.5)) == "unproven: gap"


def test_missing_injection_stays_not_injected_on_a_loaded_host() -> None:
    assert label(loaded(Story()), FROM_FAULT) == "unproven: not-injected"


def test_permanent_obstacle_takes_precedence() -> None:
    broken = loaded(died(deadman(partition())))
    old = replace(TIMING_CLAIM, versions="<1.20")
    assert label(broken, claim=old) == "unproven: not-applicable"
    kubelet = replace(TIMING_CLAIM, subject="kubelet")
    foreign = configuration(tested_kubelet=False)
    assert label(broken, claim=kubelet, settings=foreign) == "unproven: lab-lacks"
    assert label(partition(), claim=kubelet) == "conforms"
    assert label(partition(), settings=foreign) == "conforms"


@pytest.mark.parametrize(
    ("files", "outcome"),
    [({}, "unproven: lab-lacks"), ({CLOUD: "a"}, "conforms"), ({CLOUD: "b"}, "unproven: lab-lacks")],
)
def test_cloud_controller_manager_is_judged_if_built_from_the_tree(
    files: dict[str, str], outcome: str
) -> None:
    components = {
        role: {"sha256": sha256} for role, sha256 in {"kube-controller-manager": "a", **files}.items()
    }
    cloud = replace(TIMING_CLAIM, subject=CLOUD)
    assert label(partition(), claim=cloud, settings=configuration(components=components)) == outcome


@pytest.mark.parametrize(("lab", "outcome"), [("process", "unproven: lab-lacks"), ("libvirt", "conforms")])
def test_kubelet_field_of_earlier_versions_keeps_its_meaning(lab: str, outcome: str) -> None:
    stored = {**configuration().to_json(), "lab": lab, "hollow_from_tree": False}
    del stored["tested_kubelet"]
    kubelet = replace(TIMING_CLAIM, subject="kubelet")
    assert label(partition(), claim=kubelet, settings=Configuration.from_json(stored)) == outcome


@pytest.mark.parametrize(
    ("reported", "flags", "expected"),
    [("50s", {}, "conforms"), ("40s", {}, "deviates"), ("12s", {GRACE_FLAG.flag: "12s"}, "unproven: scaled")],
)
def test_default_does_not_depend_on_the_recording(
    reported: str, flags: dict[str, str], expected: str
) -> None:
    settings = configuration(reported={"kcm": {"Grace": reported}}, flags_set={"kcm": flags})
    broken = loaded(died(deadman(partition())))
    assert label(broken, DEFAULT, settings=settings) == expected


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
def test_window_of_a_figure_set_by_a_flag_is_scaled(check: Check, component: str, flag: str) -> None:
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
def test_unrelated_flag_does_not_scale_a_window(check: Check, component: str, flag: str) -> None:
    verdict = judged(check, {"fault": "settings", "node": component, "flags": {flag: "1"}})
    assert verdict.label == "conforms", verdict


@pytest.mark.parametrize(
    ("field", "label"), [("nodeLeaseDurationSeconds", "unproven: scaled"), ("maxPods", "conforms")]
)
def test_kubelet_settings_also_scale_a_window(field: str, label: str) -> None:
    fault = {"fault": "kubelet-settings", "node": NODE, "settings": {field: 40}}
    assert judged(FROM_FAULT, fault).label == label


IN = ("planned", "armed", "injecting", "injected")
OVER = ("healing", "healed", "closed")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((*IN, *OVER), "conforms"),
        ((*IN, "unproven", *OVER), "deviates"),
        ((*IN[:-1], "unproven", *OVER), NOT_INJECTED),
        (IN, "unproven: gap"),
        ((), NOT_INJECTED),
    ],
)
def test_fault_lasts_until_it_is_healed(steps: tuple[str, ...], expected: str) -> None:
    assert label(Story().fault(10.0, *steps), lasted("cut")) == expected


def test_fault_healed_by_its_switch_proves_nothing() -> None:
    story = Story().fault(10.0, *IN, *OVER).fault(20.0, *IN, "unproven", *OVER, id_="other")
    assert label(story, lasted("cut")) == "conforms"
    assert label(story, lasted("other")) == "deviates"
    story.fault(25.0, *IN[:-1], "unproven", *OVER, id_="never")
    assert label(story, lasted("other")) == NOT_INJECTED
    switched = Story().fault(10.0, *IN, "unproven", *OVER).say(10.5, "deadman", id="cut")
    assert label(switched, lasted("cut")) == NOT_INJECTED


def test_unanswered_probe_leaves_the_duration_of_a_fault_unknown() -> None:
    story = Story().fault(10.0, *IN, "unanswered", *OVER)
    assert label(story, lasted("cut")) == "unproven: gap"
    assert label(story, UNKNOWN.after(UNKNOWN, windows.up_to(5.0))) == NOT_INJECTED


def test_fault_undone_early_proves_nothing_else() -> None:
    story = Story().fault(10.0, *IN, "unproven", *OVER).condition(12.0, "Unknown")
    assert label(story, UNKNOWN.after(UNKNOWN, windows.up_to(5.0))) == NOT_INJECTED
