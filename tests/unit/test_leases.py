"""Who may use a lab: locks of real files, held as several processes would hold them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeproof.labs.client.leases import InUse, Leases

ZONES = ("zone-a", "zone-b")


def test_each_gets_a_zone_of_its_own_and_nobody_more_than_there_are(tmp_path: Path) -> None:
    first, second, third = (Leases(tmp_path) for _ in range(3))
    assert first.take_zone(ZONES) == ("zone-a", False)
    assert second.take_zone(ZONES) == ("zone-b", False)
    with pytest.raises(InUse, match="every zone is in use"):
        third.take_zone(ZONES)
    first.close()
    assert third.take_zone(ZONES) == ("zone-a", True)


def test_nobody_has_a_zone_and_another_the_whole_lab(tmp_path: Path) -> None:
    whole, part = Leases(tmp_path), Leases(tmp_path)
    part.take_zone(ZONES)
    with pytest.raises(InUse, match="others are using its zones"):
        whole.take_lab()
    part.close()
    whole.take_lab()
    with pytest.raises(InUse, match=f"process {os.getpid()} is using it"):
        part.take_zone(ZONES)
    whole.close()
    part.take_zone(ZONES)


def test_a_zone_that_is_not_fit_is_nobodys_any_more(tmp_path: Path) -> None:
    first, second, third = (Leases(tmp_path) for _ in range(3))
    first.take_zone(ZONES)
    first.give_up_zone()
    first.close()
    assert second.take_zone(ZONES) == ("zone-b", False)
    with pytest.raises(InUse, match="every zone is in use"):
        third.take_zone(ZONES)


def test_of_all_who_give_back_one_is_the_last_and_nobody_comes_after_it(tmp_path: Path) -> None:
    first, second, late = (Leases(tmp_path) for _ in range(3))
    for each in (first, second):
        each.take_zone(ZONES)
    assert not first.is_last()
    assert second.is_last()
    with pytest.raises(InUse):
        late.take_zone(ZONES)
    second.close()
    assert late.take_zone(ZONES) == ("zone-a", True)


def test_who_has_nothing_is_not_the_last(tmp_path: Path) -> None:
    assert not Leases(tmp_path).is_last()
    assert list(tmp_path.iterdir()) == []
