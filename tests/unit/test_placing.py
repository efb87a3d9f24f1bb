"""The road from a measurement to a verdict: lost events, the finding, missed events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeproof.checks.placing import Measurement, place
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured
from tests.unit.histories import Story
from tests.unit.sample_checks import UNKNOWN, assert_verdict

MEASUREMENT = Measurement(
    "it occurred",
    Measured(1.0, "s"),
    read=Span(0.0, 20.0),
    if_lost="it may be another",
    complete=[UNKNOWN],
    complete_t=20.0,
    if_missed="there may be more",
)
GAP, TOO_LOADED = "unproven: gap", "unproven: host-too-loaded"


@pytest.mark.parametrize(
    ("fields", "fenced", "unfenced"),
    [
        ({}, "conforms", GAP),
        ({"finding": "lacks"}, "deviates", GAP),
        ({"finding": "deviates"}, "deviates", "deviates"),
        ({"code": "host-too-loaded"}, TOO_LOADED, GAP),
        ({"complete": ()}, "conforms", "conforms"),
    ],
)
def test_missed_event_makes_all_but_a_deviation_unproven(
    fields: dict[str, Any], fenced: str, unfenced: str
) -> None:
    measurement = replace(MEASUREMENT, **fields)
    for story, label in ((Story().fence(30.0), fenced), (Story(), unfenced), (Story().fence(19.0), unfenced)):
        words = ["there may be more: "] if label == GAP else ["it occurred"]
        assert_verdict(place(measurement, story.history(), [UNKNOWN]), label, *words)


@pytest.mark.parametrize("finding", ["holds", "lacks", "deviates"])
def test_lost_event_makes_every_finding_unproven(finding: Any) -> None:
    lossy = Story().gap(9.0, 10.0, "nodes", lists=True).fence(30.0).history()
    measurement = replace(MEASUREMENT, finding=finding)
    assert_verdict(place(measurement, lossy, [UNKNOWN]), GAP, "it may be another: the watch of nodes")
    assert place(replace(measurement, read=None), lossy, [UNKNOWN]).label != GAP


@pytest.mark.parametrize(
    ("exact", "label"), [(None, GAP), ([Span(0.0, 9.5)], GAP), ([Span.at(0.0), Span.at(20.0)], "conforms")]
)
def test_late_event_affects_only_exact_times(exact: list[Span] | None, label: str) -> None:
    resumed = Story().gap(9.0, 10.0, "nodes").sentinel(11.0).fence(30.0).history()
    assert place(replace(MEASUREMENT, exact=exact), resumed, [UNKNOWN]).label == label
