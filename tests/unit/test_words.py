"""The page of what a scenario can say."""

from __future__ import annotations

import pytest

from infra.docs import words_page
from nodeproof.faults import FAULTS, Registered
from nodeproof.scenario import faults

BY_CLASS = {
    made.__annotations__["return"]: name
    for name, made in vars(faults).items()
    if getattr(made, "__module__", "") == faults.__name__
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_that_a_ledger_can_hold_has_a_row(fault: Registered) -> None:
    of_faults = words_page().partition("## Faults\n")[2].partition("\n## ")[0]
    assert f"\n| `{BY_CLASS[fault.fault.__name__]}(" in of_faults


def test_a_marker_is_no_fault() -> None:
    markers = words_page().partition("## Markers\n")[2].partition("\n## ")[0]
    assert markers.count("\n| `") == 1
    assert "\n| `standing(word, *args, **settings)`" in markers
