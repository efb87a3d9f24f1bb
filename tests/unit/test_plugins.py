"""Plugins, in processes outside the checkout: listed, used by name, and never in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import doctor, faults
from nodeproof.cli import main
from nodeproof.entry_points import Plugin
from nodeproof.faults import FAULTS, Fault
from nodeproof.faults.machine import Freeze
from nodeproof.labs.client import registry
from nodeproof.labs.supervisor import init
from nodeproof.machines.machine import CommandResult, Shell
from nodeproof.model.problem import Problem
from nodeproof.safety.injector import heal_unfinished, sweep
from nodeproof.safety.ledger import Ledger
from tests.fakes import executable
from tests.plugins import BROKEN, LEFT_FILE, POWER_DRIVER, install, run_python

NODE = "node-1"
SCENARIO = """
from nodeproof.scenario import Lab, faults, needs


@needs(faulted=1)
def test_file_is_left(lab: Lab, claim) -> None:
    with lab.record(), lab.inject(faults.left_file(lab.target)):
        claim("cordon.taint")
"""
KINDS = """
import sys
from nodeproof.faults import FAULTS, PLUGINS, Fault
from nodeproof.scenario import faults
fault = Fault.from_json({"fault": "left-file", "id": "0123abcd", "node": "node-1"})
print(*PLUGINS, type(fault) is faults.left_file, "partition" in FAULTS, sep="\\n")
"""
ERROR = "plugin broken of acme-broken 1.2 is not loaded: RuntimeError: this plugin needs another Python"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two installed packages, of which one cannot be imported."""
    install(tmp_path, "broken", BROKEN)
    install(tmp_path, "files", LEFT_FILE)
    return tmp_path


@pytest.mark.parametrize("code", [LEFT_FILE, "import acme_files\n"], ids=["own fault", "of another plugin"])
def test_plugin_that_raises_after_a_registration_adds_nothing(folder: Path, code: str) -> None:
    (folder / "acme_broken.py").write_text(code.replace("left-file", "half-file") + BROKEN)
    process = run_python(folder, "-c", f"{KINDS}print(*sorted({{'half-file', 'left-file'}} & FAULTS.keys()))")
    lines = process.stdout.splitlines()
    assert lines == [ERROR, "plugin files of acme-files 1.2: left-file", "True", "True", "left-file"], process


def test_plugin_of_an_incomplete_package_is_reported_by_its_module(folder: Path) -> None:
    (folder / "acme_broken-1.2.dist-info" / "METADATA").unlink()
    process = run_python(folder, "-c", KINDS)
    assert process.stdout.splitlines()[0] == ERROR.replace("acme-broken 1.2", "acme_broken"), process


PLACE_OF_A_LAB = {"group": "nodeproof.labs", "of_module": "DUMMY"}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (BROKEN, "RuntimeError: this plugin needs another Python"),
        ("DUMMY = 1\n", "TypeError: 1 is no nodeproof.labs.kinds.kind.Kind"),
        ("from nodeproof.labs.kinds import PROCESS as DUMMY\n", "ValueError: there is another 'process'"),
        ("", "AttributeError: module 'acme_dummy' has no attribute 'DUMMY'"),
    ],
    ids=["raises", "no kind", "name in use", "no object"],
)
def test_unusable_kind_of_lab_is_reported_where_it_is_missed(tmp_path: Path, code: str, why: str) -> None:
    install(tmp_path, "dummy", code, **PLACE_OF_A_LAB)
    process = run_python(tmp_path, "-m", "nodeproof.cli", "doctor", "--lab", "dummy")
    assert process.status == 2, process
    assert process.stderr.splitlines() == [
        "nodeproof: unknown lab 'dummy' (--lab); choose: process, kubeadm, libvirt, vagrant",
        f"plugin dummy of acme-dummy 1.2 is not loaded: {why}",
    ]


