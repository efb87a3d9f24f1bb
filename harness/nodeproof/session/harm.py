"""What a scenario may affect, and by which faults, according to its markers and its code."""

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
    """Describe what a scenario's faults may affect in a lab or zone of `nodes` nodes; empty if nothing."""
    affected_nodes = f"{needs.faulted} of {nodes} nodes" if needs.faulted else ""
    return ", ".join(filter(None, (affected_nodes, *needs.components)))


def faults(item: pytest.Item) -> tuple[str, ...]:
    """Return the fault constructors (`nodeproof.scenario`) that a scenario uses.

    These are the ones that its function names, directly or through functions of the same module, and those of
    `@standing`.
    """
    function = getattr(item, "function", None)
    names = set(_faults_in(function, set())) if isinstance(function, FunctionType) else set()
    return tuple(sorted(names | {mark.args[0].__name__ for mark in item.iter_markers("standing")}))


def _faults_in(function: FunctionType, visited: set[FunctionType]) -> Iterator[str]:
    visited.add(function)
    for name in _global_names(function.__code__):
        used = function.__globals__.get(name)
        if not isinstance(used, FunctionType) or used in visited:
            continue
        if used.__module__ == words.__name__:
            if inverse(used.__name__):
                yield used.__name__
        elif used.__module__ == function.__module__:
            yield from _faults_in(used, visited)


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function and its nested functions use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def inverse(word: str) -> str:
    """Describe what a fault and its healing do; empty if the word does not make a fault."""
    fault = get_type_hints(getattr(scenario, word)).get("return")
    if fault not in {entry.fault for entry in FAULTS}:
        return ""
    return " ".join((inspect.getdoc(fault) or "").partition("\n\n")[0].split())
