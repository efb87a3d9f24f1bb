"""What a scenario reads once: `lab.observe(probes.metric("kube-scheduler", name))`.

Probes of other packages, `probes.NAME`, are entry points of the group `nodeproof.probes`.
"""

# What this module imports is public.
# mypy: implicit-reexport

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodeproof.entry_points import WithPlugins
from nodeproof.probes import *
from nodeproof.probes import INHIBITORS, KUBELET_LOCK, SWAP_LIMIT, Probe
from nodeproof.scenario.lab import STATUS


def _name_of(maker: Callable[..., Any]) -> str:
    if not inspect.isfunction(maker):
        raise TypeError(f"{maker!r} is not a function")
    return maker.__name__


PROBES: WithPlugins[Callable[..., Any]] = WithPlugins(
    "nodeproof.probes", dict(inspect.getmembers(sys.modules[__name__], inspect.isfunction)), _name_of
)
"""The functions that return probes, those of plugins, too."""

if not TYPE_CHECKING:

    def __getattr__(word: str) -> Callable[..., Probe]:
        """Return a plugin's probe by its name; a name of Python's, as `__all__`, imports no plugin."""
        if not word.startswith("_") and word in PROBES:
            return PROBES[word]
        raise AttributeError(f"module {__name__!r} has no attribute {word!r}")
