"""By what a cluster is known, from an API server that is busy with the lab's start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeproof.labs.ground import control_plane

NOBODY: Any = None
THERE = json.dumps({"metadata": {"uid": "uid-1"}}).encode()
NOT_YET = json.dumps({"kind": "Status", "code": 404}).encode()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bytes | OSError]:
    """What the API server answers, one after another."""
    told: list[bytes | OSError] = []

    def each() -> Iterator[bytes | OSError]:
        yield from told
        while True:
            yield told[-1]

    answer = each()

    def get(*_: object) -> tuple[int, bytes]:
        now = next(answer)
        if isinstance(now, OSError):
            raise now
        return 200, now

    monkeypatch.setattr(control_plane, "get", get)
    return told


def test_it_is_asked_for_until_it_is_told(answers: list[bytes | OSError]) -> None:
    answers += [TimeoutError("The read operation timed out"), NOT_YET, THERE]
    assert control_plane.kube_system_uid(NOBODY) == "uid-1"


def test_that_nobody_tells_it_is_said(
    answers: list[bytes | OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_plane, "UID_LIMIT_S", 0.3)
    answers += [TimeoutError("The read operation timed out")]
    with pytest.raises(TimeoutError, match="timed out"):
        control_plane.kube_system_uid(NOBODY)
