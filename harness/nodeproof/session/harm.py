"""What a scenario may harm, and by which faults: read from its markers and its code, with nothing started."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import get_type_hints

import pytest

from nodeproof import scenario
from nodeproof.faults import FAULTS
from nodeproof.model.needs import Needs
from nodeproof.scenario import faults as words


def targets(needs: Needs, nodes: int) -> str:
    """What its faults may hit, of a lab or a zone of so many nodes; nothing where they may hit nothing."""
    counted = f"{needs.faulted} of {nodes} nodes" if needs.faulted else ""
    return ", ".join(filter(None, (counted, *needs.components)))


def faults(item: pytest.Item) -> tuple[str, ...]:
    """The words for faults (`nodeproof.scenario`) that its function names, or one beside it that it calls;
    and for what stands before it.
    """
    function = getattr(item, "function", None)
    named = set(_faults(function, set())) if isinstance(function, FunctionType) else set()
    return tuple(sorted(named | {mark.args[0].__name__ for mark in item.iter_markers("standing")}))


def _faults(function: FunctionType, seen: set[FunctionType]) -> Iterator[str]:
    seen.add(function)
    for name in _names(function.__code__):
        told = function.__globals__.get(name)
        if not isinstance(told, FunctionType) or told in seen:
            continue
        if told.__module__ == words.__name__:
            if inverse(told.__name__):
                yield told.__name__
        elif told.__module__ == function.__module__:
            yield from _faults(told, seen)


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function uses, in functions within it, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def inverse(word: str) -> str:
    """What the fault of a word does, and what healing it does; nothing for a word that makes no fault."""
    made = get_type_hints(getattr(scenario, word)).get("return")
    if made not in {entry.fault for entry in FAULTS}:
        return ""
    return " ".join((inspect.getdoc(made) or "").partition("\n\n")[0].split())
