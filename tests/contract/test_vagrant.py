"""Properties of a Vagrant lab: Vagrant and libvirt both know its machines, and may disagree."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import VAGRANT
from nodeproof.safety.guard import check_target
from tests.contract.conftest import JOINED
from tests.contract.kinds import Kind
from tests.contract.test_guest import output_of, steps_of, virsh
from tests.waiting import eventually

COMMAND_TIMEOUT_S = 20.0
READY_TIMEOUT_S = 120.0
BEGIN_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def _vagrants_only(kind: Kind) -> None:
    if kind.name != VAGRANT.name:
        pytest.skip("no machines of Vagrant's")


@pytest.fixture
def joined_nodes_removed(lab: LabHandle) -> Iterator[None]:
    """Remove nodes that joined in the test."""
    yield
    if JOINED in lab.fleet.node_names():
        lab.leave(JOINED)


def run_in_lab(lab: LabHandle, script: str) -> str:
    """Run a command in the lab, beside its Vagrant."""
    output = registry.client(lab.name).spawn_command(["sh", "-c", script], COMMAND_TIMEOUT_S)
    assert output["status"] == 0, output["stderr"]
    return str(output["stdout"]).strip()


def vagrant_folder(lab: LabHandle) -> str:
    """Return the folder of Vagrant's machine data."""
    return f"{lab.dir}/mem/vagrant/machines/machines"


def target_of(lab: LabHandle, node: str) -> None:
    """Return the guard's target of a node."""
    check_target(lab.safety.injector.targets(node, [node])[0], lab.safety.lab_record())


def test_vagrant_and_libvirt_agree_on_the_machines_of_the_lab(lab: LabHandle, node: str) -> None:
    vagrant_id = run_in_lab(lab, f"cat {vagrant_folder(lab)}/{node}/libvirt/id")
    assert vagrant_id == virsh(lab, "domuuid", node).strip()
    assert output_of(lab, node, "cat", "/etc/machine-id") == lab.safety.lab_record().machine_ids[node]
    target_of(lab, node)


def test_machine_destroyed_externally_has_no_owner_until_power_on(lab: LabHandle, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)
    virsh(lab, "destroy", joined)
    virsh(lab, "undefine", joined)
    assert joined not in virsh(lab, "list", "--all", "--name").split()

    registry.client(lab.name).power(joined, "on")
    assert steps_of(lab, joined)[-2:] == ["made-again", "up"]
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)
    target_of(lab, joined)


def test_machine_with_a_lost_folder_is_removed(lab: LabHandle, joined: str) -> None:
    run_in_lab(lab, f"rm -r {vagrant_folder(lab)}")
    lab.leave(joined)

    assert "remembered" in steps_of(lab, joined)
    assert joined not in virsh(lab, "list", "--all", "--name").split()
    assert f"{joined}.img" not in virsh(lab, "vol-list", lab.name)


@pytest.mark.usefixtures("joined_nodes_removed")
def test_interrupted_vagrant_up_is_repeated(lab: LabHandle) -> None:
    before = steps_of(lab, JOINED)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(lab.join, JOINED, "zone-a", 8)
        assert eventually(lambda: JOINED in virsh(lab, "list", "--all", "--name").split(), BEGIN_TIMEOUT_S)
        run_in_lab(lab, "kill -KILL $(pgrep -f '[v]agrant up')")
        joining.result()

    steps = steps_of(lab, JOINED)[len(before) :]
    # The machine runs already, or is only defined.
    assert [step for step in steps if step != "powered-off"] == ["up-again", "up"]
    lab.wait_nodes_ready([JOINED], READY_TIMEOUT_S)
    target_of(lab, JOINED)
