"""The identity of a cluster, from an API server that is busy with the lab's start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeproof.labs.base import control_plane

NOBODY: Any = None
THERE = json.dumps({"metadata": {"uid": "uid-1"}}).encode()
NOT_YET = json.dumps({"kind": "Status", "code": 404}).encode()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bytes | OSError]:
    """Return the queue of the API server's answers."""
    replies: list[bytes | OSError] = []

    def replies_in_turn() -> Iterator[bytes | OSError]:
        yield from replies
        while True:
            yield replies[-1]

    answer = replies_in_turn()

    def get(*_: object) -> tuple[int, bytes]:
        now = next(answer)
        if isinstance(now, OSError):
            raise now
        return 200, now

    monkeypatch.setattr(control_plane, "get", get)
    return replies


def test_uid_is_requested_until_it_is_available(answers: list[bytes | OSError]) -> None:
    answers += [TimeoutError("The read operation timed out"), NOT_YET, THERE]
    assert control_plane.kube_system_uid(NOBODY) == "uid-1"


def test_missing_uid_is_reported(answers: list[bytes | OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "UID_TIMEOUT_S", 0.3)
    answers += [TimeoutError("The read operation timed out")]
    with pytest.raises(TimeoutError, match="timed out"):
        control_plane.kube_system_uid(NOBODY)
