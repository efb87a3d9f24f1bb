"""Tests beside each other, and one by itself, as threads that stand for workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.turns import alone, beside_others
from tests.waiting import eventually

SOON_S, NOT_YET_S = 5.0, 0.2


def test_tests_run_beside_each_other(tmp_path: Path) -> None:
    with beside_others(tmp_path / "turns"), beside_others(tmp_path / "turns"):
        pass


def test_who_wants_to_run_alone_waits_for_those_that_run_and_goes_before_those_that_come_later(
    tmp_path: Path,
) -> None:
    turns, came = tmp_path / "turns", list[str]()

    def by_itself() -> None:
        with alone(turns):
            came.append("alone")

    def later() -> None:
        with beside_others(turns):
            came.append("later")

    with ThreadPoolExecutor(2) as pool:
        with beside_others(turns):
            first = pool.submit(by_itself)
            assert not eventually(first.done, NOT_YET_S)
            second = pool.submit(later)
            assert not eventually(second.done, NOT_YET_S)
        first.result(SOON_S)
        second.result(SOON_S)
    assert came == ["alone", "later"]
