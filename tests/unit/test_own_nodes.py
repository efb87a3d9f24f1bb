"""Nodes of an own cluster: what shows a kubelet, where the API is, and nodes that are gone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.existing.power import OwnCommand, Power
from nodeproof.faults.partition import Direction, Partition
from nodeproof.faults.units import UnitDown
from nodeproof.labs.kinds.existing.machine import ClusterMachine
from nodeproof.machines.machine import MachineError, Shell
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.safety.deadman import Timers
from tests.fakes import FakeMachine
from tests.unit.ssh_server import Hosts

UNREACHED = "error trying to reach service: dial tcp 10.0.0.7:10250: "
UNREACHABLE = OpenSsh("worker-7", Path("ssh_config"))


class Answers:
    """An API that answers each request with an error, but those for `paths`."""

    def __init__(self, status: int, message: str, paths: Collection[str] = ()) -> None:
        self._error, self._paths = ApiError(status, message), paths

    def text(self, path: str) -> str:
        if path in self._paths:
            return "{}"
        raise self._error


def machine(
    status: int,
    message: str,
    paths: Collection[str] = (),
    ssh: OpenSsh = UNREACHABLE,
    power: Power | None = None,
) -> ClusterMachine:
    api = cast(Api, Answers(status, message, paths))
    return ClusterMachine(ssh, api, "10.0.0.7", power)


@pytest.mark.parametrize(
    ("message", "reached"), [("connect: connection refused", True), ("i/o timeout", False)]
)
def test_stopped_kubelet_does_not_serve(message: str, reached: bool) -> None:
    worker = machine(503, f"{UNREACHED}{message}")
    assert not worker.serves_kubelet()
    assert worker.reached_from_control_plane() == reached


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (0, "timed out"),
        (401, "Unauthorized"),
        (403, "nodes/proxy is forbidden"),
        (429, "too many requests"),
        (500, "etcdserver: request timed out"),
        (503, "apiserver is shutting down"),
    ],
)
def test_answer_of_the_api_server_alone_shows_no_kubelet(status: int, message: str) -> None:
    with pytest.raises(MachineError, match=f"no answer about its kubelet: .*{message}"):
        machine(status, message).serves_kubelet()


def test_kubelet_that_the_api_server_waits_for_is_silent() -> None:
    worker = machine(0, "timed out", paths=["/version"])
    assert not worker.reached_from_control_plane()
    assert not worker.serves_kubelet()


@pytest.mark.parametrize("power", [None, Power(OwnCommand({"argv": ["true"]}))])
def test_no_power_driver_resets(power: Power | None) -> None:
    with pytest.raises(MachineError, match="no power driver for reset"):
        machine(0, "", power=power).power("reset")


def test_failing_power_driver_does_not_block_heal(hosts: Hosts) -> None:
    failing = Power(OwnCommand({"argv": ["false"]}))
    with hosts.shell(hosts.node.known_host) as ssh:
        assert machine(0, "", ssh=ssh, power=failing).is_powered()
    with hosts.shell("") as ssh, pytest.raises(MachineError, match="status by the power driver command"):
        machine(0, "", ssh=ssh, power=failing).is_powered()


def test_power_is_restored_once_the_machine_answers(hosts: Hosts) -> None:
    sudo = hosts.folder / "bin" / "sudo"
    sudo.rename(sudo.with_name("sudo.later"))
    hosts.program("sudo", "#!/bin/sh\nexit 1\n")
    boot = f"echo on; [ $0 = status ] || (sleep 1; mv {sudo}.later {sudo}) >/dev/null 2>&1 &"
    with hosts.shell(hosts.node.known_host) as ssh:
        worker = machine(0, "", ssh=ssh, power=Power(OwnCommand({"argv": ["sh", "-c", boot, "{action}"]})))
        assert not worker.answers_on_control()
        worker.power("on")
        assert worker.answers_on_control()


def test_power_is_not_restored_while_driver_reports_off(hosts: Hosts) -> None:
    other = Power(OwnCommand({"argv": ["echo", "off"]}))
    with hosts.shell(hosts.node.known_host) as ssh, pytest.raises(MachineError, match="still off"):
        machine(0, "", ssh=ssh, power=other).power("on")


class Endpoints:
    """An API of two API servers, one of which also has an IPv6 address."""

    def get(self, path: str, _query: object) -> Json:
        assert path.endswith("/namespaces/default/endpointslices")
        slices = (["10.0.0.1", "10.0.0.2"], ["fd00::1"])
        endpoints = ([{"addresses": [address]} for address in addresses] for addresses in slices)
        return {"items": [{"endpoints": entries, "ports": [{"port": 6443}]} for entries in endpoints]}


@pytest.fixture
def kubelet(hosts: Hosts) -> Iterator[Callable[..., ClusterMachine]]:
    """Return a function that starts a kubelet of the node with these arguments, and returns the node."""
    with ExitStack() as stack:

        def started(*arguments: str) -> ClusterMachine:
            argv = ["sh", "-c", "read -r _; :", "kubelet", *arguments]
            process = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE))
            hosts.program("ss", f"#!/bin/sh\necho 'users:((\"kubelet\",pid={process.pid},fd=9))'\n")
            shell = stack.enter_context(hosts.shell(hosts.node.known_host))
            return ClusterMachine(shell, cast(Api, Endpoints()), "10.0.0.7")

        yield started


SERVERS = ["10.0.0.1", "10.0.0.2", "fd00::1"]
KUBECONFIGS: Mapping[str, tuple[str, list[str]]] = {
    "kubeadm": ("clusters:\n- cluster:\n    server: https://api.example:6443\n", ["10.0.0.9", "fd00::9"]),
    "JSON": ('{"clusters": [{"cluster": {"server": "https://10.0.0.5:6443", "x": 1}}]}', ["10.0.0.5"]),
    "port of HTTPS": ('server: "https://10.0.0.5"\n', ["10.0.0.5"]),
    "IPv6": ("server: 'https://[fd00::5]:6443'\n", ["fd00::5"]),
    "one of the endpoints": ("server: https://10.0.0.2:6443\n", []),
}
GETENT = """#!/bin/sh
[ "$1" = ahosts ] || exit 1
case $2 in
    balancer.example) echo '127.0.0.1 STREAM' ;;
    api.example) echo '10.0.0.9 STREAM api'; echo '10.0.0.9 DGRAM'; echo 'fd00::9 STREAM' ;;
    *example*) exit 2 ;;
    *) echo "$2 STREAM" ;;
