"""Plugins: what other installed packages add to nodeproof, by entry points in their metadata."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from nodeproof.model.problem import printable

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """An entry point of another package: the names that it added, or why it was not loaded."""

    name: str
    package: str
    added: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        subject = f"plugin {self.name} of {self.package}"
        return (
            f"{subject} is not loaded: {self.error}" if self.error else f"{subject}: {', '.join(self.added)}"
        )


def load_plugins(group: str, registry: MutableMapping[str, type[T]]) -> tuple[Plugin, ...]:
    """Import the plugins of a group, whose modules add classes to `registry`.

    An import that fails adds nothing, and leaves the others as they are: healing must not depend on every
    installed package.
    """
    return tuple(_load(entry, registry) for entry in sorted(entry_points(group=group), key=_order))


def _order(entry: EntryPoint) -> tuple[str, str]:
    return entry.name, _package(entry)


def _package(entry: EntryPoint) -> str:
    """Return the name and version of an entry point's package; its module if the metadata is incomplete."""
    try:
        name, version = (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
    except Exception:  # an interrupted installation leaves no METADATA
        return entry.value
    return f"{name} {version}" if name else entry.value


def _load(entry: EntryPoint, registry: MutableMapping[str, type[T]]) -> Plugin:
    before = set(registry)
    try:
        entry.load()
    # A module may also call sys.exit.
    except (Exception, SystemExit) as error:
        for name in set(registry) - before:
            # Another plugin may import the same module, which then adds it again.
            sys.modules.pop(registry.pop(name).__module__, None)
        message = " ".join(printable(f"{type(error).__name__}: {error}").split())
        return Plugin(entry.name, _package(entry), error=message)
    return Plugin(entry.name, _package(entry), tuple(sorted(set(registry) - before)))
