"""How nodes and their pods recover from faults: the table at the beginning of a run's page."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from nodeproof.checks import heartbeats
from nodeproof.checks.invariants import unreachable_toleration_s
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration, condition, condition_status, select_fields
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.window import WindowContext, compute, detection_from_fault, taint_pass
from nodeproof.report import rundir

FILE = "recovery.json"
MEASURES: Mapping[str, str] = {
    "detected_s": "node detected",
    "evicted_s": "first pod evicted",
    "replaced_s": "replacement Ready",
    "moved_s": "volume attached elsewhere",
    "back_s": "node Ready after healing",
}
"""Fields of a recovery, as headings."""
_CLAIMS: Mapping[str, Sequence[str]] = {
    "detected_s": ("monitoring.detection-time",),
    "evicted_s": ("eviction.end-to-end-time",),
    "moved_s": ("non-graceful.force-detach-timeout", "out-of-service.immediate-detach"),
    "back_s": ("monitoring.recovery",),
}
"""The claims that promise the time of a measure."""

_LATE_S = 1.0
"""Time in which a heartbeat that was under way at the fault arrives."""


@dataclass(frozen=True)
class Recovery:
    """Times of one node and one fault (s); None for what did not happen.

    Args:
        fault: the fault's name.
        node: a node that was Ready before the fault, and not during it.
        detected_s: from the fault until the Node was not Ready.
        evicted_s: from the fault until the taint eviction controller first deleted a pod of the node.
        replaced_s: from the fault until a new pod of the same controller was Ready on another node.
        moved_s: from the fault until a volume of the node was attached to another.
        back_s: from the start of the healing until the Node was Ready.
        documented_s: the earliest and the latest time that the cluster's settings promise, by measure.
    """

    fault: str
    node: str
    detected_s: float | None = None
    evicted_s: float | None = None
    replaced_s: float | None = None
    moved_s: float | None = None
    back_s: float | None = None
    documented_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One measure of all recoveries from one kind of fault (s)."""

    times_s: Sequence[float]
    documented_s: tuple[float, float] | None
    earlier_s: Sequence[float]

    @property
    def measured(self) -> str:
        """The median, and the range of several times."""
        if not self.times_s:
            return "-"
        text = f"{median(self.times_s):.1f} s"
        if len(self.times_s) == 1:
            return text
        return f"{text} ({min(self.times_s):.1f} to {max(self.times_s):.1f}, {len(self.times_s)} nodes)"

    @property
    def documented(self) -> str:
        """The times that the cluster's settings promise."""
        return "{:.1f} to {:.1f} s".format(*self.documented_s) if self.documented_s else ""

    @property
    def earlier(self) -> str:
        """The median of the medians of earlier runs."""
        return f"{median(self.earlier_s):.1f} s" if self.earlier_s else ""


def measure(history: History, configuration: Configuration) -> Iterator[Recovery]:
    """Yield the recovery of each node that a fault made not Ready."""
    for name, node, injected_t, healing in _faults(history):
        versions = history.versions("nodes", "", node)
        changes = [(version.t, condition_status(version.object, "Ready")) for version in versions]
        before = [status for t, status in changes if t <= injected_t]
        lost_t, lost_as = next(
            ((t, status) for t, status in changes if t > injected_t and status != "True"), (math.inf, "")
        )
        if (
            before[-1:] != ["True"]
            or lost_t > healing.t
            or not _is_silenced(history, node, injected_t, lost_t)
        ):
            continue
        back_t = next((t for t, status in changes if t > healing.t and status == "True"), None)
        evicted = _first_evicted(history, node, injected_t, healing.t)
        yield Recovery(
            name,
            node,
            detected_s=lost_t - injected_t,
            evicted_s=_since(injected_t, evicted.t if evicted else None),
            replaced_s=_since(injected_t, _replaced_t(history, node, injected_t)),
            moved_s=_since(injected_t, _moved_t(history, node, injected_t)),
            back_s=_since(healing.t, back_t),
            documented_s=_documented(configuration, evicted) if lost_as == "Unknown" else {},
        )


def _since(begin_t: float, end_t: float | None) -> float | None:
    return None if end_t is None else end_t - begin_t


def write(folder: Path, history: History, configuration: Configuration) -> None:
    """Store the recoveries of a scenario in its folder, if there are any."""
    recoveries = list(measure(history, configuration))
    if recoveries:
        rundir.write_json(folder / FILE, [asdict(recovery) for recovery in recoveries])


def read(run: Path) -> list[Recovery]:
    """Read the recoveries of a run; earlier versions stored none. Files that cannot be read do not count."""
    recoveries = []
    for path in sorted(rundir.recorded_run(run).glob(f"scenarios/*/{FILE}")):
        with contextlib.suppress(Problem, TypeError):
            recoveries += [Recovery(**select_fields(Recovery, stored)) for stored in rundir.read_json(path)]
    return recoveries


def table(
    recoveries: Iterable[Recovery], earlier_runs: Iterable[Sequence[Recovery]]
) -> Mapping[str, Mapping[str, Cell]]:
    """Return the cells of each kind of fault, by measure."""
    earlier = [_by_fault(run) for run in earlier_runs]
    return {
        fault: {
            name: Cell(
                _times(own, name),
                _span_documented(own, name),
                [median(times) for run in earlier if (times := _times(run.get(fault, ()), name))],
            )
            for name in MEASURES
        }
        for fault, own in sorted(_by_fault(recoveries).items())
    }


