"""A run of 300 scenarios with histories of 100 nodes: how long its site takes, how large it is, and how soon
it is seen; and how long eight shards of it take to become one run.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeproof import catalogue
from nodeproof.report import page, rundir, site
from tests import large_run
from tests.acceptance.command import nodeproof
from tests.first_paint import first_paints_s

MADE_IN_S, LARGEST_BYTES, PAINTED_IN_S = 60.0, 60_000_000, 2.0
SHARDS, MERGED_IN_S = 8, 5.0
TRIES = 3
NIGHT = pytest.mark.night("takes two minutes; unit tests hold what the site is made of")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, without its site."""
    return large_run.build(tmp_path_factory.mktemp("large") / "run")


@NIGHT
def test_a_large_runs_site_is_made_soon_and_small_and_seen_at_once(large: Path, tmp_path: Path) -> None:
    site.install(site.find_node(), print)
    began = time.monotonic()
    index = site.generate(large, print, catalogue.load())
    took_s = time.monotonic() - began
    size = sum(path.stat().st_size for path in index.parent.iterdir())
    painted_s = {each.name: soonest_s(each, tmp_path) for each in (index, index.with_name(page.FILE))}
    print(f"made in {took_s:.1f} s, {size / 1e6:.1f} MB, painted in s: {painted_s}")

    assert len(list((large / "scenarios").iterdir())) == large_run.SCENARIOS
    assert took_s <= MADE_IN_S
    assert size <= LARGEST_BYTES
    assert max(painted_s.values()) <= PAINTED_IN_S


@NIGHT
def test_eight_shards_of_a_large_run_are_merged_soon(large: Path, tmp_path: Path) -> None:
    runs = large_run.divided(large, tmp_path, SHARDS)
    took_s, kept = [], [tmp_path / f"merged-{number}" for number in range(TRIES)]
    for each in kept:
        began = time.monotonic()
        done = nodeproof("merge", *map(str, runs), "--run", str(each), "--no-site", cwd=tmp_path)
        took_s.append(time.monotonic() - began)
        assert done.status == 1, "frozen runs deviate, too"
    print(f"merged in s: {took_s}")

    rows = rundir.read_verdicts(kept[0])
    before = rundir.read_verdicts(large)
    assert {row["scenario"] for row in rows} == {row["scenario"] for row in before}
    (lost,) = {row["scenario"] for row in rows if row["reason"].startswith("shard 8/8 has no end")}
    assert sorted(row["claim"] for row in rows if row["scenario"] != lost) == sorted(
        row["claim"] for row in before if row["scenario"] != lost
    )
    assert "unproven" in done.stdout
    # At the best of some tries: other tests are at work, too.
    assert min(took_s) <= MERGED_IN_S


def soonest_s(opened: Path, folder: Path) -> float:
    """When a page's content was painted first, at the best of some tries: other tests are at work, too."""
    tries = [folder / f"{opened.stem}-{number}" for number in range(TRIES)]
    for each in tries:
        each.mkdir()
    return min(max(first_paints_s(opened, each).values()) for each in tries)


@NIGHT
def test_a_large_run_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (large_run.build(tmp_path / name, 3, 20) for name in ("first", "second"))
    told = sorted(path.relative_to(first) for path in first.glob("scenarios/*/*.json*"))
    assert len(told) == 9
    for path in told:
        assert (first / path).read_bytes() == (second / path).read_bytes()
