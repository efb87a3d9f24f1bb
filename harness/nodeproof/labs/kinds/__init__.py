"""The kinds of lab. To add one, write a `Kind` in `kind.py` of a new folder here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from nodeproof.labs.kinds.existing.kind import EXISTING
from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.libvirt.kind import LIBVIRT
from nodeproof.labs.kinds.process.kind import PROCESS
from nodeproof.labs.kinds.vagrant.kind import VAGRANT
from nodeproof.model.problem import Problem

__all__ = ["DEFAULT_KIND", "EXISTING", "KINDS", "LIBVIRT", "PROCESS", "VAGRANT", "discover", "kind_named"]
DEFAULT_KIND = PROCESS


def discover() -> Mapping[str, Kind]:
    """Return the kinds of all folders here that can be started, by name, the default first."""
    folders = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    modules = [importlib.import_module(f"{__name__}.{folder}.kind") for folder in folders]
    kinds = [value for module in modules for value in vars(module).values() if isinstance(value, Kind)]
    startable = [kind for kind in kinds if not kind.is_attached]
    return {kind.name: kind for kind in sorted(startable, key=lambda kind: kind is not DEFAULT_KIND)}


KINDS = discover()
_ATTACHED = {EXISTING.name: EXISTING}


def kind_named(name: str) -> Kind:
    """Return a kind by name, also one that cannot be started. Raises Problem if there is none."""
    if name not in KINDS and name not in _ATTACHED:
        raise Problem(f"unknown lab {name!r}", "--lab", f"choose: {', '.join(KINDS)}")
    return KINDS.get(name) or _ATTACHED[name]
