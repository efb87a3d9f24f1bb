"""The default number of slots of a run, and a warning if more are requested."""

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
"""Default number of nodes of a lab, which suits most scenarios."""


def auto(config: pytest.Config) -> int:
    """Return the number of slots that this machine supports, and print the reason; 0 on a running lab.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    slots, reason = _supported_slots(config)
    if slots:
        _say(f"{slots} slots ({reason})")
    return slots


def set_default(config: pytest.Config) -> None:
    """Set `-n auto` as the default on kinds of labs that gain from it, but not with `--pdb` or `-s`.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    kind = KINDS.get(config.getoption("lab") or DEFAULT_KIND.name)
    if kind is None or not kind.limits.side_by_side or _is_determined(config):
        return
    slots = auto(config)
    if slots > 1:
        config.option.numprocesses = slots


def _is_determined(config: pytest.Config) -> bool:
    """Return whether options determine the number of slots, or this is a worker, which starts no others."""
    if hasattr(config, "workerinput"):
        return True
    if config.getoption("numprocesses", 0) is not None or config.getoption("tx", ()):
        return True
    is_interactive = config.getoption("usepdb") or config.getoption("capture") == "no"
    return bool(is_interactive or config.getoption("dist", "no") != "no")


def warn_of_more(config: pytest.Config) -> None:
    """Warn if more slots are requested than this machine supports: verdicts may be `host-too-loaded`.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    requested, (slots, reason) = config.getoption("numprocesses", None), _supported_slots(config)
    if isinstance(requested, int) and 0 < slots < requested:
        limit = f"but this machine supports {slots} ({reason})"
        _say(f"{requested} slots were requested, {limit}; verdicts may be host-too-loaded")


def _supported_slots(config: pytest.Config) -> tuple[int, str]:
    """Return the number of slots that this machine supports, and the reason; 0 on a running lab.

    A running lab may lack more than zones for its scenarios to run in parallel.
    """
    lab = config.getoption("lab") or DEFAULT_KIND.name
    if lab not in KINDS:
        return 0, ""
    shapes, kind = _node_shapes(config), KINDS[lab]
    if shapes:
        return labs_at_once(kind, shapes)
    if kind.limits.zones_per_core:
        return zones_at_once(kind, _NODES)
    return labs_at_once(kind, [AS_ALL] * _NODES)


def _node_shapes(config: pytest.Config) -> Sequence[Shape]:
    """Return the nodes of each lab as given by options; empty without options. Raises Problem."""
    if file := config.getoption("topology", ""):
        return [entry.shape for entry in topology.read(Path(file))]
    nodes, zones = config.getoption("nodes"), config.getoption("zones")
    return [AS_ALL] * (nodes or (max(_NODES, 2 * zones) if zones else 0))


def _say(line: str) -> None:
    terminal.say(line)
