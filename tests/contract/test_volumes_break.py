"""Who dies or stands still in the middle of a volume's way: a disk is one machine's all the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeproof.actions.pods import run_witnesses
from nodeproof.artifacts.components import Components
from nodeproof.checks.moments import became, made
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.witness import Witness
from nodeproof.cluster.workloads import Pod
from nodeproof.faults.volumes import DISKS, Volumes, attachment, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.machines.machine import Machine
from nodeproof.model import window as windows
from nodeproof.model.needs import ATTACHER
from nodeproof.probes.disk_holders import disk_holders
from nodeproof.probes.written import acknowledged, last_written, writes
from nodeproof.scenario import partition, taint, volumes
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
    is_to_go,
    stage_of,
    storage_of,
    the_other,
    why_not,
)
from tests.contract.kinds import Kind
from tests.waiting import eventually, pause, throughout

AFTER_S = (0.0, 0.3)
"""When a driver is killed, after an attachment was asked for or its end."""
SENT_S = 2.0
"""Until an attacher has asked a driver that stands still."""
Die = Callable[[Machine, str, str, Callable[[], object]], None]
"""Kills an attacher on one side of a call that follows what is asked for."""
STILL_S = 20.0
WRITES = 2
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
THE_ATTACHER = 'pgrep -f "^[^ ]*/external-attacher "'
THE_DRIVER = 'pgrep -f "^[^ ]*python[^ ]* .*-m infra.csi "'
ATTACH, DETACH = "ControllerPublishVolume", "ControllerUnpublishVolume"
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


def send(attacher: Machine, name: str, whom: str) -> None:
    """A signal for the attacher or its driver, beside which commands run; somebody has to be there."""

    def sends() -> bool:
        argv = ["sh", "-c", f"kill -{name} $({whom})"]
        return attacher.run(argv, deadline_s=COMMAND_LIMIT_S).status == 0

    assert eventually(sends, LIMIT_S), f"nobody to send {name} to"


def start_again(attacher: Machine) -> None:
    """Once both are gone, whoever of them was killed."""
    assert eventually(lambda: not attacher.is_powered(), LIMIT_S), "neither goes on without the other"
    attacher.power("on")


def calls_done(attacher: Machine, method: str, claim: str) -> int:
    """How often the driver has done that with a claim's volume; a call is written down before its answer."""
    told = attacher.run(["cat", f"{ATTACHER}/calls.jsonl"], deadline_s=COMMAND_LIMIT_S).stdout.splitlines()
    calls = (json.loads(line) for line in told if line.endswith("}"))
    wanted = {"method": method, "volume": handle(claim), "code": "OK"}
    return sum({name: call[name] for name in wanted} == wanted for call in calls)


def die_before(attacher: Machine, method: str, claim: str, asked: Callable[[], object]) -> None:
    """The driver sees nothing of the call in which its attacher is killed."""
    before = calls_done(attacher, method, claim)
    send(attacher, "STOP", THE_DRIVER)
    asked()
    pause(SENT_S)
    send(attacher, "KILL", THE_ATTACHER)
    assert eventually(lambda: not attacher.is_powered(), LIMIT_S)
    assert calls_done(attacher, method, claim) == before
    start_again(attacher)


def die_after(attacher: Machine, method: str, claim: str, asked: Callable[[], object]) -> None:
    """The driver has done the call, and its attacher is killed before it hears so."""
    before = calls_done(attacher, method, claim)
    send(attacher, "STOP", THE_DRIVER)
    asked()
    pause(SENT_S)
    send(attacher, "STOP", THE_ATTACHER)
    send(attacher, "CONT", THE_DRIVER)
    assert eventually(lambda: calls_done(attacher, method, claim) > before, LIMIT_S), (
        "the call was not under way"
    )
    send(attacher, "KILL", THE_ATTACHER)
    start_again(attacher)


@pytest.mark.night(
    reason="a driver's own calls: tests/unit/test_csi_driver.py; CI's time is for what breaks oftener"
)
@pytest.mark.parametrize("die", [die_before, die_after])
def test_a_call_in_which_an_attacher_is_killed_is_done_when_it_is_back(
    lab: Lab, stage: Stage, storage: Volumes, die: Die
) -> None:
    (claim,), node = storage.claims, stage.target
    attacher, names = lab.fleet.machine(ATTACHER), list[str]()
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        die(attacher, ATTACH, claim, lambda: names.append(ask_for(lab, claim, node)))
        (name,) = names
        assert eventually(lambda: is_attached(lab, name), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == [node]
        die(attacher, DETACH, claim, lambda: end(lab, name))
        assert eventually(lambda: is_gone(lab, name), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == []


def force_off(lab: Lab, pod: Pod, attached: str) -> None:
    """Delete a pod by force, and wait until somebody asked for the end of its attachment."""
    lab.cluster.api.delete(pod_path(pod.namespace, pod.name), grace_s=0)
    assert eventually(lambda: is_to_go(lab, attached), LIMIT_S)


def goes_on_writing(stage: Stage, pod: Pod) -> bool:
    """Whether some more writes of a pod come onto its disk."""

    def on_disk() -> int:
        return int(stage.look(acknowledged(pod)).value)

    wanted = on_disk() + WRITES
    return eventually(lambda: on_disk() >= wanted, LIMIT_S)


@pytest.mark.night(reason="a scenario judges it: scenarios/nongraceful/test_machines_that_run.py")
@pytest.mark.parametrize("die", [die_before, die_after])
def test_no_write_of_the_surviving_writer_is_lost_when_an_attacher_is_killed_between_the_two(
    lab: Lab, stage: Stage, storage: Volumes, die: Die
) -> None:
    guests_only(lab)
    (claim,), node, other = storage.claims, stage.target, the_other(lab, stage.target)
    attacher, here = lab.fleet.machine(ATTACHER), attachment(claim, node)
    gone_for_good = taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        (first,) = stage.do(run_witnesses(Witness(claim=claim), on=node))
        assert goes_on_writing(stage, first)
        with stage.inject(partition(node)), stage.inject(gone_for_good):
            die(attacher, DETACH, claim, lambda: force_off(lab, first, here))
            (second,) = stage.do(run_witnesses(Witness(claim=claim), on=other))
            assert stage.look(disk_holders(claim)).value == [other]
            assert goes_on_writing(stage, second)
        lab.wait_nodes_ready()
        assert goes_on_writing(stage, second)
        kept = {by: stage.look(acknowledged(by)).value for by in (first, second)}
        found = {by: stage.look(last_written(second, by=by.node)).value for by in (first, second)}
        on_it = stage.look(writes(second)).value
    assert {by.node: found[by] >= kept[by] > 0 for by in kept} == {node: True, other: True}, (kept, found)
    assert [on_it[flaw] for flaw in ("lost", "doubled", "torn")] == [[], [], []], on_it


@pytest.mark.night(reason="each side of each call: tests/unit/test_csi_driver.py")
@pytest.mark.parametrize("after_s", AFTER_S)
def test_a_volume_is_attached_and_detached_once_whenever_its_driver_is_killed(
    lab: Lab, stage: Stage, storage: Volumes, after_s: float
) -> None:
    (claim,), node = storage.claims, stage.target
    attacher = lab.fleet.machine(ATTACHER)

    def kill_the_driver() -> None:
        pause(after_s)
        send(attacher, "KILL", THE_DRIVER)
        start_again(attacher)

    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        name = ask_for(lab, claim, node)
        kill_the_driver()
        assert eventually(lambda: is_attached(lab, name), LIMIT_S)
        assert stage.look(disk_holders(claim)).value == [node]
        end(lab, name)
        kill_the_driver()
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
