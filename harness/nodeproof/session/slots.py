"""How many slots a run has where nobody says how many."""

from __future__ import annotations

import sys

import pytest

from nodeproof.labs.kinds import DEFAULT_KIND, KINDS
from nodeproof.room import labs_at_once

_NODES = 3
"""Of a lab, where nobody says how many: what most scenarios need."""


def auto(config: pytest.Config) -> int:
    """As many as labs side by side; a lab that runs already is one. Says why. Raises Problem."""
    lab = config.getoption("lab") or DEFAULT_KIND.name
    if lab not in KINDS:
        return 0
    nodes = config.getoption("nodes") or max(_NODES, 2 * config.getoption("zones"))
    slots, said = labs_at_once(KINDS[lab], nodes)
    print(f"nodeproof: {slots} slots ({said})", file=sys.stderr)
    return slots
