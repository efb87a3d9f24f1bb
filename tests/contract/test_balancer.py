"""The balancer of three control planes, in a network namespace of the test and without Kubernetes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts.components import Components
from nodeproof.labs.base.spec import NAMESPACES
from nodeproof.root import become_root

_TIMEOUT_S = 180.0
_ANSWERED_WITHIN_S = 5.0
_SERVE = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection, _address = server.accept()
    connection.sendall(sys.argv[1].encode())
    connection.close()
"""
_CONNECT = """
import json, socket, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from nodeproof.labs.base.network import set_up_bridges
from nodeproof.labs.base.planes import BALANCER, Planes, balancer, set_up_network
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT, control_planes
from nodeproof.waiting import retry_on

folder, etcd, serve = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
set_up_bridges()
set_up_network()
processes, members = Processes(folder, EventLog(folder / "events.jsonl")), control_planes(3)
planes = Planes(processes, members)

def answer(_number=0, timeout_s=150):
    began = time.monotonic()
    with socket.create_connection((API_ADDRESS, API_PORT), timeout_s) as connection:
        server = connection.recv(100).decode()
    if not server:
        raise ConnectionError("no answer")
    return server, time.monotonic() - began

for plane in members:
    planes.boot(plane.name)
    argv = [*planes.enter(plane.name), sys.executable, "-c", serve, plane.address, str(API_PORT)]
    processes.start(f"server-{plane.number}", argv)
    retry_on(lambda: socket.create_connection((plane.address, API_PORT), 1).close(), OSError, timeout_s=20)
addresses = [plane.address for plane in members]
processes.start(BALANCER, balancer(SimpleNamespace(binary=lambda _name: etcd), addresses))
retry_on(answer, OSError, timeout_s=20)
before = {answer()[0] for _ in members}
planes.set_link(members[0].name, "down")
processes.expect_end(["server-1"])
processes.kill("server-1")
planes.end(members[0].name)
with ThreadPoolExecutor(len(members)) as pool:
    answers = list(pool.map(answer, range(len(members))))
after, durations = zip(*answers)
print(json.dumps([sorted(before), sorted(set(after)), max(durations)]))
"""


def test_connection_is_not_kept_by_a_control_plane_without_power(
    components: Components, tmp_path: Path
) -> None:
    script = [sys.executable, "-c", _CONNECT, str(tmp_path), str(components.path("etcd")), _SERVE]
    process = proc.run([*become_root(), "unshare", *NAMESPACES, "--", *script], timeout_s=_TIMEOUT_S)
    before, after, longest_s = json.loads(process.stdout)
    assert before == ["10.79.0.11", "10.79.0.12", "10.79.0.13"]
    assert after == ["10.79.0.12", "10.79.0.13"]
    assert longest_s < _ANSWERED_WITHIN_S
