"""The raw HTTP watch: read lines, note when each came, do nothing else. Run inside a lab.

`python raw_watch.py SETTING`: SETTING is JSON with api, ca, cert, key, paths, seconds, annotation. Prints
when each object that carries the annotation came, and the processor time up to then. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
import time
from typing import Any

Json = Any
Line = tuple[float, bytes]


def main() -> None:
    """Watch for the asked time and print what came."""
    setting: dict[str, Json] = json.loads(sys.argv[1])
    lines: list[Line] = []
    for path in setting["paths"]:
        threading.Thread(target=_watch, args=(setting, path, lines), daemon=True).start()
    began, cpu = time.monotonic(), time.process_time()
    threading.Event().wait(setting["seconds"])
    used, took = time.process_time() - cpu, time.monotonic() - began
    stamped = [[_stamp(line, setting["annotation"]), t] for t, line in list(lines)]
    came = [pair for pair in stamped if pair[0]]
    print(json.dumps({"came": came, "lines": len(lines), "cpu_s": used, "took_s": took}))


def _watch(setting: dict[str, Json], path: str, lines: list[Line]) -> None:
    context = ssl.create_default_context(cafile=setting["ca"])
    context.load_cert_chain(setting["cert"], setting["key"])
    connection = http.client.HTTPSConnection(*setting["api"], context=context)
    connection.request("GET", path)
    rv = json.loads(connection.getresponse().read())["metadata"]["resourceVersion"]
    connection.request("GET", f"{path}?watch=true&resourceVersion={rv}")
    response = connection.getresponse()
    while line := response.readline():
        lines.append((time.monotonic(), line))


def _stamp(line: bytes, annotation: str) -> float:
    annotations = json.loads(line)["object"]["metadata"].get("annotations") or {}
    return float(annotations.get(annotation, 0))


if __name__ == "__main__":
    main()
