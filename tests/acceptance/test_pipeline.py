"""The whole pipeline on a real cluster that fails without the harness's knowledge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeproof.checks.judge import unexpected_exit
from nodeproof.cluster.workloads import run_pod
from nodeproof.labs.client import handle as lab_module
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.recording.recorder import Recording
from nodeproof.report import rundir
from nodeproof.report.plain import counted
from tests.acceptance.altered import Cluster, unaltered
from tests.acceptance.command import labs_of, running, two_are_injected
from tests.acceptance.conftest import SMALL_SCENARIO, Run
from tests.markers import falls
from tests.waiting import eventually

CLAIMS = ("monitoring.detection-time", "taints.unreachable-noexecute")
STALLED_SCENARIO = """
import subprocess
from os import getpid
from pathlib import Path

from nodeproof.plugin import Judge
from nodeproof.scenario import UNSCHEDULABLE, Lab, claims, cordoned, kubectl, needs, taint_added, windows

STALLED = Path("{stalled}")


@claims("cordon.taint")
@needs(nodes=2)
def test_host_stall_delays_the_taint(lab: Lab, judge: Judge) -> None:
    node = lab.target
    tainted = taint_added(node, UNSCHEDULABLE, "NoSchedule").after(cordoned(node), windows.up_to(5))
    with lab.record():
        lab.run(kubectl("cordon", node))
        if {always} or not STALLED.exists():
            STALLED.touch()
            subprocess.run(["sh", "-c", f"kill -STOP {{getpid()}}; sleep 1.5; kill -CONT {{getpid()}}"])
        lab.wait_for(tainted)
    judge("cordon.taint", tainted)
"""
CLEAN_TIMEOUT_S = 30.0


def controller_manager_is_paused(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    cluster.pause("kube-controller-manager")


def controller_manager_is_killed(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    cluster.kill("kube-controller-manager")


def watch_connections_are_reset(cluster: Cluster) -> None:
    """Reset the harness's connections while the node is silent."""
    with cluster.node_controller_paused():
        match = f"tcp dport 6443 tcp sport {{ {', '.join(cluster.harness_ports())} }}"
        table = "add table inet altered\nadd chain inet altered out { type filter hook output priority 0; }\n"
        rule = f"add rule inet altered out {match} reject with tcp reset\n"
        cluster.command("nft", "-f", "-", stdin=table + rule)
        try:
            cluster.until_recorded('"kind":"gap","resource":"nodes"')
        finally:
            cluster.command("nft", "delete", "table", "inet", "altered")


def nft_is_disabled(cluster: Cluster) -> None:
    """Replace nft on the target by a program that does nothing."""
    nft = cluster.run_on_target("bash", "-c", "command -v nft").strip()
    cluster.run_on_target("mount", "--bind", "/bin/true", nft)
    cluster.scenarios_ended.wait()
    cluster.run_on_target("umount", nft)


@falls("monitoring.detection-time")
def test_paused_controller_manager_deviates(whole_lab: LabHandle, run: Run, small_scenario: str) -> None:
    result = run(whole_lab, controller_manager_is_paused, small_scenario)

    assert [result.labels(claim) for claim in CLAIMS] == [["deviates"], ["unproven: no-anchor"]]
    assert result.status == 1
    assert "1 failed" in result.output
    assert result.allure_statuses() == {"failed"}
    (scenario,) = rundir.read_scenarios(result.run)
    steps = [entry.data["step"] for entry in scenario.history().of_kind("fault")]
    assert steps == ["planned", "armed", "injecting", "injected", "healing", "healed", "closed"]
    assert scenario.history().of_kind("fence")


@pytest.mark.parametrize(
    ("always", "label", "status", "tries"),
    [(False, "conforms", 0, 1), (True, "unproven: host-too-loaded", 1, 2)],
)
def test_scenario_is_retried_after_a_host_stall(
    lab: LabHandle, run: Run, tmp_path: Path, always: bool, label: str, status: int, tries: int
) -> None:
    scenario = tmp_path / "test_stalled.py"
    scenario.write_text(STALLED_SCENARIO.format(stalled=tmp_path / "stalled", always=always))
    result = run(lab, unaltered, str(scenario), "--again", str(tries))

    assert result.labels("cordon.taint") == [label]
    assert result.status == status
    assert f"{tries} rerun" in result.output
    too_loaded = sorted((result.run / rundir.TOO_LOADED).iterdir())
    assert len(too_loaded) == tries
    assert all((path / "history.jsonl").stat().st_size for path in too_loaded)
    earlier = counted(tries, "try", "tries")
    assert f"broke: 1 scenario ({earlier} before the last one)" in result.output
    results = [rundir.read_json(path) for path in (result.run / "allure-results").glob("*-result.json")]
    assert len(results) == tries + 1
    assert len({entry["historyId"] for entry in results}) == 1


