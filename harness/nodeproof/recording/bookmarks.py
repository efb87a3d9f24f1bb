"""A recording that writes nothing to the cluster: watches with bookmarks, and a quorum LIST at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import RESOURCES
from nodeproof.model.history import Entry, History, fence
from nodeproof.model.judgment import Observation
from nodeproof.model.pattern import Json
from nodeproof.recording.recorder import LiveHistory, state_of

START_TIMEOUT_S = 15.0
FENCE_S = 8
"""Time (s) that the watches last beyond the observation: the last bookmark comes 2 s before their end."""
_LATEST_BOOKMARK_S = FENCE_S - 1.0
_LOOK_PERIOD_S = 0.25
_NEVER_SILENT_S = 600.0
"""A watch without events may be idle; the server ends it."""


class ReadOnlyRecording(LiveHistory):
    """A live History without sentinels. Use it as a context manager; `fence` ends the observation.

    Stalls of this host and steps of its clock are not recorded: Leases are timed by their nodes' clocks, and
    states by the LIST.

    Args:
        api: The API server; its watches must last `FENCE_S` longer than `observed_s`.
        path: The file of the history.
        nodes: The names of the nodes.
        resources: The watched resources.
        observed_s: Time of the observation (s).
        wall_offset_s: The API server's wall clock minus this host's monotonic clock (s).
    """

    def __init__(
        self,
        api: Api,
        path: Path,
        nodes: Sequence[str],
        resources: Sequence[str],
        observed_s: float,
        wall_offset_s: float,
    ) -> None:
        super().__init__(api, path, resources, _NEVER_SILENT_S)
        self._observed_s = observed_s
        self._opened_t = 0.0
        self._begun: dict[str, Json] = {
            "wall_offset_s": wall_offset_s,
            "nodes": list(nodes),
            "sentinel_node": "",
        }

    def __enter__(self) -> ReadOnlyRecording:
        self.append("begun", **self._begun)
        self._open_watches(START_TIMEOUT_S, "see `nodeproof audit --rbac`, and any proxy in between")
        self._opened_t = time.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def _end(self) -> None:
        self._stopping.set()
        self.append("ended")
        with self._changed:
            self._out.close()

    def observe(self, observation: Observation, requested_t: float) -> None:
        """Write down an observation of a LIST that was requested at `requested_t` (s)."""
        self.append("observed", **observation.to_json(), value=observation.value, asked_t=requested_t)

    def fence(self) -> tuple[Mapping[str, Sequence[Json]], float]:
        """Observe to the end, take a quorum LIST of each resource, and wait until the watches have caught up.

        Return the objects, and when they were requested (s). Raises ApiError.
        """
        self._wait_until(self._opened_t + self._observed_s)
        began_t = round(time.monotonic(), 6)
        listings = {name: self._api.get(RESOURCES[name].path) for name in self._resources}
        listed = {name: state_of(listing) for name, listing in listings.items()}
        deadline_t = self._opened_t + self._observed_s + _LATEST_BOOKMARK_S
        while not self._has_passed(Entry(began_t, "fence", {"listed": listed})):
            if time.monotonic() > deadline_t:
                break
            self._stopping.wait(_LOOK_PERIOD_S)
        history = self.history()
        for name, state in listed.items():
            passed_t = history.passed_t(name, int(state["rv"]))
            state["received"] = 0 if passed_t is None else history.received(name, passed_t)
        self.append("fence", began_t, listed=listed)
        return {name: listing["items"] for name, listing in listings.items()}, began_t

    def _wait_until(self, t: float) -> None:
        self._stopping.wait(max(0.0, t - time.monotonic()))

    def _has_passed(self, last: Entry) -> bool:
        with self._changed:
            return fence(History.of([*self._entries, last])).passed
