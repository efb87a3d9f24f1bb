"""What a scenario may harm is known before anything is started."""

from __future__ import annotations

import pytest

from nodeproof import scenario
from nodeproof.faults import FAULTS
from nodeproof.model.needs import Needs
from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, outage, partition
from nodeproof.scenario import swap as paging
from nodeproof.session import harm


def of_two_kinds(lab: Stage, judge: Judge) -> None:
    cut = partition(lab.target)
    with lab.inject(cut):
        also(lab)
    assert judge


def also(lab: Stage) -> None:
    for made in (lambda: paging(lab.target), lambda: outage(*lab.nodes())):
        lab.inject(made())
    if lab.quiet_s > 1:
        also(lab)


def of_none(lab: Stage) -> None:
    lab.history()


def test_faults_are_those_that_a_scenario_names_itself_or_by_what_it_calls(
    request: pytest.FixtureRequest,
) -> None:
    module = request.node.getparent(pytest.Module)
    two, none = (
        pytest.Function.from_parent(module, name=f.__name__, callobj=f) for f in (of_two_kinds, of_none)
    )
    assert harm.faults(two) == ("outage", "partition", "swap")
    assert harm.faults(none) == ()


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (Needs(), ""),
        (Needs(faulted=2), "2 of 3 nodes"),
        (Needs(components=("etcd",)), "etcd"),
        (Needs(faulted=1, components=("etcd",)), "1 of 3 nodes, etcd"),
    ],
)
def test_targets_are_counted_and_components_named(needs: Needs, said: str) -> None:
    assert harm.targets(needs, 3) == said


@pytest.mark.parametrize("entry", FAULTS, ids=lambda entry: entry.name)
def test_every_fault_has_a_word_that_says_what_it_does_and_what_healing_does(entry: object) -> None:
    words = [name for name in scenario.__all__ if callable(getattr(scenario, name))]
    functions = [name for name in words if getattr(scenario, name).__module__ == "nodeproof.scenario.faults"]
    told = {harm.inverse(name) for name in functions} - {""}
    summary = " ".join((entry.fault.__doc__ or "").partition("\n\n")[0].split())  # type: ignore[attr-defined]
    assert summary in told
    assert "healing " in summary.lower()
