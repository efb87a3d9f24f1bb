"""Order: which of two changes etcd took first, whenever they were told."""

from __future__ import annotations

from nodeproof.checks import moments
from nodeproof.checks.order import in_order
from tests.unit.given import assert_verdict, run
from tests.unit.histories import NODE, Story

CORDONED, UNCORDONED = moments.cordoned(NODE), moments.uncordoned(NODE)


def story() -> Story:
    told = Story()
    told.status(5.0)
    told.cordon(10.0)
    told.cordon(20.0, on=False)
    return told


def test_what_was_written_first_is_first() -> None:
    assert_verdict(run(in_order(CORDONED, UNCORDONED), story().fence(30.0)), "conforms", "at revision")
    assert_verdict(run(in_order(UNCORDONED, CORDONED), story().fence(30.0)), "deviates", "at revision")


def test_of_what_did_not_come_nothing_is_known() -> None:
    gone = moments.removed("nodes", NODE)
    for first, then in ((CORDONED, gone), (gone, CORDONED)):
        assert_verdict(
            run(in_order(first, then), story().fence(30.0)), "unproven: no-anchor", "did not occur"
        )
