"""Nodes out of service: the harness undoes only its own cordons and leaves out other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from nodeproof.actions import kubectl, label_node, labels_of
from nodeproof.cluster import workloads
from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle, TooFewNodes
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.scenario.lab import Lab
from nodeproof.session.provider import ExcludedNodes
from tests.waiting import eventually

COMMAND_TIMEOUT_S, LOST_TIMEOUT_S, WAITED_S = 20.0, 60.0, 2.0
TEAM = {"example.com/team": "ours"}
UserKubectl = Callable[..., None]


@pytest.fixture
def user_kubectl(lab: LabHandle, node: str) -> Iterator[UserKubectl]:
    """Return `user_kubectl(*arguments)`, which runs kubectl as a user; restore the node afterwards."""

    def run(*arguments: str) -> None:
        output = lab.cluster.run_kubectl(arguments, COMMAND_TIMEOUT_S, "")
        assert output["status"] == 0, output["stderr"]

    before = lab.cluster.api.get(node_path(node))
    yield run
    labels = dict.fromkeys(TEAM) | before["metadata"]["labels"]
    lab.cluster.api.patch(
        node_path(node), {"metadata": {"labels": labels}, "spec": {"unschedulable": None, "taints": None}}
    )
    lab.update_out_of_service()


def tidy(lab: LabHandle) -> None:
    """Undo all changes of a scenario."""
    lab.tidy()
    assert lab.safety.ledger.unfinished() == []


def is_cordoned(lab: LabHandle, node: str) -> bool:
    return bool(lab.cluster.api.get(node_path(node))["spec"].get("unschedulable"))


@pytest.mark.parametrize("verb", ["cordon", "drain"])
def test_node_cordoned_by_a_scenario_is_uncordoned_afterwards(
    stage: Lab, lab: LabHandle, node: str, verb: str
) -> None:
    stage.run(kubectl(verb, f"node/{node}", may_fail=verb == "drain"))
    assert is_cordoned(lab, node)
    tidy(lab)
    assert not is_cordoned(lab, node)


def test_crash_leaves_no_cordon_behind(lab: LabHandle, node: str, user_kubectl: UserKubectl) -> None:
    lab.safety.register_cordon(node)
    user_kubectl("cordon", node)
    with closing(registry.attach(lab.name)) as another:
        assert another.safety.heal_unfinished() == []
    assert not is_cordoned(lab, node)
    assert lab.safety.ledger.unfinished() == []


def test_cordon_of_a_recreated_node_is_left_alone(
    lab: LabHandle, node: str, user_kubectl: UserKubectl
) -> None:
    data = {"fault": "cordoned", "id": "1", "node": node, "uid": "another"}
    lab.safety.ledger.write("planned", data)
    user_kubectl("cordon", node)
    tidy(lab)
    assert is_cordoned(lab, node)


@pytest.mark.parametrize("own", [("cordon",), ("cordon", "uncordon")], ids=["before", "afterwards"])
def test_foreign_cordon_stays(
    stage: Lab, lab: LabHandle, node: str, user_kubectl: UserKubectl, own: Sequence[str]
) -> None:
    """A user cordons the node before the scenario's own cordon, or after its uncordon."""
    if "uncordon" not in own:
        user_kubectl("cordon", node)
    for verb in own:
        stage.run(kubectl(verb, node))
    if "uncordon" in own:
        user_kubectl("cordon", node)
    tidy(lab)
    assert is_cordoned(lab, node)


def test_foreign_labels_and_taints_stay(
    stage: Lab, lab: LabHandle, node: str, user_kubectl: UserKubectl
) -> None:
    ((key, value),) = TEAM.items()
    user_kubectl("label", "node", node, f"{key}={value}")
    user_kubectl("taint", "node", node, f"{key}={value}:PreferNoSchedule")
    stage.run(label_node(node, "own", "yes"))
    lab.tidy()
    current = lab.cluster.api.get(node_path(node))
    (own,) = labels_of("own", "yes")
    assert own not in current["metadata"]["labels"]
    assert current["metadata"]["labels"][key] == value
    assert [taint["key"] for taint in current["spec"]["taints"]] == [key]


def test_nodes_are_cordoned_by_their_names(stage: Lab, lab: LabHandle) -> None:
    with pytest.raises(Problem, match="name the nodes"):
        stage.run(kubectl("cordon", "--selector=kubernetes.io/os=linux"))
    assert lab.safety.ledger.unfinished() == []


UNUSABLE = {
    "cordoned": ("cordon",),
    "tainted example.com/team:NoExecute": ("taint", "node", "example.com/team=x:NoExecute"),
    "tainted node.kubernetes.io/out-of-service:NoSchedule": (
        *("taint", "node"),
        "node.kubernetes.io/out-of-service=x:NoSchedule",
    ),
}


@pytest.mark.parametrize("reason", UNUSABLE)
def test_lab_leaves_out_a_cordoned_or_tainted_node(
    lab: LabHandle, node: str, user_kubectl: UserKubectl, tmp_path: Path, reason: str
) -> None:
    verb, *rest = UNUSABLE[reason]
    user_kubectl(verb, *rest[:1], node, *rest[1:])
    lab.clean(Needs(nodes=1))
    assert lab.out_of_service == {node: reason}
    others = [name for name in lab.fleet.node_names() if name != node]
    assert lab.usable_nodes() == others
    stage = Lab(lab, tmp_path, Needs(nodes=1), nullcontext)
    assert (stage.target, stage.others) == (others[0], others[1:])
    with pytest.raises(TooFewNodes, match=rf"left out: {node} \({reason}"):
        lab.clean(Needs(nodes=len(others) + 1))
    with pytest.raises(TooFewNodes, match="every node of its zone"):
        lab.clean(Needs(faulted=1, radius="zone"))


def test_uncordoned_node_is_used_again(lab: LabHandle, node: str, user_kubectl: UserKubectl) -> None:
    user_kubectl("cordon", node)
    lab.clean(Needs(nodes=1))
    assert node not in lab.usable_nodes()
    user_kubectl("uncordon", node)
    lab.clean(Needs(nodes=1))
    assert node in lab.usable_nodes()


def test_run_waits_for_a_not_ready_node_and_then_leaves_it_out(lab: LabHandle, node: str) -> None:
    messages: list[str] = []
    with closing(registry.attach(lab.name)) as another:
        client = registry.client(lab.name)
        client.power(node, "link-down")
        try:
            is_lost = eventually(lambda: workloads.lost(lab.cluster.api, [node]), LOST_TIMEOUT_S)
            ExcludedNodes(messages.append).begin(another, WAITED_S)
        finally:
            client.power(node, "link-up")
        assert is_lost
        assert node not in another.usable_nodes()
    waits, leaves_out = messages
    assert f"waits for {node} (Ready is Unknown" in waits
    assert f"leaves out {node} (" in leaves_out
