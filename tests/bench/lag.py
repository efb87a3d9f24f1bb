"""How far a recording lags behind the cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.recording.recorder import Recording, Setting
from tests.bench.figure import Bench, Figure, Json
from tests.bench.ground import (
    ANNOTATION,
    core_shares,
    load_after,
    processes_of,
    run_inside,
    settle,
    watch_setting,
)

EVENTS_PER_S, EVENT_SECONDS, LEASES, WORKERS = 1000, 12.0, 40, 8


class ClockedRecording(Recording):
    """A recording that also notes when an entry was on disk and could be judged."""

    def __init__(self, lab: Lab, path: Path) -> None:
        names = lab.fleet.node_names()
        super().__init__(
            lab.cluster.api, path, Setting(tuple(names), names[-1], lab.read_clock, lab.dir / "events.jsonl")
        )
        self.kept: list[tuple[float, float]] = []

    def __enter__(self) -> ClockedRecording:
        super().__enter__()
        return self

    def append(self, kind: str, t: float | None = None, **data: Json) -> None:
        """Write one entry."""
        super().append(kind, t, **data)
        stamp = _stamp(data) if kind == "watch" else 0.0
        if stamp:
            self.kept.append((stamp, time.monotonic()))

    def received(self) -> list[tuple[float, float]]:
        """When each stamped event was sent and received."""
        found = ((_stamp(entry.data), entry.t) for entry in self.history().of_kind("watch"))
        return [pair for pair in found if pair[0]]


def _stamp(data: Mapping[str, Json]) -> float:
    return float((data["object"]["metadata"].get("annotations") or {}).get(ANNOTATION, 0))


def recorder_lag(bench: Bench, lab: Lab, rate: int) -> list[Figure]:
    """One stream of changes, received by a Recording and by a raw watch at once."""
    lab.prepare()
    paths = [f"{WATCHED['leases']}/bench-{number}" for number in range(LEASES)]
    for path in paths:
        _make_lease(lab, path)
    loads = [settle(bench, lab.name)]
    setting = watch_setting(lab, (WATCHED["leases"],), EVENT_SECONDS + 4)
    generator = {**setting, "paths": paths, "rate": rate, "seconds": EVENT_SECONDS, "workers": WORKERS}
    before = {entry["pid"]: entry for entry in processes_of(lab)}
    with ThreadPoolExecutor(2) as pool, ClockedRecording(lab, bench.scratch / "lag.jsonl") as recording:
        watching = pool.submit(run_inside, lab, "raw_watch.py", json.dumps(setting), limit_s=90)
        threading.Event().wait(1.5)
        began, cpu = time.monotonic(), time.process_time()
        made = pool.submit(run_inside, lab, "load.py", json.dumps(generator), limit_s=90).result()
        used, took = time.process_time() - cpu, time.monotonic() - began
        shares = core_shares(before, processes_of(lab), took)
        raw = watching.result()
    loads.append(load_after(lab.name))
    for path in paths:
        lab.cluster.api.delete(path)
    return _lag_figures(recording, raw, made, (used, took, shares), loads, rate)


def _make_lease(lab: Lab, path: str) -> None:
    meta = {"name": path.rpartition("/")[2], "namespace": LEASE_NAMESPACE}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lab.cluster.api.ensure(WATCHED["leases"], {**kind, "metadata": meta, "spec": {"holderIdentity": "bench"}})


def _lag_figures(
    recording: ClockedRecording, raw: Mapping[str, Json], made: Mapping[str, Json],
    harness: tuple[float, float, str], loads: Sequence[str], rate: int,
) -> list[Figure]:  # fmt: skip
    used, took, shares = harness
    reached = made["patched"] / made["took_s"]
    ours = _lags(recording.received())
    kept, bare = _lags(recording.kept), _lags(raw["came"])
    per_event = used / max(1, len(ours))
    notes = [
        f"{rate} events/s asked for, {reached:.0f} reached for {made['took_s']:.0f} s; "
        f"{len(ours)} recorded, {len(bare)} by the raw watch, {made['patched']} made",
        f"on disk and visible to checks: p50 {_at(kept, 50):.1f} ms, p99 {_at(kept, 99):.1f} ms",
        f"harness: {100 * used / took:.0f} % of a core, {1e6 * per_event:.0f} us an event, "
        f"so at most {1 / per_event:.0f} events/s in one process",
        f"raw watch {100 * raw['cpu_s'] / made['took_s']:.0f} %, generator "
        f"{100 * made['cpu_s'] / made['took_s']:.0f} % of a core; {shares}",
    ]
    return [
        Figure(
            f"recorder lag at {rate} events/s, p{share}", "ms", [_at(ours, share)], "raw HTTP watch",
            [_at(bare, share)], "as measured", None, loads, notes if share == 50 else (),
        )
        for share in (50, 99)
    ]  # fmt: skip


def _lags(pairs: Sequence[Sequence[float]]) -> list[float]:
    """Milliseconds from sent to received, sorted."""
    return sorted(1000 * (received - sent) for sent, received in pairs)


def _at(values: Sequence[float], percent: int) -> float:
    return values[min(len(values) - 1, len(values) * percent // 100)]
