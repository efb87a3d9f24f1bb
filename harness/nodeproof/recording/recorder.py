"""Recording of watches, sentinels, faults and machine events to disk.

An audit records without writing to the cluster: watches with bookmarks, and a quorum LIST at the end.
"""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import urllib3

from nodeproof.checks.judge import abort_of, undecided_s, unexpected_exit
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import AUDIT_MARK, RESOURCES, WATCHED, recorded
from nodeproof.model.clocks import MEASURED_AFTER, Reading
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import SENTINEL_ANNOTATION, UNLISTED, Entry, Fold, History, clean, fence
from nodeproof.model.judgment import Check, Observation
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.model.slack import calmest_s
from nodeproof.recording.node_messages import NodeClocks, WallClock, measure_stalls
from nodeproof.waiting import OnWait, ignore_wait

Receive = Callable[[str, float, Mapping[str, Json]], None]
RETRY_PERIOD_S = 0.2


class Expired(Exception):
    """The watch cannot resume from its resourceVersion (410 Gone); a new LIST is needed."""


def _nothing() -> None:
    return


def follow(
    api: Api,
    resource: str,
    path: str,
    receive: Receive,
    live: Callable[[], object],
    stopping: threading.Event,
    silence_timeout_s: float,
    broke: Callable[[], object] = _nothing,
) -> None:
    """Pass every event of a resource to `receive` until `stopping` is set.

    A broken or silent watch resumes from its last resourceVersion, an expired one with a new LIST. The time
    in between is written as a gap, because its events are received late or not at all.

    Args:
        api: The API server.
        resource: Name of the resource in entries.
        path: Path of the resource.
        receive: Called with the kind, time (s, monotonic) and data of each entry.
        live: Called once, when the first watch is open.
        stopping: Ends the watch.
        silence_timeout_s: Silence (s) after which the watch counts as broken.
        broke: Called when the watch breaks, before it can resume.
    """
    rv, blind_since, reason = "", 0.0, ""
    last_t = time.monotonic()
    while not stopping.is_set():
        try:
            if not rv:
                rv = _record_list(api, resource, path, receive)
            with api.watch(path, rv, silence_timeout_s) as lines:
                live()
                live = _nothing
                if reason:
                    gap = {"resource": resource, "since": blind_since, "reason": reason}
                    receive("gap", time.monotonic(), gap)
                    reason = ""
                for line in lines:
                    last_t = time.monotonic()
                    rv = _record_event(line, resource, receive, last_t)
                    if stopping.is_set():
                        return
                raise OSError("the server ended the watch")
        except (OSError, ApiError, Expired, urllib3.exceptions.HTTPError) as error:
            if not reason:
                broke()
                blind_since, reason = last_t, f"{type(error).__name__}: {error}"[:200]
            if isinstance(error, Expired) or (isinstance(error, ApiError) and error.status == 410):
                rv = ""
            stopping.wait(RETRY_PERIOD_S)
    if reason:
        receive("gap", time.monotonic(), {"resource": resource, "since": blind_since, "reason": reason})


def _record_list(api: Api, resource: str, path: str, receive: Receive) -> str:
    is_unlisted = resource == UNLISTED
    listing = api.get(path, {"limit": "1"} if is_unlisted else None)
    rv = str(listing["metadata"]["resourceVersion"])
    items = [] if is_unlisted else [recorded(resource, item) for item in listing["items"]]
    receive("listed", time.monotonic(), {"resource": resource, "rv": rv, "items": items})
    return rv


def _record_event(line: bytes, resource: str, receive: Receive, t: float) -> str:
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise Expired(event["object"].get("message", "error event"))
    obj = recorded(resource, event["object"])
    receive("watch", t, {"resource": resource, "type": event["type"], "object": obj})
    return str(event["object"]["metadata"]["resourceVersion"])


