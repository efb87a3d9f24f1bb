"""The dead-man's switch of a power cut, on a host that keeps its power, and what refuses a cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodeproof.existing.inspection import power_refusals
from nodeproof.existing.inventory import Inventory, ListedNode
from nodeproof.existing.power import LOCAL, OwnCommand, Power
from nodeproof.faults.machine import PowerOff
from nodeproof.faults.units import UnitDown
from nodeproof.labs.kinds.existing import machine as machine_module
from nodeproof.labs.kinds.existing.machine import PowerSwitch
from nodeproof.machines.machine import MachineError
from nodeproof.model.pattern import Json
from nodeproof.safety import deadman
from nodeproof.safety.deadman import Timer
from tests.acceptance.own_cluster import SYSTEMCTL, SYSTEMD_RUN, UNITS
from tests.unit.ssh_server import Hosts
from tests.unit.test_impact import member
from tests.unit.test_marks import INVENTORY, NAME
from tests.waiting import eventually, throughout

SECRET, SECRET_ENV, HOST = "hunter-2-x", "NODEPROOF_TEST_BMC", "jump"
FAULT = PowerOff(NAME, id="0123abcd")
LONG_S, SHORT_S, FIRES_TIMEOUT_S, QUIET_S = 60.0, 0.5, 20.0, 5.0
SWITCH = f"""#!/bin/sh
case $1 in
    status) cat "$2" ;;
    on) [ "$(cat)" = {SECRET} ] && echo on >"$2" ;;
esac
"""


@dataclass(frozen=True)
class Site:
    """A switch host, the state of a node's power, and the folders of the host's timers and their input."""

    inventory: Inventory
    ssh: Path
    state: Path
    units: Path
    inputs: Path

    @property
    def switch(self) -> PowerSwitch:
        return PowerSwitch(self.inventory, self.ssh)

    def refusals(self, node: Json) -> list[str]:
        """Return why a cut is refused; the systemd of the tests' machine does not count."""
        reasons = power_refusals(self.inventory, NAME, {NAME: node}, self.ssh)
        return [reason for reason in reasons if "has no systemd" not in reason]

    def left(self) -> list[Path]:
        return [*self.units.glob("*"), *self.inputs.glob("*")]


@contextmanager
def site(hosts: Hosts, folder: Path, known_hosts: str) -> Iterator[Site]:
    state, units, inputs = folder / "state", folder / "units", folder / "inputs"
    state.write_text("off\n")
    hosts.program("switch-power", SWITCH)
    for name, text in {"systemd-run": SYSTEMD_RUN, "systemctl": SYSTEMCTL}.items():
        hosts.program(name, text.replace(UNITS, str(units)))
    driver = OwnCommand({"argv": ["switch-power", "{action}", str(state)]})
    listed = ListedNode(NAME, ("power-off",), Power(driver, SECRET_ENV, HOST), is_control_plane=False)
    with hosts.shell(known_hosts) as shell:
        yield Site(replace(INVENTORY, nodes={NAME: listed}), shell.config, state, units, inputs)


