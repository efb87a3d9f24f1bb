"""What a cloud is made of, and when its calls prove that there was none."""

from __future__ import annotations

import json

import pytest

from nodeproof.actions.cloud import cloud_says
from nodeproof.faults import Cloud, fault_from_json
from nodeproof.sources.cloud import CloudCalls, calls_of

STARTED = '{"time":"2026-11-24T20:00:00.000000Z","method":"Initialize"}\n'
ASKED = '{"time":"2026-11-24T20:00:01.000000Z","method":"InstanceExists","node":"node-1"}\n'


def test_calls_are_read_in_order() -> None:
    lines, unsure = calls_of(STARTED + ASKED)
    assert [line[1:] for line in lines] == [("Initialize", ""), ("InstanceExists", "node-1")]
    assert unsure == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "lack their beginning"),
        (ASKED, "lack their beginning"),
        (STARTED + ASKED[:-1], "last line of the cloud's calls is torn"),
        (STARTED + ASKED[20:] + ASKED, "a line of the cloud's calls is torn"),
        (STARTED + '{"method": "InstanceExists"}\n', "a line of the cloud's calls is torn"),
    ],
)
def test_calls_that_may_lack_one_vouch_for_none(text: str, why: str) -> None:
    assert why in calls_of(text)[1]


def test_only_machines_that_are_said_to_be_lost_are_harmed() -> None:
    cloud = Cloud("0a1b2c3d", {"a": "exists", "b": "shut-down", "c": "gone"}, {"a": {"lab": "x"}})
    assert cloud.harms == ("b", "c")
    assert fault_from_json(json.loads(json.dumps(dict(cloud.to_json())))) == cloud
    assert cloud_says({"a": "exists", "c": "gone"}).harms == ("c",)


def test_calls_of_one_method_have_a_name_of_their_own() -> None:
    assert CloudCalls("a").by != CloudCalls("a", "InstanceExists").by
