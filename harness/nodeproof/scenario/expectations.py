"""Expectations: what a recording must show for a claim, and the wait until that is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nodeproof.model.claim import ReportedBug
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.problem import Problem
from nodeproof.model.window import WindowSpec, longer

Register = Callable[[str, Check], None]
"""Registers a check that decides a claim when the scenario ends."""


@dataclass(frozen=True)
class Expectation:
    """What the recording must show for one claim; a claim may have several expectations.

    Each is registered before anything is waited for: a scenario that is aborted loses none of them. The
    verdict is given when the scenario has ended, from the recording alone.

    Args:
        claim: id of the claim.
        window: the window in the claim's YAML, if it has one.
        reported: the known bug of the claim, if it has one.
        margin_s: how much longer (s) than its window an absence is recorded: more than any slack.
    """

    claim: str
    window: WindowSpec | None
    reported: ReportedBug | None
    margin_s: float
    register: Register
    wait: Callable[[Check], object]

    def expect(
        self, event: Moment | Check, *, within: WindowSpec | None = None, after: Moment | None = None
    ) -> Check:
        """Register an event or a check, and wait until it is decided or its window has passed.

        The verdict is computed when the scenario ends; the wait only keeps the recording running. Where an
        event that came in time would end it, a late one is awaited as long as a known bug may delay it.

        Args:
            event: a moment, with `after`; or a check that has its anchor and window.
            within: the window; by default that of the claim's YAML.
            after: the anchor of the window.

        Raises:
            Problem: The claim has no window, or the check is decided by the end of the recording.
        """
        check = self.expect_later(event, within=within, after=after)
        self.wait(check)
        deviation = self.reported and self.reported.deviation(check)
        if deviation:
            self.wait(deviation)
        return check

    def expect_later(
        self, event: Moment | Check, *, within: WindowSpec | None = None, after: Moment | None = None
    ) -> Check:
        """Register an event or a check without waiting; it is judged when the scenario ends, like all checks.

        Use it if something else keeps the recording running long enough: another wait, or a later `expect`.
        The arguments are those of `expect`.

        Raises:
            Problem: The claim has no window.
        """
        check = event if isinstance(event, Check) else self._timed(event, within, after)
        self.register(self.claim, check)
        return check

    def never(self, event: Moment, *, throughout: WindowSpec, after: Moment) -> Check:
        """Register that an event does not occur in a window, and wait until it could not be hidden by slack.

        Args:
            event: what must not occur.
            throughout: the window.
            after: the anchor of the window.
        """
        check = event.never_after(after, throughout)
        self.register(self.claim, check)
        self.wait(event.never_after(after, longer(throughout, self.margin_s)))
        return check

    def _timed(self, event: Moment, within: WindowSpec | None, after: Moment | None) -> Check:
        window = within or self.window
        if window is None:
            next_step = "pass `within=`, or add `window` to the claim's YAML"
            raise Problem(f"{event} has no window", f"claim {self.claim}", next_step)
        if after is None:
            raise Problem(f"{event} has no anchor", f"claim {self.claim}", "pass `after=`")
        return event.after(after, window)


class Expectations(Protocol):
    """The fixture `claim`: `claim("taints.unreachable-noexecute").expect(...)`."""

    def __call__(self, claim: str, /) -> Expectation:
        """Return the expectation of a claim. The id must be a string literal: collection reads the source."""
        ...
