"""What a cloud is made of, and when its calls prove that there was none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.actions.action import Doing
from nodeproof.actions.cloud import cloud_gives, cloud_says
from nodeproof.faults import Cloud, fault_from_json
from nodeproof.machines.machine import CommandResult, Shell
from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.needs import CLOUD
from nodeproof.model.problem import Problem
from nodeproof.model.testimony import Lost
from nodeproof.sources.cloud import Call, CloudCalls, calls_of

STARTED = '{"time":"2026-11-24T20:00:00.000000Z","method":"Initialize"}\n'
ASKED = '{"time":"2026-11-24T20:00:01.000000Z","method":"InstanceExists","node":"node-1"}\n'
BEGAN_T, STARTED_T, READ_T = 5.0, 10.0, 20.0


def read(text: str) -> tuple[Sequence[Call], Sequence[Lost]]:
    """The calls in a file, of a recording that began 5 s before the provider."""
    offset_s = parse_time("2026-11-24T20:00:00Z") - STARTED_T
    return calls_of(text, History.of([Entry(BEGAN_T, "begun", {"wall_offset_s": offset_s})]), READ_T)


def test_calls_are_read_in_order() -> None:
    calls, unsure = read(STARTED + ASKED)
    assert [(call.t, call.method, call.node) for call in calls] == [
        (STARTED_T, "Initialize", ""),
        (STARTED_T + 1, "InstanceExists", "node-1"),
    ]
    assert unsure == []


@pytest.mark.parametrize(
    ("text", "since_t", "until_t", "why"),
    [
        ("", BEGAN_T, READ_T, "calls is missing"),
        (ASKED, BEGAN_T, STARTED_T + 1, "calls is missing"),
        (STARTED + ASKED[:-1], STARTED_T + 1, READ_T, "last line of the cloud's calls is torn"),
        (STARTED + ASKED[20:] + ASKED, STARTED_T, STARTED_T + 1, "a line of the cloud's calls is torn"),
        (
            STARTED + '{"method": "InstanceExists"}\n',
            STARTED_T,
            READ_T,
            "a line of the cloud's calls is torn",
        ),
    ],
)
def test_calls_that_may_lack_one_say_when(text: str, since_t: float, until_t: float, why: str) -> None:
    (lost,) = read(text)[1]
    assert (lost.since_t, lost.until_t) == (since_t, until_t)
    assert why in lost.why


def test_only_machines_that_are_said_to_be_lost_are_harmed() -> None:
    cloud = Cloud("0a1b2c3d", {"a": "exists", "b": "shut-down", "c": "gone"}, {"a": {"lab": "x"}})
    assert cloud.harms == ("b", "c")
    assert fault_from_json(json.loads(json.dumps(dict(cloud.to_json())))) == cloud
    assert cloud_says({"a": "exists", "c": "gone"}).harms == ("c",)


def test_calls_of_one_method_have_a_name_of_their_own() -> None:
    assert CloudCalls("a").by != CloudCalls("a", "InstanceExists").by


@dataclass
class Beside:
    """A component whose settings are in a folder here."""

    folder: Path

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def power(self, _action: str) -> None:
        """It is not there."""


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    (tmp_path / CLOUD).mkdir()
    return Beside(tmp_path)


def doing(beside: Beside, *active: Cloud) -> Doing:
    """What an action works with, while these clouds are in."""
    injector = SimpleNamespace(active={each.id: each for each in active})
    fleet = SimpleNamespace(machine=lambda _name: beside)
    lab = SimpleNamespace(safety=SimpleNamespace(injector=injector), fleet=fleet)
    return Doing(cast("Any", lab), None, lambda _node: None)


@pytest.mark.parametrize("sets_up", [False, True])
def test_a_cloud_is_started_with_its_files_and_sets_nodes_up_where_it_is_to(
    beside: Beside, sets_up: bool
) -> None:
    cloud = Cloud("0a1b2c3d", {"a": "gone"}, {"a": {"lab": "x"}}, sets_up=sets_up)
    cloud.inject(cast("Shell", beside))

    path = beside.folder / CLOUD / cloud_file(cloud, "json")
    flags = json.loads(path.read_text())
    for what in ("answers", "addresses", "calls"):
        assert flags.pop(f"nodeproof-{what}") == str(beside.folder / CLOUD / cloud_file(cloud, what))
    assert ("cloud-node-controller" in flags.get("controllers", "")) is sets_up
    assert json.loads((beside.folder / CLOUD / cloud_file(cloud, "answers")).read_text()) == {"a": "gone"}


def cloud_file(cloud: Cloud, ending: str) -> str:
    return f"cloud-{cloud.id}.{ending}"


def test_a_cloud_gives_a_node_addresses_by_their_types(beside: Beside) -> None:
    cloud = Cloud("0a1b2c3d", sets_up=True)
    cloud.inject(cast("Shell", beside))
    cloud_gives("a", InternalIP=["10.77.1.1"], ExternalIP=["10.78.1.1", "10.78.1.2"]).do(doing(beside))

    told = json.loads((beside.folder / CLOUD / cloud_file(cloud, "addresses")).read_text())
    types = [each["type"] for each in told["a"]]
    assert types == ["InternalIP", "ExternalIP", "ExternalIP"]
    assert told["a"][2]["address"] == "10.78.1.2"


def test_a_cloud_that_was_told_no_labels_of_a_node_loses_it_not(beside: Beside) -> None:
    cloud = Cloud("0a1b2c3d", {"a": "exists"}, {"a": {"lab": "x"}})
    cloud.inject(cast("Shell", beside))
    cloud_says({"a": "gone", "b": "exists"}).do(doing(beside, cloud))
    with pytest.raises(Problem, match="labels of b are missing") as caught:
        cloud_says({"b": "gone"}).do(doing(beside, cloud))
    assert caught.value.next_step == "pass them to cloud(..., labels)"
