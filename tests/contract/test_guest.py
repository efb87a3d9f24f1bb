"""What only labs of virtual machines keep: snapshots, what libvirt knows of them, how guests die."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.spec import LabSpec
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem
from nodeproof.safety.guard import Refused, check_target
from tests.contract.conftest import JOINED
from tests.contract.kinds import Kind
from tests.waiting import eventually

COMMAND_LIMIT_S = 20.0
READY_LIMIT_S = 90.0
DEATH_LIMIT_S = 20.0
MOST_CLOCK_OFFSET_S = 1.0


@pytest.fixture(autouse=True)
def _guests_only(kind: Kind) -> None:
    if kind.name != LIBVIRT.name:
        pytest.skip("no virtual machines")


def virsh(lab: Lab, *arguments: str) -> str:
    done = registry.client(lab.name).spawn_command([*VIRSH, *arguments], COMMAND_LIMIT_S)
    assert done["status"] == 0, done["stderr"]
    return str(done["stdout"])


def say(lab: Lab, node: str, *argv: str) -> str:
    return lab.fleet.machine(node).run(list(argv), deadline_s=COMMAND_LIMIT_S).stdout.strip()


def steps_of(lab: Lab, node: str) -> list[str]:
    """What was done with a node's machine, in order."""
    entries = [json.loads(line) for line in (lab.dir / "events.jsonl").read_text().splitlines()]
    return [entry["step"] for entry in entries if entry["kind"] == "machine" and entry["node"] == node]


@pytest.fixture
def _broken_snapshot(lab: Lab) -> None:
    """The snapshot of the node that joins, of the right size and age and with nonsense in it."""
    spec = LabSpec.from_json((lab.dir / "spec.json").read_text())
    for memory in Path(spec.guest["snapshots"]).glob(f"{JOINED}-*/memory"):
        stat = memory.stat()
        with memory.open("r+b") as out:
            out.write(bytes(4096))
        os.utime(memory, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_restored_guest_has_its_own_identity_time_and_random_numbers(lab: Lab, joined: str) -> None:
    assert steps_of(lab, joined)[-1] == "restored"
    assert "crng reseeded due to virtual machine fork" in say(lab, joined, "dmesg")
    assert say(lab, joined, "hostname") == joined
    assert say(lab, joined, "cat", "/etc/machine-id") == lab.safety.record_of_itself().machine_ids[joined]
    assert abs(lab.calibrate().clock_offset_s[joined]) < MOST_CLOCK_OFFSET_S


@pytest.mark.usefixtures("_broken_snapshot")
def test_a_snapshot_that_does_not_restore_is_replaced_and_the_node_joins(lab: Lab, joined: str) -> None:
    assert steps_of(lab, joined)[-2:] == ["snapshot-taken", "restored"]
    lab.wait_nodes_ready([joined], READY_LIMIT_S)

    lab.leave(joined)
    lab.join(joined, "zone-a", 8)
    assert steps_of(lab, joined)[-2:] == ["powered-off", "restored"]


def test_a_guest_that_joins_keeps_no_other_from_its_power(lab: Lab, node: str) -> None:
    before = steps_of(lab, JOINED)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(lab.join, JOINED, "zone-a", 8)
        try:
            eventually(lambda: JOINED in lab.fleet.node_names(), READY_LIMIT_S)
            registry.client(lab.name).power(node, "link-up")
            assert steps_of(lab, node)[-1] == "link-up"
            assert steps_of(lab, JOINED) == before
        finally:
            joining.result()
            lab.leave(JOINED)


@pytest.mark.vm
def test_what_libvirt_has_says_whose_it_is(lab: Lab, node: str) -> None:
    assert sorted(virsh(lab, "pool-list", "--name").split()) == [lab.name]
    assert {f"{node}.qcow2", f"{node}-seed.img"} <= set(virsh(lab, "vol-list", lab.name).split())
    for network in ("control", "data"):
        assert f'name="{lab.name}"' in virsh(lab, "net-dumpxml", network)
    assert lab.safety.injector.targets(node, [node])[0].owner == lab.safety.record_of_itself().owners[node]


def test_a_machine_that_libvirt_calls_somebody_elses_is_refused(lab: Lab, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_LIMIT_S)
    check_target(lab.safety.injector.targets(joined, [joined])[0], lab.safety.record_of_itself())

    tag = '<lab name="p-000000"/>'
    virsh(lab, "metadata", joined, METADATA_NAMESPACE, "--live", "--key", "nodeproof", "--set", tag)
    with pytest.raises(Refused, match="owner by the hypervisor"):
        check_target(lab.safety.injector.targets(joined, [joined])[0], lab.safety.record_of_itself())


def test_a_guest_that_panics_is_a_component_that_panicked(lab: Lab, joined: str) -> None:
    lab.wait_nodes_ready([joined], READY_LIMIT_S)
    with contextlib.suppress(MachineError):
        # By a unit: what a command's deadline cuts may not have come as far.
        panic = ["systemd-run", "--quiet", "--no-block", "sh", "-c", "echo c >/proc/sysrq-trigger"]
        lab.fleet.machine(joined).run(panic, deadline_s=COMMAND_LIMIT_S)

    died = eventually(lambda: registry.client(lab.name).status()["died"], DEATH_LIMIT_S)
    assert died == {f"node-{joined}": "panicked"}
    with pytest.raises(Problem, match=f"node-{joined} panicked") as caught:
        lab.wait_nodes_ready([joined])
    assert "Kernel panic - not syncing: sysrq triggered crash" in caught.value.detail

    lab.leave(joined)
    assert registry.client(lab.name).status()["died"] == {}


@pytest.mark.vm
def test_a_guests_journal_is_kept_beside_its_console(lab: Lab, node: str, tmp_path: Path) -> None:
    lab.fetch_journals()
    lab.keep_logs(tmp_path)

    assert "Started kubelet.service" in (tmp_path / lab.name / f"journal-{node}.log").read_text()
    assert (tmp_path / lab.name / f"console-{node}.log").stat().st_size > 0