def promises(claims: Mapping[str, Claim]) -> Mapping[str, Sequence[Claim]]:
    """Return the claims of the catalogue about the time of each measure; of some there is none."""
    return {name: [claims[claim] for claim in _CLAIMS.get(name, ()) if claim in claims] for name in MEASURES}


def _faults(history: History) -> Iterator[tuple[str, str, float, Entry]]:
    """Yield name, node, proven injection (s) and start of the healing of each fault and node."""
    injected: dict[str, float] = {}
    for entry in history.of_kind("fault"):
        id_, step, fault = entry.data["id"], entry.data["step"], entry.data.get("fault") or {}
        if step == "injected":
            injected[id_] = entry.t
        elif step == "healing" and id_ in injected:
            for node in {str(entry.data.get("node") or ""), *(fault.get("nodes") or ())}:
                yield str(fault.get("fault", "")), node, injected[id_], entry


def _is_silenced(history: History, node: str, injected_t: float, lost_t: float) -> bool:
    """Return whether a node's heartbeats ended with the fault: otherwise something else made it not Ready."""
    renewals = heartbeats.watched_renewals(history, node)
    return not any(injected_t + _LATE_S < renewal.t < lost_t for renewal in renewals)


def _first_evicted(history: History, node: str, since_t: float, until_t: float) -> Version | None:
    """Return the first state of a pod of the node that the taint eviction controller deleted.

    Since 1.26 that controller sets the condition DisruptionTarget before it deletes a pod (KEP-3329).
    """
    for version in history.all_versions("pods"):
        if since_t < version.t <= until_t and version.object["spec"].get("nodeName") == node:
            target = condition(version.object, "DisruptionTarget") or {}
            is_deleted = "deletionTimestamp" in version.object["metadata"]
            if is_deleted and target.get("reason") == "DeletionByTaintManager":
                return version
    return None


def _replaced_t(history: History, node: str, since_t: float) -> float | None:
    """Return when a pod that was created after `since_t` was first Ready in place of one of the node (s)."""
    pods = list(history.all_versions("pods"))
    before = [version.object for version in pods if version.t <= since_t]
    older = {pod["metadata"]["uid"] for pod in before}
    of_node = [pod for pod in before if pod["spec"].get("nodeName") == node]
    owners = {owner for pod in of_node for owner in _controllers(pod)}
    for version in pods:
        pod = version.object
        is_new = version.t > since_t and pod["metadata"]["uid"] not in older
        is_elsewhere = pod["spec"].get("nodeName") not in (None, node)
        is_ready = condition_status(pod, "Ready") == "True"
        if is_new and is_elsewhere and is_ready and owners & _controllers(pod):
            return version.t
    return None


def _controllers(pod: Mapping[str, Json]) -> set[str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return {owner["uid"] for owner in owners if owner.get("controller") and owner["kind"] != "DaemonSet"}


def _moved_t(history: History, node: str, since_t: float) -> float | None:
    """Return when a volume that was attached to the node was first attached to another (s)."""
    volumes = set()
    for version in history.all_versions("volumeattachments"):
        spec = version.object["spec"]
        volume = spec["source"].get("persistentVolumeName")
        is_attached = (version.object.get("status") or {}).get("attached")
        if version.t <= since_t and spec["nodeName"] == node and is_attached:
            volumes.add(volume)
        if version.t > since_t and spec["nodeName"] != node and is_attached and volume in volumes:
            return version.t
    return None


def _documented(configuration: Configuration, evicted: Version | None) -> Mapping[str, tuple[float, float]]:
    """Return what the settings promise of a node that sends nothing; empty if they are not known."""
    context = WindowContext(configuration, 0.0)
    try:
        detection, taint = compute(detection_from_fault(), context, {}), compute(taint_pass(), context, {})
    except KeyError:
        return {}
    low_s, high_s = detection.low_s, detection.high_s
    if evicted is None:
        return {"detected_s": (low_s, high_s)}
    tolerated_s = unreachable_toleration_s(evicted.object)
    evicted_s = (low_s + tolerated_s, high_s + taint.high_s + tolerated_s)
    return {"detected_s": (low_s, high_s), "evicted_s": evicted_s}


def _by_fault(recoveries: Iterable[Recovery]) -> Mapping[str, list[Recovery]]:
    groups: dict[str, list[Recovery]] = {}
    for recovery in recoveries:
        groups.setdefault(recovery.fault, []).append(recovery)
    return groups


def _times(recoveries: Iterable[Recovery], name: str) -> list[float]:
    return [time_s for recovery in recoveries if (time_s := getattr(recovery, name)) is not None]


def _span_documented(recoveries: Iterable[Recovery], name: str) -> tuple[float, float] | None:
    spans = [recovery.documented_s[name] for recovery in recoveries if name in recovery.documented_s]
    if not spans:
        return None
    return min(low_s for low_s, _high_s in spans), max(high_s for _low_s, high_s in spans)
