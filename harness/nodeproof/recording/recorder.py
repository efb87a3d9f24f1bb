"""A recording: one watch per resource, sentinels, faults and machine events, on disk as they happen."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodeproof.checks.judge import died, undecided_s
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import AUDIT_MARK, RESOURCES, WATCHED
from nodeproof.model.clocks import MEASURED_AFTER, Reading
from nodeproof.model.cluster import Configuration
from nodeproof.model.fold import Fold, clean
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History, fence
from nodeproof.model.judgment import Check
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.recording.clocks import NodeClocks
from nodeproof.recording.machine_events import MachineEvents
from nodeproof.recording.stalls import measure_stalls
from nodeproof.recording.wall import WallClock
from nodeproof.recording.watching import follow
from nodeproof.waiting import Tell

Json = Any
SENTINEL_PERIOD_S = 2.0
SILENCE_LIMIT_S = 3 * SENTINEL_PERIOD_S + 2.0
"""A watch that delivers no sentinel for so long is broken."""
FENCE_LIMIT_S = 10.0
START_LIMIT_S = 30.0
ANCHOR_LIMIT_S = 60.0
WAIT_MARGIN_S = 0.5
"""How long past a window's end is waited, so that the fence stands behind it."""
_LOOK_PERIOD_S = 0.5
_LONGEST_ERROR = 200
_EVALUATION_PERIOD_S = 0.25
_MEASURES, _MOST_MEASURED = ("sentinel", "stall"), 256
"""What slack is made of, and how many of the last of them are kept at hand."""


@dataclass(frozen=True)
class Setting:
    """What a recording needs to know of its lab."""

    nodes: tuple[str, ...]
    sentinel_node: str
    read_clock: Callable[[str], Reading]
    """What a node's clock is ahead of the harness's. Raises MachineError, Problem."""
    machine_events: Path
    machine_events_at: int | None = None
    """From where on its lines are of this recording (bytes); from its end, where nobody looked before."""
    is_others: Callable[[str], bool] = lambda _name: False
    """Whether a node is in somebody else's zone: what happens to it is none of this recording's business."""
    sentinel_period_s: float = SENTINEL_PERIOD_S
    resources: tuple[str, ...] = tuple(WATCHED)


