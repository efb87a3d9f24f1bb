"""Expectations register their checks before they wait."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from nodeproof.checks.settings import default_of
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check
from nodeproof.model.problem import Problem
from nodeproof.model.window import WindowContext, WindowSpec, compute, longer
from nodeproof.scenario.expectations import Expectation
from nodeproof.scenario.node import Node
from tests.unit.histories import configuration

NODE = Node("node-1")
TAINT = NODE.taint("node.kubernetes.io/unreachable", "NoExecute")
MARGIN_S = 2.0
CONTEXT = WindowContext(configuration(), 0.3)


@dataclass
class Calls:
    """What an expectation registered and waited for, in order."""

    of: list[tuple[str, Check]] = field(default_factory=list)

    def register(self, claim: str, check: Check) -> None:
        self.of.append((f"register {claim}", check))

    def wait(self, check: Check) -> None:
        self.of.append(("wait", check))


def expectation(calls: Calls, window: WindowSpec | None = None) -> Expectation:
    return Expectation("a.claim", window, MARGIN_S, calls.register, calls.wait)


def test_expectation_is_registered_before_the_wait() -> None:
    calls = Calls()
    check = expectation(calls).expect(TAINT.added, within=windows.taint_pass(), after=NODE.unknown)
    assert check == TAINT.added.after(NODE.unknown, windows.taint_pass())
    assert calls.of == [("register a.claim", check), ("wait", check)]


def test_expect_later_does_not_wait() -> None:
    calls, check = Calls(), default_of("grace")
    assert expectation(calls).expect_later(check) == check
    assert calls.of == [("register a.claim", check)]


def test_window_of_the_claim_is_the_default() -> None:
    calls, window = Calls(), windows.prompt(3)
    expectation(calls, window).expect(TAINT.removed, after=NODE.ready)
    assert calls.of[0][1] == TAINT.removed.after(NODE.ready, window)


def test_missing_window_or_anchor_is_a_problem() -> None:
    with pytest.raises(Problem, match="has no window"):
        expectation(Calls()).expect(TAINT.added, after=NODE.unknown)
    with pytest.raises(Problem, match="has no anchor"):
        expectation(Calls(), windows.prompt(3)).expect(TAINT.added)


PASS = windows.formula("negative", "P + 1", "P", "P + 1")


@pytest.mark.parametrize("window", [windows.absence(5), windows.absence_including_anchor(5), PASS])
def test_absence_is_awaited_for_longer_than_it_is_judged(window: WindowSpec) -> None:
    calls = Calls()
    judged = expectation(calls).never(TAINT.added, throughout=window, after=NODE.ready)
    (_, registered), (_, awaited) = calls.of
    assert judged == registered == TAINT.added.never_after(NODE.ready, window)
    own, extended = (
        compute(WindowSpec.from_json(check.args["window"]), CONTEXT, {}) for check in (judged, awaited)
    )
    assert (extended.low_s, extended.high_s) == (own.low_s, own.high_s + MARGIN_S)


def test_only_absences_have_longer_windows() -> None:
    with pytest.raises(ValueError, match="is not the window of an absence"):
        longer(windows.taint_pass(), MARGIN_S)
