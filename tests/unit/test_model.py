"""The model: claims and verdicts, load control, windows and slack, patterns, and histories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeproof.checks import checks, moments
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant, includes, page_agreement
from nodeproof.model.cluster import (
    Calibration,
    Configuration,
    condition_status,
)
from nodeproof.model.formula import Term
from nodeproof.model.history import Entry, Fence, Fold, History, fence, parse_time
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import PRESENT, Json, fault, fields_of, matches, paths, unknown, value_at
from nodeproof.model.plan import (
    ROOMY,
    ROOMY_UNDER_PRESSURE,
    SETTLING_S,
    STRAINED,
    STRAINED_FOR_S,
    Allowance,
    Load,
    Turn,
    Worker,
    adapt,
    initial,
    may_start,
)
from nodeproof.model.slack import slack_s
from nodeproof.model.verdict import (
    Code,
    Verdict,
    conforms,
    deviates,
    unproven,
    worst,
)
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute
from tests.unit.histories import (
    NAMESPACE,
    NODE,
    POD,
    RESOURCES,
    Story,
    configuration,
    partition,
    reported,
    wall,
)
from tests.unit.sample_checks import GRACE, UNKNOWN, run

# The model: claims and verdicts, load control, windows and slack, and patterns.


# Claims, their verdicts, and the page


def claim(page: Mapping[str, bool | str], *constants: Constant, drift: str = "") -> Claim:
    return Claim(
        "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", page, constants, ("source",), drift
    )


@pytest.mark.parametrize(
    ("versions", "version", "holds"),
    [
        (">=1.18", "v1.36.3", True),
        (">=1.18,<1.32", "v1.31.9", True),
        ("<1.32", "v1.32.0", False),
        (">=1.32", "1.32.0", True),
        (">=1.32", "v1.32.0-alpha.1.205+0123abc", True),
        (">=1.33", "v1.33.5-eks-113cf36", True),
        (">=1.33", "v1.33.5-gke.1162000", True),
        (">=1.33", "v1.33.5+k3s1", True),
        ("<1.32", "v1.100.0", False),
    ],
)
def test_version_ranges_are_evaluated(versions: str, version: str, holds: bool) -> None:
    assert includes(versions, version) is holds


@pytest.mark.parametrize("version", ["", "v1", "latest", "v1.36", "1.2.3.4"])
def test_invalid_version_is_a_value_error(version: str) -> None:
    with pytest.raises(ValueError, match="version"):
        includes(">=1.18", version)


def test_constant_depends_on_the_version() -> None:
    assert (GRACE.at("v1.31.9"), GRACE.at("v1.32.0")) == (40.0, 50.0)
    partial = Constant("x", "c", "", "", "s", ((">=1.40", 1.0),), None, "")
    with pytest.raises(KeyError, match="x has no value for"):
        partial.at("v1.36.3")


@pytest.mark.parametrize(
    ("version", "verdict", "agreement", "cluster"),
    [
        ("v1.36.3", conforms(""), "differs", "50 s"),
        ("v1.31.9", conforms(""), "agrees", "40 s"),
        ("v1.31.9", deviates(""), "differs", "40 s"),
        ("v1.31.9", unproven("gap", ""), "agrees", "40 s"),
    ],
)
def test_page_is_compared_with_the_constant_of_the_version(
    version: str, verdict: Verdict, agreement: str, cluster: str
) -> None:
    page = page_agreement(claim({"v1.28": True}, GRACE, drift="known"), version, verdict)
    assert (page.agreement, page.text, page.cluster, page.drift) == (agreement, "40 s", cluster, "known")


VARIANT, OTHERWISE, MOVED = "variant: nearly so", "differs: it is otherwise", "moved: elsewhere"


@pytest.mark.parametrize(
    ("statements", "verdict", "agreement", "says"),
    [
        ({"v1.18": False, "v1.28": False}, deviates(""), "silent", ""),
        # Without a number the verdict counts.
        ({"v1.18": False, "v1.28": True}, conforms(""), "agrees", "It is so."),
        ({"v1.18": False, "v1.28": True}, deviates(""), "differs", "It is so."),
        ({"v1.28": VARIANT}, conforms(""), "agrees", VARIANT),
        ({"v1.28": VARIANT}, deviates(""), "differs", VARIANT),
        # A statement that moved keeps its former agreement.
        ({"v1.26": OTHERWISE, "v1.28": MOVED}, conforms(""), "differs", OTHERWISE),
        ({"v1.26": False, "v1.28": MOVED}, conforms(""), "agrees", MOVED),
        # A corrected claim reports how the page differs.
        ({"v1.28": OTHERWISE}, conforms(""), "differs", OTHERWISE),
        ({"v1.28": OTHERWISE}, deviates(""), "unknown", None),
        ({"v1.28": OTHERWISE}, unproven("gap", ""), "unknown", None),
    ],
)
def test_page_agrees_by_its_last_statement(
    statements: Mapping[str, bool | str], verdict: Verdict, agreement: str, says: str | None
) -> None:
    page = page_agreement(claim(statements), "v1.36.3", verdict)
    assert page.agreement == agreement
    assert says is None or page.text == says


def test_pages_without_a_claim_are_not_among_its_pages() -> None:
    assert claim({"v1.18": False, "v1.28": True}).page_versions == ("v1.28",)


CODES: Sequence[Code] = [code for code in get_args(Code) if code]
verdicts = st.one_of(
    st.just(conforms("")), st.just(deviates("")), st.sampled_from(CODES).map(lambda code: unproven(code, ""))
)


@given(st.lists(verdicts, min_size=1))
def test_worst_verdict_has_precedence(several: list[Verdict]) -> None:
    verdict = worst(several)
    outcomes = {verdict.outcome for verdict in several}
    assert verdict in several
    if "deviates" in outcomes:
        assert verdict.outcome == "deviates"
    elif any(verdict.outcome == "unproven" and not verdict.is_skip for verdict in several):
        assert verdict.outcome == "unproven"
        assert not verdict.is_skip
    elif "unproven" in outcomes:
        assert verdict.is_skip
    else:
        assert verdict.outcome == "conforms"


def test_code_belongs_only_to_unproven_and_worst_needs_verdicts() -> None:
    with pytest.raises(ValueError, match="unproven"):
        unproven("", "no code")
    with pytest.raises(ValueError, match="conforms"):
        Verdict("conforms", "gap", "")
    with pytest.raises(ValueError, match="empty"):
        worst([])


# The number of parallel scenarios by measured load, and their order


MOST = 6
CALM, STRESSED = Load(0.2, 0.3), Load(STRAINED + 0.01, 0.3)
LATER_S = SETTLING_S + 1
STRAINED_ONCE = Allowance(3, 0.0, strained=4, strained_t=0.0)

shares = st.floats(0, 3)
loads = st.builds(Load, shares, st.floats(0, 1))


@pytest.mark.parametrize(("foreign", "workers"), [(0.0, 3), (0.1, 3), (0.5, 2), (1.0, 1)])
def test_run_begins_with_fewer_workers_on_a_busy_machine(foreign: float, workers: int) -> None:
    assert initial(MOST, foreign) == workers


LIMITS: Mapping[str, tuple[Allowance, int, Load, float, Allowance]] = {
    "one more if there is capacity": (Allowance(2, 0.0), 2, CALM, LATER_S, Allowance(3, LATER_S)),
    "no slack left": (Allowance(2, 0.0), 2, Load(ROOMY + 0.01, 0.0), LATER_S, Allowance(2, 0.0)),
    "pressure": (Allowance(2, 0.0), 2, Load(ROOMY_UNDER_PRESSURE + 0.01, 1.0), LATER_S, Allowance(2, 0.0)),
    "limit is not used": (Allowance(3, 0.0), 2, CALM, LATER_S, Allowance(3, 0.0)),
    **{
        f"halved from {workers} with {running}": (
            Allowance(workers, 0.0), running, STRESSED, LATER_S, Allowance(fewer, LATER_S, running, LATER_S)
        )
        for workers, running, fewer in ((6, 6, 3), (6, 4, 2), (3, 3, 1), (1, 1, 1), (4, 0, 1))
    },
    "strained before": (STRAINED_ONCE, 3, CALM, LATER_S, STRAINED_ONCE),
    "strained long before": (
        STRAINED_ONCE, 3, CALM, STRAINED_FOR_S, replace(STRAINED_ONCE, workers=4, since_t=STRAINED_FOR_S)
    ),
    "more run than allowed": (Allowance(3, 0.0), 4, STRESSED, LATER_S, Allowance(3, 0.0)),
    "capacity though more run": (Allowance(2, 0.0), 4, CALM, LATER_S, Allowance(5, LATER_S)),
    "not settled": (Allowance(6, 0.0), 6, STRESSED, SETTLING_S - 0.1, Allowance(6, 0.0)),
}  # fmt: skip


@pytest.mark.parametrize(("before", "running", "load", "now_t", "after"), LIMITS.values(), ids=LIMITS)
def test_limit_adapts_to_the_load(
    before: Allowance, running: int, load: Load, now_t: float, after: Allowance
) -> None:
    assert adapt(before, running, load, MOST, now_t) == after


@given(st.integers(1, MOST), st.integers(0, MOST), loads, st.floats(0, 100))
def test_limit_is_between_one_and_the_number_of_workers(
    workers: int, running: int, load: Load, now_t: float
) -> None:
    assert 1 <= adapt(Allowance(workers, 0.0), running, load, MOST, now_t).workers <= MOST


@given(st.integers(1, MOST), st.integers(0, MOST), loads, loads)
def test_more_load_never_raises_the_limit(workers: int, running: int, load: Load, other: Load) -> None:
    lighter = Load(min(load.slack_share, other.slack_share), min(load.pressure, other.pressure))
    heavier = Load(max(load.slack_share, other.slack_share), max(load.pressure, other.pressure))
    allowances = [adapt(Allowance(workers, 0.0), running, load, MOST, LATER_S) for load in (lighter, heavier)]
    assert allowances[0].workers >= allowances[1].workers


@given(st.integers(1, MOST))
def test_limit_of_a_calm_machine_returns_to_all_workers(workers: int) -> None:
    allowance = Allowance(workers, 0.0)
    for number in range(1, MOST + 1):
        allowance = adapt(allowance, allowance.workers, CALM, MOST, number * LATER_S)
    assert allowance.workers == MOST


def waiting(name: str, turn: Turn = Turn.QUEUE, since_t: float = 0.0) -> Worker:
    return Worker(name, turn, waits_since_t=since_t)


def running(name: str, turn: Turn = Turn.QUEUE) -> Worker:
    return Worker(name, turn, is_running=True)


@pytest.mark.parametrize(
    ("turn", "others", "allowed", "starts"),
    [
        (Turn.QUEUE, [], 1, True),
        (Turn.QUEUE, [running("a")], 1, False),
        (Turn.QUEUE, [running("a")], 2, True),
        (Turn.QUEUE, [running("a"), waiting("b", since_t=-1.0)], 2, False),
        (Turn.QUEUE, [running("a"), waiting("b", since_t=1.0)], 2, True),
        (Turn.QUEUE, [running("a", Turn.HALF)], 2, True),
        (Turn.HALF, [running(name, Turn.HALF) for name in "ab"], MOST, True),
        (Turn.HALF, [running(name, Turn.HALF) for name in "abc"], MOST, False),
        (Turn.ALONE, [running("a", Turn.ALONE)], MOST, False),
        # A retry waits for earlier turns, the first one not for the last running scenario of the queue.
        *((turn, [Worker("a", Turn(turn - 1))], MOST, False) for turn in (Turn.HALF, Turn.ALONE)),
        *((turn, [], MOST, True) for turn in (Turn.HALF, Turn.ALONE)),
        (Turn.HALF, [running("a")], MOST, True),
        (Turn.HALF, [running("a"), Worker("b", Turn.QUEUE)], MOST, False),
        (Turn.HALF, [running("a")], 1, False),
        (Turn.ALONE, [running("a")], MOST, False),
    ],
)
def test_scenario_starts_once_those_before_it_leave_capacity(
    turn: Turn, others: list[Worker], allowed: int, starts: bool
) -> None:
    assert may_start("own", [waiting("own", turn), *others], allowed, MOST) is starts


@given(
    st.lists(st.tuples(st.sampled_from(Turn), st.booleans(), st.floats(0, 9)), min_size=1, max_size=MOST),
    st.integers(1, MOST),
)
def test_some_scenario_always_runs_or_may_start(states: list[tuple[Turn, bool, float]], allowed: int) -> None:
    workers = [
        Worker(str(number), turn, is_running, None if is_running else since_t)
        for number, (turn, is_running, since_t) in enumerate(states)
    ]
    idle = [worker.name for worker in workers if not worker.is_running]
    assert any(worker.is_running for worker in workers) or any(
        may_start(name, workers, allowed, MOST) for name in idle
    )


@pytest.mark.parametrize(
    ("tries", "turn"), [(0, Turn.QUEUE), (1, Turn.HALF), (2, Turn.ALONE), (5, Turn.ALONE)]
)
def test_turn_follows_from_the_number_of_tries(tries: int, turn: Turn) -> None:
    assert Turn.after(tries) is turn


# Windows and their formulas


FAST = WindowContext(configuration(), 0.5)
DOCUMENTED = WindowContext(
    configuration(reported=reported(grace_s=50.0, period_s=5.0, renew_s=10.0, toleration_s=300.0)), 1.0
)
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
        (windows.up_to(4.0), {}, FAST, -0.5, 4.5),
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


@given(
    low=st.floats(-1e4, 1e4),
    high=st.floats(-1e4, 1e4),
    nominal=seconds,
    shape=st.sampled_from(["period", "within"]),
)
def test_discerning_window_excludes_half_and_double(
    low: float, high: float, nominal: float, shape: Any
) -> None:
    window = Window(low, high, nominal, shape, "", "")
    if window.discerning:
        assert shape == "within" or not window.holds(nominal / 2)
        assert not window.holds(2 * nominal)


@pytest.mark.parametrize(("wait_s", "discerning"), [(0.0, False), (-1.0, False), (0.1, True)])
def test_absence_without_a_duration_proves_nothing(wait_s: float, discerning: bool) -> None:
    assert compute(windows.absence(wait_s), FAST, {}).discerning is discerning


def test_heartbeat_with_an_uncertain_clock_may_seem_late() -> None:
    window = compute(windows.detection(), FAST, {"heartbeat": "lease", "error_s": 0.05})
    assert window.low_s == pytest.approx(12.0 - 0.05)
    assert "clock" in window.arithmetic


def test_slack_is_the_sum_of_the_worst_of_each_error() -> None:
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


def test_slack_without_measurements_is_the_calibration() -> None:
    lost = Story().say(1.0, "sentinel", value="lost").history()
    for history in (History.of(()), lost):
        assert slack_s(history, configuration()) == pytest.approx(0.24)


def test_clocks_before_and_after_a_boot_are_not_compared() -> None:
    story = Story().say(5.0, "machine", node="node-1", step="booted")
    story.say(6.0, "clock", node="node-1", offset_s=-3.0, error_s=0.05)
    assert slack_s(story.history(), configuration()) == pytest.approx(0.24 + 0.05)


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
        "", "G +", "G.x", "f(P)", "max()", "G if P else E", "G ** P", "'a'", "True", "[1]",
        "G" * 201, "1" + "(" * 99,
    ],
)  # fmt: skip
def test_invalid_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|arithmetic|arguments"):
        Term.of(text)


def test_undefined_symbol_is_refused_at_definition() -> None:
    with pytest.raises(KeyError, match="Q"):
        windows.formula("within", "Q", "0", "Q + slack")
    with pytest.raises(ValueError, match="not arithmetic"):
        windows.formula("within", "G", "G.x", "G + slack")


def test_slack_is_allowed_in_the_end_and_not_in_the_nominal_value() -> None:
    with pytest.raises(ValueError, match="no slack in 'P'"):
        windows.formula("within", "P", "0", "P")
    with pytest.raises(ValueError, match="slack in the claimed value"):
        windows.formula("within", "P + slack", "0", "P + slack")
    assert windows.formula("negative", "P", "0", "P")


# Patterns of API objects, and fields that objects have


NODE_OBJECT = {
    "metadata": {"name": "node-1"},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting"}]},
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({}, True),
        ({"metadata": {"name": "node-1"}}, True),
        ({"metadata": {"name": "node-2"}}, False),
        ({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, True),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, False),
        ({"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}, True),
        ({"$not": {"spec": {"taints": [{"key": "c"}]}}}, True),
        ({"status": {"conditions": [{"message": {"$contains": "posting"}}]}}, True),
        ({"status": {"conditions": [{"message": {"$prefix": "posting"}}]}}, False),
        ({"spec": {"unschedulable": {"$in": [None, False]}}}, True),
        ({"spec": {"unschedulable": PRESENT}}, False),
        ({"spec": {"unschedulable": {"$present": False}}}, True),
        ({"absent": {"deep": {"field": 1}}}, False),
        ({"absent": [{"type": "x"}]}, False),
        ({"metadata": [{"name": "node-1"}]}, False),
        ({"metadata": {"name": {"deeper": 1}}}, False),
    ],
)
def test_patterns_match_as_expected(pattern: Any, expected: bool) -> None:
    assert matches(pattern, NODE_OBJECT) is expected


FIELDS = {
    "exitCode": 0, "ready": False, "name": "", "list": [], "one": 1, "yes": True, "text": "abc", "null": None
}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *(({name: PRESENT}, name != "null") for name in FIELDS),
        *(({name: {"$present": False}}, name == "null") for name in FIELDS),
        ({"absent": PRESENT}, False),
        ({"one": True}, False), ({"yes": 1}, False), ({"yes": True}, True),
        ({"exitCode": False}, False), ({"exitCode": 0.0}, True), ({"ready": 0}, False),
        ({"one": {"$in": [True, None]}}, False), ({"one": {"$in": [2, 1]}}, True),
        ({"list": {"$in": [[]]}}, True),
        ({"one": {"$not": True}}, True), ({"one": {"$not": {"$not": [1]}}}, False),
        ({"text": ["a"]}, False), ({"text": {"$not": ["z"]}}, False), ({"text": {"x": None}}, False),
        ({"text": {"$not": {"x": 1}}}, False), ({"text": {"x": {"$present": False}}}, False),
        ({"text": {"$not": {"$contains": "z"}}}, True),
        ({"list": {"x": None}}, False), ({"list": {"$not": {"x": 1}}}, False),
        ({"list": {"$not": [1]}}, True),
        ({"absent": {"$not": [1]}}, True), ({"absent": {"$not": {"x": 1}}}, True),
        ({"absent": {"x": {"$present": False}}}, True), ({"absent": {"x": {"$in": [None, 0]}}}, True),
    ],
)  # fmt: skip
def test_values_keep_their_types(pattern: Any, expected: bool) -> None:
    assert matches(pattern, FIELDS) is expected


def test_paths_of_a_pattern_are_listed() -> None:
    pattern = {
        "$not": {"spec": {"taints": [{"key": "a", "effect": {"$in": ["x"]}}]}, "metadata": {"name": "n"}}
    }
    assert paths(pattern) == {"spec.taints[].key", "spec.taints[].effect", "metadata.name"}
    assert paths({"spec": PRESENT}) == {"spec"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "node-1"),
        ("status.conditions[].type", ["Ready"]),
        ("spec.taints[].key", ["a", "b"]),
        ("spec.absent[].key", []),
        ("spec.absent", None),
        ("spec.absent.deeper", None),
    ],
)
def test_value_at_a_path_is_read(path: str, expected: Any) -> None:
    assert value_at(path, NODE_OBJECT) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"status": {"phase": "Failed", "reason": {"$prefx": "x"}}}, "unknown operator '$prefx'"),
        ({"spec": {"$not": {"a": {"$contain": "x"}}}}, "unknown operator '$contain'"),
        ({"spec": {"$prefix": "a", "b": 1}}, "must be the only key"),
        ({"spec": {"taints": []}}, "an empty pattern matches everything"),
        ({}, "an empty pattern"),
        ({"$not": {"spec": {}}}, "an empty pattern"),
        ({"spec": {"taints": [{"key": {"$in": ["a", None]}}], "unschedulable": PRESENT}}, ""),
        ({"$not": {"metadata": {"name": "n"}}}, ""),
    ],
)
def test_invalid_pattern_is_found_at_any_depth(pattern: Any, message: str) -> None:
    description = fault(pattern)
    assert message in description
    assert bool(description) is bool(message)


SCHEMAS = {
    "Node": {"properties": {"metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                            "spec": {"$ref": "#/components/schemas/Spec"}}},
    "Meta": {"properties": {"name": {"type": "string"},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
    "Spec": {"properties": {"taints": {"type": "array", "items": {"$ref": "#/components/schemas/Taint"}},
                            "child": {"$ref": "#/components/schemas/Spec"}}},
    "Taint": {"properties": {"key": {"type": "string"}}},
}  # fmt: skip
SCHEMA_FIELDS = fields_of(SCHEMAS, "Node")


def test_fields_of_a_type_are_read() -> None:
    fields = ("metadata.name", "metadata.labels", "spec.taints", "spec.taints[].key", "spec.child.taints")
    assert SCHEMA_FIELDS.issuperset(fields)
    assert len(SCHEMA_FIELDS) < 100, "a type within itself is read once"


@pytest.mark.parametrize(
    ("path", "is_defined"),
    [
        ("metadata.name", True),
        ("metadata.labels.anybody's", True),
        ("spec.taints[].key", True),
        ("spec.taint[].key", False),
        ("spec.taints.key", False),
        ("metadata.name.first", False),
    ],
)
def test_undefined_field_is_unknown(path: str, is_defined: bool) -> None:
    assert unknown([path], SCHEMA_FIELDS) == ([] if is_defined else [path])


def test_moment_on_an_undefined_field_is_refused() -> None:
    story = Story().condition(20.0, "Unknown")
    defined = SCHEMA_FIELDS | {"status.conditions[].type", "status.conditions[].status"}
    settings = configuration(fields={"nodes": defined})
    misspelt, soon = moments.became("nodes", NODE, {"spec": {"taint": [{"key": "a"}]}}), windows.up_to(2)
    for check in (misspelt.never_after(UNKNOWN, windows.absence(5.0)), UNKNOWN.after(misspelt, soon)):
        with pytest.raises(LookupError, match=r"objects of nodes have no field spec.taint\[\].key"):
            checks.refuse(check, story.history(), settings)
    checks.refuse(UNKNOWN.after(UNKNOWN, soon), story.history(), settings)


def test_fields_are_stored_once_per_run_and_not_per_configuration() -> None:
    settings = configuration(fields={"nodes": SCHEMA_FIELDS})
    assert "fields" not in settings.to_json()
    assert settings.fields == {"nodes": SCHEMA_FIELDS}


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (moments.created("pods", "late"), "pods are namespaced"),
        (moments.became("nodes", NODE, {"metadata": {"name": "x"}}, "default"), "are not namespaced"),
        (moments.removed("nodes", ""), "the name of the object in nodes is missing"),
        (moments.became("nodes", NODE, {"spec": {"taints": []}}), "an empty pattern"),
        (moments.written("nodes", {"metadata": {"name": {"$prefx": "x"}}}), "unknown operator"),
        (moments.changed("nodes", NODE, "metadata.labels.topology.kubernetes.io/zone"), "no field"),
    ],
)
def test_impossible_moment_is_refused(moment: Moment, message: str) -> None:
    story = Story().condition(20.0, "Unknown")
    check = moment.never_after(UNKNOWN, windows.absence(5.0))
    with pytest.raises(LookupError, match=message):
        checks.refuse(check, story.history(), configuration(fields={"nodes": SCHEMA_FIELDS}))


def test_absence_window_cannot_bound_a_time() -> None:
    story = Story().condition(20.0, "Unknown")
    with pytest.raises(ValueError, match="cannot bound the time"):
        run(UNKNOWN.after(UNKNOWN, windows.absence(5.0)), story.fence(40.0))


# Histories: files, folding, gaps and fences.


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
times = st.floats(0, 1e6).map(lambda t: round(t, 6))
data = st.dictionaries(st.text().filter(lambda key: key not in ("t", "kind")), json_values, max_size=4)
entries = st.builds(Entry, times, st.text(), data)


@given(st.lists(entries))
def test_history_is_sorted_and_survives_its_lines(several: list[Entry]) -> None:
    history, lines = History.of(several), [entry.to_json() for entry in several]
    assert [entry.t for entry in history.entries] == sorted(entry.t for entry in several)
    assert History.parse("\n".join(lines).split("\n")) == history


@pytest.mark.parametrize("line", ["{", "[]", "1", '{"t": 1}', '{"kind": "x"}', '{"t": "x", "kind": "y"}'])
def test_invalid_entry_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        History.parse([line])


def test_interrupted_recording_ends_with_its_last_entry() -> None:
    story = Story(t=3.0).cordon(9.0)
    assert (story.history().began_t, story.history().ended_t) == (3.0, 9.0)
    assert story.fence(10.0).history().ended_t == 10.05


def test_wall_times_are_converted_to_the_monotonic_clock() -> None:
    assert Story().history().from_wall(wall(12.5)) == pytest.approx(12.5)
    assert parse_time("2026-01-01T00:00:00Z") == parse_time("2026-01-01T01:00:00.000000+01:00")


def test_bookmarks_and_errors_are_no_objects() -> None:
    story = Story()
    bookmark = {"metadata": {"resourceVersion": "999"}}
    for type_, object_ in (("BOOKMARK", bookmark), ("ERROR", {"code": 410})):
        story.say(1.0, "watch", resource="nodes", type=type_, object=object_)
    assert fence(story.fence(2.0).history()).passed


# Folding and fences


def test_complete_history_passes_its_fence() -> None:
    assert fence(partition().fence(60.0).history()) == Fence(True, 60.01, "")


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Draw pods that are created, changed and removed, with a fence and later events."""
    story = Story(resources=("nodes", "pods"))
    live: list[str] = []
    steps = draw(st.lists(st.sampled_from(["make", "bind", "evict", "remove"]), max_size=12))
    for t, step in enumerate(steps, start=1):
        if step == "make":
            live.append(f"pod-{t}")
            story.pod(t, live[-1])
        elif live:
            name = draw(st.sampled_from(live))
            if step == "remove":
                live.remove(name)
                story.remove(t, "pods", NAMESPACE, name)
            else:
                (story.bind if step == "bind" else story.evict)(t, name)
    return story


