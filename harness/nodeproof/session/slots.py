"""How many slots a run has where nobody says how many, and what is said of more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeproof import terminal
from nodeproof.labs.client import topology
from nodeproof.labs.ground.spec import AS_ALL, Shape
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


def set_default(config: pytest.Config) -> None:
    """Where nobody says how many, and nobody looks on (`--pdb`, `-s`): as many as with `-n auto`, on a kind
    whose scenarios wait more than they start workers. Raises Problem.
    """
    kind = KINDS.get(config.getoption("lab") or DEFAULT_KIND.name)
    if kind is None or not kind.limits.side_by_side or _is_told(config):
        return
    slots = auto(config)
    if slots > 1:
        config.option.numprocesses = slots


def _is_told(config: pytest.Config) -> bool:
    """Whether somebody said how scenarios are given out, or there is nobody to give them out: a worker has
    none of its own, though xdist takes from it how many there are.
    """
    if hasattr(config, "workerinput"):
        return True
    if config.getoption("numprocesses", 0) is not None or config.getoption("tx", ()):
        return True
    looks_on = config.getoption("usepdb") or config.getoption("capture") == "no"
    return bool(looks_on or config.getoption("dist", "no") != "no")


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
    shapes, kind = _asked_for(config), KINDS[lab]
    if shapes:
        return labs_at_once(kind, shapes)
    if kind.limits.zones_per_core:
        return zones_at_once(kind, _NODES)
    return labs_at_once(kind, [AS_ALL] * _NODES)


def _asked_for(config: pytest.Config) -> Sequence[Shape]:
    """The nodes that each lab is to have; none where nobody says. Raises Problem."""
    if file := config.getoption("topology", ""):
        return [entry.shape for entry in topology.read(Path(file))]
    nodes, zones = config.getoption("nodes"), config.getoption("zones")
    return [AS_ALL] * (nodes or (max(_NODES, 2 * zones) if zones else 0))


def _say(line: str) -> None:
    terminal.say(line)
