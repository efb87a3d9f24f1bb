"""Who dies or stands still in the middle of a volume's way: a disk is one machine's all the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.checks.moments import became, made
from nodeproof.faults.volumes import DISKS, Volumes, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.model import window as windows
from nodeproof.model.needs import ATTACHER
from nodeproof.probes.disk_holders import disk_holders
from nodeproof.scenario import volumes
from nodeproof.scenario.stage import Stage
from tests.contract.attaching import (
    ATTACHMENTS,
    COMMAND_LIMIT_S,
    LIMIT_S,
    ask_for,
    attach,
    detach,
    end,
    guests_only,
    is_attached,
    is_gone,
    stage_of,
    storage_of,
    the_other,
    why_not,
)
from tests.contract.kinds import Kind
from tests.waiting import eventually, pause, throughout

AFTER_S = (0.0, 0.1, 0.3, 1.0)
"""When somebody is killed, after an attachment was asked for or its end."""
STILL_S = 20.0
KILLS = {
    "the-attacher": 'kill -KILL $(pgrep -f "^[^ ]*/external-attacher ")',
    "the-driver": 'kill -KILL $(pgrep -f "^[^ ]*python[^ ]* .*-m infra.csi ")',
}
SMALL_POOL = f"""
mkdir small
mount -n -t tmpfs -o size=64k nodeproof small
{shlex.join(VIRSH)} pool-create-as small dir --target "$PWD/small"
"""
NO_SMALL_POOL = f"{shlex.join(VIRSH)} pool-destroy small; umount -l small; rmdir small"
LIBVIRTD_ANEW = """
pid=$(cat /run/libvirt/libvirtd.pid)
kill -KILL "$pid"
while [ -e "/proc/$pid/exe" ]; do :; done
rm /run/libvirt/libvirtd.pid
libvirtd -d -f /etc/libvirt/libvirtd.conf -p /run/libvirt/libvirtd.pid
"""


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return stage_of(lab, tmp_path)


@pytest.fixture
def storage(lab: Lab) -> Iterator[Volumes]:
    yield from storage_of(lab)


@pytest.fixture
def lab_of_its_own(kind: Kind, components: Components) -> Iterator[Lab]:
    """One that is used by nobody else."""
    made_ = kind.start(components, kind.nodes)
    try:
        made_.prepare()
        made_.wait_nodes_ready()
        yield made_
    finally:
        made_.down()


@pytest.mark.night(reason="each side of each call: tests/unit/test_csi_driver.py")
@pytest.mark.parametrize("killed", KILLS)
@pytest.mark.parametrize("after_s", AFTER_S)
def test_a_volume_is_attached_and_detached_once_whoever_is_killed_meanwhile(
    lab: Lab, stage: Stage, storage: Volumes, killed: str, after_s: float
) -> None:
    (claim,), node = storage.claims, stage.target
    attacher = lab.fleet.machine(ATTACHER)

    def kills() -> bool:
        return attacher.run(["sh", "-c", KILLS[killed]], deadline_s=COMMAND_LIMIT_S).status == 0

    def kill_and_start() -> None:
        pause(after_s)
        assert eventually(kills, LIMIT_S), "nobody is there to be killed"
        assert eventually(lambda: not attacher.is_powered(), LIMIT_S), "neither goes on without the other"
        attacher.power("on")

    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        name = ask_for(lab, claim, node)
        kill_and_start()
        assert eventually(lambda: is_attached(lab, name), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == [node]
        end(lab, name)
        kill_and_start()
        assert eventually(lambda: is_gone(lab, name), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == []


@pytest.mark.night(reason="only machines stand still, and CI's time is for what breaks oftener")
def test_a_machine_that_stands_still_keeps_its_disk_and_everybody_is_told(
    lab: Lab, stage: Stage, storage: Volumes
) -> None:
    guests_only(lab)
    (claim,), node, other = storage.claims, stage.target, the_other(lab, stage.target)
    beside = lab.fleet.machine(ATTACHER)

    def signal_qemu(name: str) -> None:
        script = f"kill -{name} $(cat /run/libvirt/qemu/{node}.pid)"
        assert beside.run(["sh", "-c", script], deadline_s=COMMAND_LIMIT_S).status == 0

    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        signal_qemu("STOP")
        try:
            end(lab, first)
            said = {"$contains": f"volume {handle(claim)} is still in node {node} after 10 s"}
            late = became(ATTACHMENTS, first, {"status": {"detachError": {"message": said}}})
            stage.wait_for(late.after(made(ATTACHMENTS, first), windows.prompt(LIMIT_S)))
            assert stage.find(late) is not None
            second = ask_for(lab, claim, other)
            # libvirt may answer nothing about it meanwhile; who asks is not told that the disk is free.
            assert throughout(lambda: not is_attached(lab, second), STILL_S)
        finally:
            signal_qemu("CONT")
        assert eventually(lambda: is_gone(lab, first), LIMIT_S)
        assert eventually(lambda: is_attached(lab, second), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == [other]
        detach(stage, second)


@pytest.mark.night(reason="only guests have a pool, and CI's time is for what breaks oftener")
def test_a_full_pool_has_no_room_for_a_volume_and_says_of_which(lab: Lab, stage: Stage) -> None:
    guests_only(lab)
    beside, volume = lab.fleet.machine(ATTACHER), handle("too-large")
    made_ = beside.run(["sh", "-ec", SMALL_POOL], deadline_s=COMMAND_LIMIT_S)
    assert made_.status == 0, made_.stderr
    try:
        argv = ["sh", DISKS, "--pool=small", "create", "16777216", volume]
        refused = beside.run(argv, deadline_s=COMMAND_LIMIT_S)
        assert refused.status == 2
        assert f"volume {volume}" in refused.stderr and "No space left" in refused.stderr, refused.stderr
        left = beside.run(["sh", DISKS, "--pool=small", "holders", volume], deadline_s=COMMAND_LIMIT_S)
        assert (left.status, left.stdout) == (0, "")
    finally:
        beside.run(["sh", "-c", NO_SMALL_POOL], deadline_s=COMMAND_LIMIT_S)


@pytest.mark.night(reason="its lab has another libvirtd than it began with, and goes")
def test_a_libvirtd_that_starts_anew_finds_each_disk_where_it_was(
    lab_of_its_own: Lab, tmp_path: Path
) -> None:
    lab, storage = lab_of_its_own, volumes()
    guests_only(lab)
    stage = stage_of(lab, tmp_path)
    (claim,), node, other = storage.claims, stage.target, the_other(lab, stage.target)
    beside = lab.fleet.machine(ATTACHER)
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        started = beside.run(["sh", "-ec", LIBVIRTD_ANEW], deadline_s=COMMAND_LIMIT_S)
        assert started.status == 0, started.stderr
        assert stage.look(disk_holders(claim)).value == [node]
        said = f"volume {handle(claim)} is attached to {node}, so not to {other}"
        # A recording in which a component died waits for nothing.
        second = ask_for(lab, claim, other)
        assert eventually(lambda: said in why_not(lab, second), LIMIT_S)
        end(lab, first)
        assert eventually(lambda: is_gone(lab, first), LIMIT_S)
        assert eventually(lambda: is_attached(lab, second), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == [other]
        end(lab, second)
        assert eventually(lambda: is_gone(lab, second), LIMIT_S)