@given(stories(), st.data())
@settings(max_examples=200)
def test_dropped_event_fails_the_fence_unless_a_later_one_covers_it(
    story: Story, draw: st.DataObject
) -> None:
    history = story.fence(50.0).history()
    assert fence(history).passed
    events = [entry for entry in history.of_kind("watch") if entry.t < 50.0]
    if not events:
        return
    dropped = draw.draw(st.sampled_from(events))
    uid = dropped.data["object"]["metadata"]["uid"]
    later = [
        entry
        for entry in history.of_kind("watch")
        if entry.data["object"]["metadata"]["uid"] == uid and entry.t > dropped.t
    ]
    left = History.of(entry for entry in history.entries if entry is not dropped)
    assert fence(left).passed is bool(later)


@given(stories(), st.lists(st.sampled_from(["make", "remove", "bind"]), max_size=4))
def test_events_after_the_list_do_not_matter(story: Story, steps: list[str]) -> None:
    story.pod(45.0, "last")
    story.fence(50.0)
    for number, step in enumerate(steps):
        t = 51.0 + number
        if step == "make" or number:
            story.pod(t, f"late-{number}")
        elif step == "remove":
            story.remove(t, "pods", NAMESPACE, "last")
        else:
            story.bind(t, "last")
    assert fence(story.history()).passed


