"""The kinds of lab. To add one, write a `Kind` in `kind.py` of a new folder here.

A kind of another package is an entry point of the group `nodeproof.labs`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from nodeproof.entry_points import WithPlugins
from nodeproof.labs.kinds.existing.kind import EXISTING
from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.libvirt.kind import LIBVIRT
from nodeproof.labs.kinds.process.kind import PROCESS
from nodeproof.labs.kinds.vagrant.kind import VAGRANT
from nodeproof.model.problem import Problem

__all__ = [
    "DEFAULT_KIND",
    "EXISTING",
    "KINDS",
    "LIBVIRT",
    "PROCESS",
    "VAGRANT",
    "discover",
    "kind_named",
    "with_plugins",
]
DEFAULT_KIND = PROCESS


def discover() -> Mapping[str, Kind]:
    """Return the kinds of all folders here that can be started, by name, the default first."""
    folders = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    modules = [importlib.import_module(f"{__name__}.{folder}.kind") for folder in folders]
    kinds = [value for module in modules for value in vars(module).values() if isinstance(value, Kind)]
    startable = [kind for kind in kinds if not kind.is_attached]
    return {kind.name: kind for kind in sorted(startable, key=lambda kind: kind is not DEFAULT_KIND)}


def _name_of(kind: object) -> str:
    if not isinstance(kind, Kind):
        raise TypeError(f"{kind!r} is no {Kind.__module__}.{Kind.__name__}")
    return kind.name


def with_plugins(own: Mapping[str, Kind]) -> WithPlugins[Kind]:
    """Return these kinds and those of plugins."""
    return WithPlugins("nodeproof.labs", own, _name_of)


KINDS = with_plugins(discover())


def kind_named(name: str) -> Kind:
    """Return a kind by name, also one that cannot be started. Raises Problem if there is none."""
    if name == EXISTING.name:
        return EXISTING
    if name not in KINDS:
        choices = f"choose: {', '.join(KINDS)}"
        raise Problem(f"unknown lab {name!r}", "--lab", choices, "\n".join(KINDS.errors))
    return KINDS[name]
