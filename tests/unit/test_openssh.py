"""Commands over ssh(1) to a real server: root or sudo, host keys, a jump host, time-outs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from nodeproof.machines.machine import MachineError
from nodeproof.machines.openssh import OpenSsh
from tests.unit.ssh_server import CONNECTION, Hosts, SshServer

TIMEOUT_S = 20.0
NO_SUDO = "#!/bin/sh\necho sudo: a password is required >&2\nexit 1\n"


@pytest.fixture
def shell(hosts: Hosts) -> Iterator[OpenSsh]:
    with hosts.shell(hosts.node.known_host) as shell:
        yield shell


@pytest.mark.parametrize("status", [0, 1, 127, 255])
def test_command_returns_its_status_and_both_outputs(shell: OpenSsh, status: int) -> None:
    completed = shell.run(["sh", "-c", f"echo out; echo err >&2; exit {status}"], timeout_s=TIMEOUT_S)
    assert (completed.status, completed.stdout, completed.stderr) == (status, "out\n", "err\n")


def test_arguments_and_stdin_arrive_unchanged(shell: OpenSsh) -> None:
    script = 'printf "%s|" "$@"; cat'
    arguments = ["a b", "$HOME", "'\"", "*", "", "-n"]
    completed = shell.run(["sh", "-c", script, "sh", *arguments], timeout_s=TIMEOUT_S, stdin="one\ntwo\n")
    assert completed.stdout == "a b|$HOME|'\"|*||-n|one\ntwo\n"


def test_user_becomes_root_by_sudo_and_sees_where_ssh_comes_from(shell: OpenSsh) -> None:
    completed = shell.run(["sh", "-c", 'id -u; echo "$SSH_CONNECTION"'], timeout_s=TIMEOUT_S)
    assert completed.stdout == f"0\n{CONNECTION}\n"


def test_root_needs_no_sudo(hosts: Hosts, shell: OpenSsh) -> None:
    hosts.program("id", "#!/bin/sh\necho 0\n")
    hosts.program("sudo", NO_SUDO)
    assert shell.run(["true"], timeout_s=TIMEOUT_S).status == 0


def test_machine_without_sudo_is_an_error(hosts: Hosts, shell: OpenSsh) -> None:
    hosts.program("sudo", "#!/bin/no-such-shell\n")
    with pytest.raises(MachineError, match=r"worker-7: ssh: sh: .*sudo: "):
        shell.run(["true"], timeout_s=TIMEOUT_S)


def test_refusal_of_sudo_is_an_error_and_no_status_of_the_command(hosts: Hosts, shell: OpenSsh) -> None:
    hosts.program("sudo", NO_SUDO)
    with pytest.raises(MachineError, match="worker-7: ssh: sudo: a password is required"):
        shell.run(["true"], timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("is_known", [True, False], ids=["another key", "no key"])
def test_unknown_host_key_is_refused_whatever_the_ssh_config_says(hosts: Hosts, is_known: bool) -> None:
    other = SshServer(hosts.node.port, paramiko.RSAKey.generate(2048))
    known_hosts = other.known_host if is_known else ""
    shell_of_host = hosts.shell(known_hosts, "NoHostAuthenticationForLocalhost yes")
    with shell_of_host as shell, pytest.raises(MachineError, match="Host key verification failed"):
        shell.run(["true"], timeout_s=TIMEOUT_S)


def test_node_is_reached_through_a_jump_host(hosts: Hosts) -> None:
    known_hosts = hosts.node.known_host + hosts.jump.known_host
    with hosts.shell(known_hosts, "ProxyJump jump") as shell:
        assert shell.run(["echo", "hello"], timeout_s=TIMEOUT_S).stdout == "hello\n"


def test_unknown_host_key_of_a_jump_host_is_refused(hosts: Hosts) -> None:
    through_jump_host = hosts.shell(hosts.node.known_host, "ProxyJump jump")
    with through_jump_host as shell, pytest.raises(MachineError, match="Host key verification failed"):
        shell.run(["true"], timeout_s=TIMEOUT_S)


def test_files_may_have_names_with_patterns(hosts: Hosts, tmp_path: Path) -> None:
    (folder := tmp_path / "[prod]").mkdir()
    with (
        hosts.shell(hosts.node.known_host),
        replace(hosts, folder=folder).shell(hosts.node.known_host) as shell,
    ):
        (folder / "my config").write_text((hosts.folder / "my config").read_text())
        assert shell.run(["true"], timeout_s=TIMEOUT_S).status == 0


def test_command_is_aborted_at_its_timeout(shell: OpenSsh) -> None:
    began_t = time.monotonic()
    with pytest.raises(MachineError, match="no end within 2 s"):
        shell.run(["sleep", "20"], timeout_s=2.0)
    assert time.monotonic() - began_t < 6.0


def test_silent_proxy_does_not_outlast_the_timeout(hosts: Hosts) -> None:
    with hosts.shell(hosts.node.known_host, "ProxyCommand sleep 20") as shell:
        began_t = time.monotonic()
        with pytest.raises(MachineError):
            shell.run(["true"], timeout_s=2.0)
        assert time.monotonic() - began_t < 6.0
