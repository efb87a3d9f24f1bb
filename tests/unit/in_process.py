"""Commands of nodeproof in the process of a test; the fixture `call` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[..., "Output"]


@dataclass(frozen=True)
class Output:
    """The exit status of a command, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The errors of a command that was refused."""
        assert self.status == 2, self
        return self.err
