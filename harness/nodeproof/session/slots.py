"""How many slots a run has where nobody says how many, and what is said of more."""

from __future__ import annotations

import sys

import pytest

from nodeproof.labs.kinds import DEFAULT_KIND, KINDS
from nodeproof.room import labs_at_once, zones_at_once

_NODES = 3
"""Of a lab, where nobody says how many: what most scenarios need."""


def auto(config: pytest.Config) -> int:
    """As many as zones of one lab, or labs side by side; a lab that runs already is one. Says why. Raises
    Problem.
    """
    slots, said = _borne(config)
    if slots:
        _say(f"{slots} slots ({said})")
    return slots


def warn_of_more(config: pytest.Config) -> None:
    """Say that more slots were asked for than this machine bears: verdicts may be `host-too-loaded`. Raises
    Problem.
    """
    asked, (slots, said) = config.getoption("numprocesses", None), _borne(config)
    if isinstance(asked, int) and 0 < slots < asked:
        borne = f"this machine bears {slots} ({said})"
        _say(f"{asked} slots were asked for, {borne}: too loaded, it proves nothing")


def _borne(config: pytest.Config) -> tuple[int, str]:
    """As many slots as are tried without being told, and why; none in a lab that runs already: zones are not
    all that its scenarios may need.
    """
    lab = config.getoption("lab") or DEFAULT_KIND.name
    if lab not in KINDS:
        return 0, ""
    nodes, zones, kind = config.getoption("nodes"), config.getoption("zones"), KINDS[lab]
    if kind.limits.zones_per_core and not nodes and not zones:
        return zones_at_once(kind, _NODES)
    return labs_at_once(kind, nodes or max(_NODES, 2 * zones))


def _say(line: str) -> None:
    print(f"nodeproof: {line}", file=sys.stderr)
