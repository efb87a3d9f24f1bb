"""Plugins of other packages, and the files of `nodeproof new`, in a lab and outside the checkout."""

from __future__ import annotations

import json
from pathlib import Path

from nodeproof import new
from nodeproof.model.history import Entry
from nodeproof.report import rundir
from tests.acceptance.command import TIMEOUT_S, nodeproof
from tests.plugins import BROKEN, LEFT_FILE, install, run_python

SCENARIO = """
from nodeproof.labs.client import registry
from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows
from nodeproof.waiting import wait_until


@needs(nodes=2, faulted=1)
def test_file_is_left(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    with lab.record(), lab.inject(faults.left_file(node)) as fault:
        lab.run(actions.kubectl("cordon", node))
        tainted = node.taint("node.kubernetes.io/unschedulable", "NoSchedule").added
        claim("cordon.taint").expect(tainted, within=windows.up_to(5), after=node.cordoned)
        claim("cordon.taint").expect_later(fault.lasted)
    machine, other = lab._lab.fleet.machine(node), faults.left_file(node)
    other.inject(machine)
    assert other.is_injected(machine)
    registry.client(lab._lab.name).arm(other.to_json(), 0.5)
    assert wait_until(lambda: other.is_healed(machine), 20, 0.1)
"""


def test_fault_of_a_plugin_is_injected_by_name_and_healed_by_the_switch(tmp_path: Path) -> None:
    install(tmp_path, "broken", BROKEN)
    install(tmp_path, "files", LEFT_FILE)
    (tmp_path / "test_files.py").write_text(SCENARIO)
    run = tmp_path / "run"
    options = ("--no-site", "-n", "0", "--run", str(run), "--notify", f"tee -a {tmp_path / 'events.jsonl'}")
    command = ("-m", "nodeproof.cli", "run", *options, "test_files.py")
    process = run_python(tmp_path, *command, timeout_s=TIMEOUT_S)
    assert process.status == 0, process
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["begin", "inject", "heal", "end"]
    assert {event["scenario"] for event in events[1:3]} == {"test_files.py::test_file_is_left"}
    assert {event["fault"]["fault"] for event in events[1:3]} == {"left-file"}
    assert {row["verdict"] for row in rundir.read_verdicts(run)} == {"conforms"}
    (history,) = run.glob("scenarios/*/history.jsonl")
    entries = [Entry.from_json(line) for line in history.read_text().splitlines()]
    steps = [entry.data["step"] for entry in entries if entry.kind == "fault"]
    assert steps == ["planned", "armed", "injecting", "injected", "healing", "healed", "closed"]
    assert process.stderr.count("plugin broken of acme-broken 1.2 is not loaded") == 1


ACME_LAB = """
from dataclasses import replace
from nodeproof.labs.kinds import PROCESS

ACME = replace(PROCESS, name="acme", limits=replace(PROCESS.limits, nodes=2))
"""
UPTIME = """
from nodeproof.probes import Probe, output_of


def uptime(node: str) -> Probe:
    return Probe("uptime", node, lambda lab: float(output_of(lab, node, ["cat", "/proc/uptime"]).split()[0]))
"""
CORDON = """
from nodeproof.scenario import Expectations, Lab, actions, needs, probes, windows


@needs(nodes=2)
def test_node_is_up(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    with lab.record():
        assert lab.observe(probes.uptime(node)).value > 0
        lab.run(actions.kubectl("cordon", node))
        tainted = node.taint("node.kubernetes.io/unschedulable", "NoSchedule").added
        claim("cordon.taint").expect(tainted, within=windows.up_to(5), after=node.cordoned)
"""


def test_kind_of_lab_and_probe_of_plugins_are_used_by_name(tmp_path: Path) -> None:
    install(tmp_path, "lab", ACME_LAB, group="nodeproof.labs", of_module="ACME")
    install(tmp_path, "uptime", UPTIME, group="nodeproof.probes", of_module="uptime")
    (tmp_path / "test_up.py").write_text(CORDON)
    run = tmp_path / "run"
    options = ("--lab", "acme", "--nodes", "2", "--no-site", "-n", "0", "--run", str(run))
    process = run_python(tmp_path, "-m", "nodeproof.cli", "run", *options, "test_up.py", timeout_s=TIMEOUT_S)
    assert process.status == 0, process
    assert {(row["claim"], row["verdict"]) for row in rundir.read_verdicts(run)} == {
        ("cordon.taint", "conforms")
    }


def test_written_scenario_conforms(tmp_path: Path) -> None:
    assert nodeproof("new", "scenario", "power-loss", cwd=tmp_path).status == 0
    run = tmp_path / "run"
    process = nodeproof("run", "--no-site", "-n", "0", "--run", str(run), ".", cwd=tmp_path)
    assert process.status == 0
    assert [(row["claim"], row["verdict"]) for row in rundir.read_verdicts(run)] == [
        ("power-loss.noticed", "conforms")
    ]


def test_written_fault_passes_the_contract(tmp_path: Path) -> None:
    new.write("fault", "power-loss", tmp_path)
    process = run_python(tmp_path / "power-loss", "-m", "pytest", "-q", timeout_s=TIMEOUT_S)
    assert "5 passed" in process.stdout, process
