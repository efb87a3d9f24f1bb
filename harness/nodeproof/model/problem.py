"""Errors for users, and output of text from other sources on a terminal."""

from __future__ import annotations

_ALLOWED = "\n\t"
ENVIRONMENT = 2
"""Exit code of a command that a Problem ends: a usage error, or an unsuitable environment."""


def printable(text: str) -> str:
    """Return the text with a blank for each unsafe character; line breaks and tabs stay.

    Unsafe characters can control a terminal, change the text direction, or cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _ALLOWED else " " for char in text)


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
