"""The rules of a partition in network namespaces: several API servers, and SSH from the address of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from nodeproof import proc
from nodeproof.faults.partition import Answer, Partition
from nodeproof.machines.machine import CommandResult
from nodeproof.root import become_root
from tests.fakes import FakeMachine
from tests.waiting import eventually

TIMEOUT_S, DIAL_S = 20.0, 2.0
SSH, KUBELET, API = 22, 10250, 6443
NODES = {"ip": "10.99.0.2", "ip6": "fd99::2"}
SERVERS = ["10.99.0.1", "10.99.0.3", "fd99::1"]
OTHERS = ["10.99.0.4", "fd99::4"]
SERVE = """
import os, selectors, socket, sys
selector = selectors.DefaultSelector()
for port in map(int, sys.argv[1:]):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    selector.register(listener, selectors.EVENT_READ)
print(os.getpid(), flush=True)
selector.register(sys.stdin, selectors.EVENT_READ)
while True:
    for key, _events in selector.select():
        sys.exit() if key.fileobj is sys.stdin else key.fileobj.accept()[0].close()
"""
DIAL = """
import socket, sys, threading
port, timeout_s, *pairs = sys.argv[1:]
def dial(source, host):
    socket.create_connection((host, int(port)), float(timeout_s), (source, 0))
    print(f"{source} {host}\\n", end="")
threading.excepthook = lambda _error: None
for source, host in zip(pairs[::2], pairs[1::2]):
    threading.Thread(target=dial, args=(source, host)).start()
"""


@dataclass(frozen=True)
class Namespace:
    """A network namespace, by a process in it."""

    pid: int

    def run(self, *argv: str, stdin: str = "") -> CommandResult:
        enter = [*become_root(), "nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]
        return proc.run([*enter, *argv], timeout_s=TIMEOUT_S, stdin=stdin, check=False)

    def add(self, *addresses: str) -> None:
        for address in addresses:
            size = f"{address}/64" if ":" in address else f"{address}/24"
            assert self.run("ip", "address", "add", size, "dev", "eth0", "nodad").status == 0
        assert self.run("ip", "link", "set", "eth0", "up").status == 0

    def dial(self, port: int, peers: Sequence[str], from_peers: bool) -> list[str]:
        """Return the peers between which and the node a connection is possible, opened from here."""
        pairs = [(peer, own(peer)) if from_peers else (own(peer), peer) for peer in peers]
        words = [word for pair in pairs for word in pair]
        output = self.run(sys.executable, "-c", DIAL, str(port), str(DIAL_S), *words).stdout
        return [
            peer for peer, pair in zip(peers, pairs, strict=True) if " ".join(pair) in output.splitlines()
        ]


class Node(FakeMachine):
    """A machine in a namespace, which SSH reaches from `peer`."""

    def __init__(self, namespace: Namespace, peer: str) -> None:
        super().__init__(lambda _argv: "")
        self.data_address, self.control_plane_addresses = NODES["ip"], SERVERS
        self._namespace, self._connection = namespace, f"{peer} 50000 {own(peer)} {SSH}"

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        del timeout_s
        return self._namespace.run("env", f"SSH_CONNECTION={self._connection}", *argv, stdin=stdin)


def own(peer: str) -> str:
    """Return the node's address of a peer's family."""
    return NODES["ip6" if ":" in peer else "ip"]


@contextmanager
def serving(*ports: int) -> Iterator[Namespace]:
    """Serve in a new network namespace until the context ends."""
    argv = [*become_root(), "unshare", "--net", sys.executable, "-c", SERVE, *map(str, ports)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield Namespace(int(process.stdout.readline()))


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    """Return the namespace of a node, and one with the addresses of the API servers and of others."""
    with serving(SSH, KUBELET) as node, serving(API) as peer:
        link = ("link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", str(peer.pid))
        assert node.run("ip", *link).status == 0
        node.add(*NODES.values())
        peer.add(*SERVERS, *OTHERS)
        peers = [*SERVERS, *OTHERS]
        assert eventually(lambda: node.dial(API, peers, from_peers=False) == peers, TIMEOUT_S)
        yield node, peer


@pytest.mark.parametrize("answer", ["drop", "reject"])
@pytest.mark.parametrize("ssh_from", [SERVERS[1], SERVERS[2], OTHERS[0]])
def test_all_addresses_of_the_api_are_cut_off_and_ssh_continues(
    namespaces: tuple[Namespace, Namespace], ssh_from: str, answer: Answer
) -> None:
    node, peer = namespaces
    fault, machine = Partition("node-1", answer=answer), Node(node, ssh_from)
    fault.inject(machine)
    reached = node.dial(API, SERVERS, from_peers=False)
    reaching = peer.dial(KUBELET, SERVERS, from_peers=True)
    by_ssh = peer.dial(SSH, SERVERS, from_peers=True)
    others = peer.dial(KUBELET, OTHERS, from_peers=True)
    fault.heal(machine)
    assert (reached, reaching) == ([], [])
    assert by_ssh == [address for address in SERVERS if address == ssh_from]
    assert others == OTHERS
    assert node.dial(API, SERVERS, from_peers=False) == SERVERS
    assert peer.dial(KUBELET, SERVERS, from_peers=True) == SERVERS
