"""What waiting costs."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from nodeproof.checks.moments import fault_step, pod_gone
from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED
from nodeproof.labs.client.lab import Lab
from nodeproof.model.window import WindowSpec
from tests.bench.figure import Bench, Figure
from tests.bench.ground import core_shares, load_after, processes_of, run_inside, settle, watch_setting

WAIT_SECONDS = 30.0


def waiting_cpu(bench: Bench, lab: Lab, nodes: int) -> list[Figure]:
    """The harness's processor time while a recording waits for what does not come."""
    lab.prepare()
    loads = [settle(bench, lab.name)]
    watch = watch_setting(lab, tuple(each.path for each in RESOURCES.values()), WAIT_SECONDS)
    path, also = bench.scratch / "waiting.jsonl", sorted(RESOURCES.keys() - WATCHED.keys())
    check = pod_gone(NAMESPACE, "nobody").never_after(
        fault_step("bench", "injected"), WindowSpec("absence", {"wait_s": WAIT_SECONDS})
    )
    before = {entry["pid"]: entry for entry in processes_of(lab)}
    with ThreadPoolExecutor(1) as pool, lab.record(path, [lab.fleet.node_names()[0]], also) as recording:
        raw = pool.submit(run_inside, lab, "raw_watch.py", json.dumps(watch), limit_s=WAIT_SECONDS + 60)
        recording.append("fault", id="bench", step="injected", node=lab.fleet.node_names()[0], fault={})
        began, cpu = time.monotonic(), time.process_time()
        lab.wait_for(recording, check)
        used, took = time.process_time() - cpu, time.monotonic() - began
        entries = len(recording.history().entries)
        anchor = raw.result()
    path.unlink()
    loads.append(load_after(lab.name))
    share, bare = 100 * used / took, 100 * anchor["cpu_s"] / anchor["took_s"]
    notes = [
        f"waited {took:.1f} s, {entries} entries of {len(RESOURCES)} resources recorded, "
        f"{threading.active_count()} threads",
        "meanwhile: " + core_shares(before, processes_of(lab), time.monotonic() - began),
    ]
    return [
        Figure(
            f"processor time of the harness while it waits, {nodes} nodes", "% of a core", [share],
            "raw watches of the same lists", [bare], "<= 5 % of a core", share <= 5, loads, notes,
        )
    ]  # fmt: skip
