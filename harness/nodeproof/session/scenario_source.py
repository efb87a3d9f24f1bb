"""A scenario's source: the claims that it judges and the names that it uses, read from its syntax tree.

A scenario may call functions at the top of its own file, directly or through others: their source counts.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from nodeproof.model.problem import Problem

CLAIM_FIXTURE = "claim"


def claim_ids(scenario: Callable[..., object]) -> tuple[str, ...]:
    """Return the ids of the claims that a scenario judges, in the order of its source.

    An id is the string literal in a call `claim("page.sentence")`.

    Raises:
        Problem: An id is not a string literal.
    """
    path = _file_of(scenario)
    calls = (node for node in _nodes(scenario) if isinstance(node, ast.Call) and _is_claim_call(node))
    return tuple(dict.fromkeys(_id_in(call, path) for call in calls))


def names_used(scenario: Callable[..., object]) -> Iterator[str]:
    """Yield the names that a scenario reads or sets, some of them repeatedly."""
    return _names(_nodes(scenario))


def attributes_used(scenario: Callable[..., object], module: str) -> Iterator[str]:
    """Yield the names that a scenario uses of a module, as `swap` in `faults.swap`."""
    for node in _nodes(scenario):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == module:
                yield attribute


def _is_claim_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == CLAIM_FIXTURE


def _id_in(call: ast.Call, path: Path) -> str:
    """Return the id in a call of the fixture `claim`. Raises Problem."""
    match call:
        case ast.Call(args=[ast.Constant(value=str(claim))], keywords=[]):
            return claim
    raise Problem(
        "the id of a claim must be a string literal", f"{path}:{call.lineno}", 'write claim("page.sentence")'
    )


@cache
def _nodes(scenario: Callable[..., object]) -> Sequence[ast.AST]:
    """Return the syntax nodes of a scenario, then those of each function of its file that it calls."""
    functions = _functions(_file_of(scenario))
    visited, pending = set[str](), [inspect.unwrap(scenario).__name__]
    nodes: list[ast.AST] = []
    while pending:
        name = pending.pop(0)
        if name in functions and name not in visited:
            visited.add(name)
            inner = list(ast.walk(functions[name]))
            nodes += inner
            pending += _names(inner)
    return nodes


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    return (node.id for node in nodes if isinstance(node, ast.Name))


@cache
def _functions(path: Path) -> Mapping[str, ast.FunctionDef]:
    """Return the functions at the top of a file, by name."""
    module = ast.parse(path.read_text(), str(path))
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def _file_of(scenario: Callable[..., object]) -> Path:
    return Path(inspect.getfile(inspect.unwrap(scenario)))
