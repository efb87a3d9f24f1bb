"""Checks as data: how long they want a recording, their JSON, their durations, any figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.checks import checks
from nodeproof.checks.checks import run_check
from nodeproof.model.duration import duration_s
from nodeproof.model.history import History
from nodeproof.model.judgment import Check
from tests.unit.given import (
    CLAIM,
    DEFAULT,
    DETECTION,
    EVICTION,
    FROM_FAULT,
    GROUND,
    RENEWALS,
    SHOWN,
    STAYS,
    TAINT,
    assert_verdict,
    recovered,
    renewing,
    run,
    silent,
)
from tests.unit.histories import (
    CUT_T,
    GRACE_S,
    RENEW_S,
    Story,
    last_renewal_t,
    partition,
)


@pytest.mark.parametrize(
    ("check", "story", "left"),
    [
        (EVICTION, partition(), 0.0),
        (FROM_FAULT, silent(25.0), CUT_T + 0.02 + GRACE_S + 3.3 - 26.0),
        (STAYS, recovered(), 30.0 + 5.0 - 26.0),
        (RENEWALS, renewing(), 0.0),
        (RENEWALS, Story(), 7 * (RENEW_S * 1.04 + 0.3) - 26.0),
    ],
)
def test_how_long_a_recording_must_go_on(check: Check, story: Story, left: float) -> None:
    assert checks.remaining_s(check, story.history(), GROUND, 26.0) == pytest.approx(left)


def test_nobody_knows_how_long_to_record_before_the_anchor_came() -> None:
    assert checks.remaining_s(EVICTION, Story().history(), GROUND, 26.0) is None


@pytest.mark.parametrize("check", [DETECTION, TAINT, EVICTION, STAYS, RENEWALS, DEFAULT, SHOWN])
def test_a_check_survives_its_json(check: Check) -> None:
    assert Check.from_json(check.to_json()) == check


def test_an_unknown_check_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        run(Check("no-such", {}), Story())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50s", 50.0),
        ("5m0s", 300.0),
        ("1m40s", 100.0),
        ("1h0m0.5s", 3600.5),
        ("100ms", 0.1),
        ("1.5µs", 1.5e-6),
        ("20ns", 2e-8),
        ("-1m30s", -90.0),
        ("0", 0.0),
        ("0s", 0.0),
        (40, 40.0),
        (0.25, 0.25),
    ],
)
def test_go_durations(text: str | float, value: float) -> None:
    assert duration_s(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "50", "s", "5 s", "5d", "1s2", "--1s", "1..2s", "x", None, True, {}])
def test_what_is_no_duration_is_a_value_error(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_s(text)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59_999))
def test_durations_as_go_writes_them(hours: int, minutes: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{milliseconds / 1000:g}s"
    assert duration_s(text) == pytest.approx(hours * 3600 + minutes * 60 + milliseconds / 1000, abs=1e-2)


# Nothing passes whatever the cluster does


@given(
    check=st.sampled_from([DETECTION, FROM_FAULT, TAINT, EVICTION]),
    unknown_s=st.floats(0.5, 40),
    taint_s=st.floats(0.01, 20),
    eviction_s=st.floats(0.1, 40),
)
def test_only_the_right_figures_conform(
    check: Check, unknown_s: float, taint_s: float, eviction_s: float
) -> None:
    story = partition(unknown_s, taint_s, eviction_s).fence(200.0)
    verdict = run(check, story)
    true_s = {
        DETECTION.to_json()["args"]["window"]["name"]: unknown_s,
        "detection_from_fault": last_renewal_t() + unknown_s - (CUT_T + 0.02),
        "taint_pass": taint_s,
        "toleration": eviction_s,
    }[check.args["window"]["name"]]
    assert verdict.window is not None
    low, high = verdict.window.low_s, verdict.window.high_s
    if min(abs(true_s - low), abs(true_s - high)) > 1e-3:
        assert verdict.label == ("conforms" if low < true_s < high else "deviates")


@given(st.data())
def test_a_recording_with_a_part_missing_never_conforms_by_absence(data: st.DataObject) -> None:
    """Drop any watch event of pods: that the pod stays is then unproven, or was covered by a later state."""
    entries = recovered().fence(40.0).history().entries
    pods = [entry for entry in entries if entry.kind == "watch" and entry.data["resource"] == "pods"]
    dropped = data.draw(st.sampled_from(pods))
    left = History.of(entry for entry in entries if entry is not dropped)
    assert_verdict(run(STAYS, left), "unproven: gap")


def test_a_claim_is_not_needed_by_timed_checks() -> None:
    bare = replace(CLAIM, constants=())
    assert run_check(TAINT, partition().history(), GROUND, bare).outcome == "conforms"
