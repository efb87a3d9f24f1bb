"""Renewals, defaults and looks: checks of more than two moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeproof.checks import checks
from nodeproof.checks.checks import run_check
from nodeproof.model import window as windows
from nodeproof.model.claim import Constant
from nodeproof.model.cluster import Configuration
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Ground
from tests.unit.given import (
    CLAIM,
    DEFAULT,
    RENEWALS,
    SHOWN,
    assert_verdict,
    renewing,
    run,
)
from tests.unit.histories import (
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    Story,
    configuration,
)


def test_renewals_conform() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5))
    assert_verdict(verdict, "conforms", "renewals of node-1")
    assert verdict.measured is not None
    assert verdict.measured.value == pytest.approx(2.03, abs=0.05)


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_another_period_deviates(factor: float) -> None:
    assert_verdict(run(RENEWALS, renewing(RENEW_S * factor).fence(20.5)), "deviates", "are outside")


def test_one_missing_renewal_deviates() -> None:
    story = renewing(until_t=9.5)
    story.renewals(13.14, 20.0)
    assert_verdict(run(RENEWALS, story.fence(20.5)), "deviates", "1 of")


def test_renewals_that_stop_deviate() -> None:
    """Enough good ones and then none: the silence at the end counts as well."""
    assert_verdict(run(RENEWALS, renewing(until_t=16.0).fence(40.0)), "deviates", "no renewal for")
    assert_verdict(run(RENEWALS, Story().fence(40.0)), "deviates", "no renewal for")
    assert_verdict(run(RENEWALS, Story((OTHER,)).fence(40.0)), "deviates", "no renewal for")


def test_a_renewal_from_before_the_recording_is_none_of_it() -> None:
    """A node that was healed a moment ago, whose renewals backed off."""
    story = Story(renewed_t=-2.1)
    story.renewals(0.9, 20.0)
    assert_verdict(run(RENEWALS, story.fence(20.5)), "conforms", "renewals of node-1")


def test_a_node_that_is_silent_at_first_proves_nothing() -> None:
    story = Story()
    story.renewals(8.0, 30.0)
    assert_verdict(run(RENEWALS, story.fence(30.5)), "unproven: gap", "sent no renewal in the first 8")


def test_a_watch_that_was_blind_from_the_beginning_on_proves_no_silence() -> None:
    story = Story()
    story.gap(0.5, 4.0, "leases", lists=True)
    assert_verdict(run(RENEWALS, story.fence(40.0)), "unproven: gap", "had a gap")


def test_too_few_renewals_in_too_short_a_time() -> None:
    assert_verdict(run(RENEWALS, renewing(until_t=4.0).fence(5.0)), "unproven: gap", "need ")
    assert_verdict(run(RENEWALS, renewing(until_t=4.0)), "unproven: gap", "need ")
    assert_verdict(run(RENEWALS, Story((OTHER,)).fence(1.0)), "unproven: gap", "need ")


def test_renewals_in_a_gap() -> None:
    story = renewing()
    story.gap(5.0, 6.0, "leases")
    assert_verdict(run(RENEWALS, story.fence(20.5)), "unproven: gap", "had a gap")


def test_renewals_on_a_loaded_host() -> None:
    verdict = run(RENEWALS, renewing().fence(20.5), Ground(configuration(), 2.0))
    assert_verdict(verdict, "unproven: host-too-loaded")


def test_no_renewals_are_never_enough() -> None:
    none = checks.renewals_of(NODE, windows.renewals(), at_least=0)
    assert_verdict(run(none, Story((OTHER,)).fence(1.0)), "unproven: gap")


# default

KCM = "kube-controller-manager"


def reporting(value: object, **changed: object) -> Configuration:
    settings: dict[str, object] = {
        "reported": {KCM: {"NodeLifecycleController": {"NodeMonitorGracePeriod": value}}},
        "flags_set": {KCM: {}},
        **changed,
    }
    return configuration(**settings)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (reporting("50s"), "conforms"),
        (reporting("50s", kubernetes_version="v1.31.9"), "deviates"),
        (reporting("40s", kubernetes_version="v1.31.9"), "conforms"),
        (reporting("40s"), "deviates"),
        (reporting("12s", flags_set={KCM: {"node-monitor-grace-period": "12s"}}), "unproven: scaled"),
        (reporting("50s", flags_set={KCM: {"node-monitor-grace-period": "50s"}}), "unproven: scaled"),
        (reporting("50s", flags_set={KCM: {"node-monitor-period": "1s"}}), "conforms"),
        (reporting("50s", flags_set={}), "unproven: lab-lacks"),
        (reporting("50s", reported={}), "unproven: gap"),
        (reporting("50s", reported={KCM: {"NodeLifecycleController": {}}}), "unproven: gap"),
        (reporting("50s", reported={KCM: {"NodeLifecycleController": "x"}}), "unproven: gap"),
    ],
)
def test_defaults(settings: Configuration, label: str) -> None:
    assert_verdict(run(DEFAULT, Story(), Ground(settings, 0.3)), label)


@pytest.mark.parametrize(
    ("told", "label", "shown"),
    [(True, "conforms", "true"), (False, "deviates", "false"), (None, "deviates", "nothing")],
)
def test_a_default_that_is_on_or_off(told: bool | None, label: str, shown: str) -> None:
    verdict = of_swap(told, {})
    assert_verdict(verdict, label)
    assert str(verdict.measured) == shown


def of_swap(told: bool | None, given: Mapping[str, str]) -> Verdict:
    swap = Constant(
        "swap", "kubelet", "failSwapOn", "failSwapOn", "boolean", ((">=1.18", 1.0),), None, "f.go"
    )
    claim = replace(CLAIM, constants=(swap,))
    settings = configuration(reported={"kubelet": {"failSwapOn": told}}, flags_set={"kubelet": given})
    return run_check(checks.default_of("swap"), Story().history(), Ground(settings, 0.3), claim)


@pytest.mark.parametrize("given", ["fail-swap-on", "failSwapOn"])
def test_a_flag_sets_the_field_that_is_called_alike(given: str) -> None:
    assert_verdict(of_swap(True, {given: "true"}), "unproven: scaled")


def test_a_constant_that_the_claim_does_not_have_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        run(checks.default_of("no-such"), Story())


# shown-throughout


def leaving(*looks: tuple[float, str], gone: bool = True) -> Story:
    story = Story()
    story.pod(1.0, node=NODE)
    story.say(5.0, "observed", what="status", subject=POD, value="Running", asked_t=4.9)
    story.evict(10.0)
    for t, value in looks:
        story.say(t, "observed", what="status", subject=POD, value=value, asked_t=t - 0.1)
        story.say(t, "observed", what="status", subject="other", value="Running", asked_t=t - 0.1)
    if gone:
        story.remove(20.0, "pods", NAMESPACE, POD)
    return story.fence(40.0)


GOOD = [(t + 0.2, "Terminating") for t in range(10, 20)]


def test_shown_throughout_conforms() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD)), "conforms", "10 observations")


def test_one_other_look_deviates() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD[:5], (15.5, "Unknown"), *GOOD[6:])), "deviates", "'Unknown'")


def test_looks_across_the_borders_do_not_count() -> None:
    """One was asked before the deletion, one was answered after the removal."""
    assert_verdict(run(SHOWN, leaving((10.05, "Running"), *GOOD, (20.1, "gone"))), "conforms")


@pytest.mark.parametrize(
    ("looks", "word"),
    [
        ([], "0 observations"),
        ([(15.0, "Terminating")], "1 observations"),
        (GOOD[:3], "no observation of"),
        (GOOD[-3:], "no observation of"),
    ],
)
def test_too_few_looks_prove_nothing(looks: list[tuple[float, str]], word: str) -> None:
    assert_verdict(run(SHOWN, leaving(*looks)), "unproven: gap", word)


def test_without_an_end_nothing_is_shown_throughout() -> None:
    assert_verdict(run(SHOWN, leaving(*GOOD, gone=False)), "unproven: no-anchor", "pod-gone")


def test_without_a_beginning_nothing_is_shown_throughout() -> None:
    assert_verdict(run(SHOWN, Story().fence(4.0)), "unproven: no-anchor")
    assert_verdict(run(SHOWN, Story()), "unproven: gap", "no fence")


# How long to record, and Go's durations
