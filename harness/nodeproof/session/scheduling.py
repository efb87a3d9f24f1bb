"""How pytest-xdist gives out scenarios by a plan: each slot to one worker, whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class Planned(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's own, with a slot as the scope; what no plan knows is a scope of its own."""

    def __init__(self, config: pytest.Config, log: Any, slot_of: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(config, log)
        self._slot_of = slot_of
        self._slots: Mapping[str, str] = {}

    def schedule(self) -> None:
        """Begin, once every worker has collected and the plan is written."""
        if self.collection is None:
            self._slots = self._slot_of()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._slots.get(nodeid, nodeid)