SENTINEL_PERIOD_S = 2.0
SILENCE_TIMEOUT_S = 3 * SENTINEL_PERIOD_S + 2.0
"""Time without a sentinel (s) after which a watch counts as broken."""
FENCE_TIMEOUT_S = 10.0
START_TIMEOUT_S = 30.0
ANCHOR_TIMEOUT_S = 60.0
WAIT_MARGIN_S = 0.5
"""Wait (s) after a window's end, so that the fence comes later."""
_LOOK_PERIOD_S = 0.5
_LONGEST_ERROR = 200
_EVALUATION_PERIOD_S = 0.25
_MEASURES, _MOST_MEASURED = ("sentinel", "stall"), 256
"""Kinds of entries from which slack is computed, and how many of the latest are kept for `measured`."""


@dataclass(frozen=True)
class RecordingContext:
    """The lab of a recording."""

    nodes: tuple[str, ...]
    sentinel_node: str
    read_clock: Callable[[str], Reading]
    """Reads the offset of a node's clock. Raises MachineError, Problem."""
    machine_events: Path
    machine_events_at: int | None = None
    """Position of the recording's first line (bytes); None for the present end."""
    is_in_other_zone: Callable[[str], bool] = lambda _name: False
    """Returns whether a node is in another worker's zone; its events are not recorded."""
    sentinel_period_s: float = SENTINEL_PERIOD_S
    resources: tuple[str, ...] = tuple(WATCHED)


class MachineEvents:
    """A lab's file of machine and component events, from a position on (bytes); by default from its end."""

    def __init__(self, path: Path, at: int | None = None) -> None:
        self._path = path
        self._at = events_end(path) if at is None else at

    def read(self) -> Iterator[dict[str, Json]]:
        """Yield new lines; an incomplete line is left for the next call."""
        if not self._path.exists():
            return
        with self._path.open() as lines:
            lines.seek(self._at)
            for line in lines:
                if line.endswith("\n"):
                    self._at += len(line.encode())
                    yield json.loads(line)


def events_end(path: Path) -> int:
    """Return the position of the next line (bytes)."""
    return path.stat().st_size if path.exists() else 0


def state_of(listing: Mapping[str, Json], history: History, resource: str) -> dict[str, Json]:
    """Return the resourceVersion of a LIST and of its recorded objects, by uid, as a fence stores them."""
    listed = (entry.data for entry in history.of_kind("listed") if resource == UNLISTED)
    since_rv = max((int(data["rv"]) for data in listed if data["resource"] == resource), default=0)
    versions = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in listing["items"]}
    objects = {uid: version for uid, version in versions.items() if int(version) > since_rv}
    return {"rv": listing["metadata"]["resourceVersion"], "objects": objects}


