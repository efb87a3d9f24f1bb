"""What a volume takes on a machine, from the attachment that is wanted to the mounted disk, beside the
hot-plug alone.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from nodeproof.actions.pods import pending_pod
from nodeproof.actions.workloads import holding
from nodeproof.artifacts import csi
from nodeproof.checks.moments import became, made
from nodeproof.faults.volumes import attachment, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.model import window as windows
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.scenario import volumes
from nodeproof.scenario.stage import Stage
from nodeproof.sources.volumes import FILE, calls_of
from tests.bench.figure import Bench, Figure
from tests.bench.ground import load_after, settle

ROUNDS = 5
ATTACHMENTS = "volumeattachments"
LIMIT_S, READ_LIMIT_S = 120.0, 10.0
NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"volumes"}))
PLUG, STAGE, PUBLISH = "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"
Json = Any


def plugging(bench: Bench, lab: Lab) -> Iterator[Figure]:
    """Of an empty disk: it gets its file system on the way."""
    csi.obtain(bench.say)
    loads = [settle(bench, lab.name)]
    found = [_mount(lab) for _ in range(ROUNDS)]
    loads.append(load_after(lab.name))
    stages = statistics.median(each[STAGE] for each in found)
    publishes = statistics.median(each[PUBLISH] for each in found)
    yield Figure(
        "attachment wanted to mounted",
        "s",
        [each[ATTACHMENTS] for each in found],
        "the hot-plug alone",
        [each[PLUG] for each in found],
        "as measured",
        None,
        loads,
        [f"of it staged with a new file system {stages:.2f} s, published {publishes:.2f} s (medians)"],
    )


def _mount(lab: Lab) -> Mapping[str, float]:
    """How long (s) each call took, and all from the attachment to the last of them."""
    lab.clean(NEEDS)
    with tempfile.TemporaryDirectory() as folder:
        stage, storage = Stage(lab, Path(folder), NEEDS, nullcontext), volumes()
        (claim,), node = storage.claims, stage.target
        wanted = made(ATTACHMENTS, attachment(claim, node))
        with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
            pod = stage.do(pending_pod(only_on=node, **holding(claim)))
            runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
            stage.wait_for(runs.after(wanted, windows.prompt(LIMIT_S)))
            began, calls = stage.find(wanted), _calls(lab, claim)
    if began is None or {PLUG, STAGE, PUBLISH} - calls.keys():
        raise RuntimeError(f"{claim} was not mounted within {LIMIT_S:g} s")
    took = {method: call["end"] - call["begin"] for method, call in calls.items()}
    return {**took, ATTACHMENTS: calls[PUBLISH]["end"] - began.t}


def _calls(lab: Lab, claim: str) -> Mapping[str, Mapping[str, Json]]:
    """The driver's first call of each method about a claim's volume: an attacher may ask again for what is
    done.
    """
    text = lab.fleet.machine(ATTACHER).run(["cat", FILE], deadline_s=READ_LIMIT_S).stdout
    calls, _unsure = calls_of(text, 0.0, math.inf)
    found: dict[str, Mapping[str, Json]] = {}
    for call in calls:
        if call["volume"] == handle(claim) and call["code"] == "OK":
            found.setdefault(call["method"], call)
    return found
