"""Errors for users."""

from __future__ import annotations

from nodeproof.model.printable import printable


class Problem(Exception):
    """An error that the user can fix: what went wrong, where, and the next step.

    `detail` has supporting lines (a component's last log lines, the output of a compiler), shown below the
    one-line message.
    """

    def __init__(self, what: str, where: str, next_step: str, detail: str = "") -> None:
        super().__init__(what, where, next_step, detail)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.line}\n{printable(self.detail)}" if self.detail else self.line

    @property
    def line(self) -> str:
        """The message without its detail."""
        return printable(f"{self.what} ({self.where}); {self.next_step}")


class HostTooLoaded(Problem):
    """The host stalled for so long that the lab may have changed; a retry may succeed."""


class OutsideError(Exception):
    """A machine or an API server refused a request or did not answer; the message is one line."""
