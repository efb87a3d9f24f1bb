"""Plugins: what other installed packages add to nodeproof, by entry points in their metadata."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

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
        result = f" is not loaded: {self.error}" if self.error else f": {', '.join(self.added)}"
        return f"plugin {self.name} of {self.package}{result}"


def load_plugins(group: str, registry: MutableMapping[str, type[T]]) -> tuple[Plugin, ...]:
    """Import the plugins of a group, whose modules add classes to `registry`.

    An import that fails adds nothing, and leaves the others as they are: healing must not depend on every
    installed package.
    """

    def load(entry: EntryPoint) -> Plugin:
        before = set(registry)
        plugin = _load(entry, lambda _module: tuple(sorted(set(registry) - before)))
        if plugin.error:
            for name in set(registry) - before:
                # Another plugin may import the same module, which then adds it again.
                sys.modules.pop(registry.pop(name).__module__, None)
        return plugin

    return tuple(map(load, _in_order(group)))


class WithPlugins(Mapping[str, T]):
    """Objects by name: nodeproof's own, then the objects that the entry points of a group name.

    Plugins are imported at first use: a plugin's module may import nodeproof before it has defined its own
    object. `name_of` returns an object's name, or raises TypeError. A plugin that cannot be
    imported, or whose object has a name that exists, adds nothing.
    """

    def __init__(self, group: str, own: Mapping[str, T], name_of: Callable[[T], str]) -> None:
        self._group, self._own, self._name_of = group, own, name_of

    @property
    def plugins(self) -> Sequence[Plugin]:
        """The plugins of the group, loaded or not."""
        return self._all[1]

    @property
    def errors(self) -> list[str]:
        """A line about each plugin that was not loaded."""
        return [str(plugin) for plugin in self.plugins if plugin.error]

    @cached_property
    def _all(self) -> tuple[Mapping[str, T], Sequence[Plugin]]:
        objects = dict(self._own)

        def add(value: T) -> tuple[str]:
            name = self._name_of(value)
            if name in objects:
                raise ValueError(f"there is another {name!r}")
            objects[name] = value
            return (name,)

        return objects, tuple(_load(entry, add) for entry in _in_order(self._group))

    def __getitem__(self, name: str) -> T:
        return self._all[0][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all[0])

    def __len__(self) -> int:
        return len(self._all[0])


def _in_order(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda entry: (entry.name, _package(entry)))


def _package(entry: EntryPoint) -> str:
    """Return the name and version of an entry point's package; its module if the metadata is incomplete."""
    try:
        name, version = (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
    except Exception:  # an interrupted installation leaves no METADATA
        return entry.value
    return f"{name} {version}" if name else entry.value


def _load(entry: EntryPoint, add: Callable[[Any], tuple[str, ...]]) -> Plugin:
    """Import a plugin; `add` takes what its entry point names, and returns the names that it added."""
    try:
        return Plugin(entry.name, _package(entry), add(entry.load()))
    # A module may also call sys.exit.
    except (Exception, SystemExit) as error:
        message = " ".join(printable(f"{type(error).__name__}: {error}").split())
        return Plugin(entry.name, _package(entry), error=message)
