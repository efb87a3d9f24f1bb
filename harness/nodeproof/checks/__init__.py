"""Pure judgments over a History.

Every module of this package is imported, so that a new moment or check is registered by its file alone.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
