"""Power drivers pass the contract of drivers, and their errors name the next step and no secret."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeproof.existing import power as module
from nodeproof.existing.power import Fence, Libvirt, OwnCommand
from nodeproof.machines.machine import CommandResult, MachineError
from nodeproof.testing.power import *
from tests.fakes import executable
from tests.unit.private_libvirtd import DOMAIN, PROGRAMS, private_libvirtd

NODE, SECRET, SECRET_ENV = "worker-7", "hunter-2-x", "NODEPROOF_TEST_BMC"
SWITCH = """
case $1 in
    status) cat "$3" ;;
    off | on) [ "$(cat)" = hunter-2-x ] && echo "$1" >"$3" ;;
esac
"""
# A part of the API of fence-agents, for machines without them.
FENCE_DUMMY = """
while IFS== read -r name value; do
    case $name in action) action=$value ;; status_file) file=$value ;; esac
done
case $action in
    status) case $(cat "$file") in on) exit 0 ;; off) echo Status: OFF; exit 2 ;; *) exit 1 ;; esac ;;
    off | on) echo "$action" >"$file" ;;
    *) exit 1 ;;
esac
"""
Program = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return `program(name, text)`, which puts a program on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return lambda name, text: executable(folder / name, text)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)


@pytest.fixture(params=["fence", "libvirt", "command"])
def power(request: pytest.FixtureRequest, program: Program, tmp_path: Path) -> Iterator[Power]:
    """Return the power of a machine by each driver."""
    state = tmp_path / "state"
    state.write_text("on")
    if request.param == "libvirt":
        if not all(map(shutil.which, PROGRAMS)):
            pytest.skip(f"this machine lacks one of {', '.join(PROGRAMS)}")
        with private_libvirtd() as uri:
            yield Power(Libvirt({"uri": uri, "domain": DOMAIN}))
    elif request.param == "fence":
        if not shutil.which("fence_dummy"):
            program("fence_dummy", FENCE_DUMMY)
        options = {"agent": "fence_dummy", "type": "file", "status_file": str(state), "action": "reboot"}
        yield Power(Fence(options), SECRET_ENV)
    else:
        path = program("switch-power", SWITCH)
        yield Power(OwnCommand({"argv": [path.name, "{action}", "{node}", str(state)]}), SECRET_ENV)


def failing(program: Program, text: str) -> Power:
    program("fail", text)
    return Power(OwnCommand({"argv": ["fail", "{action}"]}), SECRET_ENV)


def test_error_does_not_repeat_the_secret(program: Program) -> None:
    power = failing(program, "echo bad password: $(cat) >&2\nexit 1\n")
    for look in (lambda: power.is_on(NODE), lambda: power.perform("off", NODE)):
        with pytest.raises(
            MachineError, match=r"worker-7: \w+ by the power driver command: bad pass"
        ) as caught:
            look()
        assert SECRET not in str(caught.value)


class BrokenSsh:
    """A runner whose error quotes what it was given."""

    def run(self, _argv: object, *, timeout_s: float, stdin: str = "") -> CommandResult:
        raise MachineError(f"jump: ssh: {stdin} after {timeout_s} s")


def test_error_of_the_switch_host_does_not_repeat_the_secret() -> None:
    power = Power(OwnCommand({"argv": ["true"]}), SECRET_ENV)
    with pytest.raises(MachineError, match=r"jump: ssh: \.\.\. after") as caught:
        power.is_on(NODE, BrokenSsh())
    assert caught.value.__cause__ is None


def test_missing_program_names_the_package_to_install() -> None:
    power = Power(Fence({"agent": "fence_of_nobody"}))
    for look in (lambda: power.is_on(NODE), lambda: power.perform("off", NODE)):
        with pytest.raises(MachineError, match=r"fence_of_nobody.*; install fence-agents$"):
            look()


@pytest.mark.parametrize("secret", ["", "two\nlines"])
def test_unusable_secret_is_an_error(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv(SECRET_ENV, secret)
    with pytest.raises(MachineError, match=f"the environment variable {SECRET_ENV} must have"):
        Power(Fence({"agent": "fence_redfish"}), SECRET_ENV).is_on(NODE)


def test_program_that_does_not_end_is_ended(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", {"off": 0.2})
    with pytest.raises(MachineError, match=r"off by the power driver command: no end within 0\.2 s"):
        failing(program, "exec sleep 60\n").perform("off", NODE)


def test_invalid_options_of_an_agent_are_no_power_state(program: Program) -> None:
    program("fence_strict", "echo Parse error: unknown option >&2\nexit 2\n")
    with pytest.raises(MachineError, match="does not say OFF: Parse error"):
        Power(Fence({"agent": "fence_strict"})).is_on(NODE)


class Indexed(OwnCommand):
    """A driver that reads the second word of the status."""

    def is_on(self, status: CommandResult) -> bool:
        return status.stdout.split()[1] == "on"


def test_too_short_output_is_an_error(program: Program) -> None:
    program("brief", "echo on\n")
    with pytest.raises(MachineError, match="status by the power driver command: on"):
        Power(Indexed({"argv": ["brief"]})).is_on(NODE)


def test_transient_domain_has_no_power_that_can_be_restored(program: Program) -> None:
    program("virsh", "printf 'State:          running\\nPersistent:     no\\n'\n")
    power = Power(Libvirt({"uri": "test:///default", "domain": DOMAIN}))
    with pytest.raises(MachineError, match="the domain is transient: it cannot be started again"):
        power.is_on(NODE)


@pytest.mark.parametrize("text", ["echo maybe", "echo on; exit 1", "echo", "echo on off"])
def test_unclear_status_is_an_error(program: Program, text: str) -> None:
    with pytest.raises(MachineError, match="status by the power driver"):
        failing(program, f"{text}\n").is_on(NODE)
