"""The rate at which taints come, and that none comes; moments of several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.checks import moments
from nodeproof.checks.counting import counted
from nodeproof.checks.rates import rate, remaining_s, spaced
from nodeproof.model import window as windows
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Check, Judgment, Moment
from nodeproof.model.window import Ground
from nodeproof.report.rates import curves, render
from tests.unit.given import GROUND, UNKNOWN, assert_verdict, run
from tests.unit.histories import NODE, OTHER, Story, configuration

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
    """One node after the other is tainted at these times; `OTHER` is cordoned from `SINCE_T` to `UNTIL_T`."""
    story, left = Story(NODES), iter(name for name in NODES if name != OTHER)
    for t in sorted([*times, SINCE_T, UNTIL_T]):
        if t in (SINCE_T, UNTIL_T):
            story.cordon(t, OTHER, on=t == SINCE_T)
        else:
            tainted(story, t, next(left))
    return story


def swapped(story: Story, t: float, node: str) -> None:
    """A pass of the limiter that swaps one taint for another: it adds first and removes then
    (pkg/controller/util/node: SwapNodeControllerTaint).
    """
    body = story.object("nodes", "", node)
    new = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": str(t)}
    for number, taints in enumerate(([*body["spec"]["taints"], new], [new])):
        body["spec"]["taints"] = taints
        story.change(t + 0.05 * number, "nodes", "", node, body)


def every_two_seconds(at_least: int = 2, event: Moment = WRITTEN) -> Check:
    return spaced(event, windows.spacing(), at_least=at_least, after=CORDONED, until=UNCORDONED)


def test_taints_at_the_rate_conform_and_tell_it() -> None:
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
def test_an_extra_taint_and_half_or_double_the_rate_deviate(times: tuple[float, ...], word: str) -> None:
    assert_verdict(run(every_two_seconds(), evicting(*times).fence(FENCE_T)), "deviates", word)


def test_taints_that_cease_deviate_and_ones_that_go_on_are_too_few() -> None:
    ceased = evicting(11.0, 13.0).fence(FENCE_T)
    assert_verdict(
        run(every_two_seconds(3), ceased), "deviates", "occurred 2 times", "none in the last 17.0 s"
    )
    going_on = evicting(27.0, 29.0).fence(FENCE_T)
    assert_verdict(run(every_two_seconds(3), going_on), "unproven: gap", "need 4")
    assert_verdict(run(every_two_seconds(3), evicting().fence(FENCE_T)), "deviates", "occurred 0 times")


def test_without_a_fence_or_in_a_gap_no_rate_is_proven() -> None:
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0, 15.0)), "unproven: gap", "no fence")
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0)), "unproven: gap", "no fence")
    blind = evicting(11.0, 13.0, 15.0)
    blind.gap(18.0, 19.0, "nodes", lists=True)
    assert_verdict(run(every_two_seconds(), blind.fence(FENCE_T)), "unproven: gap", "had a gap")


def test_a_taint_that_is_written_twice_counts_twice_and_one_that_goes_not_at_all() -> None:
    story = Story(NODES)
    for t, added in ((11.0, "a"), (12.0, "a"), (13.0, "b")):
        tainted(story, t, NODE, added)
    story.untaint(14.0)
    tainted(story, 15.0, "node-3", key=NOT_READY)
    tainted(story, 16.0, "node-4", key="nodeproof.dev/own")

    came = list(moments.each(story.history(), WRITTEN))
    assert [(each.t, each.detail["name"]) for each in came] == [(11.0, NODE), (13.0, NODE), (15.0, "node-3")]


def test_a_recording_goes_on_until_there_are_enough() -> None:
    check = every_two_seconds(2).args
    assert remaining_s(Story(NODES).history(), check, GROUND, 5.0) is None
    assert remaining_s(evicting(11.0, 13.0).history(), check, GROUND, 14.0) == pytest.approx(4 * 2.9 - 4)
    assert remaining_s(evicting(11.0, 13.0, 15.0).history(), check, GROUND, 16.0) == 0.0


def test_one_taint_is_no_rate() -> None:
    with pytest.raises(ValueError, match="no rate"):
        rate([1.0], 0.1)
    assert rate([0.0, 2.0, 4.0], 0.5) == (0.5, 2 / 4.5, 2 / 3.5)


def test_none_from_a_pass_on_is_proven_by_nodes_that_wait() -> None:
    none = WRITTEN.never_after(CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0, 11.0).fence(FENCE_T)), "conforms", "from 2.00 s on", "for 4.00 s")
    assert_verdict(run(none, evicting(9.0, 14.0).fence(FENCE_T)), "deviates", "4.000 s after")
    assert_verdict(run(none, evicting(9.0, 12.1).fence(FENCE_T)), "unproven: gap", "within the slack")
    everyone = evicting(*(1.0 + number for number in range(8)))
    tainted(everyone, 10.5, OTHER)
    assert_verdict(run(none, everyone.fence(FENCE_T)), "unproven: gap", "all of them already")


def test_none_of_a_node_that_was_not_there_is_not_proven() -> None:
    none = moments.no_execute_written(NODE, "nobody").never_after(CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0).fence(FENCE_T)), "unproven: gap", "nobody did not exist")
    with pytest.raises(LookupError, match="no nodes are named"):
        run(moments.no_execute_written().never_after(CORDONED, STOPPED), evicting(9.0).fence(FENCE_T))


def test_the_last_of_several_comes_when_each_has_come() -> None:
    story = Story()
    all_lost = moments.all_came(UNKNOWN, moments.condition_became(OTHER, "Ready", "Unknown"))
    story.condition(12.0, "Unknown", OTHER)
    assert moments.find(story.history(), all_lost) is None
    story.condition(15.0, "Unknown", NODE)
    found = moments.find(story.history(), all_lost)
    assert found is not None
    assert found.t == 15.0
    assert moments.resources(all_lost) == ("nodes",)
    assert str(all_lost) == f"all-came({UNKNOWN} and 1 more)"


def test_the_next_of_a_moment_is_none_that_came_before() -> None:
    story = evicting(9.0, 12.0)
    following = moments.next_of(WRITTEN, after=CORDONED)
    found = moments.find(story.history(), following)
    assert found is not None
    assert found.t == 12.0
    assert moments.find(Story(NODES).history(), following) is None


def test_the_picture_of_a_rate_shows_what_was_judged_once_for_all_its_claims(tmp_path: Path) -> None:
    history = evicting(9.0, 11.0, 13.0, 15.1).fence(FENCE_T).history()
    check, few = every_two_seconds(), every_two_seconds(event=moments.no_execute_written("node-9"))
    judged = [(Judgment(name, each), run(each, history)) for name, each in (("a.b", check), ("a.c", check))]
    (curve,) = curves(history, [*judged, (Judgment("a.d", few), run(few, history))])
    assert (curve.claim, curve.outcome) == ("a.b", "conforms")
    assert [round(t, 3) for t in curve.times] == [0.0, 2.0, 4.1]
    assert curve.low_s == pytest.approx(1.7)
    assert curve.high_s == pytest.approx(2.9)

    assert render(history, judged, tmp_path / "rates.svg") == tmp_path / "rates.svg"
    assert "seconds after the first" in (tmp_path / "rates.svg").read_text()
    assert render(history, [], tmp_path / "none.svg") is None


def test_a_rate_of_few_on_a_loaded_host_is_too_unsure_and_one_of_many_is_not() -> None:
    loaded = Ground(configuration(), 0.8)
    few = evicting(11.0, 13.0).fence(FENCE_T)
    assert_verdict(run(every_two_seconds(1), few, loaded), "unproven: host-too-loaded", "too uncertain")
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0, 15.0).fence(FENCE_T), loaded), "conforms")


def test_a_pass_that_swaps_one_taint_for_another_is_one() -> None:
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


def test_a_taint_whose_time_moves_is_written_anew() -> None:
    story = Story(NODES)
    for t in (11.0, 13.0, 13.1):
        tainted(story, t, NODE, added=str(min(t, 13.0)))
    assert [came.t for came in moments.each(story.history(), WRITTEN)] == [11.0, 13.0]
