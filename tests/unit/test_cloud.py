"""The fake cloud: its files, and when its calls prove the absence of one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from nodeproof.actions.action import ActionContext
from nodeproof.actions.nodes import set_cloud_addresses, set_cloud_answers
from nodeproof.faults.cloud import Cloud
from nodeproof.machines.machine import CommandResult, Shell
from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.needs import CLOUD
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import Problem
from nodeproof.sources.calls import Call, cloud_calls
from tests.fakes import fake_lab

STARTED = '{"time":"2026-11-24T20:00:00.000000Z","method":"Initialize"}\n'
CALL = '{"time":"2026-11-24T20:00:01.000000Z","method":"InstanceExists","node":"node-1"}\n'
BEGAN_T, STARTED_T, READ_T = 5.0, 10.0, 20.0


def read(text: str) -> tuple[Sequence[Call], Sequence[Lost]]:
    """Return the calls in a file, of a recording begun 5 s before the provider."""
    offset_s = parse_time("2026-11-24T20:00:00Z") - STARTED_T
    return cloud_calls(text, History.of([Entry(BEGAN_T, "begun", {"wall_offset_s": offset_s})]), READ_T)


def test_cloud_calls_are_read_in_order() -> None:
    calls, unsure = read(STARTED + CALL)
    assert [(call.t, call.method, call.node) for call in calls] == [
        (STARTED_T, "Initialize", ""),
        (STARTED_T + 1, "InstanceExists", "node-1"),
    ]
    assert unsure == []


@pytest.mark.parametrize(
    ("text", "since_t", "until_t", "why"),
    [
        (CALL, BEGAN_T, STARTED_T + 1, "calls is missing"),
        (STARTED + CALL[20:] + CALL, STARTED_T, STARTED_T + 1, "a line of the cloud's calls is torn"),
    ],
)
def test_incomplete_cloud_calls_report_the_time_of_the_loss(
    text: str, since_t: float, until_t: float, why: str
) -> None:
    (lost,) = read(text)[1]
    assert (lost.since_t, lost.until_t) == (since_t, until_t)
    assert why in lost.why


def test_only_machines_reported_lost_are_affected() -> None:
    cloud = Cloud({"a": "exists", "b": "shut-down", "c": "gone"}, {"a": {"lab": "x"}})
    assert cloud.affected_nodes == ("b", "c")
    assert set_cloud_answers({"a": "exists", "c": "gone"}).affected_nodes == ("c",)


@dataclass
class Beside:
    """A component whose settings are in a local folder, of a cluster without nodes."""

    folder: Path

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        if argv[0] == "kubectl":
            return CommandResult(0, json.dumps({"items": []}), "")
        process = subprocess.run(
            argv, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

    def power(self, _action: str) -> None:
        """Return nothing: it does not exist."""


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    (tmp_path / CLOUD).mkdir()
    return Beside(tmp_path)


def doing(beside: Beside, *active: Cloud) -> ActionContext:
    """Return an action's context while these clouds are active."""
    faults = {fault.id: fault for fault in active}
    lab = fake_lab({"safety.injector.active": faults, "fleet.machine": lambda _name: beside})
    return ActionContext(lab, None, lambda _node: None)


@pytest.mark.parametrize("sets_up", [False, True])
def test_cloud_is_started_with_its_files_and_optional_initialisation(beside: Beside, sets_up: bool) -> None:
    cloud = Cloud({"a": "gone"}, {"a": {"lab": "x"}}, initialises_nodes=sets_up)
    cloud.inject(cast("Shell", beside))

    path = beside.folder / CLOUD / cloud_file(cloud, "json")
    flags = json.loads(path.read_text())
    for what in ("answers", "addresses", "calls"):
        assert flags.pop(f"nodeproof-{what}") == str(beside.folder / CLOUD / cloud_file(cloud, what))
    assert ("cloud-node-controller" in flags.get("controllers", "")) is sets_up
    assert json.loads((beside.folder / CLOUD / cloud_file(cloud, "answers")).read_text()) == {"a": "gone"}


def cloud_file(cloud: Cloud, ending: str) -> str:
    return f"cloud-{cloud.id}.{ending}"


def test_cloud_adds_node_addresses_by_type(beside: Beside) -> None:
    cloud = Cloud({}, {}, initialises_nodes=True)
    cloud.inject(cast("Shell", beside))
    set_cloud_addresses("a", InternalIP=["10.77.1.1"], ExternalIP=["10.78.1.1", "10.78.1.2"]).do(
        doing(beside)
    )

    addresses = json.loads((beside.folder / CLOUD / cloud_file(cloud, "addresses")).read_text())
    types = [address["type"] for address in addresses["a"]]
    assert types == ["InternalIP", "ExternalIP", "ExternalIP"]
    assert addresses["a"][2]["address"] == "10.78.1.2"


def test_cloud_without_labels_of_a_node_may_not_lose_it(beside: Beside) -> None:
    cloud = Cloud({"a": "exists"}, {"a": {"lab": "x"}})
    cloud.inject(cast("Shell", beside))
    set_cloud_answers({"a": "gone", "b": "exists"}).do(doing(beside, cloud))
    with pytest.raises(Problem, match="labels of b are missing") as caught:
        set_cloud_answers({"b": "gone"}).do(doing(beside, cloud))
    assert caught.value.next_step == "pass them to cloud(..., labels)"
