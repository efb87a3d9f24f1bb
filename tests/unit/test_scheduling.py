"""Workers that die when nothing is given out yet, or that xdist's scheduler never knew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.session.scheduling import Planned

TESTS = ("test_one", "test_two", "test_three")


@dataclass(eq=False)
class Worker:
    """What a scheduler sees of a worker."""

    name: str
    given: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def planned() -> Any:
    """Of two workers, in which each test is a slot."""
    config = SimpleNamespace(
        getvalue=lambda _name: ["popen", "popen"], option=SimpleNamespace(loadscopereorder=True)
    )
    log = SimpleNamespace(loadscopesched=lambda *_said: None)
    return Planned(cast(pytest.Config, config), log, lambda: {test: test for test in TESTS})


def come(planned: Any, *workers: Worker) -> None:
    for worker in workers:
        planned.add_node(worker)
        planned.add_node_collection(worker, list(TESTS))


def test_who_dies_before_anything_is_given_out_sends_nobody_home(planned: Any) -> None:
    early, late, replaced = Worker("gw0"), Worker("gw1"), Worker("gw2")
    come(planned, early)
    planned.add_node(late)
    assert planned.remove_node(late) is None
    assert not early.shutting_down
    come(planned, replaced)
    planned.schedule()
    assert sorted([*early.given, *replaced.given]) == [0, 1, 2]


def test_one_that_was_never_known_keeps_nobody_from_work(planned: Any) -> None:
    first, second = Worker("gw0"), Worker("gw1")
    come(planned, first, second)
    with pytest.raises(KeyError):
        planned.remove_node(Worker("gw2"))
    planned.schedule()
    for worker in (first, second):
        for index in list(worker.given):
            planned.mark_test_complete(worker, index)
    assert sorted([*first.given, *second.given]) == [0, 1, 2]


def test_who_is_done_first_takes_what_stays_nowhere(planned: Any) -> None:
    tests = ["long", "short", *(f"moves {number}" for number in range(6))]
    planned._slot_of = lambda: {"long": "slot 1", "short": "slot 2"}
    slow, fast = Worker("gw0"), Worker("gw1")
    for worker in (slow, fast):
        planned.add_node(worker)
        planned.add_node_collection(worker, tests)
    planned.schedule()
    done = 0
    while done < len(fast.given):
        planned.mark_test_complete(fast, fast.given[done])
        done += 1
    # xdist gives a worker two before it is done with what it has.
    assert len(slow.given) <= 3
    assert sorted([*slow.given, *fast.given]) == list(range(len(tests)))