class LiveHistory(ABC):
    """A History that grows in memory and on disk, by the watches of some resources.

    Args:
        api: The API server.
        path: The file of the history.
        resources: The watched resources.
        silence_timeout_s: Silence (s) after which a watch counts as broken.
    """

    def __init__(self, api: Api, path: Path, resources: Sequence[str], silence_timeout_s: float) -> None:
        self.path = path
        self._api, self._resources, self._silence_timeout_s = api, resources, silence_timeout_s
        self._entries: list[Entry] = []
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._out = path.open("a", buffering=1)

    def append(self, kind: str, t: float | None = None, **data: Json) -> None:
        """Write one entry, by default at the present time.

        The entry is used as it is on disk: with a rounded time and without secrets.

        Args:
            kind: One of the kinds in `nodeproof.model.history`.
            t: Time of the entry (s, monotonic).
            **data: Data of this kind.
        """
        entry, line = clean(Entry(round(time.monotonic() if t is None else t, 6), kind, data))
        with self._changed:
            if self._out.closed:
                return
            self._entries.append(entry)
            self._keep(entry)
            self._out.write(line + "\n")
            self._changed.notify_all()

    def _keep(self, entry: Entry) -> None:
        """Use an entry that is being appended; by default, nothing else does."""
        del entry

    def history(self) -> History:
        """Return all entries up to now."""
        with self._changed:
            return History.of(self._entries)

    def _open_watches(self, timeout_s: float, next_step: str) -> None:
        """Start to follow all resources, and wait until each is watched. Raises Problem."""
        live = threading.Semaphore(0)
        for resource in self._resources:
            broke = partial(self._count_break, resource)
            watch = (resource, RESOURCES[resource].path, self._receive, live.release)
            follow_it = partial(follow, self._api, *watch, self._stopping, self._silence_timeout_s, broke)
            self._start_thread(follow_it, resource=resource)
        deadline_t = time.monotonic() + timeout_s
        for _resource in self._resources:
            if not live.acquire(timeout=max(0.0, deadline_t - time.monotonic())):
                self._end()
                message = f"not all watches of {', '.join(self._resources)} are open within {timeout_s:g} s"
                raise Problem(message, "API server", next_step)

    @abstractmethod
    def _end(self) -> None:
        """Stop the threads and close the file."""

    def _receive(self, kind: str, t: float, data: Mapping[str, Json]) -> None:
        """Write an entry of a watch."""
        self.append(kind, t, **data)

    def _count_break(self, resource: str) -> None:
        """Note that a watch broke, before it can resume; by default, nothing does."""
        del resource

    def _start_thread(self, target: Callable[[], None], **about: str) -> None:
        """Run a function in a thread, and record an error that ends it: `about` is no longer observed."""

        def run() -> None:
            try:
                target()
            except Exception as error:
                self._record_broken(f"{type(error).__name__}: {error}"[:_LONGEST_ERROR], about)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _record_broken(self, error: str, about: Mapping[str, str]) -> None:
        """Record the end of a thread; for a watch also a gap from now on."""
        now_t = time.monotonic()
        self.append("broken", now_t, error=error, **about)
        if "resource" in about:
            self._receive("gap", now_t, {"resource": about["resource"], "since": now_t, "reason": error})


