"""The scheduling of a planned run: which of xdist's workers gets which tests, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class PlanScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduling by scope, whose scopes are groups: the tests of a group run on one worker, in order.

    The first idle worker takes the next group, in the order of the collection. A test without a group is a
    group of its own. If a worker dies, others continue its groups after the test in which it died.

    Args:
        config: pytest's configuration of the controller.
        read_groups: returns the group of each test that has one, once all workers have collected.
    """

    def __init__(self, config: pytest.Config, read_groups: Callable[[], Mapping[str, str]]) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, Producer("nodeproof", enabled=False))
        self._read_groups = read_groups
        self._group_of: Mapping[str, str] = {}

    @property
    def collection_is_completed(self) -> bool:
        """Whether all workers have collected; a death does not take that back."""
        return self.collection is not None or bool(super().collection_is_completed)

    def schedule(self) -> None:
        """Begin once all workers have collected; later give tests to a replacement that has collected."""
        if self.collection is None:
            self._group_of = self._read_groups()
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the worker died, and let others run the rest of its groups.

        xdist alone would run that test again, and queue groups that have nothing left to run.

        Raises:
            KeyError: The worker died before it was added.
        """
        groups = self.assigned_work[node].items()
        pending = [test for _group, tests in groups for test, has_ended in tests.items() if not has_ended]
        self.registered_collections.pop(node, None)
        rest: dict[str, dict[str, bool]] = {}
        for test in pending[1:]:
            rest.setdefault(self._split_scope(test), {})[test] = False
        self.assigned_work[node] = rest
        super().remove_node(node)
        return pending[0] if pending else None

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of.get(nodeid, nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker more tests, unless it is a replacement that has not collected them yet."""
        if node in self.registered_collections:
            super()._reschedule(node)


def set_current_item(item: pytest.Item) -> None:
    """Let this worker's xdist accept reports of an item that no scheduling sent it, as of a retry.

    xdist has no public interface for it: `WorkerInteractor.pytest_runtest_logreport` (xdist/remote.py)
    compares the reports with the last item that it was sent.
    """
    for plugin in item.config.pluginmanager.get_plugins():
        # In a worker xdist runs this module as a script, so the class differs from the importable one.
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.item_index = item.session.items.index(item)