def test_injection_without_effect_proves_nothing(lab: LabHandle, run: Run, small_scenario: str) -> None:
    node = lab.fleet.node_names()[0]
    result = run(lab, nft_is_disabled, small_scenario)

    assert [result.labels(claim) for claim in CLAIMS] == [["unproven: not-injected"]] * 2
    assert result.status == 1
    assert result.allure_statuses() == {"broken"}
    assert lab.safety.ledger.unfinished() == []
    lab.wait_nodes_ready([node])
    assert run_pod(lab.cluster.api, node)


def test_scenario_is_retried_after_a_watch_broke_at_the_decisive_moment(
    whole_lab: LabHandle, run: Run, small_scenario: str
) -> None:
    result = run(whole_lab, watch_connections_are_reset, small_scenario, "--again", "1")

    (first,) = (result.run / rundir.TOO_LOADED).iterdir()
    assert '"kind":"gap","resource":"nodes"' in (first / "history.jsonl").read_text()
    assert "a watch broke, retried" in result.output
    assert [result.labels(claim) for claim in CLAIMS] == [["conforms"]] * 2
    assert result.status == 0


def test_component_death_just_before_a_recording_is_recorded(
    own_lab: LabHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The component dies after the check of all components and before the recording's first line."""
    events = own_lab.dir / "events.jsonl"

    def begin_late(*arguments: Any) -> Recording:
        pid = int(registry.client(own_lab.name).status().components["kube-scheduler"])
        registry.client(own_lab.name).spawn_command(["kill", "-KILL", str(pid)], CLEAN_TIMEOUT_S)
        assert eventually(lambda: '"kube-scheduler"' in events.read_text(), CLEAN_TIMEOUT_S)
        return Recording(*arguments)

    assert own_lab.configuration
    monkeypatch.setattr(lab_module, "Recording", begin_late)
    with own_lab.record(tmp_path / "history.jsonl", []) as recording:
        pass

    entry = unexpected_exit(recording.history())
    assert entry is not None
    assert entry.data["name"] == "kube-scheduler"


def test_component_death_makes_every_verdict_unproven(
    own_lab: LabHandle, run: Run, small_scenario: str
) -> None:
    result = run(own_lab, controller_manager_is_killed, small_scenario)

    assert [result.labels(claim) for claim in CLAIMS] == [["unproven: component-died"]] * 2
    assert result.status == 1
    assert result.allure_statuses() == {"broken"}
    assert own_lab.safety.ledger.unfinished() == []
    assert eventually(lambda: not registry.client(own_lab.name).status().armed, CLEAN_TIMEOUT_S)


def test_dead_control_plane_affects_only_scenarios_that_ran_on_it(tmp_path: Path) -> None:
    """Two scenarios run in the zones of that lab; two later ones get a new lab."""
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(SMALL_SCENARIO)
    with running("-n", "2", str(tmp_path), cwd=tmp_path, until=two_are_injected) as child:
        (name,) = labs_of(child.folder)
        client = registry.client(name)
        pid = client.status().components["kube-controller-manager"]
        client.spawn_command(["kill", "-9", str(pid)], CLEAN_TIMEOUT_S)
        status = child.wait()

    run = child.folder
    codes = [row["code"] for row in rundir.read_verdicts(run)]
    assert sorted(map(str, codes)) == [*["None"] * 4, *["component-died"] * 4], child.log.read_text()
    assert status == 3
    assert len(labs_of(run)) == 2
    for lab in labs_of(run):
        stems = {path.stem.removeprefix(lab) for path in (run / "labs").glob(f"{lab}-*.json")}
        assert stems == {"-zone-a", "-zone-b"}
        assert (run / "labs" / lab / "kube-controller-manager.log").stat().st_size > 0
        assert lab not in registry.running()
