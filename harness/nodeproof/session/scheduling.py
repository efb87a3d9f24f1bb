"""How pytest-xdist gives out scenarios by a plan: what stays in a slot to one worker, and the rest one by one
to whoever is done first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


def give_out(item: pytest.Item) -> None:
    """Tell the xdist of this worker which item runs next, though nobody gave it out: else it refuses reports.

    Source: xdist/remote.py, `WorkerInteractor.pytest_runtest_logreport`.
    """
    for plugin in item.config.pluginmanager.get_plugins():
        # xdist runs its module as a script in a worker: the class is not the one that can be imported.
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.item_index = item.session.items.index(item)


class Planned(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's own, with a slot as the scope; what no plan knows is a scope of its own."""

    def __init__(self, config: pytest.Config, log: Any, slot_of: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(config, log)
        self._slot_of = slot_of
        self._slots: Mapping[str, str] = {}
        self._holds_back = False

    def schedule(self) -> None:
        """Begin, once every worker has collected and the plan is written."""
        if self.collection is None:
            self._slots = self._slot_of()
            # In the order of the collection: a slot of one long scenario comes before what is no scenario.
            self.config.option.loadscopereorder = False
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Give the rest of a dead worker's slot to another; what it died of is not begun again."""
        self._holds_back = True
        try:
            crashed: str | None = super().remove_node(node)
        finally:
            self._holds_back = False
        for slot, unit in list(self.workqueue.items()):
            if crashed in unit:
                unit[crashed] = True
            if all(unit.values()):
                # Whoever got it would wait for nothing, for ever.
                del self.workqueue[slot]
        # Before anything is given out there is nothing left, and whoever is asked would be sent home.
        for other in self.assigned_work if self.collection is not None else ():
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give work to nobody that has not collected yet: xdist asks all as soon as one of several that came
        for dead ones has, and would raise KeyError. Whoever collects is asked again. Nor while it is not said
        yet what a dead one died of.
        """
        if node in self.registered_collections and not self._holds_back:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._slots.get(nodeid, nodeid)