def test_change_after_the_list_is_undone() -> None:
    story = Story().pod(1.0)
    before, rv = story.objects("pods"), story.rv
    story.remove(2.0, "pods", NAMESPACE, POD)
    assert story.history().folded("pods", rv) == before
    assert story.history().folded("pods", story.rv) == story.objects("pods")
    story.pod(3.0, "pod-2").list(4.0, "pods")
    assert story.history().folded("pods", rv) == before


def removed_unseen() -> Story:
    """Remove a pod without an event of the watch."""
    return Story().pod(1.0).remove(2.0, "pods", NAMESPACE, POD, is_watched=False)


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (removed_unseen().fence(4.0), "1 states of pods differ"),
        *((Story().fence(4.0, blind=[resource]), resource) for resource in RESOURCES),
        # A listed sentinel proves no watch.
        (Story().fence(4.0, blind=["pods"]).list(4.0, "pods"), "pods"),
        # The last fence counts.
        (Story().fence(4.0).pod(5.0).fence(6.0, blind=["pods"]), "pods"),
    ],
)
def test_incomplete_watch_fails_the_fence(story: Story, reason: str) -> None:
    failed = fence(story.history())
    assert not failed.passed
    assert reason in failed.reason


@pytest.mark.parametrize(
    ("sentinels", "is_listed"),
    [({}, False), (dict.fromkeys(RESOURCES, None), True), (dict.fromkeys(RESOURCES, ""), True)],
)
def test_fence_without_sentinels_does_not_pass(sentinels: Json, is_listed: bool) -> None:
    story = Story().fence(4.0)
    (last,) = story.history().of_kind("fence")
    data = {"sentinels": sentinels, "listed": last.data["listed"] if is_listed else {}}
    entries = [entry for entry in story.entries if entry.kind != "fence"]
    assert not fence(History.of([*entries, Entry(last.t, "fence", data)])).passed