def test_plan_names_the_fault_of_a_plugin_and_warns_of_the_broken_one(folder: Path) -> None:
    (folder / "test_files.py").write_text(SCENARIO)
    process = run_python(folder, "-m", "nodeproof.cli", "plan", "test_files.py")
    assert process.status == 0, process
    assert "left_file" in process.stdout
    assert [line for line in process.stderr.splitlines() if "acme" in line] == [f"nodeproof: {ERROR}"]


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the plugins of this process, and the labs of this machine by none."""
    broken = Plugin("broken", "acme-broken 1.2", (), "why")
    loaded = (Plugin("files", "acme-files 1.2", ("left-file",)), broken)
    for module in (faults, doctor):
        monkeypatch.setattr(module, "PLUGINS", loaded)
    monkeypatch.setattr(doctor, "running", list)
    for name in ("running", "sweep", "unswept_folders"):
        monkeypatch.setattr(registry, name, list)


def test_doctor_lists_plugins(plugins: None) -> None:
    lines: list[str] = []
    doctor.report([], 1, lines.append)
    assert "plugin files of acme-files 1.2: left-file" in lines
    assert "plugin broken of acme-broken 1.2 is not loaded: why" in lines


def test_heal_warns_of_a_broken_plugin_and_goes_on(plugins: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heal"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "nodeproof: plugin broken of acme-broken 1.2 is not loaded: why",
        "nodeproof: no fault is left",
    ]


@pytest.fixture
def faulty() -> Iterator[type[Fault]]:
    """Define a fault of a plugin whose constructor and search have a bug, after all faults of nodeproof."""

    @dataclass(frozen=True)
    class Faulty(Freeze):
        name = "faulty"

        @classmethod
        def leftovers_on(cls, machine: Shell) -> list[Fault]:
            raise AttributeError(f"a bug on {machine.name}")

        def __post_init__(self) -> None:
            raise AttributeError("a bug in the constructor")

    yield Faulty
    del FAULTS["faulty"]


def test_bug_in_a_fault_blocks_no_other_healing(faulty: type[Fault], tmp_path: Path) -> None:
    ledger, healed = Ledger("p-000001", tmp_path), []
    for id_, name in {"00000001": "partition", "00000002": faulty.name}.items():
        ledger.write("injected", {"fault": name, "id": id_, "node": NODE})

    def heal(data: Any) -> bool:
        healed.append(Fault.from_json(data).name)
        return True

    unhealed = heal_unfinished(ledger, [], heal)
    assert healed == ["partition"]
    assert unhealed == [
        "faulty on node-1 (00000002): AttributeError('a bug in the constructor')",
    ]
    assert [entry.fault["id"] for entry in ledger.unfinished()] == ["00000002"]


def test_bug_in_leftovers_is_reported_after_all_others_are_healed(faulty: type[Fault]) -> None:
    commands: list[str] = []

    def run(argv: list[str], **_options: Any) -> CommandResult:
        commands.append(" ".join(argv))
        return CommandResult(0, "", "")

    machine = cast("Shell", SimpleNamespace(name=NODE, run=run))
    with pytest.raises(Problem, match="faulty: AttributeError"):
        sweep(lambda _name: machine, NODE)
    assert commands


def test_switch_of_a_fault_that_the_lab_does_not_know_is_not_armed() -> None:
    server = cast("Any", SimpleNamespace(_deadman=SimpleNamespace(arm=lambda *_arguments: pytest.fail())))
    request = {"fault": {"fault": "left-file", "id": "1", "node": NODE}, "ttl_s": 45.0}
    with pytest.raises(Problem, match=r"cannot heal the fault 'left-file'.*start the lab again"):
        init.LabServer._arm(server, request)
    disarmed: list[float] = []
    server._deadman.arm = lambda _fault, ttl_s: disarmed.append(ttl_s)
    init.LabServer._arm(server, {**request, "ttl_s": 0})
    assert disarmed == [0]


OF_POWER = {"group": "nodeproof.power", "of_module": "Pdu"}
OUTLET = """
case $2 in status) cat "$1" ;; *) echo "$2" >"$1" ;; esac
"""
INVENTORY = """
cluster: {context: x, uid: 6f0c1c1e-0000-4000-8000-000000000001}
ssh: {config: files, known_hosts: files}
nodes: {worker-7: {may: [power-off], power: pdu}}
power: {pdu: {driver: acme-pdu, switch: jump, options: {program: OPTION, outlets: /state}}}
"""
READ = """
from pathlib import Path
from nodeproof.existing import inventory
power = inventory.read(Path("cluster.yaml")).nodes["worker-7"].power
print(*power.command("off", "worker-7").argv)
"""
CONTRACT = """
import pytest
from acme_pdu import Pdu
from nodeproof.testing.power import *


@pytest.fixture
def power(tmp_path):
    (tmp_path / "state").write_text("on")
    return Power(Pdu({"program": "./outlet", "outlets": str(tmp_path / "state")}))
"""


@pytest.fixture
def pdu(tmp_path: Path) -> Path:
    """Return a folder with an installed power driver, and an inventory that uses it."""
    install(tmp_path, "pdu", POWER_DRIVER, **OF_POWER)
    (tmp_path / "files").touch()
    (tmp_path / "cluster.yaml").write_text(INVENTORY.replace("OPTION", "/bin/outlet"))
    return tmp_path


def test_power_driver_of_a_plugin_is_used_by_its_name(pdu: Path) -> None:
    process = run_python(pdu, "-c", READ)
    assert process.stdout == "/bin/outlet /state off worker-7\n", process


def test_options_that_a_power_driver_of_a_plugin_refuses_are_one_line(pdu: Path) -> None:
    (pdu / "cluster.yaml").write_text(INVENTORY.replace("program: OPTION, ", ""))
    process = run_python(pdu, "-m", "nodeproof.cli", "plan", "--cluster", "cluster.yaml")
    (line,) = process.stderr.splitlines()
    assert "expected the options program and outlets (cluster.yaml:5:" in line


def test_unusable_power_driver_is_reported_where_it_is_missed(pdu: Path) -> None:
    (pdu / "acme_pdu.py").write_text("Pdu = 1\n")
    process = run_python(pdu, "-m", "nodeproof.cli", "plan", "--cluster", "cluster.yaml")
    (line,) = process.stderr.splitlines()
    assert "no power driver acme-pdu; the drivers are fence, libvirt, command; plugin pdu of acme-pdu" in line
    assert "TypeError: 1 is no class of a power driver with a name" in line


def test_power_driver_of_a_plugin_passes_the_contract(pdu: Path) -> None:
    executable(pdu / "outlet", OUTLET)
    (pdu / "test_pdu.py").write_text(CONTRACT)
    process = run_python(pdu, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "5 passed" in process.stdout, process