class Recording(LiveHistory):
    """A live History. Use it as a context manager; its exit fences and ends the recording."""

    def __init__(self, api: Api, path: Path, context: RecordingContext) -> None:
        super().__init__(api, path, context.resources, SILENCE_TIMEOUT_S)
        self._context = context
        self._deliveries: dict[str, dict[str, float]] = {resource: {} for resource in context.resources}
        self._fold, self._folded_count = Fold(), 0
        self._sentinel_count = 0
        self._break_counts: Counter[str] = Counter()
        self._broken: set[str] = set()
        self._measurements: deque[Entry] = deque(maxlen=_MOST_MEASURED)
        self._clocks = NodeClocks(context.nodes, context.read_clock, self.append, self._stopping)
        self._name = uuid.uuid4().hex[:8]
        self._wall = WallClock(self.append)
        self._machine_events = MachineEvents(context.machine_events, context.machine_events_at)

    def __enter__(self) -> Recording:
        nodes, sentinel_node = list(self._context.nodes), self._context.sentinel_node
        self.append("begun", wall_offset_s=self._wall.offset_s, nodes=nodes, sentinel_node=sentinel_node)
        self._open_watches(START_TIMEOUT_S, "see the log of kube-apiserver")
        self._start_thread(self._send_sentinels)
        period_s = self._context.sentinel_period_s
        self._start_thread(partial(measure_stalls, self.append, self._stopping, period_s, self._wall.look))
        self._clocks.read_all()
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._clocks.read_all()
            self._fence()
        finally:
            self._end()

    def _end(self) -> None:
        self._stopping.set()
        self._wake_watches()
        for thread in self._threads:
            thread.join(timeout=2)
        gc.unfreeze()
        self._read_machine_events()
        self._wall.look()
        self.append("ended", wall_offset_s=self._wall.offset_s)
        self._out.close()

    def _keep(self, entry: Entry) -> None:
        if entry.kind in _MEASURES:
            self._measurements.append(entry)

    def measured(self, seconds: float) -> History:
        """Return the sentinels and stalls of the last `seconds`."""
        since_t = time.monotonic() - seconds
        with self._changed:
            return History.of([entry for entry in self._measurements if entry.t >= since_t])

    def snapshot(self) -> History:
        """Return all entries up to now, reading only new ones; for one thread that calls it repeatedly.

        The result is valid until the next call.
        """
        with self._changed:
            fresh = self._entries[self._folded_count :]
            self._folded_count += len(fresh)
        for entry in fresh:
            self._fold.add(entry)
        return History.so_far(self._fold)

    def wait_for(self, check: Check, configuration: Configuration, tell: OnWait = ignore_wait) -> None:
        """Wait until `check` is decided or its window is over; the verdict is left to the check.

        If the anchor has not occurred, wait until two sentinels have come back: the second was sent after
        every earlier action, so no event of it can be missing. If no sentinel comes back, for example without
        an API, wait for `ANCHOR_TIMEOUT_S`. Stop waiting once a component has died or a fault is aborted.

        Args:
            check: The check.
            configuration: The configuration for its window.
            tell: Called with the latest end of the wait (s, monotonic), as far as it is known.
        """
        enough_sentinels = len(self._complete_sentinels()) + 2
        deadline_t = time.monotonic() + ANCHOR_TIMEOUT_S
        while True:
            history = self.snapshot()
            if unexpected_exit(history) is not None or abort_of(history) is not None:
                return
            remaining_s = undecided_s(check, history, configuration, time.monotonic() - WAIT_MARGIN_S)
            if remaining_s is None:
                if len(self._complete_sentinels()) >= enough_sentinels or time.monotonic() > deadline_t:
                    return
                remaining_s = SENTINEL_PERIOD_S
            elif remaining_s > 0:
                tell(time.monotonic() + remaining_s)
            if remaining_s <= 0:
                return
            with self._changed:
                count = len(self._entries)
                self._changed.wait_for(lambda count=count: len(self._entries) > count, min(remaining_s, 1.0))  # type: ignore[misc]
            self._stopping.wait(min(remaining_s, _EVALUATION_PERIOD_S))

    def observe(self, what: str, subject: str, look: Callable[[], str]) -> None:
        """Record the result of `look` twice a second until the recording ends, or the error if it fails."""
        about: dict[str, Json] = {"what": what, "subject": subject}

        def observe_once() -> None:
            request_t = time.monotonic()
            try:
                observation: dict[str, Json] = {"value": look()}
            except (OutsideError, Problem) as error:
                observation = {"value": None, "error": str(error)[:_LONGEST_ERROR]}
            self.append("observed", **about, **observation, asked_t=request_t, period_s=_LOOK_PERIOD_S)

        self.repeat(_LOOK_PERIOD_S, observe_once, **about)

    def repeat(self, period_s: float, action: Callable[[], object], **about: str) -> None:
        """Call `action` each period until the recording ends, even if an earlier call failed.

        Args:
            period_s: Length of a period (s).
            action: The function.
            **about: What it observes, if nothing else does.
        """

        def repeat_action() -> None:
            while not self._stopping.wait(period_s):
                with contextlib.suppress(OutsideError, Problem):
                    action()

        self._start_thread(repeat_action, **about)

    def calmest_latency_s(self, sentinels: int, calm_s: float, timeout_s: float) -> float:
        """Return the slowest watch's latency (s) of the calmest `sentinels` sentinels in a row.

        Wait until that is at most `calm_s`; after `timeout_s` the calmest so far count.
        """

        def calmest() -> float:
            worst = [max(entry.data["latency_s"].values()) for entry in self._complete_sentinels()]
            return calmest_s(worst, sentinels, none_s=timeout_s)

        with self._changed:
            self._changed.wait_for(lambda: calmest() <= calm_s, timeout_s)
            return calmest()

    def _complete_sentinels(self) -> list[Entry]:
        """Return the sentinels that all watches delivered."""
        sentinel_entries = (entry for entry in self._entries if entry.kind == "sentinel")
        return [
            entry
            for entry in sentinel_entries
            if len(entry.data["latency_s"]) == len(self._context.resources)
            and all(entry.data["value"] in received for received in self._deliveries.values())
        ]

    def _receive(self, kind: str, t: float, data: Mapping[str, Json]) -> None:
        """Write an event, then wake the threads that wait for its sentinel."""
        super()._receive(kind, t, data)
        if kind != "watch":
            with self._changed:
                self._break_counts[data["resource"]] += 1
                self._broken.discard(data["resource"])
                self._changed.notify_all()
            return
        meta = data["object"]["metadata"]
        value = meta.get("annotations", {}).get(SENTINEL_ANNOTATION)
        # Controllers copy annotations to the objects that they create.
        if value and meta["name"] == self._sentinel_of(data["resource"]).rpartition("/")[2]:
            with self._changed:
                self._deliveries[data["resource"]].setdefault(value, round(t, 6))
                self._changed.notify_all()

    def _count_break(self, resource: str) -> None:
        """Leave sentinels out of a watch's latencies that it has not delivered by now, until it is back."""
        with self._changed:
            self._break_counts[resource] += 1
            self._broken.add(resource)
            self._changed.notify_all()

    def _send_sentinels(self) -> None:
        """Patch the sentinels each period."""
        due = time.monotonic()
        while not self._stopping.is_set():
            with contextlib.suppress(ApiError):
                self._sentinel()
            # Entries are never freed: collecting them again and again would delay the watches.
            gc.freeze()
            self._read_machine_events()
            due = max(due + self._context.sentinel_period_s, time.monotonic())
            if self._stopping.wait(due - time.monotonic()):
                return

    def _sentinel(self) -> str:
        """Send one sentinel to every watched resource and wait until all watches delivered it.

        The wait is shortened once a watch breaks: its sentinel may come with a new LIST and never as an
        event, and a watch without further sentinels falls silent. Of the other watches, one without the
        sentinel gets the sentinel's age as its latency. The delivery by a broken watch measures the gap, not
        this host, and is left out.
        """
        self._sentinel_count += 1
        breaks = self._break_counts.copy()
        value = f"{self._name}-{self._sentinel_count}"
        sent_t = {}
        for resource in self._context.resources:
            sent_t[resource] = round(time.monotonic(), 6)
            self._patch_sentinel(resource, value)

        def unbroken() -> list[str]:
            return [name for name in sent_t if self._break_counts[name] == breaks[name]]

        def is_over() -> bool:
            return self._stopping.is_set() or all(value in self._deliveries[name] for name in unbroken())

        with self._changed:
            self._changed.wait_for(lambda: is_over() or self._break_counts != breaks, FENCE_TIMEOUT_S)
            # Other watches may be about to break, too, or just be late.
            self._changed.wait_for(is_over, SENTINEL_PERIOD_S if self._break_counts != breaks else 0)
            now_t = time.monotonic()
            # The age of a sentinel says nothing about a watch that was broken before it and is not back.
            measured = [
                name for name in unbroken() if name not in self._broken or value in self._deliveries[name]
            ]
            unbroken_sent_t = {name: sent_t[name] for name in measured}
            latency_s = {
                name: round(self._deliveries[name].get(value, now_t) - sent_at, 6)
                for name, sent_at in unbroken_sent_t.items()
            }
        if unbroken_sent_t and not self._stopping.is_set():
            self.append("sentinel", value=value, sent_t=unbroken_sent_t, latency_s=latency_s)
        return value

    def _wake_watches(self) -> None:
        """Send a last event for each watch, so that its thread returns from reading."""
        with contextlib.suppress(ApiError):
            for resource in self._context.resources:
                self._patch_sentinel(resource, f"{self._name}-end")

    def _sentinel_of(self, resource: str) -> str:
        return RESOURCES[resource].sentinel(self._context.sentinel_node)

    def _patch_sentinel(self, resource: str, value: str) -> None:
        path = f"{self._sentinel_of(resource)}?{AUDIT_MARK}={value}"
        self._api.patch(path, {"metadata": {"annotations": {SENTINEL_ANNOTATION: value}}})

    def _fence(self) -> None:
        """Send the last sentinels, then record a quorum LIST of everything to compare with the watches."""
        try:
            value = self._sentinel()
            began_t = time.monotonic()
            listed = {
                resource: {
                    **state_of(self._api.get(RESOURCES[resource].path), self.history(), resource),
                    "received": self.history().received(
                        resource, self._deliveries[resource].get(value, began_t)
                    ),
                }
                for resource in self._context.resources
            }
        except ApiError as error:
            self.append("gap", resource="nodes", since=time.monotonic(), reason=f"fence: {error}")
            return
        sentinels = dict.fromkeys(self._context.resources, value)
        probe = Entry(began_t, "fence", {"sentinels": sentinels, "listed": listed})
        deadline_t = time.monotonic() + FENCE_TIMEOUT_S
        with self._changed:
            self._changed.wait_for(
                lambda: fence(History.of([*self._entries, probe])).passed or time.monotonic() > deadline_t,
                FENCE_TIMEOUT_S,
            )
        self.append("fence", began_t, sentinels=sentinels, listed=listed)

    def _read_machine_events(self) -> None:
        """Add the lab's new machine events."""
        for entry in self._machine_events.read():
            if entry.get("node") and self._context.is_in_other_zone(str(entry["node"])):
                continue
            self.append(entry.pop("kind"), entry.pop("t"), **entry)
            measured = entry.get("step") in MEASURED_AFTER and entry["node"] in self._context.nodes
            if measured and not self._stopping.is_set():
                self._start_thread(partial(self._clocks.retry_read, str(entry["node"])))


