"""The bare floor: the same binaries with the same flags in one network namespace, and nothing else.

`unshare --net --mount --pid --fork --kill-child --mount-proc -- python bare_floor.py PLAN`: PLAN (made by
bench.py) holds command lines, addresses and certificates. Prints when (CLOCK_MONOTONIC) each stage was
reached, and what the processes use; everything it started ends with it. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = Any
LIMIT_S = 180.0
_POLL_S = 0.05
_PAUSE = threading.Event()


def main() -> None:
    """Run one floor to Ready nodes and end."""
    plan: dict[str, Json] = json.loads(Path(sys.argv[1]).read_text())
    stages = {"entered": time.monotonic()}
    _prepare(plan)
    api = _Api(plan)
    stages["etcd started"] = time.monotonic()
    first = _start(plan, plan["first"])
    api.wait("/readyz", lambda body: body == b"ok", first)
    stages["API ready"] = time.monotonic()
    rest = _start(plan, plan["rest"])
    stages["kubelets started"] = time.monotonic()
    api.wait("/api/v1/nodes", lambda body: _clean(body) >= plan["nodes"], {**first, **rest})
    stages["nodes Ready"] = time.monotonic()
    processes = subprocess.run(plan["processes"], capture_output=True, timeout=30, check=True)
    print(json.dumps({"stages": stages, "processes": json.loads(processes.stdout), "end": time.monotonic()}))
    sys.stdout.flush()
    os._exit(0)


def _prepare(plan: dict[str, Json]) -> None:
    """Addresses on loopback, a default route, names; the least with which kubelets register."""
    lines = ["link set lo up", *(f"addr add {address} dev lo" for address in plan["addresses"])]
    lines.append("route add default dev lo")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), timeout=30, check=True)
    for source, target in plan["mounts"]:
        subprocess.run(["mount", "--bind", source, str(Path(target).resolve())], timeout=10, check=True)


def _start(plan: dict[str, Json], commands: dict[str, Json]) -> dict[str, subprocess.Popen[bytes]]:
    started = {}
    for name, command in commands.items():
        with (Path(plan["logs"]) / f"{name}.log").open("ab") as log:
            environment = {**os.environ, **command["env"]}
            started[name] = subprocess.Popen(command["argv"], env=environment, stdout=log, stderr=log)
    return started


def _clean(body: bytes) -> int:
    """How many nodes are Ready and free of taints: what `starting.up` waits for as well."""
    return sum(_is_clean(node) for node in json.loads(body)["items"])


def _is_clean(node: dict[str, Json]) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


class _Api:
    def __init__(self, plan: dict[str, Json]) -> None:
        self._plan = plan
        self._context = ssl.create_default_context(cafile=plan["ca"])
        self._context.load_cert_chain(plan["cert"], plan["key"])

    def wait(self, path: str, accept: Json, processes: dict[str, subprocess.Popen[bytes]]) -> None:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            dead = [name for name, child in processes.items() if child.poll() is not None]
            if dead:
                sys.exit(f"died: {', '.join(dead)}")
            try:
                if accept(self._get(path)):
                    return
            except (OSError, http.client.HTTPException):
                pass
            _PAUSE.wait(_POLL_S)
        sys.exit(f"{path}: not there after {LIMIT_S:g} s")

    def _get(self, path: str) -> bytes:
        host, port = self._plan["api"]
        connection = http.client.HTTPSConnection(host, port, timeout=5, context=self._context)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


if __name__ == "__main__":
    main()
