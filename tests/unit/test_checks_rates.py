"""Rates of taints, stopped eviction, and moments of several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.checks import moments
from nodeproof.checks.checks import remaining_s
from nodeproof.checks.repeated import counted, rate, spaced
from nodeproof.model import window as windows
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Check, Judgment, Moment
from nodeproof.model.window import WindowContext
from nodeproof.report import timeline
from tests.unit.histories import NODE, OTHER, Story, configuration
from tests.unit.sample_checks import GROUND, UNKNOWN, assert_verdict, run

SINCE_T, UNTIL_T, FENCE_T = 10.0, 30.0, 40.0
CORDONED, UNCORDONED = moments.cordoned(OTHER), moments.uncordoned(OTHER)
NODES = tuple(f"node-{number}" for number in range(1, 10))
WRITTEN = moments.no_execute_written(*NODES)
STOPPED = windows.formula("negative", "4", "2", "6")


def tainted(story: Story, t: float, node: str, added: str = "", key: str = UNREACHABLE) -> None:
    body = story.object("nodes", "", node)
    body["spec"]["taints"] = [{"key": key, "effect": "NoExecute", "timeAdded": added or str(t)}]
    story.change(t, "nodes", "", node, body)


def evicting(*times: float) -> Story:
    """Taint one node after the other at these times; `OTHER` is cordoned from `SINCE_T` to `UNTIL_T`."""
    story, left = Story(NODES), iter(name for name in NODES if name != OTHER)
    for t in sorted([*times, SINCE_T, UNTIL_T]):
        if t in (SINCE_T, UNTIL_T):
            story.cordon(t, OTHER, on=t == SINCE_T)
        else:
            tainted(story, t, next(left))
    return story


def swapped(story: Story, t: float, node: str) -> None:
    """Swap one taint for another, like a pass of the limiter: add first, then remove.

    Source: pkg/controller/util/node: SwapNodeControllerTaint.
    """
    body = story.object("nodes", "", node)
    new = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": str(t)}
    for number, taints in enumerate(([*body["spec"]["taints"], new], [new])):
        body["spec"]["taints"] = taints
        story.change(t + 0.05 * number, "nodes", "", node, body)


def every_two_seconds(at_least: int = 2, event: Moment = WRITTEN) -> Check:
    return spaced(event, windows.spacing(), at_least=at_least, after=CORDONED, until=UNCORDONED)


def test_taints_at_the_expected_rate_conform_and_report_it() -> None:
    verdict = run(every_two_seconds(), evicting(9.0, 11.0, 13.0, 15.1, 17.1).fence(FENCE_T))
    assert_verdict(
        verdict, "conforms", "4 occurrences, 2.000 to 2.100 s apart", "0.492/s, within [0.469, 0.517]/s"
    )
    assert verdict.measured is not None
    assert verdict.measured.value == pytest.approx(6.1 / 3)


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((11.0, 13.0, 14.0, 16.0), "1.000 s after the previous"),
        ((11.0, 13.0, 17.0, 19.0), "4.000 s after the previous"),
        ((11.0, 11.0, 13.0), "0.000 s after the previous"),
        ((11.0, 16.0, 21.0), "5.000 s after the previous"),
    ],
)
def test_extra_taint_and_half_or_double_the_rate_deviate(times: tuple[float, ...], word: str) -> None:
    assert_verdict(run(every_two_seconds(), evicting(*times).fence(FENCE_T)), "deviates", word)


def test_taints_that_stop_deviate_and_few_that_continue_are_unproven() -> None:
    ceased = evicting(11.0, 13.0).fence(FENCE_T)
    assert_verdict(
        run(every_two_seconds(3), ceased), "deviates", "occurred 2 times", "none in the last 17.0 s"
    )
    going_on = evicting(27.0, 29.0).fence(FENCE_T)
    assert_verdict(run(every_two_seconds(3), going_on), "unproven: gap", "need 4")
    assert_verdict(run(every_two_seconds(3), evicting().fence(FENCE_T)), "deviates", "occurred 0 times")


def test_rate_without_a_fence_or_with_a_gap_is_unproven() -> None:
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0, 15.0)), "unproven: gap", "no fence")
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0)), "unproven: gap", "no fence")
    blind = evicting(11.0, 13.0, 15.0).gap(18.0, 19.0, "nodes", lists=True)
    assert_verdict(run(every_two_seconds(), blind.fence(FENCE_T)), "unproven: gap", "had a gap")


def test_taint_written_twice_counts_twice_and_removal_does_not_count() -> None:
    story = Story(NODES)
    for t, added in ((11.0, "a"), (12.0, "a"), (13.0, "b")):
        tainted(story, t, NODE, added)
    story.untaint(14.0)
    tainted(story, 15.0, "node-3", key=NOT_READY)
    tainted(story, 16.0, "node-4", key="nodeproof.dev/own")

    came = list(moments.occurrences(story.history(), WRITTEN))
    assert [(event.t, event.detail["name"]) for event in came] == [
        (11.0, NODE),
        (13.0, NODE),
        (15.0, "node-3"),
    ]


def test_recording_continues_until_there_are_enough_taints() -> None:
    check = every_two_seconds(2)
    assert remaining_s(check, Story(NODES).history(), GROUND, 5.0) is None
    assert remaining_s(check, evicting(11.0, 13.0).history(), GROUND, 14.0) == pytest.approx(4 * 2.9 - 4)
    assert remaining_s(check, evicting(11.0, 13.0, 15.0).history(), GROUND, 16.0) == 0.0


def test_single_taint_has_no_rate() -> None:
    with pytest.raises(ValueError, match="at least two occurrences"):
        rate([1.0], 0.1)
    assert rate([0.0, 2.0, 4.0], 0.5) == (0.5, 2 / 4.5, 2 / 3.5)


def test_stopped_eviction_is_proven_by_waiting_nodes() -> None:
    none = WRITTEN.never_after(CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0, 11.0).fence(FENCE_T)), "conforms", "from 2.00 s on", "for 4.00 s")
    assert_verdict(run(none, evicting(9.0, 14.0).fence(FENCE_T)), "deviates", "4.000 s after")
    assert_verdict(run(none, evicting(9.0, 12.1).fence(FENCE_T)), "unproven: gap", "within the slack")
    everyone = evicting(*(1.0 + number for number in range(8)))
    tainted(everyone, 10.5, OTHER)
    assert_verdict(run(none, everyone.fence(FENCE_T)), "unproven: gap", "all of them already")


def test_stopped_eviction_of_a_missing_node_is_unproven() -> None:
    none = moments.no_execute_written(NODE, "nobody").never_after(CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0).fence(FENCE_T)), "unproven: gap", "nobody did not exist")
    with pytest.raises(LookupError, match="no nodes are named"):
        run(moments.no_execute_written().never_after(CORDONED, STOPPED), evicting(9.0).fence(FENCE_T))


def test_all_of_occurs_at_the_last_of_its_parts() -> None:
    story = Story()
    all_lost = moments.all_of(UNKNOWN, moments.condition_became(OTHER, "Ready", "Unknown"))
    story.condition(12.0, "Unknown", OTHER)
    assert moments.find(story.history(), all_lost) is None
    story.condition(15.0, "Unknown", NODE)
    event = moments.find(story.history(), all_lost)
    assert event is not None
    assert event.t == 15.0
    assert moments.resources(all_lost) == ("nodes",)
    assert str(all_lost) == f"all-came({UNKNOWN} and 1 more)"


def test_first_after_ignores_earlier_occurrences() -> None:
    story = evicting(9.0, 12.0)
    following = moments.first_after(WRITTEN, after=CORDONED)
    event = moments.find(story.history(), following)
    assert event is not None
    assert event.t == 12.0
    assert moments.find(Story(NODES).history(), following) is None


def test_rate_picture_shows_each_judgment_once(tmp_path: Path) -> None:
    history = evicting(9.0, 11.0, 13.0, 15.1).fence(FENCE_T).history()
    check, few = every_two_seconds(), every_two_seconds(event=moments.no_execute_written("node-9"))
    judged = [
        (Judgment(name, check), run(check, history)) for name, check in (("a.b", check), ("a.c", check))
    ]
    (curve,) = timeline.rates(history, [*judged, (Judgment("a.d", few), run(few, history))])
    assert (curve.claim, curve.outcome) == ("a.b", "conforms")
    assert [round(t, 3) for t in curve.times] == [0.0, 2.0, 4.1]
    assert curve.low_s == pytest.approx(1.7)
    assert curve.high_s == pytest.approx(2.9)

    assert timeline.render_rates(history, judged, tmp_path / "rates.svg") == tmp_path / "rates.svg"
    assert "seconds after the first" in (tmp_path / "rates.svg").read_text()
    assert timeline.render_rates(history, [], tmp_path / "none.svg") is None


def test_small_count_on_a_loaded_host_is_uncertain_and_a_large_one_not() -> None:
    loaded = WindowContext(configuration(), 0.8)
    few = evicting(11.0, 13.0).fence(FENCE_T)
    assert_verdict(run(every_two_seconds(1), few, loaded), "unproven: host-too-loaded", "too uncertain")
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0, 15.0).fence(FENCE_T), loaded), "conforms")


def test_taint_swap_in_one_pass_counts_once() -> None:
    story, nodes = Story(NODES), [name for name in NODES if name != OTHER][:4]
    for name in nodes:
        tainted(story, 1.0, name, key=NOT_READY)
    story.cordon(SINCE_T)
    for number, name in enumerate(nodes):
        swapped(story, 11.0 + 2.1 * number, name)
    story.cordon(UNTIL_T, on=False)
    story.fence(FENCE_T)
    cordoned, uncordoned = moments.cordoned(NODE), moments.uncordoned(NODE)
    rate_of_all = spaced(WRITTEN, windows.spacing(), at_least=2, after=cordoned, until=uncordoned)
    assert_verdict(run(rate_of_all, story), "conforms", "4 occurrences, 2.100 to 2.100 s apart")
    assert_verdict(run(counted(WRITTEN, 4, 4, after=cordoned, until=uncordoned), story), "conforms")


def test_taint_with_a_changed_time_is_a_new_write() -> None:
    story = Story(NODES)
    for t in (11.0, 13.0, 13.1):
        tainted(story, t, NODE, added=str(min(t, 13.0)))
    assert [came.t for came in moments.occurrences(story.history(), WRITTEN)] == [11.0, 13.0]
