"""Recheck of a stored run, from its history alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodeproof import catalogue
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import parse_time
from nodeproof.report import rundir
from nodeproof.report.recheck import differences, recheck
from tests.acceptance.altered import Ended
from tests.markers import falls

Json = Any
Edit = Callable[[dict[str, Json]], Mapping[str, Json]]
LATER_S = 4.0
pytestmark = pytest.mark.night(
    "unit tests judge frozen runs again, as they are and altered; test_conformance.py a whole run"
)


@pytest.fixture
def copied(whole_run: Ended, tmp_path: Path) -> Path:
    """Return a copy of a real run, to be edited."""
    return Path(shutil.copytree(whole_run.run, tmp_path / "copied", symlinks=True))


def edit(run: Path, change: Edit) -> None:
    """Change every entry of the run's one history."""
    (path,) = run.glob("scenarios/*/history.jsonl")
    lines = [json.dumps(change(json.loads(line))) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


def without_the_taint(entry: dict[str, Json]) -> Mapping[str, Json]:
    if entry["kind"] == "watch" and entry["resource"] == "nodes":
        spec = entry["object"]["spec"]
        spec["taints"] = [taint for taint in spec.get("taints", []) if taint["key"] != UNREACHABLE]
    return entry


def with_a_later_deletion(entry: dict[str, Json]) -> Mapping[str, Json]:
    """Move the request for deletion to a later time, without field timestamps."""
    meta = entry["object"]["metadata"] if entry["kind"] == "watch" else {}
    if "deletionTimestamp" not in meta:
        return entry
    removal = datetime.fromtimestamp(parse_time(meta["deletionTimestamp"]) + LATER_S, UTC)
    then = {**meta, "managedFields": [], "deletionTimestamp": removal.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {**entry, "t": entry["t"] + LATER_S, "object": {**entry["object"], "metadata": then}}


def without_the_fence(entry: dict[str, Json]) -> Mapping[str, Json]:
    return {**entry, "kind": "stall", "late_s": 0.0} if entry["kind"] == "fence" else entry


def test_unaltered_cluster_conforms(whole_run: Ended) -> None:
    assert whole_run.claims() == {
        "monitoring.detection-time",
        "taints.unreachable-noexecute",
        "eviction.toleration-seconds-override",
        "monitoring.unknown-reason",
        "zones.metrics",
        "partition.terminating",
        "partition.unknown-state",
        "taints.removed-on-recovery",
    }
    labels = {label for claim in whole_run.claims() for label in whole_run.labels(claim)}
    assert labels == {"conforms"}
    assert whole_run.status == 0


def test_recheck_gives_the_same_verdicts(whole_run: Ended, copied: Path) -> None:
    again = recheck(copied, catalogue.load()).digest.rows

    assert again == rundir.read_verdicts(whole_run.run)
    assert list(differences(rundir.read_verdicts(whole_run.run), again)) == []


@pytest.mark.parametrize(
    ("change", "claim", "label"),
    [
        pytest.param(
            without_the_taint,
            "taints.unreachable-noexecute",
            "deviates",
            marks=falls("taints.unreachable-noexecute"),
        ),
        (with_a_later_deletion, "eviction.toleration-seconds-override", "deviates"),
        (without_the_fence, "monitoring.detection-time", "unproven: gap"),
    ],
)
def test_edited_history_changes_the_verdict(
    whole_run: Ended, copied: Path, change: Edit, claim: str, label: str
) -> None:
    edit(copied, change)
    changes = recheck(copied, catalogue.load()).changed

    assert (claim, "conforms", label) in {(entry.claim, entry.before, entry.after) for entry in changes}
