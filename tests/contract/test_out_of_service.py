"""Nodes out of service: the harness undoes its own cordons alone, and goes without the others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from nodeproof.actions.kubectl import kubectl
from nodeproof.actions.nodes import label_node, labels_of
from nodeproof.cluster import workloads
from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab, TooFewNodes
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.scenario.stage import Stage
from nodeproof.session.service import InService
from tests.waiting import eventually

COMMAND_LIMIT_S, LOST_LIMIT_S, WAITED_S = 20.0, 60.0, 2.0
TEAM = {"example.com/team": "ours"}
Person = Callable[..., None]


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return Stage(lab, tmp_path, Needs(faulted=1), nullcontext)


@pytest.fixture
def person(lab: Lab, node: str) -> Iterator[Person]:
    """Somebody who has kubectl and leaves the node as it was."""

    def run(*arguments: str) -> None:
        done = lab.cluster.run_kubectl(arguments, COMMAND_LIMIT_S, "")
        assert done["status"] == 0, done["stderr"]

    before = lab.cluster.api.get(node_path(node))
    yield run
    labels = dict.fromkeys(TEAM) | before["metadata"]["labels"]
    lab.cluster.api.patch(
        node_path(node), {"metadata": {"labels": labels}, "spec": {"unschedulable": None, "taints": None}}
    )
    lab.leave_out()


def is_cordoned(lab: Lab, node: str) -> bool:
    return bool(lab.cluster.api.get(node_path(node))["spec"].get("unschedulable"))


@pytest.mark.parametrize("verb", ["cordon", "drain"])
def test_what_a_scenario_cordoned_is_uncordoned_when_it_is_over(
    stage: Stage, lab: Lab, node: str, verb: str
) -> None:
    stage.do(kubectl(verb, f"node/{node}", may_fail=verb == "drain"))
    assert is_cordoned(lab, node)
    lab.tidy()
    assert not is_cordoned(lab, node)
    assert lab.safety.ledger.unfinished() == []


def test_a_crash_leaves_no_cordon_behind(lab: Lab, node: str, person: Person) -> None:
    lab.safety.expect_cordon(node)
    person("cordon", node)
    with closing(registry.attach(lab.name)) as another:
        assert another.safety.heal_unfinished() == []
    assert not is_cordoned(lab, node)
    assert lab.safety.ledger.unfinished() == []


def test_a_node_that_was_made_anew_is_another(lab: Lab, node: str, person: Person) -> None:
    data = {"fault": "cordoned", "id": "1", "node": node, "uid": "another"}
    lab.safety.ledger.write("planned", data)
    person("cordon", node)
    lab.tidy()
    assert is_cordoned(lab, node)
    assert lab.safety.ledger.unfinished() == []


@pytest.mark.parametrize("own", [("cordon",), ("cordon", "uncordon")], ids=["before", "afterwards"])
def test_a_cordon_that_somebody_made_stays(
    stage: Stage, lab: Lab, node: str, person: Person, own: Sequence[str]
) -> None:
    """Before the scenario's own, or after that was undone."""
    if "uncordon" not in own:
        person("cordon", node)
    for verb in own:
        stage.do(kubectl(verb, node))
    if "uncordon" in own:
        person("cordon", node)
    lab.tidy()
    assert is_cordoned(lab, node)
    assert lab.safety.ledger.unfinished() == []


def test_labels_and_taints_that_somebody_gave_a_node_stay(
    stage: Stage, lab: Lab, node: str, person: Person
) -> None:
    ((key, value),) = TEAM.items()
    person("label", "node", node, f"{key}={value}")
    person("taint", "node", node, f"{key}={value}:PreferNoSchedule")
    stage.do(label_node(node, "own", "yes"))
    lab.tidy()
    found = lab.cluster.api.get(node_path(node))
    (own,) = labels_of("own", "yes")
    assert own not in found["metadata"]["labels"]
    assert found["metadata"]["labels"][key] == value
    assert [taint["key"] for taint in found["spec"]["taints"]] == [key]


def test_nodes_are_cordoned_by_their_names(stage: Stage, lab: Lab) -> None:
    with pytest.raises(Problem, match="name the nodes"):
        stage.do(kubectl("cordon", "--selector=kubernetes.io/os=linux"))
    assert lab.safety.ledger.unfinished() == []


TAKEN_OUT = {
    "cordoned": ("cordon",),
    "tainted example.com/team:NoExecute": ("taint", "node", "example.com/team=x:NoExecute"),
    "tainted node.kubernetes.io/out-of-service:NoSchedule": (
        *("taint", "node"),
        "node.kubernetes.io/out-of-service=x:NoSchedule",
    ),
}


@pytest.mark.parametrize("why", TAKEN_OUT)
def test_a_lab_goes_without_a_node_that_somebody_took_out_of_service(
    lab: Lab, node: str, person: Person, tmp_path: Path, why: str
) -> None:
    verb, *rest = TAKEN_OUT[why]
    person(verb, *rest[:1], node, *rest[1:])
    lab.clean(Needs(nodes=1))
    assert lab.left_out == {node: why}
    others = [name for name in lab.fleet.node_names() if name != node]
    assert lab.usable() == others
    stage = Stage(lab, tmp_path, Needs(nodes=1), nullcontext)
    assert (stage.target, stage.others) == (others[0], others[1:])
    with pytest.raises(TooFewNodes, match=rf"left out: {node} \({why}"):
        lab.clean(Needs(nodes=len(others) + 1))
    with pytest.raises(TooFewNodes, match="every node of its zone"):
        lab.clean(Needs(faulted=1, radius="zone"))


def test_a_node_that_is_back_in_service_is_used_again(lab: Lab, node: str, person: Person) -> None:
    person("cordon", node)
    lab.clean(Needs(nodes=1))
    assert node not in lab.usable()
    person("uncordon", node)
    lab.clean(Needs(nodes=1))
    assert node in lab.usable()


def test_a_run_waits_for_a_node_that_is_not_ready_and_then_goes_without_it(lab: Lab, node: str) -> None:
    said: list[str] = []
    with closing(registry.attach(lab.name)) as another:
        client = registry.client(lab.name)
        client.power(node, "link-down")
        try:
            gone = eventually(lambda: workloads.lost(lab.cluster.api, [node]), LOST_LIMIT_S)
            InService(said.append).begin(another, WAITED_S)
        finally:
            client.power(node, "link-up")
        assert gone
        assert node not in another.usable()
    waits, leaves_out = said
    assert (f"waits for {node} (Ready is Unknown" in waits, f"leaves out {node} (" in leaves_out) == (
        True,
        True,
    )
