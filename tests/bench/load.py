"""Patch Leases at a given rate, the time of each request in the object: run inside a lab.

`python load.py SETTING`: SETTING is JSON with api, ca, cert, key, paths, rate, seconds, annotation,
workers. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Json = Any
_HEADERS = {"Content-Type": "application/merge-patch+json", "User-Agent": "nodeproof-bench"}
_PAUSE = threading.Event()


def main() -> None:
    """Patch for the asked time; print how many requests went through and what they cost."""
    setting: dict[str, Json] = json.loads(sys.argv[1])
    began = time.monotonic()
    with ThreadPoolExecutor(setting["workers"]) as pool:
        done = list(pool.map(lambda number: _patch(setting, number, began), range(setting["workers"])))
    took = time.monotonic() - began
    print(json.dumps({"patched": sum(done), "took_s": took, "cpu_s": time.process_time()}))


def _patch(setting: dict[str, Json], number: int, began: float) -> int:
    """One connection's share: requests due at fixed times, those that are late at once."""
    connection = _connect(setting)
    paths = setting["paths"][number :: setting["workers"]]
    period = setting["workers"] / setting["rate"]
    done, due = 0, began + period * number / setting["workers"]
    while (now := time.monotonic()) < began + setting["seconds"]:
        if due > now:
            _PAUSE.wait(due - now)
        stamp = {setting["annotation"]: f"{time.monotonic():.6f}"}
        body = json.dumps({"metadata": {"annotations": stamp}})
        connection.request("PATCH", paths[done % len(paths)], body, _HEADERS)
        response = connection.getresponse()
        response.read()
        done += response.status == 200
        due += period
    connection.close()
    return done


def _connect(setting: dict[str, Json]) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=setting["ca"])
    context.load_cert_chain(setting["cert"], setting["key"])
    host, port = setting["api"]
    return http.client.HTTPSConnection(host, port, timeout=20, context=context)


if __name__ == "__main__":
    main()