class Recording:
    """The live side of a History: append, look, wait. Use it as a context manager; leaving it fences and
    ends it.
    """

    def __init__(self, api: Api, path: Path, setting: Setting) -> None:
        self.path = path
        self._api = api
        self._setting = setting
        self._entries: list[Entry] = []
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._seen: dict[str, dict[str, float]] = {resource: {} for resource in setting.resources}
        self._fold, self._glanced = Fold(), 0
        self._sent = 0
        self._breaks: Counter[str] = Counter()
        self._measured: deque[Entry] = deque(maxlen=_MOST_MEASURED)
        self._clocks = NodeClocks(setting.nodes, setting.read_clock, self.append, self._stopping)
        self._name = uuid.uuid4().hex[:8]
        self._out = path.open("a", buffering=1)
        self._wall = WallClock(self.append)
        self._machine_events = MachineEvents(setting.machine_events, setting.machine_events_at)

    def __enter__(self) -> Recording:
        began: dict[str, Json] = {
            "wall_offset_s": self._wall.offset_s,
            "nodes": list(self._setting.nodes),
            "sentinel_node": self._setting.sentinel_node,
        }
        self.append("begun", **began)
        live = threading.Barrier(len(self._setting.resources) + 1)
        for resource in self._setting.resources:
            follow_it = partial(self._follow, resource, RESOURCES[resource].path, live)
            self._thread(follow_it, resource=resource)
        try:
            live.wait(timeout=START_LIMIT_S)
        except threading.BrokenBarrierError as error:
            self._end()
            said = f"no LIST of every resource within {START_LIMIT_S:g} s"
            raise Problem(said, "recording", "see the API server's log") from error
        self._thread(self._send_sentinels)
        self._thread(self._measure_stalls)
        self._clocks.read_all()
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._clocks.read_all()
            self._fence()
        finally:
            self._end()

    def _end(self) -> None:
        """Stop the threads and close the file."""
        self._stopping.set()
        self._wake_watches()
        for thread in self._threads:
            thread.join(timeout=2)
        gc.unfreeze()
        self._read_machine_events()
        self._wall.look()
        self.append("ended", wall_offset_s=self._wall.offset_s)
        self._out.close()

    def append(self, kind: str, t: float | None = None, **data: Json) -> None:
        """Write one entry, at the present time unless told (s, monotonic), rounded as it is on disk and
        without what is secret.
        """
        entry, line = clean(Entry(round(time.monotonic() if t is None else t, 6), kind, data))
        with self._changed:
            if self._out.closed:
                return
            self._entries.append(entry)
            if kind in _MEASURES:
                self._measured.append(entry)
            self._out.write(line + "\n")
            self._changed.notify_all()

    def history(self) -> History:
        """What was recorded up to now."""
        with self._changed:
            return History.of(self._entries)

    def measured(self, seconds: float) -> History:
        """Give what was measured of this host in the last `seconds`: sentinels and stalls."""
        since_t = time.monotonic() - seconds
        with self._changed:
            return History.of([entry for entry in self._measured if entry.t >= since_t])

    def glance(self) -> History:
        """What was recorded up to now, for one thread that looks again and again: only what is new is read.

        It holds until the next glance.
        """
        with self._changed:
            fresh = self._entries[self._glanced :]
            self._glanced += len(fresh)
        for entry in fresh:
            self._fold.add(entry)
        return History.so_far(self._fold)

    def wait_for(self, check: Check, configuration: Configuration, tell: Tell) -> None:
        """Wait until `check` is decided or its window has passed, and `tell` until when (s, monotonic) at the
        latest, as far as that is known. Never a verdict: that is the check's.

        An anchor that has not come is waited for until two sentinels have come back: the second was sent
        after whatever was done before this call, and so has overtaken nothing. Where none comes back, as from
        an API that is gone, for `ANCHOR_LIMIT_S`. Nothing is waited for once a component has died.
        """
        enough, until = len(self._sentinels_back()) + 2, time.monotonic() + ANCHOR_LIMIT_S
        while True:
            history = self.glance()
            if died(history) is not None:
                return
            left = undecided_s(check, history, configuration, time.monotonic() - WAIT_MARGIN_S)
            if left is None:
                if len(self._sentinels_back()) >= enough or time.monotonic() > until:
                    return
                left = SENTINEL_PERIOD_S
            elif left > 0:
                tell(time.monotonic() + left)
            if left <= 0:
                return
            with self._changed:
                known = len(self._entries)
                self._changed.wait_for(lambda known=known: len(self._entries) > known, min(left, 1.0))  # type: ignore[misc]
            self._stopping.wait(min(left, _EVALUATION_PERIOD_S))

    def look_at(self, what: str, subject: str, look: Callable[[], str]) -> None:
        """Write down what `look` gives, twice a second, until the recording ends; of a look without an answer
        why it had none.
        """

        def look_once() -> None:
            asked = time.monotonic()
            try:
                seen: dict[str, Json] = {"value": look()}
            except (OutsideError, Problem) as error:
                seen = {"value": None, "error": str(error)[:_LONGEST_ERROR]}
            self.append("observed", what=what, subject=subject, **seen, asked_t=asked)

        self.repeat(_LOOK_PERIOD_S, look_once, what=what, subject=subject)

    def repeat(self, period_s: float, deed: Callable[[], object], **about: str) -> None:
        """Do something each period until the recording ends; where something outside does not take it, once
        more in the next. `about` says what it observes, and nothing else does.
        """

        def keep_doing() -> None:
            while not self._stopping.wait(period_s):
                with contextlib.suppress(OutsideError, Problem):
                    deed()

        self._thread(keep_doing, **about)

    def worst_latency_s(self, sentinels: int) -> float:
        """Wait for so many sentinels and give the slowest watch's latency (s)."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._sentinels_back()) >= sentinels, FENCE_LIMIT_S)
            seen = self._sentinels_back()
        return max(
            (value for entry in seen for value in entry.data["latency_s"].values()), default=FENCE_LIMIT_S
        )

    def _sentinels_back(self) -> list[Entry]:
        """Those that all watches gave back."""
        told = (entry for entry in self._entries if entry.kind == "sentinel")
        return [
            entry
            for entry in told
            if len(entry.data["latency_s"]) == len(self._setting.resources)
            and self._is_back(entry.data["value"])
        ]

    def _thread(self, target: Callable[[], None], **about: str) -> None:
        """Run something beside; where it ends by an error, that is written down: nobody observes any more
        what it is about.
        """

        def run() -> None:
            try:
                target()
            except Exception as error:
                self._note_broken(f"{type(error).__name__}: {error}"[:_LONGEST_ERROR], about)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _note_broken(self, error: str, about: Mapping[str, str]) -> None:
        """Write down that a thread ended; of a watch also that it is blind from now on."""
        now = time.monotonic()
        self.append("broken", now, error=error, **about)
        if "resource" in about:
            self._receive("gap", now, {"resource": about["resource"], "since": now, "reason": error})

    def _measure_stalls(self) -> None:
        measure_stalls(self.append, self._stopping, self._setting.sentinel_period_s, self._wall.look)

    def _follow(self, resource: str, path: str, live: threading.Barrier) -> None:
        follow(self._api, resource, path, self._receive, live.wait, self._stopping, SILENCE_LIMIT_S)

    def _receive(self, kind: str, t: float, data: Mapping[str, Json]) -> None:
        """Write an event down, then tell who waits for its sentinel: what was seen is stored already."""
        self.append(kind, t, **data)
        if kind != "watch":
            with self._changed:
                self._breaks[data["resource"]] += 1
                self._changed.notify_all()
            return
        meta = data["object"]["metadata"]
        value = meta.get("annotations", {}).get(SENTINEL_ANNOTATION)
        # Controllers copy annotations to what they make.
        if value and meta["name"] == self._sentinel_of(data["resource"]).rpartition("/")[2]:
            with self._changed:
                self._seen[data["resource"]].setdefault(value, round(t, 6))
                self._changed.notify_all()

    def _send_sentinels(self) -> None:
        """Patch the sentinels each period."""
        due = time.monotonic()
        while not self._stopping.is_set():
            with contextlib.suppress(ApiError):
                self._sentinel()
            # What was recorded stays: a collector that goes through it again and again holds the watches up.
            gc.freeze()
            self._read_machine_events()
            due = max(due + self._setting.sentinel_period_s, time.monotonic())
            if self._stopping.wait(due - time.monotonic()):
                return

    def _sentinel(self) -> str:
        """Send one sentinel to every watched resource and wait until all watches gave it back.

        Nobody waits any longer once a watch broke: it may come with a new LIST and never by a watch, which
        falls silent without further ones. Of the watches that did not break, one that has not given it back
        is as late as the sentinel is old; when one that broke gives it back tells of the gap, not of this
        host.
        """
        self._sent += 1
        breaks = self._breaks.copy()
        value = f"{self._name}-{self._sent}"
        sent = {}
        for resource in self._setting.resources:
            sent[resource] = round(time.monotonic(), 6)
            self._patch_sentinel(resource, value)

        def unbroken() -> list[str]:
            return [name for name in sent if self._breaks[name] == breaks[name]]

        def is_over() -> bool:
            return self._stopping.is_set() or all(value in self._seen[name] for name in unbroken())

        with self._changed:
            self._changed.wait_for(lambda: is_over() or self._breaks != breaks, FENCE_LIMIT_S)
            # Others may be about to break, too, or be late for themselves.
            self._changed.wait_for(is_over, SENTINEL_PERIOD_S if self._breaks != breaks else 0)
            now = time.monotonic()
            whole = {name: sent[name] for name in unbroken()}
            latency = {name: round(self._seen[name].get(value, now) - at, 6) for name, at in whole.items()}
        if whole and not self._stopping.is_set():
            self.append("sentinel", value=value, sent_t=whole, latency_s=latency)
        return value

    def _is_back(self, value: str) -> bool:
        return all(value in seen for seen in self._seen.values())

    def _wake_watches(self) -> None:
        """One last event for each watch, so that its thread comes back from reading."""
        with contextlib.suppress(ApiError):
            for resource in self._setting.resources:
                self._patch_sentinel(resource, f"{self._name}-end")

    def _sentinel_of(self, resource: str) -> str:
        return RESOURCES[resource].sentinel(self._setting.sentinel_node)

    def _patch_sentinel(self, resource: str, value: str) -> None:
        path = f"{self._sentinel_of(resource)}?{AUDIT_MARK}={value}"
        self._api.patch(path, {"metadata": {"annotations": {SENTINEL_ANNOTATION: value}}})

    def _fence(self) -> None:
        """Last sentinels, then a quorum LIST of everything; the check compares them with the watches."""
        try:
            value = self._sentinel()
            began = time.monotonic()
            history = self.history()
            listed = {
                resource: {
                    **self._list(RESOURCES[resource].path),
                    "received": history.received(resource, self._seen[resource].get(value, began)),
                }
                for resource in self._setting.resources
            }
        except ApiError as error:
            self.append("gap", resource="nodes", since=time.monotonic(), reason=f"fence: {error}")
            return
        sentinels = dict.fromkeys(self._setting.resources, value)
        probe = Entry(began, "fence", {"sentinels": sentinels, "listed": listed})
        until = time.monotonic() + FENCE_LIMIT_S
        with self._changed:
            self._changed.wait_for(
                lambda: fence(History.of([*self._entries, probe])).passed or time.monotonic() > until,
                FENCE_LIMIT_S,
            )
        self.append("fence", began, sentinels=sentinels, listed=listed)

    def _list(self, path: str) -> Mapping[str, Json]:
        found = self._api.get(path)
        objects = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in found["items"]}
        return {"rv": found["metadata"]["resourceVersion"], "objects": objects}

    def _read_machine_events(self) -> None:
        """Take over what whoever runs the lab wrote since the last look."""
        for entry in self._machine_events.read():
            if entry.get("node") and self._setting.is_others(str(entry["node"])):
                continue
            self.append(entry.pop("kind"), entry.pop("t"), **entry)
            measured = entry.get("step") in MEASURED_AFTER and entry["node"] in self._setting.nodes
            if measured and not self._stopping.is_set():
                self._thread(partial(self._clocks.insist, str(entry["node"])))
