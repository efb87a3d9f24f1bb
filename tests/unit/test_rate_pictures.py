"""Pictures of rates: what came, and the band in which it had to come, where their axes say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest

from nodeproof.report.rates import Curve
from nodeproof.report.rates import draw as draw_rates
from tests.unit.test_pictures import drawn, percent


def shapes(curve: Curve, path: Path) -> dict[str, list[tuple[float, float]]]:
    """By class, the corners of what a plot of a rate shows, read off its own axes: when (s) and how many."""
    root = drawn(draw_rates([curve], path))
    (plot,) = (each for each in root.iter() if each.get("preserveAspectRatio"))
    named = [each for each in root.iter() if re.fullmatch(r"[\d.]+", each.text or "")]
    left = percent(plot, "x")
    up = {float(each.text or ""): percent(each, "y") - 4 for each in named if percent(each, "x") < left}
    along = {float(each.text or ""): percent(each, "x") for each in named if percent(each, "x") >= left}
    when, many = (scale(axis) for axis in (along, up))
    found = {}
    for each in plot:
        corners = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", each.get("d", ""))
        found[each.get("class", "")] = [
            (
                when(left + float(x) / 1000 * percent(plot, "width")),
                many(percent(plot, "y") + float(y) / 1000 * percent(plot, "height")),
            )
            for x, y in corners
        ]
    return found


def scale(labels: Mapping[float, float]) -> Callable[[float], float]:
    """What a place on an axis means, by its first and last label."""
    (low, from_), (high, to) = min(labels.items()), max(labels.items())
    return lambda place: low + (place - from_) / (to - from_) * (high - low)


BANDS: Mapping[str, tuple[float, Sequence[tuple[float, float]]]] = {
    "as fast as may be": (1.0, [(0, 1), (6, 7), (6, 4)]),
    # It leaves the plot at its upper edge.
    "much faster": (0.1, [(0, 1), (0.6, 7), (6, 7), (6, 4)]),
}


@pytest.mark.parametrize("fastest", BANDS)
def test_the_band_of_a_rate_lies_between_the_slowest_and_the_fastest(fastest: str, tmp_path: Path) -> None:
    low, corners = BANDS[fastest]
    times = (0.0, 1.5, 3.0, 4.5)
    shown = shapes(Curve("a.b", "conforms", "", times, low, 2.0), tmp_path / "rates.svg")
    assert [*chain(*shown["pod faint"])] == pytest.approx([*chain(*corners)], abs=0.02)
    came = [*zip(times, (1, 2, 3, 4), strict=True)]
    assert [*chain(*shown["dots conforms"])] == pytest.approx([*chain(*came)], abs=0.02)


def test_what_came_too_late_is_drawn_below_the_band(tmp_path: Path) -> None:
    times, slowest_s = (0.0, 1.5, 6.0), 2.0
    shown = shapes(Curve("a.b", "deviates", "", times, 1.0, slowest_s), tmp_path / "rates.svg")
    end, least = shown["pod faint"][-1]
    assert (end, least) == pytest.approx((6.0, 1 + 6.0 / slowest_s), abs=0.02)
    assert shown["dots deviates"][-1] == pytest.approx((6.0, 3), abs=0.02)
