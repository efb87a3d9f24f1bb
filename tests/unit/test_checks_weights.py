"""Weights: what is stored by one kind of write beside another, and everything that leaves it open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from nodeproof.checks import moments
from nodeproof.checks.weights import outweighs
from nodeproof.model.judgment import Check
from tests.unit.given import assert_verdict, run
from tests.unit.histories import NODE, Story, wall

BEGAN_T, ENDED_T = 10.0, 20.0
REPORTED = moments.changed("nodes", NODE, "status.conditions[].lastHeartbeatTime")
RENEWED = moments.changed("leases", NODE, "spec.renewTime", "kube-node-lease")


def heavier(times: float) -> Check:
    return outweighs(REPORTED, RENEWED, times, after=moments.cordoned(NODE), until=moments.uncordoned(NODE))


def story(reports: int, renewals: int, managed: Sequence[Mapping[str, str]] = ()) -> Story:
    """So many of both between a cordon and its end, and one of each before and after."""
    told = Story()
    told.status(5.0)
    metadata = {"managedFields": managed} if managed else {}
    lease = {"metadata": metadata, "spec": {"renewTime": wall(5.5)}}
    told.change(5.5, "leases", "kube-node-lease", NODE, lease)
    told.cordon(BEGAN_T)
    for at in range(reports):
        told.status(11.0 + at)
    for at in range(renewals):
        told.renew(11.5 + at)
    told.cordon(ENDED_T, on=False)
    told.status(25.0)
    told.renew(25.5)
    return told


def test_enough_bytes_conform_and_too_few_deviate() -> None:
    told = story(4, 4).fence(30.0)
    assert_verdict(run(heavier(1.1), told), "conforms", "in 4 writes beside", "bytes")
    assert_verdict(run(heavier(1000), told), "deviates", "at least 1000 times as much expected")


def test_more_writes_weigh_more() -> None:
    few, many = (run(heavier(0.01), story(count, 4).fence(30.0)).measured for count in (2, 8))
    assert few is not None
    assert many is not None
    assert float(many.value) == pytest.approx(4 * float(few.value), rel=0.02)


def test_who_wrote_which_field_weighs_nothing() -> None:
    plain, managed = story(4, 4), story(4, 4, managed=[{"manager": "x" * 5000}])
    assert run(heavier(1.1), managed.fence(30.0)).measured == run(heavier(1.1), plain.fence(30.0)).measured


def test_without_writes_nothing_is_known() -> None:
    assert_verdict(run(heavier(1.1), story(4, 0).fence(30.0)), "unproven: no-anchor", "0")


def test_without_a_fence_or_behind_a_gap_nothing_is_known() -> None:
    assert_verdict(run(heavier(1.1), story(4, 4)), "unproven: gap", "no fence")
    told = story(4, 4)
    told.gap(14.0, 16.0, "leases")
    assert_verdict(run(heavier(1.1), told.fence(30.0)), "unproven: gap", "leases")


def test_what_is_no_change_is_refused() -> None:
    odd = outweighs(moments.cordoned(NODE), RENEWED, 2, after=moments.cordoned(NODE), until=RENEWED)
    with pytest.raises(LookupError, match="no change of one object"):
        run(odd, story(4, 4).fence(30.0))
    with pytest.raises(ValueError, match="0 times"):
        outweighs(REPORTED, RENEWED, 0, after=RENEWED, until=RENEWED)
