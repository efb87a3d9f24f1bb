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
    calls, unsure = calls_of(BEGUN + ASKED, 15)
    assert [(call["method"], call["node"], call["end"]) for call in calls] == [
        (STARTED, "node-1", 11),
        ("NodeStageVolume", "node-1", 21),
    ]
    assert unsure == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "lack their beginning"),
        (ASKED, "lack their beginning"),
        (BEGUN + ASKED[:-1], "last line of the driver's calls is torn"),
        (BEGUN + ASKED[9:] + ASKED, "a line of the driver's calls is torn"),
        (BEGUN + '{"method": "NodeStageVolume"}\n', "a line of the driver's calls is torn"),
        (BEGUN + line(STARTED, 15) + ASKED, "began anew"),
    ],
)
def test_calls_that_may_lack_one_vouch_for_none(text: str, why: str) -> None:
    assert why in calls_of(text, 15)[1]


def test_a_driver_that_began_anew_before_the_recording_vouches() -> None:
    assert calls_of(BEGUN + line(STARTED, 14) + ASKED, 15)[1] == ""


def test_the_first_line_is_the_drivers_own() -> None:
    assert written.STARTED == STARTED


def test_calls_of_one_method_have_a_name_of_their_own() -> None:
    assert VolumeCalls("a").by != VolumeCalls("a", "NodeStageVolume").by
