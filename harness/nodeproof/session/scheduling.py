"""Schedule scenarios on xdist's workers by a plan.

One worker gets all scenarios fixed to a slot; the others go one by one to the next free worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


def give_out(item: pytest.Item) -> None:
    """Set the current item in this worker's xdist, which rejects reports of an item it did not schedule.

    Source: xdist/remote.py, `WorkerInteractor.pytest_runtest_logreport`.
    """
    for plugin in item.config.pluginmanager.get_plugins():
        # In a worker xdist runs this module as a script, so the class differs from the importable one.
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.item_index = item.session.items.index(item)


class Planned(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's `loadscope` scheduler with slots as scopes; an unplanned test is a scope of its own."""

    def __init__(self, config: pytest.Config, log: Any, slot_of: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(config, log)
        self._slot_of = slot_of
        self._slots: Mapping[str, str] = {}
        self._is_removing = False

    def schedule(self) -> None:
        """Start scheduling, once every worker has collected and the plan is written."""
        if self.collection is None:
            self._slots = self._slot_of()
            # Keep the order of the collection: a slot with one long scenario comes before unplanned tests.
            self.config.option.loadscopereorder = False
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Give the rest of a dead worker's slot to another worker, without the scenario that crashed it."""
        self._is_removing = True
        try:
            crashed: str | None = super().remove_node(node)
        finally:
            self._is_removing = False
        for slot, unit in list(self.workqueue.items()):
            if crashed in unit:
                unit[crashed] = True
            if all(unit.values()):
                # A worker that got an empty slot would wait forever.
                del self.workqueue[slot]
        # Before the first schedule the queue is empty, and rescheduling would shut the workers down.
        for other in self.assigned_work if self.collection is not None else ():
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Reschedule a worker only after its collection, and not while `remove_node` runs.

        When one of several replacement workers has collected, xdist reschedules all of them, and would raise
        KeyError for the others. They are rescheduled again after their collection.
        """
        if node in self.registered_collections and not self._is_removing:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._slots.get(nodeid, nodeid)
