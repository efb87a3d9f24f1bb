"""What a lab's zones have to do with each other: nothing, so that scenarios in different ones don't meet.

Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go, `zoneNoExecuteTainter` and `zoneStates`: a
rate limiter and a state for each zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.checks.moments import find
from nodeproof.labs.client import starting
from nodeproof.labs.client.lab import Lab
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import Needs
from nodeproof.model.slack import slack_s
from nodeproof.scenario import UNREACHABLE, condition_became, outage, taint_added, windows
from nodeproof.scenario.stage import Stage

NODES, ZONES = 9, 3
LOST = (2, 2, 1)
"""Of each zone: more in all than one bucket would evict before the last zone's first."""
Zones = Mapping[str, Sequence[str]]


@pytest.fixture(scope="module")
def zoned(components: Components) -> Iterator[Lab]:
    """A process lab of three zones of three nodes."""
    lab = starting.up(starting.Request(starting.new_name(), NODES, ZONES, "fast", False), components, print)
    try:
        lab.prepare()
        yield lab
    finally:
        lab.down()


@pytest.mark.alone
def test_each_zone_evicts_at_a_rate_of_its_own(zoned: Lab, tmp_path: Path) -> None:
    lost = _lost(zoned)
    nodes = [entry for entry in zoned.fleet.nodes() if any(entry.name in names for names in lost.values())]
    stage = Stage(zoned, tmp_path, Needs(nodes=NODES, zones=ZONES, faulted=len(nodes), radius="zone"), _step)
    with stage.record(), stage.inject(outage(*nodes)) as cut:
        for entry in nodes:
            unknown = _unknown(entry.name)
            stage.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            stage.wait_for(_tainted(entry.name).after(unknown, windows.prompt(5 / zoned.configuration["E"])))
    history = stage.history()
    period_s, slack = 1 / zoned.configuration["E"], slack_s(history, zoned.configuration)

    assert slack < period_s / 2, "nothing can be told apart"
    for names in lost.values():
        first, *others = sorted(names, key=lambda name: _t(history, _tainted(name)))
        waited_s = _t(history, _tainted(first)) - _t(history, _unknown(first))
        assert waited_s < zoned.configuration["P"] + slack, "it waited for another zone's"
        for other in others:
            assert _t(history, _tainted(other)) - _t(history, _tainted(first)) > period_s - slack
    zoned.wait_nodes_ready()


def _lost(lab: Lab) -> Zones:
    zones: dict[str, list[str]] = {}
    for entry in lab.fleet.nodes():
        zones.setdefault(entry.zone, []).append(entry.name)
    return {zone: zones[zone][:many] for zone, many in zip(sorted(zones), LOST, strict=True)}


def _unknown(node: str) -> Moment:
    return condition_became(node, "Ready", "Unknown")


def _tainted(node: str) -> Moment:
    return taint_added(node, UNREACHABLE, "NoExecute")


def _t(history: History, moment: Moment) -> float:
    found = find(history, moment)
    assert found is not None, moment
    return found.t


@contextmanager
def _step(_name: str) -> Iterator[None]:
    yield
