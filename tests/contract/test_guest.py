"""Properties of virtual machine labs: snapshots, libvirt's objects, ends of guests."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeproof.labs.base.spec import LabSpec
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem
from nodeproof.safety.guard import Refused, check_target
from tests.contract.conftest import JOINED
from tests.contract.kinds import Kind
from tests.waiting import eventually

COMMAND_TIMEOUT_S = 20.0
READY_TIMEOUT_S = 90.0
DEATH_TIMEOUT_S = 20.0
MOST_CLOCK_OFFSET_S = 1.0


@pytest.fixture(autouse=True)
def _guests_only(kind: Kind) -> None:
    if kind.name != LIBVIRT.name:
        pytest.skip("no virtual machines")


def virsh(lab: LabHandle, *arguments: str) -> str:
    output = registry.client(lab.name).spawn_command([*VIRSH, *arguments], COMMAND_TIMEOUT_S)
    assert output["status"] == 0, output["stderr"]
    return str(output["stdout"])


def output_of(lab: LabHandle, node: str, *argv: str) -> str:
    return lab.fleet.machine(node).run(list(argv), timeout_s=COMMAND_TIMEOUT_S).stdout.strip()


def steps_of(lab: LabHandle, node: str) -> list[str]:
    """Return the steps of a node's machine, in order."""
    entries = [json.loads(line) for line in (lab.dir / "events.jsonl").read_text().splitlines()]
    return [entry["step"] for entry in entries if entry["kind"] == "machine" and entry["node"] == node]


@pytest.fixture
def _broken_snapshot(lab: LabHandle) -> None:
    """Replace the joining node's snapshot by nonsense of the right size and age."""
    spec = LabSpec.from_json((lab.dir / "spec.json").read_text())
    for memory in Path(spec.guest["snapshots"]).glob(f"{JOINED}-*/memory"):
        stat = memory.stat()
        with memory.open("r+b") as out:
            out.write(bytes(4096))
        os.utime(memory, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_restored_guest_has_its_own_identity_time_and_random_numbers(lab: LabHandle, joined: str) -> None:
    assert steps_of(lab, joined)[-1] == "restored"
    assert "crng reseeded due to virtual machine fork" in output_of(lab, joined, "dmesg")
    assert output_of(lab, joined, "hostname") == joined
    assert output_of(lab, joined, "cat", "/etc/machine-id") == lab.safety.lab_record().machine_ids[joined]
    assert abs(lab.read_clock_offsets_s()[joined]) < MOST_CLOCK_OFFSET_S


@pytest.mark.usefixtures("_broken_snapshot")
def test_unusable_snapshot_is_replaced_and_the_node_joins(lab: LabHandle, joined: str) -> None:
    assert steps_of(lab, joined)[-2:] == ["snapshot-taken", "restored"]
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)

    lab.leave(joined)
    lab.join(joined, "zone-a", 8)
    assert steps_of(lab, joined)[-2:] == ["powered-off", "restored"]


def test_joining_guest_does_not_block_the_power_of_others(lab: LabHandle, node: str) -> None:
    before = steps_of(lab, JOINED)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(lab.join, JOINED, "zone-a", 8)
        try:
            eventually(lambda: JOINED in lab.fleet.node_names(), READY_TIMEOUT_S)
            registry.client(lab.name).power(node, "link-up")
            assert steps_of(lab, node)[-1] == "link-up"
            assert steps_of(lab, JOINED) == before
        finally:
            joining.result()
            lab.leave(JOINED)


@pytest.mark.vm
def test_libvirt_objects_carry_their_owner(lab: LabHandle, node: str) -> None:
    assert sorted(virsh(lab, "pool-list", "--name").split()) == [lab.name]
    assert {f"{node}.qcow2", f"{node}-seed.img"} <= set(virsh(lab, "vol-list", lab.name).split())
    for network in ("control", "data"):
        assert f'name="{lab.name}"' in virsh(lab, "net-dumpxml", network)
    assert lab.safety.injector.targets(node, [node])[0].owner == lab.safety.lab_record().owners[node]


def test_machine_with_a_foreign_libvirt_owner_is_refused(lab: LabHandle, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)
    check_target(lab.safety.injector.targets(joined, [joined])[0], lab.safety.lab_record())

    tag = '<lab name="p-000000"/>'
    virsh(lab, "metadata", joined, METADATA_NAMESPACE, "--live", "--key", "nodeproof", "--set", tag)
    with pytest.raises(Refused, match="owner by the hypervisor"):
        check_target(lab.safety.injector.targets(joined, [joined])[0], lab.safety.lab_record())


def test_guest_panic_is_a_component_panic(lab: LabHandle, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_TIMEOUT_S)
    with contextlib.suppress(MachineError):
        # In a systemd unit, as a command could time out earlier.
        panic = ["systemd-run", "--quiet", "--no-block", "sh", "-c", "echo c >/proc/sysrq-trigger"]
        lab.fleet.machine(joined).run(panic, timeout_s=COMMAND_TIMEOUT_S)

    died = eventually(lambda: registry.client(lab.name).status().died, DEATH_TIMEOUT_S)
    assert died == {f"node-{joined}": "panicked"}
    with pytest.raises(Problem, match=f"node-{joined} panicked") as caught:
        lab.wait_nodes_ready([joined])
    assert "Kernel panic - not syncing: sysrq triggered crash" in caught.value.detail

    lab.leave(joined)
    assert registry.client(lab.name).status().died == {}


@pytest.mark.vm
def test_guest_journal_is_kept_beside_its_console(lab: LabHandle, node: str, tmp_path: Path) -> None:
    lab.fetch_journals()
    lab.copy_logs(tmp_path)

    assert "Started kubelet.service" in (tmp_path / lab.name / f"journal-{node}.log").read_text()
    assert (tmp_path / lab.name / f"console-{node}.log").stat().st_size > 0
