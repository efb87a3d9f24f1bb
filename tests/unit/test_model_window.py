"""Windows: their arithmetic, and that none proves more than it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model import window as windows
from nodeproof.model.cluster import Calibration
from nodeproof.model.history import History
from nodeproof.model.slack import slack_s
from nodeproof.model.window import Ground, Window, WindowSpec, compute
from tests.unit.histories import Story, configuration, reported

FAST = Ground(configuration(), 0.5)
DOCUMENTED = Ground(
    configuration(reported=reported(grace_s=50.0, period_s=5.0, renew_s=10.0, toleration_s=300.0)),
    1.0,
)
SPECS = [
    windows.detection(),
    windows.detection_from_fault(),
    windows.taint_pass(),
    windows.monitor_pass(),
    windows.prompt(4.0),
    windows.recovery(),
    windows.toleration(6.0),
    windows.default_toleration(),
    windows.renewals(),
    windows.quarantine(),
    windows.absence(5.0),
    windows.formula("period", "G", "G - slack", "G + 0.5R + slack"),
]
seconds = st.floats(0.01, 1e4)


@pytest.mark.parametrize(
    ("spec", "anchor", "ground", "low", "high"),
    [
        (windows.detection(), {"heartbeat": "lease"}, FAST, 12.0, 14.5),
        (windows.detection(), {"heartbeat": "status"}, FAST, 12.0, 15.5),
        (windows.detection(), {"heartbeat": "lease", "under_way_s": 1.5}, FAST, 12.0, 16.0),
        (windows.detection(), {"heartbeat": "lease"}, DOCUMENTED, 50.0, 61.0),
        (windows.detection_from_fault(), {}, DOCUMENTED, 38.6, 66.0),
        (windows.taint_pass(), {}, FAST, -0.5, 3.5),
        (windows.monitor_pass(), {}, DOCUMENTED, -1.0, 7.0),
        (windows.prompt(4.0), {}, FAST, -0.5, 4.5),
        (windows.recovery(), {}, FAST, 0.0, 60.5),
        (windows.recovery(), {"healing_took_s": 40.0}, FAST, 0.0, 100.5),
        (windows.toleration(6.0), {}, FAST, 5.5, 6.5),
        (windows.default_toleration(), {}, DOCUMENTED, 299.0, 301.0),
        (windows.renewals(), {}, DOCUMENTED, 9.9, 11.4),
        (windows.quarantine(), {}, FAST, 39.5, 80.5),
        (windows.absence(5.0), {}, FAST, 0.0, 5.0),
        (
            windows.formula("within", "P + min(R, 1/E)", "-slack", "P + min(R, 1/E) + slack"),
            {},
            FAST,
            -0.5,
            3.5,
        ),
    ],
)
def test_bounds(
    spec: WindowSpec, anchor: dict[str, str | float], ground: Ground, low: float, high: float
) -> None:
    window = compute(spec, ground, anchor)
    assert [window.low_s, window.high_s] == pytest.approx([low, high])
    assert window.discerning


def test_a_window_shows_its_arithmetic() -> None:
    window = compute(windows.detection(), FAST, {"heartbeat": "lease"})
    assert window.arithmetic == "[G, G + 2P + slack (12 + 2 + 0.5)] = [12.00, 14.50] s"
    assert window.to_json()["arithmetic"] == window.arithmetic


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_survives_its_json(spec: WindowSpec) -> None:
    assert WindowSpec.from_json(spec.to_json()) == spec


def test_an_unknown_window_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        compute(WindowSpec("no-such"), FAST, {})


@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4), nominal=seconds)
def test_a_discerning_period_holds_neither_half_nor_double(low: float, high: float, nominal: float) -> None:
    window = Window(low, high, nominal, "period", "", "")
    if window.discerning:
        assert not window.holds(nominal / 2)
        assert not window.holds(2 * nominal)


@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4), nominal=seconds)
def test_a_discerning_bound_does_not_hold_its_double(low: float, high: float, nominal: float) -> None:
    window = Window(low, high, nominal, "within", "", "")
    if window.discerning:
        assert not window.holds(2 * nominal)


@given(
    spec=st.sampled_from(SPECS),
    slack=st.floats(0.2, 60),
    grace=st.floats(1, 100),
    period=st.floats(0.1, 20),
    lease=st.floats(1, 100),
    heartbeat=st.sampled_from(["lease", "status"]),
)
def test_every_computed_window_is_discerning_or_says_so(
    spec: WindowSpec, slack: float, grace: float, period: float, lease: float, heartbeat: str
) -> None:
    settings = configuration(reported=reported(grace_s=grace, period_s=period, renew_s=lease / 4))
    window = compute(spec, Ground(settings, slack), {"heartbeat": heartbeat})
    if window.shape != "negative" and window.discerning:
        assert not window.holds(2 * window.nominal_s)
        assert window.shape == "within" or not window.holds(window.nominal_s / 2)


@pytest.mark.parametrize(("wait_s", "discerning"), [(0.0, False), (-1.0, False), (0.1, True)])
def test_waiting_for_no_time_proves_no_absence(wait_s: float, discerning: bool) -> None:
    assert compute(windows.absence(wait_s), FAST, {}).discerning is discerning


def test_a_heartbeat_by_a_clock_that_is_not_quite_known_may_seem_late() -> None:
    window = compute(windows.detection(), FAST, {"heartbeat": "lease", "error_s": 0.05})
    assert window.low_s == pytest.approx(12.0 - 0.05)
    assert "clock" in window.arithmetic


def test_slack_counts_the_worst_of_everything() -> None:
    story = Story()
    story.sentinel(1.0, latency_s=0.3)
    story.sentinel(3.0, latency_s=0.1)
    story.say(4.0, "stall", late_s=0.25)
    story.say(5.0, "stall", late_s=0.05)
    calibration = Calibration(0.02, {"node-1": -0.4, "node-2": 0.1}, api_resolution_s=0.001)
    asked_nobody = History.of(entry for entry in story.entries if entry.kind != "clock")
    slack = slack_s(asked_nobody, configuration(calibration=calibration))
    assert slack == pytest.approx(0.2 + 2 * 0.3 + 0.4 + 0.001 + 0.25)


def test_slack_counts_what_is_not_known_of_a_nodes_clock_and_not_what_is() -> None:
    story = Story(nodes=[])
    story.say(1.0, "clock", node="node-1", offset_s=-3.0, error_s=0.05)
    story.say(9.0, "clock", node="node-1", offset_s=-3.04, error_s=0.01)
    story.say(9.0, "clock", node="node-2", offset_s=7.0, error_s=0.03)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.03), "the best of each clock"

    story.say(20.0, "clock", node="node-1", offset_s=-3.2, error_s=0.05)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.11), (
        "what a clock moved beyond that"
    )


def test_clocks_before_and_after_a_boot_are_not_compared() -> None:
    story = Story()
    story.say(5.0, "machine", node="node-1", step="booted")
    story.say(6.0, "clock", node="node-1", offset_s=-3.0, error_s=0.05)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.05)


def test_slack_of_an_empty_history_is_the_calibration() -> None:
    assert slack_s(History.of(()), configuration()) == pytest.approx(0.24)


def test_a_sentinel_that_was_never_seen_has_no_latency() -> None:
    story = Story()
    story.say(1.0, "sentinel", value="lost")
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24)
