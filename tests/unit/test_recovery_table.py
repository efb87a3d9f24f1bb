"""The recovery table: which times it has for a node, a pod and a volume, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import History
from nodeproof.report import recovery, rundir
from nodeproof.report.recovery import Cell, Recovery
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, RESOURCES, TOLERATION_S, Story, configuration

Json = Any
FAULT_T, LOST_T, EVICTED_T, READY_T, HEALED_T, BACK_T = 20.0, 32.5, 39.0, 41.0, 60.0, 62.0
OWNER = {"uid": "set", "kind": "ReplicaSet", "controller": True}
VOLUMES = "volumeattachments"


def pod(node: str, status: str = "True", owner: Json = OWNER, **condition: str) -> Json:
    toleration = {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": TOLERATION_S}
    conditions = [{"type": "Ready", "status": status}, *([condition] if condition else ())]
    return {
        "metadata": {"ownerReferences": [owner]},
        "spec": {"nodeName": node, "tolerations": [toleration]},
        "status": {"conditions": conditions},
    }


def attachment(node: str) -> Json:
    return {
        "spec": {"nodeName": node, "source": {"persistentVolumeName": "data"}},
        "status": {"attached": True},
    }


def lost_node(
    *, ends_heartbeats: bool = True, owner: Json = OWNER, evicted_by: str = "DeletionByTaintManager"
) -> History:
    """Return a recording of a partition: a pod and a volume move from the lost node to the other."""
    story = Story(resources=(*RESOURCES, VOLUMES))
    story.change(1.0, "pods", NAMESPACE, POD, pod(NODE, owner=owner)).change(
        1.0, VOLUMES, "", "old", attachment(NODE)
    )
    story.renewals(1.0, FAULT_T if ends_heartbeats else FAULT_T + 4.0)
    fault = {"id": "cut", "fault": {"fault": "partition"}, "node": NODE}
    story.say(FAULT_T, "fault", **fault, step="injected").condition(LOST_T, "Unknown")
    gone = pod(NODE, owner=owner, type="DisruptionTarget", status="True", reason=evicted_by)
    story.change(EVICTED_T, "pods", NAMESPACE, POD, gone).evict(EVICTED_T)
    story.change(EVICTED_T + 0.5, "pods", NAMESPACE, "new", pod(OTHER, "False", owner))
    story.change(READY_T, "pods", NAMESPACE, "new", pod(OTHER, owner=owner))
    story.change(READY_T + 1.0, VOLUMES, "", "new", attachment(OTHER))
    story.say(HEALED_T, "fault", **fault, step="healing").condition(BACK_T, "True")
    return story.history()


def test_recovery_has_the_time_of_each_step() -> None:
    (measured,) = recovery.measure(lost_node(), configuration())
    assert (measured.fault, measured.node) == ("partition", NODE)
    times = [getattr(measured, name) for name in recovery.MEASURES]
    expected = [t - FAULT_T for t in (LOST_T, EVICTED_T, READY_T, READY_T + 1.0)]
    assert times == pytest.approx([*expected, BACK_T - HEALED_T])


def test_documented_times_are_those_of_the_settings() -> None:
    settings = configuration()
    (measured,) = recovery.measure(lost_node(), settings)
    earliest_s, latest_s = measured.documented_s["detected_s"]
    assert earliest_s < settings["G"] < latest_s
    assert measured.documented_s["evicted_s"][0] == pytest.approx(earliest_s + TOLERATION_S)


@pytest.mark.parametrize(
    ("history", "measure"),
    [
        (lost_node(evicted_by="EvictionByEvictionAPI"), "evicted_s"),
        (lost_node(owner={**OWNER, "kind": "DaemonSet"}), "replaced_s"),
        (lost_node(owner={**OWNER, "controller": False}), "replaced_s"),
    ],
)
def test_deletion_by_others_and_pods_of_no_deployment_do_not_count(history: History, measure: str) -> None:
    (measured,) = recovery.measure(history, configuration())
    assert getattr(measured, measure) is None


def test_node_that_still_sent_heartbeats_was_not_lost_by_the_fault() -> None:
    assert not list(recovery.measure(lost_node(ends_heartbeats=False), configuration()))


def test_table_has_medians_of_nodes_and_of_earlier_runs() -> None:
    own = [
        Recovery("partition", f"node-{n}", detected_s=t, documented_s={"detected_s": (t, t + 5)})
        for n, t in enumerate((10.0, 12.0, 17.0))
    ]
    earlier = [[Recovery("partition", NODE, detected_s=t)] for t in (9.0, 11.0)] + [
        [Recovery("freeze", NODE, 50.0)]
    ]
    cells = recovery.table(own, earlier)["partition"]
    assert cells["detected_s"].measured == "12.0 s (10.0 to 17.0, 3 nodes)"
    assert cells["detected_s"].documented == "10.0 to 22.0 s"
    assert cells["detected_s"].earlier == "10.0 s"
    assert cells["back_s"] == Cell([], None, [])


def test_stored_recoveries_are_read_and_a_broken_file_is_left_out(tmp_path: Path) -> None:
    recovery.write(rundir.scenario_dir(tmp_path, "a.py::test_a"), lost_node(), configuration())
    broken = rundir.scenario_dir(tmp_path, "b.py::test_b") / recovery.FILE
    broken.write_text("[{]")
    (stored,) = recovery.read(tmp_path)
    (measured,) = recovery.measure(lost_node(), configuration())
    assert replace(stored, documented_s={}) == replace(measured, documented_s={})