READ_ONLY_START_TIMEOUT_S = 15.0
FENCE_S = 9
"""Time (s) that the watches last beyond the observation.

The last bookmark is due 2 s before their end. The API server sends it when a timer of 1 to 1.25 s next fires
(pkg/storage/cacher in k8s.io/apiserver: nextBookmarkTime, bookmarkTimer).
"""
_LATEST_BOOKMARK_S = FENCE_S - 0.25
"""Time (s) after the observation until which bookmarks are awaited: not beyond the end of the watches."""
_CATCH_UP_PERIOD_S = 0.25
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
        next_step = "see `nodeproof audit --rbac`, and any proxy in between"
        self._open_watches(READ_ONLY_START_TIMEOUT_S, next_step)
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
        ends_t = self._opened_t + self._observed_s
        self._stopping.wait(max(0.0, ends_t - time.monotonic()))
        began_t = round(time.monotonic(), 6)
        listings = {name: self._api.get(RESOURCES[name].path) for name in self._resources}
        history = self.history()
        listed = {name: state_of(listing, history, name) for name, listing in listings.items()}
        last, deadline_t = Entry(began_t, "fence", {"listed": listed}), ends_t + _LATEST_BOOKMARK_S
        while not self._has_passed(last) and time.monotonic() <= deadline_t:
            self._stopping.wait(_CATCH_UP_PERIOD_S)
        history = self.history()
        for name, state in listed.items():
            passed_t = history.passed_t(name, int(state["rv"]))
            state["received"] = 0 if passed_t is None else history.received(name, passed_t)
        self.append("fence", began_t, listed=listed)
        return {name: listing["items"] for name, listing in listings.items()}, began_t

    def _has_passed(self, last: Entry) -> bool:
        with self._changed:
            return fence(History.of([*self._entries, last])).passed