def test_empty_history_passes_no_fence() -> None:
    empty = History.of(())
    assert not fence(empty).passed
    assert (empty.began_t, empty.ended_t, dict(empty.begun)) == (0.0, 0.0, {})


def test_list_after_a_gap_removes_missing_objects() -> None:
    story = removed_unseen().gap(1.5, 3.0, "pods", lists=True).fence(4.0)
    assert fence(story.history()).passed
    (present, removed) = story.history().versions("pods", NAMESPACE, POD)
    assert (present.deleted, removed.deleted, removed.listed, removed.t) == (False, True, True, 2.99)


def test_fence_requires_the_recorded_and_the_requested_resources() -> None:
    story = Story()
    story.resources = ("nodes", "leases", "events")
    assert fence(story.fence(4.0).history()) == Fence(False, 4.03, "the fence does not include pods")
    history = Story(resources=("nodes", "leases")).fence(4.0).history()
    assert fence(history, ("nodes",)).passed
    assert not fence(history, ("nodes", "pods")).passed


def test_fence_reaches_no_further_than_its_sentinels() -> None:
    late = Story().sentinel(3.0).fence(9.0).history()
    entry = late.of_kind("fence")[0]
    old = {**entry.data, "sentinels": dict.fromkeys(entry.data["sentinels"], "s-1")}
    stale = History.of([*(it for it in late.entries if it.kind != "fence"), Entry(9.03, "fence", old)])
    assert fence(late).t == 9.01
    assert fence(stale) == Fence(True, 3.02, "")