@pytest.fixture
def power_site(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    monkeypatch.setenv("PATH", str(hosts.folder / "bin"), prepend=":")
    monkeypatch.setattr(deadman, "STATE_FOLDER", str(tmp_path / "inputs"))
    with site(hosts, tmp_path, hosts.jump.known_host) as built:
        yield built
        built.switch.arm(FAULT.to_json(), 0)


def arguments_of_processes() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def test_switch_that_is_not_renewed_restores_the_power_and_forgets_the_secret(power_site: Site) -> None:
    power_site.switch.arm(FAULT.to_json(), SHORT_S)
    (path,) = power_site.inputs.glob("*")
    assert (path.read_text(), path.stat().st_mode & 0o777) == (SECRET, 0o600)
    arguments = "".join(arguments_of_processes())
    assert "switch-power" in arguments
    assert SECRET not in arguments
    assert eventually(lambda: power_site.state.read_text() == "on\n", FIRES_TIMEOUT_S)
    assert eventually(lambda: not power_site.left(), FIRES_TIMEOUT_S)


def test_switch_is_renewed_and_disarmed(power_site: Site) -> None:
    for ttl_s in (SHORT_S, LONG_S):
        power_site.switch.arm(FAULT.to_json(), ttl_s)
    assert len(power_site.left()) == 2
    power_site.switch.arm(FAULT.to_json(), 0)
    assert power_site.left() == []
    assert throughout(lambda: power_site.state.read_text() == "off\n", QUIET_S)


def test_other_faults_need_no_switch_host(power_site: Site) -> None:
    power_site.switch.arm(UnitDown(NAME).to_json(), LONG_S)
    assert power_site.left() == []


def test_unreachable_switch_host_blocks_no_healing(power_site: Site, hosts: Hosts, tmp_path: Path) -> None:
    with site(hosts, tmp_path, "") as unknown:
        with pytest.raises(MachineError, match=r"jump: ssh: .*Host key verification failed"):
            unknown.switch.arm(FAULT.to_json(), LONG_S)
        unknown.switch.arm(FAULT.to_json(), 0)
        (reason,) = unknown.refusals(member())
    assert "the switch host jump does not answer as root over SSH" in reason


def test_node_without_a_driver_cannot_have_a_switch(power_site: Site) -> None:
    switch = replace(power_site.switch, inventory=INVENTORY)
    with pytest.raises(MachineError, match="has no power driver with a switch"):
        switch.arm(FAULT.to_json(), LONG_S)
    switch.arm(PowerOff("a-node-that-is-gone").to_json(), 0)


@pytest.mark.skipif(not Path("/etc/machine-id").exists(), reason="this machine has no machine id")
def test_cut_is_refused_unless_both_places_see_the_power_on(power_site: Site, hosts: Hosts) -> None:
    assert power_site.refusals(member()) == [
        "its power is off, by its driver on this machine",
        "its power is off, by its driver on the switch host jump",
    ]
    power_site.state.write_text("on\n")
    assert power_site.refusals(member()) == []
    (hosts.folder / "bin" / "switch-power").unlink()
    here, there = power_site.refusals(member())
    assert "does not answer on this machine" in here
    assert "does not answer on the switch host jump" in there


@pytest.mark.skipif(not Path("/etc/machine-id").exists(), reason="this machine has no machine id")
def test_switch_host_must_be_another_machine_than_the_nodes(power_site: Site) -> None:
    power_site.state.write_text("on\n")
    machine_id = Path("/etc/machine-id").read_text().strip()
    (reason,) = power_site.refusals(member(status={"nodeInfo": {"machineID": machine_id}}))
    assert reason == "the switch host jump is a machine that may be harmed"


def test_journal_of_the_switch_host_has_no_output_of_the_driver(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    run = f'while [ "$1" != -- ]; do shift; done; shift; exec "$@" >{journal} 2>&1'
    hosts.program("systemd-run", f"#!/bin/sh\n{run}\n")
    hosts.program("systemctl", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(hosts.folder / "bin"), prepend=":")
    monkeypatch.setattr(deadman, "STATE_FOLDER", str(tmp_path / "inputs"))
    Timer(LOCAL, HOST, FAULT.id).arm_with_input(LONG_S, ["tee", "/dev/stderr"], SECRET)
    assert journal.read_text() == ""


def test_driver_that_ignores_sigterm_is_killed_and_retried(
    power_site: Site, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TIMEOUT_S", {"on": 0.2})
    hangs = (
        f"[ -e {tmp_path}/second ] || {{ touch {tmp_path}/second; trap '' TERM; sleep 600 & wait; wait; }}"
    )
    hosts.program("switch-power", SWITCH.replace("#!/bin/sh\n", f"#!/bin/sh\n{hangs}\n"))
    power_site.switch.arm(FAULT.to_json(), SHORT_S)
    assert eventually(lambda: power_site.state.read_text() == "on\n", FIRES_TIMEOUT_S)
