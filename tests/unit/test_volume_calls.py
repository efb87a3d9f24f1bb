"""When the calls of a CSI driver prove that there was none."""

from __future__ import annotations

import json

import pytest

from infra.csi import calls as written
from nodeproof.sources.volumes import STARTED, VolumeCalls, calls_of


def line(method: str, at: float, node: str = "node-1") -> str:
    call = {"method": method, "volume": "np-1", "node": node, "begin": at, "end": at + 1, "code": "OK"}
    return json.dumps(call) + "\n"


BEGUN = line(STARTED, 10)
ASKED = line("NodeStageVolume", 20)


def test_calls_are_read_in_order() -> None:
    calls, unsure = calls_of(BEGUN + ASKED, 15, 30)
    assert [(call["method"], call["node"], call["end"]) for call in calls] == [
        (STARTED, "node-1", 11),
        ("NodeStageVolume", "node-1", 21),
    ]
    assert unsure == []


@pytest.mark.parametrize(
    ("text", "since_t", "until_t", "why"),
    [
        ("", 15, 30, "calls is missing"),
        (ASKED, 15, 21, "calls is missing"),
        (BEGUN + ASKED[:-1], 21, 30, "last line of the driver's calls is torn"),
        (BEGUN + ASKED[9:] + ASKED, 11, 21, "a line of the driver's calls is torn"),
        (BEGUN + '{"method": "NodeStageVolume"}\n', 11, 30, "a line of the driver's calls is torn"),
        (BEGUN + line(STARTED, 15) + ASKED, 11, 15, "the driver restarted"),
    ],
)
def test_calls_that_may_lack_one_say_when(text: str, since_t: float, until_t: float, why: str) -> None:
    (lost,) = calls_of(text, 15, 30)[1]
    assert (lost.since_t, lost.until_t) == (since_t, until_t)
    assert why in lost.why


def test_a_driver_that_began_anew_before_the_recording_vouches() -> None:
    assert calls_of(BEGUN + line(STARTED, 14) + ASKED, 15, 30)[1] == []


def test_the_first_line_is_the_drivers_own() -> None:
    assert written.STARTED == STARTED


def test_calls_of_one_method_have_a_name_of_their_own() -> None:
    assert VolumeCalls("a").by != VolumeCalls("a", "NodeStageVolume").by
