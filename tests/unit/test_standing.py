"""What scenarios ask to stand is known before anything is started."""

from __future__ import annotations

import pytest

from nodeproof.model.problem import Problem
from nodeproof.scenario import Fault, kubelet_settings, needs, partition, standing, swap, volumes
from nodeproof.session import asked, harm

few, paging = standing(kubelet_settings, maxPods=40), standing(swap, 256)


@needs(faulted=1)
@paging
@few
def pages() -> None: ...


@needs(faulted=1)
@paging
@standing(kubelet_settings, maxPods=40)
def pages_too() -> None: ...


@needs(faulted=1)
@few
@paging
def in_another_order() -> None: ...


@paging
def harms_nobody() -> None: ...


@needs(faulted=1)
@standing(swap, 256, 1)
def misspelt() -> None: ...


@needs(faulted=1)
@standing(volumes)
def of_no_node() -> None: ...


def own_word(node: str) -> Fault:
    return swap(node)


@needs(faulted=1)
@standing(own_word)
def by_a_word_of_its_own() -> None: ...


def plain() -> None: ...


def item(request: pytest.FixtureRequest, function: object) -> pytest.Function:
    module = request.node.getparent(pytest.Module)
    return pytest.Function.from_parent(module, name=function.__name__, callobj=function)  # type: ignore[attr-defined]


def test_it_goes_in_from_the_first_line_to_the_last(request: pytest.FixtureRequest) -> None:
    made = [make("node-1") for make in asked.standing(item(request, pages))]
    assert [(fault.name, fault.node) for fault in made] == [
        ("swap", "node-1"),
        ("kubelet-settings", "node-1"),
    ]
    assert harm.faults(item(request, pages)) == ("kubelet_settings", "swap")


def test_who_asks_for_the_same_has_the_same_key(request: pytest.FixtureRequest) -> None:
    keys = [
        asked.key(asked.standing(item(request, each))) for each in (pages, pages_too, in_another_order, plain)
    ]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] == ""


def test_people_read_what_stands(request: pytest.FixtureRequest) -> None:
    stands = asked.key(asked.standing(item(request, pages)))
    assert list(asked.described(stands)) == [
        "swap size_mib=256 used_mib=0",
        'kubelet-settings settings={"maxPods": 40}',
    ]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (harms_nobody, "faulted=1"),
        (misspelt, "@standing"),
        (of_no_node, "volumes is not a fault of a single node"),
        (by_a_word_of_its_own, "own_word is not a fault of nodeproof.scenario"),
    ],
)
def test_what_cannot_stand_is_refused_before_anything_is_started(
    request: pytest.FixtureRequest, function: object, said: str
) -> None:
    with pytest.raises(Problem, match=said):
        asked.check(item(request, function))


def test_the_word_needs_no_second_argument() -> None:
    assert standing(partition).args == (partition,)
