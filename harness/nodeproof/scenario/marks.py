"""The markers of scenarios."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodeproof.faults import Fault

claims = pytest.mark.claims
needs = pytest.mark.needs


def standing(word: Callable[..., Fault], *args: Any, **arguments: Any) -> pytest.MarkDecorator:
    """Mark a scenario with a fault on `lab.target` that is active before the scenario begins.

    Scenarios with the same fault share it: `@standing(swap, 256)`. Several are injected from the first line
    to the last.
    """
    return pytest.mark.standing.with_args(word, *args, **arguments)
