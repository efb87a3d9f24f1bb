"""The scheduling of a planned run: which of xdist's workers gets which tests, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import pytest
from xdist.report import report_collection_diff
from xdist.workermanage import WorkerController, parse_tx_spec_config

_FEW = 2
"""A worker with at most this many pending tests gets more: it begins a test only once it has the next one."""


class PlanScheduling:
    """xdist's `Scheduling` by groups: the tests of a group run on one worker, in order.

    The first idle worker takes the next group, in the order of the collection. A test without a group is a
    group of its own. If a worker dies, others continue its groups after the test in which it died.

    Args:
        config: pytest's configuration of the controller.
        read_groups: returns the group of each test that has one, once all workers have collected.
    """

    def __init__(self, config: pytest.Config, read_groups: Callable[[], Mapping[str, str]]) -> None:
        self.config = config
        self._read_groups = read_groups
        self._initial_workers = len(parse_tx_spec_config(config))
        self._tests: list[str] | None = None
        """What the workers have collected, once scheduling has begun."""
        self._queue: deque[list[str]] = deque()
        self._assigned: dict[WorkerController, list[list[str]]] = {}
        """Pending tests of each worker, in groups."""
        self._collections: dict[WorkerController, list[str]] = {}

    @property
    def nodes(self) -> list[WorkerController]:
        return list(self._assigned)

    @property
    def collection_is_completed(self) -> bool:
        return self._tests is not None or len(self._collections) >= self._initial_workers

    @property
    def has_pending(self) -> bool:
        return bool(self._queue) or any(self._assigned.values())

    @property
    def tests_finished(self) -> bool:
        """Whether workers need no further tests: a shutdown lets each run its last one."""
        all_assigned = self.collection_is_completed and not self._queue
        return all_assigned and all(self._count_pending(worker) < 2 for worker in self._assigned)

    def add_node(self, node: WorkerController) -> None:
        self._assigned[node] = []

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        # A replacement that collected other tests gets none of them.
        if self._tests is None or self._tests == list(collection):
            self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Begin once all workers have collected; later give tests to a replacement that has collected."""
        if self._tests is None:
            self._begin()
        # Every worker gets a group before any gets a second one.
        for worker in (*self._assigned, *self._assigned):
            self._feed(worker)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:  # noqa: ARG002
        test = self._collections[node][item_index]
        pending = ([other for other in group if other != test] for group in self._assigned[node])
        self._assigned[node] = [group for group in pending if group]
        self._feed(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the worker died, and let others run the rest of its groups.

        Raises:
            KeyError: The worker died before it was added.
        """
        groups = self._assigned.pop(node)
        self._collections.pop(node, None)
        crashed = groups[0].pop(0) if groups else None
        self._queue.extend(group for group in groups if group)
        # Before the first schedule the queue is empty, which would shut the other workers down.
        for other in self._assigned if self._tests is not None else ():
            self._feed(other)
        return crashed

    def mark_test_pending(self, item: str) -> NoReturn:
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> NoReturn:
        raise NotImplementedError

    def _begin(self) -> None:
        """Queue the groups, unless the workers collected different tests: then the run fails."""
        self._tests = next(iter(self._collections.values()))
        if self._is_same_everywhere(self._tests):
            group_of, groups = self._read_groups(), dict[str, list[str]]()
            for test in self._tests:
                groups.setdefault(group_of.get(test, test), []).append(test)
            self._queue.extend(groups.values())

    def _is_same_everywhere(self, tests: Sequence[str]) -> bool:
        """Return whether all workers collected these tests; report each worker that did not."""
        first, *_others = (worker.gateway.id for worker in self._collections)
        differences = {
            worker.gateway.id: report_collection_diff(tests, collection, first, worker.gateway.id)
            for worker, collection in self._collections.items()
            if collection != tests
        }
        for name, difference in differences.items():
            report = pytest.CollectReport(name, "failed", difference, [])
            self.config.hook.pytest_collectreport(report=report)
        return not differences

    def _feed(self, worker: WorkerController) -> None:
        """Give a worker the next group if it has few tests left, or let it end if there is none."""
        if worker not in self._collections or worker.shutting_down:
            return
        if not self._queue:
            worker.shutdown()
        elif self._count_pending(worker) <= _FEW:
            group = self._queue.popleft()
            self._assigned[worker].append(group)
            worker.send_runtest_some([self._collections[worker].index(test) for test in group])

    def _count_pending(self, worker: WorkerController) -> int:
        return sum(map(len, self._assigned[worker]))


def set_current_item(item: pytest.Item) -> None:
    """Let this worker's xdist accept reports of an item that no scheduling sent it, as of a retry.

    xdist has no public interface for it: `WorkerInteractor.pytest_runtest_logreport` (xdist/remote.py)
    compares the reports with the last item that it was sent.
    """
    for plugin in item.config.pluginmanager.get_plugins():
        # In a worker xdist runs this module as a script, so the class differs from the importable one.
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.item_index = item.session.items.index(item)