# Gaps


@pytest.mark.parametrize(
    ("since_t", "until_t", "overlaps"),
    [(0.0, 9.9, False), (0.0, 10.0, True), (15.0, 16.0, True), (20.0, 30.0, True), (22.1, 30.0, False)],
)
def test_gap_overlaps_what_it_may_hide(since_t: float, until_t: float, overlaps: bool) -> None:
    story = Story().gap(10.0, 20.0, "nodes").sentinel(21.98)
    assert (story.history().gap("nodes", since_t, until_t) is not None) is overlaps
    assert story.history().gap("pods", since_t, until_t) is None
    assert Story().gap(10.0, 20.0, "nodes").history().gap("nodes", 500.0, 600.0) is not None


# Reading objects


def test_node_without_conditions_has_no_status() -> None:
    assert condition_status({"status": {"conditions": None}}, "Ready") == ""


def test_configuration_survives_its_json() -> None:
    stored = json.loads(json.dumps(configuration().to_json()))
    assert Configuration.from_json(stored) == configuration()
    assert configuration()["R"] == 2.0
    later = {**stored, "surprise": 1, "calibration": {**stored["calibration"], "surprise": 1}}
    assert Configuration.from_json(later) == configuration()
    with pytest.raises(TypeError):
        Configuration.from_json({"calibration": {}})


@settings(deadline=None)
@given(st.data())
def test_fold_is_independent_of_the_order_of_entries(data: st.DataObject) -> None:
    """Each resource is watched by its own thread: only entries of one resource are ordered."""
    entries = list(partition().entries)
    late = data.draw(st.sampled_from([None, "nodes", "pods", "leases", "events"]))
    by = data.draw(st.integers(1, 40))
    held = [entry for entry in entries if entry.data.get("resource") == late]
    others = [entry for entry in entries if entry.data.get("resource") != late]
    arrived = [*others[:by], *held, *others[by:]]
    fold = Fold()
    for number, entry in enumerate(arrived, start=1):
        fold.add(entry)
        if number % 50 and number != len(arrived):
            continue
        grown, whole = History.so_far(fold), History.of(arrived[:number])
        assert grown == whole
        assert fence(grown) == fence(whole)
        for resource, namespace, name in fold.versions:
            assert grown.versions(resource, namespace, name) == whole.versions(resource, namespace, name)
            assert list(grown.all_versions(resource)) == list(whole.all_versions(resource))
