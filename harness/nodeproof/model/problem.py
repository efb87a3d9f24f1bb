"""The one kind of error a user is meant to read."""

from __future__ import annotations

from nodeproof.model.printable import printable


class Problem(Exception):
    """Something the user can mend: what went wrong, where, and the next step.

    `detail` holds supporting lines (a component's last log lines, a compiler's output) and is shown below the
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
    """The host stood still for so long that a lab is not as it was: another try may tell more."""


class OutsideError(Exception):
    """Something outside (a machine, an API server) refused or did not answer; its message is one line."""