esac
"""


@pytest.mark.parametrize(("kubeconfig", "own"), KUBECONFIGS.values(), ids=list(KUBECONFIGS))
@pytest.mark.parametrize("flag", ["--kubeconfig={}", "--kubeconfig {}"], ids=["one word", "two words"])
def test_api_is_at_all_endpoints_and_at_the_server_of_the_kubelet(
    hosts: Hosts, kubelet: Callable[..., ClusterMachine], kubeconfig: str, own: list[str], flag: str
) -> None:
    (hosts.folder / "kubeconfig").write_text(kubeconfig)
    hosts.program("getent", GETENT)
    worker = kubelet("--v=2", *flag.format(hosts.folder / "kubeconfig").split())
    assert set(worker.control_plane_addresses) == {*SERVERS, *own}


@pytest.mark.parametrize(
    ("kubeconfig", "reason"),
    [
        ("", "no server in the kubeconfig of its kubelet"),
        ("server: https://b.example", "no address of b.exa"),
        ("server: https://127.0.0.1:6444", r"a balancer at 127\.0\.0\.1"),
        ("server: https://[::1]:6444", "a balancer at ::1"),
        ("server: https://balancer.example", r"a balancer at 127\.0\.0\.1"),
    ],
)
def test_partition_needs_a_known_remote_api_server(
    hosts: Hosts, kubelet: Callable[..., ClusterMachine], kubeconfig: str, reason: str
) -> None:
    (hosts.folder / "kubeconfig").write_text(kubeconfig)
    hosts.program("getent", GETENT)
    worker = kubelet(f"--kubeconfig={hosts.folder / 'kubeconfig'}")
    with pytest.raises(MachineError, match=reason):
        Partition(worker.name).available(worker)


def test_node_of_an_api_server_is_not_cut_off(hosts: Hosts, kubelet: Callable[..., ClusterMachine]) -> None:
    (hosts.folder / "kubeconfig").write_text("server: https://10.0.0.7:6443")
    hosts.program("getent", GETENT)
    worker = kubelet(f"--kubeconfig={hosts.folder / 'kubeconfig'}")
    assert "runs an API server itself" in Partition(worker.name).available(worker)


def test_timer_of_an_absent_node_is_no_error() -> None:
    def gone(name: str) -> NoReturn:
        raise Problem(f"no node {name!r}", "cluster.yaml", "run this in a lab")

    Timers(lambda name: cast(Shell, gone(name))).arm(UnitDown("worker-2").to_json(), 0)


@pytest.mark.parametrize("direction", ["node-to-api", "api-to-node"])
def test_one_way_partition_does_not_mix_address_families(direction: Direction) -> None:
    worker = FakeMachine(lambda _argv: "")
    worker.data_address, worker.control_plane_addresses = "10.0.0.7", SERVERS
    rules = list(Partition("node-1", direction).rules(cast(Shell, worker)))
    for server in SERVERS:
        (first, second) = [rule for rule in rules if f" {server} " in rule]
        assert all((" ip6 " in rule) == (":" in server) for rule in (first, second))
        assert "10.0.0.7" not in first + second
