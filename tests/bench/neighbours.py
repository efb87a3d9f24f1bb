"""What scenarios in other zones of a lab change for one: the times of a cut node, alone and beside seven."""

from __future__ import annotations

import math
import multiprocessing
import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import Needs
from nodeproof.model.slack import slack_s
from nodeproof.scenario import (
    UNREACHABLE,
    condition_became,
    last_heartbeat,
    partition,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)
from nodeproof.scenario.stage import Stage
from tests.bench.figure import Bench, Figure
from tests.bench.ground import load_after, running_lab, settle

ZONES, NODES_EACH = 8, 3
WITHIN_S = 0.15
DETECTION, TAINT, EVICTION, SLACK = "detection", "taint", "eviction", "slack"
Times = Mapping[str, float]


def neighbours(bench: Bench) -> Iterator[Figure]:
    """Medians of a cut node's times in one of eight zones, with cuts in the seven others beside it."""
    with running_lab(bench, ZONES * NODES_EACH, "fast", zones=ZONES) as (lab, _took):
        loads = [settle(bench, lab.name)]
        alone = _cuts(lab.name, 1, bench.injections)
        beside = _cuts(lab.name, ZONES, math.ceil(bench.injections / ZONES))
        loads.append(load_after(lab.name))
        limit_s = lab.profile.slack_limit_s
    slacks = [max(each[SLACK] for each in part) for part in (alone, beside)]
    note = f"worst slack {slacks[1]:.2f} s, alone {slacks[0]:.2f} s, limit {limit_s:g} s"
    for name in (DETECTION, TAINT, EVICTION):
        values, anchor = ([each[name] for each in part] for part in (beside, alone))
        apart_s = abs(statistics.median(values) - statistics.median(anchor))
        yield Figure(
            f"{name} beside {ZONES - 1} zones",
            "s",
            values,
            "alone",
            anchor,
            f"medians within {WITHIN_S:g} s ({apart_s:.3f})",
            apart_s <= WITHIN_S,
            loads,
            [note],
        )


def _cuts(lab: str, zones: int, rounds: int) -> Sequence[Times]:
    """The times of so many cuts in each of so many zones, each by a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(zones, mp_context=spawn) as pool:
        done = [pool.submit(cut_again_and_again, lab, rounds) for _ in range(zones)]
        return [each for one in done for each in one.result()]


def cut_again_and_again(name: str, rounds: int) -> Sequence[Times]:
    """Lease a zone, and cut its first node off so many times."""
    lab = registry.attach(name)
    try:
        lab.lease()
        lab.prepare()
        return [_cut(lab) for _ in range(rounds)]
    finally:
        lab.close()


def _cut(lab: Lab) -> Times:
    lab.clean(Needs(faulted=1))
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(lab, Path(folder), Needs(faulted=1), nullcontext)
        node = stage.target
        pod = stage.do(run_pod(on=node, tolerates_unreachable_s=stage.toleration_s))
        unknown = condition_became(node, "Ready", "Unknown")
        unreachable = taint_added(node, UNREACHABLE, "NoExecute")
        leaves = pod_deletion(pod.namespace, pod.name)
        with stage.record(), stage.inject(partition(node)) as cut:
            stage.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            stage.wait_for(unreachable.after(unknown, windows.taint_pass()))
            stage.wait_for(leaves.after(unreachable, windows.toleration(stage.toleration_s)))
        steps = (last_heartbeat(node, unknown), unknown, unreachable, leaves)
        silent_t, unknown_t, tainted_t, left_t = (_t(stage, step) for step in steps)
        slack = slack_s(stage.history(), stage.configuration)
    # The zone's rate limiter is full again before the next one.
    threading.Event().wait(1 / lab.configuration["E"])
    told = (unknown_t - silent_t, tainted_t - unknown_t, left_t - tainted_t, slack)
    return dict(zip((DETECTION, TAINT, EVICTION, SLACK), told, strict=True))


def _t(stage: Stage, moment: Moment) -> float:
    found = stage.find(moment)
    if found is None:
        raise RuntimeError(f"{moment} did not come")
    return found.t
