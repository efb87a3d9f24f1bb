"""Windows and their formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model import window as windows
from nodeproof.model.cluster import Calibration
from nodeproof.model.formula import Term
from nodeproof.model.history import History
from nodeproof.model.slack import slack_s
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute
from tests.unit.histories import Story, configuration, reported

FAST = WindowContext(configuration(), 0.5)
DOCUMENTED = WindowContext(
    configuration(reported=reported(grace_s=50.0, period_s=5.0, renew_s=10.0, toleration_s=300.0)), 1.0
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
    ("spec", "anchor", "context", "low", "high"),
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
def test_window_has_its_bounds(
    spec: WindowSpec, anchor: dict[str, str | float], context: WindowContext, low: float, high: float
) -> None:
    window = compute(spec, context, anchor)
    assert [window.low_s, window.high_s] == pytest.approx([low, high])
    assert window.discerning


def test_window_shows_its_arithmetic() -> None:
    window = compute(windows.detection(), FAST, {"heartbeat": "lease"})
    assert window.arithmetic == "[G, G + 2P + slack (12 + 2 + 0.5)] = [12.00, 14.50] s"
    assert window.to_json()["arithmetic"] == window.arithmetic


@pytest.mark.parametrize("spec", SPECS)
def test_window_spec_survives_its_json(spec: WindowSpec) -> None:
    assert WindowSpec.from_json(spec.to_json()) == spec


def test_unknown_window_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        compute(WindowSpec("no-such"), FAST, {})


@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4), nominal=seconds)
def test_discerning_period_excludes_half_and_double(low: float, high: float, nominal: float) -> None:
    window = Window(low, high, nominal, "period", "", "")
    if window.discerning:
        assert not window.holds(nominal / 2)
        assert not window.holds(2 * nominal)


@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4), nominal=seconds)
def test_discerning_bound_excludes_its_double(low: float, high: float, nominal: float) -> None:
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
def test_every_computed_window_states_whether_it_is_discerning(
    spec: WindowSpec, slack: float, grace: float, period: float, lease: float, heartbeat: str
) -> None:
    settings = configuration(reported=reported(grace_s=grace, period_s=period, renew_s=lease / 4))
    window = compute(spec, WindowContext(settings, slack), {"heartbeat": heartbeat})
    if window.shape != "negative" and window.discerning:
        assert not window.holds(2 * window.nominal_s)
        assert window.shape == "within" or not window.holds(window.nominal_s / 2)


@pytest.mark.parametrize(("wait_s", "discerning"), [(0.0, False), (-1.0, False), (0.1, True)])
def test_absence_without_a_duration_proves_nothing(wait_s: float, discerning: bool) -> None:
    assert compute(windows.absence(wait_s), FAST, {}).discerning is discerning


def test_heartbeat_with_an_uncertain_clock_may_seem_late() -> None:
    window = compute(windows.detection(), FAST, {"heartbeat": "lease", "error_s": 0.05})
    assert window.low_s == pytest.approx(12.0 - 0.05)
    assert "clock" in window.arithmetic


def test_slack_counts_the_worst_of_everything() -> None:
    story = Story().sentinel(1.0, latency_s=0.3).sentinel(3.0, latency_s=0.1)
    story.say(4.0, "stall", late_s=0.25)
    story.say(5.0, "stall", late_s=0.05)
    calibration = Calibration(0.02, {"node-1": -0.4, "node-2": 0.1}, api_resolution_s=0.001)
    without_clocks = History.of(entry for entry in story.entries if entry.kind != "clock")
    slack = slack_s(without_clocks, configuration(calibration=calibration))
    assert slack == pytest.approx(0.2 + 2 * 0.3 + 0.4 + 0.001 + 0.25)


def test_slack_counts_only_the_uncertainty_of_a_node_clock() -> None:
    story = Story(nodes=[]).say(1.0, "clock", node="node-1", offset_s=-3.0, error_s=0.05)
    story.say(9.0, "clock", node="node-1", offset_s=-3.04, error_s=0.01)
    story.say(9.0, "clock", node="node-2", offset_s=7.0, error_s=0.03)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.03), "the best of each clock"

    story.say(20.0, "clock", node="node-1", offset_s=-3.2, error_s=0.05)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.11), (
        "what a clock moved beyond that"
    )


def test_clocks_before_and_after_a_boot_are_not_compared() -> None:
    story = Story().say(5.0, "machine", node="node-1", step="booted")
    story.say(6.0, "clock", node="node-1", offset_s=-3.0, error_s=0.05)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.05)


def test_slack_of_an_empty_history_is_the_calibration() -> None:
    assert slack_s(History.of(()), configuration()) == pytest.approx(0.24)


def test_unseen_sentinel_has_no_latency() -> None:
    story = Story().say(1.0, "sentinel", value="lost")
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24)


FIGURES = {"G": 50.0, "P": 5.0, "E": 0.1, "slack": 0.31}


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("G", 50.0, "G"),
        ("0", 0.0, "0"),
        ("-slack", -0.31, "-slack"),
        ("G + 2P + slack", 60.31, "G + 2P + slack (50 + 10 + 0.31)"),
        ("G - 1.04P - slack", 44.49, "G - 1.04P - slack (50 - 5.2 - 0.31)"),
        ("max(P, 1/E) + 1", 11.0, "max(P, 1/E) + 1 (10 + 1)"),
        ("min(P, 1/E)", 5.0, "min(P, 1/E)"),
        ("1/2E", 5.0, "1/2E (5)"),
        ("2 * P - (G - P) / 3", -5.0, "2 * P - (G - P) / 3 (10 - 15)"),
        ("1/(P - 5)", float("inf"), "1/(P - 5) (inf)"),
    ],
)
def test_formula_has_a_value_and_an_arithmetic(text: str, value: float, shown: str) -> None:
    term = Term.of(text)
    assert term.value(FIGURES.__getitem__) == pytest.approx(value)
    assert term.arithmetic(FIGURES.__getitem__) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "G +",
        "G.x",
        "f(P)",
        "max()",
        "G if P else E",
        "G ** P",
        "'a'",
        "True",
        "[1]",
        "G" * 201,
        "1" + "(" * 99,
    ],
)
def test_invalid_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|arithmetic|arguments"):
        Term.of(text)


def test_undefined_symbol_is_refused_at_definition() -> None:
    with pytest.raises(KeyError, match="Q"):
        windows.formula("within", "Q", "0", "Q + slack")
    with pytest.raises(ValueError, match="not arithmetic"):
        windows.formula("within", "G", "G.x", "G + slack")


def test_slack_belongs_to_the_end_and_not_to_the_figure() -> None:
    with pytest.raises(ValueError, match="no slack in 'P'"):
        windows.formula("within", "P", "0", "P")
    with pytest.raises(ValueError, match="slack in the claimed value"):
        windows.formula("within", "P + slack", "0", "P + slack")
    assert windows.formula("negative", "P", "0", "P")
