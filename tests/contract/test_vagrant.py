"""What only a Vagrant lab has: two who know its machines, Vagrant and libvirt, and may come apart."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds import VAGRANT
from nodeproof.safety.guard import check_target
from tests.contract.conftest import JOINED
from tests.contract.kinds import Kind
from tests.contract.test_guest import say, steps_of, virsh
from tests.waiting import eventually

COMMAND_LIMIT_S = 20.0
READY_LIMIT_S = 120.0
BEGIN_LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _vagrants_only(kind: Kind) -> None:
    if kind.name != VAGRANT.name:
        pytest.skip("no machines of Vagrant's")


@pytest.fixture
def left(lab: Lab) -> Iterator[None]:
    """Whoever joined in the test leaves after it."""
    yield
    if JOINED in lab.fleet.node_names():
        lab.leave(JOINED)


def within(lab: Lab, script: str) -> str:
    """A command in the lab, beside its Vagrant."""
    done = registry.client(lab.name).spawn_command(["sh", "-c", script], COMMAND_LIMIT_S)
    assert done["status"] == 0, done["stderr"]
    return str(done["stdout"]).strip()


def known_machines(lab: Lab) -> str:
    """The folder of what Vagrant knows."""
    return f"{lab.dir}/mem/vagrant/machines/machines"


def target_of(lab: Lab, node: str) -> None:
    """Ask the guard for a node."""
    check_target(lab.safety.injector.targets(node, [node])[0], lab.safety.record_of_itself())


def test_vagrant_and_libvirt_know_the_same_machine_and_it_is_the_labs(lab: Lab, node: str) -> None:
    known = within(lab, f"cat {known_machines(lab)}/{node}/libvirt/id")
    assert known == virsh(lab, "domuuid", node).strip()
    assert say(lab, node, "cat", "/etc/machine-id") == lab.safety.record_of_itself().machine_ids[node]
    target_of(lab, node)


def test_a_machine_destroyed_behind_the_labs_back_is_nobodys_until_power_on_makes_it_again(
    lab: Lab, joined: str
) -> None:
    lab.wait_nodes_ready([joined], READY_LIMIT_S)
    virsh(lab, "destroy", joined)
    virsh(lab, "undefine", joined)
    assert joined not in virsh(lab, "list", "--all", "--name").split()

    registry.client(lab.name).power(joined, "on")
    assert steps_of(lab, joined)[-2:] == ["made-again", "up"]
    lab.wait_nodes_ready([joined], READY_LIMIT_S)
    target_of(lab, joined)


def test_a_machine_whose_folder_is_lost_is_removed_all_the_same(lab: Lab, joined: str) -> None:
    within(lab, f"rm -r {known_machines(lab)}")
    lab.leave(joined)

    assert "remembered" in steps_of(lab, joined)
    assert joined not in virsh(lab, "list", "--all", "--name").split()
    assert f"{joined}.img" not in virsh(lab, "vol-list", lab.name)


@pytest.mark.usefixtures("left")
def test_an_up_that_is_broken_off_is_done_again(lab: Lab) -> None:
    before = steps_of(lab, JOINED)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(lab.join, JOINED, "zone-a", 8)
        assert eventually(lambda: JOINED in virsh(lab, "list", "--all", "--name").split(), BEGIN_LIMIT_S)
        within(lab, "kill -KILL $(pgrep -f '[v]agrant up')")
        joining.result()

    steps = steps_of(lab, JOINED)[len(before) :]
    # It ran already, or was only defined.
    assert [step for step in steps if step != "powered-off"] == ["up-again", "up"]
    lab.wait_nodes_ready([JOINED], READY_LIMIT_S)
    target_of(lab, JOINED)
