"""A recording that writes nothing: it is fenced by bookmarks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Observation
from nodeproof.model.problem import Problem
from nodeproof.recording import bookmarks
from nodeproof.recording.bookmarks import ReadOnlyRecording

Json = Any
RESOURCES = ("nodes", "leases")


def item(rv: int) -> Json:
    return {"metadata": {"name": "node-1", "uid": "u", "resourceVersion": str(rv)}}


class Server:
    """An API server with one object of each resource, written at 7 and, for the last LIST, at `latest`."""

    def __init__(self, events: Sequence[Json], latest: int = 7) -> None:
        self._events, self._latest = events, latest
        self._listed: set[str] = set()
        self.done = threading.Event()

    def get(self, path: str) -> Json:
        rv = self._latest if path in self._listed else 7
        self._listed.add(path)
        return {"metadata": {"resourceVersion": str(rv + 1)}, "items": [item(rv)]}

    @contextmanager
    def watch(self, _path: str, _rv: str, _silence_timeout_s: float) -> Iterator[Iterator[bytes]]:
        yield self._lines()

    def _lines(self) -> Iterator[bytes]:
        yield from (json.dumps(event).encode() for event in self._events)
        self.done.wait(10)


BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
CHANGE = {"type": "MODIFIED", "object": item(8)}


def recorded(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Record an observation of no time, with one value."""
    monkeypatch.setattr(bookmarks, "_LATEST_BOOKMARK_S", 0.5)
    path = folder / "history.jsonl"
    with ReadOnlyRecording(cast("Api", server), path, ["node-1"], RESOURCES, 0.0, 1e9) as recording:
        objects, asked_t = recording.fence()
        recording.observe(Observation("id", "what", "node-1", objects["nodes"][0]), asked_t)
    server.done.set()
    assert History.parse(path.read_text().splitlines()).of_kind("observed")
    return recording.history()


@pytest.mark.parametrize(
    ("events", "latest", "passed"),
    [
        ([BOOKMARK], 7, True),
        ([CHANGE, BOOKMARK], 8, True),
        ([], 7, False),
        ([CHANGE], 8, False),
        # The watch lacks the change that the LIST has.
        ([BOOKMARK], 8, False),
    ],
)
def test_fence_needs_a_bookmark_and_the_state_of_the_list(
    events: Sequence[Json], latest: int, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fence(recorded(Server(events, latest), tmp_path, monkeypatch))
    assert result.passed == passed, result


class Refusing(Server):
    """An API server that refuses to list."""

    def get(self, path: str) -> Json:
        raise ApiError(403, f"{path} is forbidden")


def test_watch_that_never_opens_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookmarks, "START_TIMEOUT_S", 0.3)
    api = cast("Api", Refusing([]))
    with (
        pytest.raises(Problem, match="no watch of nodes and leases"),
        ReadOnlyRecording(api, tmp_path / "history.jsonl", [], RESOURCES, 0.0, 1e9),
    ):
        pass
