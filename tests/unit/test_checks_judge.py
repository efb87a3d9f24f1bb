"""From a check's answer to a verdict: what takes an answer's worth away, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeproof.checks import checks, moments
from nodeproof.checks.judge import judge
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import UNREACHABLE, Configuration
from nodeproof.model.judgment import Check
from nodeproof.model.needs import CLOUD
from tests.unit.histories import NODE, Story, configuration, partition

GRACE = Constant(
    "grace", "kcm", "Grace", "node-monitor-grace-period", "s", ((">=1.18", 50.0),), 40.0, "defaults.go"
)
CLAIM = Claim(
    "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (GRACE,), ("source",)
)
UNKNOWN = moments.condition_became(NODE, "Ready", "Unknown")
TAINT = moments.taint_added(NODE, UNREACHABLE, "NoExecute").after(UNKNOWN, windows.taint_pass())
FROM_FAULT = UNKNOWN.after(moments.fault_step("cut", "injected"), windows.detection_from_fault())
DEFAULT = checks.default_of("grace")
CONFIGURATION = configuration()


def label(
    story: Story, check: Check = TAINT, claim: Claim = CLAIM, settings: Configuration = CONFIGURATION
) -> str:
    return judge(claim, check, story.fence(90.0).history(), settings).label


def died(story: Story, *, expected: bool = False) -> Story:
    story.say(30.0, "component", name="kubelet", node=NODE, status="exited with 1", expected=expected)
    return story


def loaded(story: Story, late_s: float = 1.2) -> Story:
    story.say(31.0, "stall", late_s=late_s)
    return story


def deadman(story: Story) -> Story:
    story.say(29.0, "deadman", id="cut", node=NODE)
    return story


def unproven(story: Story) -> Story:
    story.fault(3.0, "planned", "armed", "unproven", id_="other")
    return story


GOOD, LATE = {"taint_s": 0.15}, {"taint_s": 5.0}


def test_an_undisturbed_recording_gets_the_answer_of_its_check() -> None:
    assert label(partition(**GOOD)) == "conforms"
    assert label(partition(**LATE)) == "deviates"


@pytest.mark.parametrize("taint_s", [0.15, 5.0])
def test_a_fault_that_was_not_proven_takes_every_answer_away(taint_s: float) -> None:
    assert label(unproven(partition(taint_s=taint_s))) == "unproven: not-injected"
    assert label(deadman(partition(taint_s=taint_s))) == "unproven: not-injected"


def test_a_switch_of_a_fault_of_another_scenario_takes_nothing_away() -> None:
    story = partition(**GOOD)
    story.say(29.0, "deadman", id="of-an-earlier-one", node="node-2")
    assert label(story) == "conforms"


def test_a_fault_that_a_later_probe_no_longer_found() -> None:
    story = partition()
    story.fault(25.0, "unproven")
    assert label(story) == "unproven: not-injected"
    story.fault(26.0, "injected")
    assert label(story) == "conforms"


@pytest.mark.parametrize("taint_s", [0.15, 5.0])
def test_a_component_that_died_takes_every_answer_away(taint_s: float) -> None:
    assert label(died(partition(taint_s=taint_s))) == "unproven: component-died"


def test_a_component_that_was_to_end_does_not_matter() -> None:
    assert label(died(partition(), expected=True)) == "conforms"


@pytest.mark.parametrize(
    ("ends_components", "healed_t", "seen"),
    [
        (True, 40.0, "conforms"),
        (True, 29.0, "unproven: component-died"),
        (False, 40.0, "unproven: component-died"),
    ],
)
def test_a_component_may_end_by_itself_only_in_a_fault_that_ends_components(
    ends_components: bool, healed_t: float, seen: str
) -> None:
    story = died(partition())
    story.fault(10.0, "injecting", "injected", id_="down", ends_components=ends_components)
    story.fault(healed_t, "healed", "closed", id_="down", ends_components=ends_components)

    assert label(story) == seen


@pytest.mark.parametrize("taint_s", [0.15, 5.0])
def test_a_loaded_host_takes_every_answer_away(taint_s: float) -> None:
    assert label(loaded(partition(taint_s=taint_s), 0.79)) == "unproven: host-too-loaded"


def test_a_host_that_is_just_fast_enough() -> None:
    assert label(loaded(partition(), 0.7)) == "conforms"


def test_a_window_that_only_load_widened_is_no_skip() -> None:
    """Slack far above the limit makes every window undiscerning; that must not end as a green skip."""
    assert label(loaded(partition(), 60.0)) == "unproven: host-too-loaded"


def test_slack_below_the_limit_that_spoils_a_window_is_a_loaded_host() -> None:
    settings = configuration(slack_limit_s=5.0)
    assert label(loaded(partition(), 4.0), settings=settings) == "unproven: host-too-loaded"
    assert label(loaded(died(partition()), 4.0), settings=settings) == "unproven: component-died"


def test_a_gap_stays_a_gap_on_a_loaded_host() -> None:
    story = partition()
    story.gap(20.0, 25.0, "nodes")
    assert label(loaded(story, 0.5), settings=configuration(slack_limit_s=0.5)) == "unproven: gap"


def test_a_fault_that_was_not_healed_excuses_a_deviation_only() -> None:
    for taint_s, expected in ((5.0, "unproven: not-injected"), (0.15, "conforms")):
        story = partition(taint_s=taint_s)
        story.fault(70.0, "unhealed")
        assert label(story) == expected


def test_precedence() -> None:
    assert label(loaded(died(deadman(partition())))) == "unproven: not-injected"
    assert label(loaded(died(unproven(partition())))) == "unproven: not-injected"
    assert label(loaded(died(partition()))) == "unproven: component-died"


def test_a_missing_injection_stays_one_on_a_loaded_host() -> None:
    assert label(loaded(Story()), FROM_FAULT) == "unproven: not-injected"


def test_what_no_recording_can_change_comes_first() -> None:
    broken = loaded(died(deadman(partition())))
    old = replace(CLAIM, versions="<1.20")
    assert label(broken, claim=old) == "unproven: not-applicable"
    kubelet = replace(CLAIM, subject="kubelet")
    foreign = configuration(tested_kubelet=False)
    assert label(broken, claim=kubelet, settings=foreign) == "unproven: lab-lacks"
    assert label(partition(), claim=kubelet) == "conforms"
    assert label(partition(), settings=foreign) == "conforms"


@pytest.mark.parametrize(
    ("files", "outcome"),
    [({}, "unproven: lab-lacks"), ({CLOUD: "a"}, "conforms"), ({CLOUD: "b"}, "unproven: lab-lacks")],
)
def test_a_cloud_controller_manager_is_judged_where_it_is_of_the_tree(
    files: dict[str, str], outcome: str
) -> None:
    told = {role: {"sha256": sha256} for role, sha256 in {"kube-controller-manager": "a", **files}.items()}
    cloud = replace(CLAIM, subject=CLOUD)
    assert label(partition(), claim=cloud, settings=configuration(components=told)) == outcome


@pytest.mark.parametrize(("lab", "outcome"), [("process", "unproven: lab-lacks"), ("libvirt", "conforms")])
def test_what_earlier_versions_say_of_the_kubelet_keeps_its_meaning(lab: str, outcome: str) -> None:
    stored = {**configuration().to_json(), "lab": lab, "hollow_from_tree": False}
    del stored["tested_kubelet"]
    kubelet = replace(CLAIM, subject="kubelet")
    assert label(partition(), claim=kubelet, settings=Configuration.from_json(stored)) == outcome


@pytest.mark.parametrize(
    ("reported", "flags", "expected"),
    [("50s", {}, "conforms"), ("40s", {}, "deviates"), ("12s", {GRACE.flag: "12s"}, "unproven: scaled")],
)
def test_a_default_does_not_depend_on_the_recording(
    reported: str, flags: dict[str, str], expected: str
) -> None:
    settings = configuration(reported={"kcm": {"Grace": reported}}, flags_set={"kcm": flags})
    broken = loaded(died(deadman(partition())))
    assert label(broken, DEFAULT, settings=settings) == expected
