"""Runs as OpenMetrics, for the textfile collector of a node exporter or a push gateway.

The labels of a run are its set-up, not its name: the next night continues the series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest

from nodeproof.model.problem import Problem
from nodeproof.report.digest import Digest

_SETUP = ("kubernetes_version", "lab", "profile", "settings")


def render(runs: Sequence[Digest]) -> str:
    """Return the metrics of runs. Raises Problem if two have the same set-up."""
    setups = [_setup(run) for run in runs]
    for run, setup in zip(runs, setups, strict=True):
        if setups.count(setup) > 1:
            message = f"two runs have the set-up {' '.join(filter(None, setup))}"
            raise Problem(message, str(run.run), "pass only one of them")
    registry = CollectorRegistry()
    registry.register(_Runs(runs))
    metrics: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return metrics.decode()


class _Runs:
    """A collector of prometheus_client over runs."""

    def __init__(self, runs: Sequence[Digest]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs."""
        started = _gauge("run_start", "start of the run since the epoch", unit="seconds")
        duration = _gauge("run_duration", "duration of a run that ended", unit="seconds")
        whole = _gauge("run_complete", "1 if the run ended and all of it can be read, else 0")
        counts = _gauge("claims", "number of claims in each state", "state")
        state = _gauge("claim_state", "1 for the state of each judged claim", "claim", "area", "state")
        measured = _gauge("claim_measured", "measured time of a claim", "claim", unit="seconds")
        low = _gauge("claim_window_low", "earliest time that conforms", "claim", unit="seconds")
        high = _gauge("claim_window_high", "latest time that conforms", "claim", unit="seconds")
        for run in self._runs:
            setup = _setup(run)
            if run.facts and run.facts.began:
                started.add_metric(setup, datetime.fromisoformat(run.facts.began).timestamp())
            if run.facts and run.facts.ended:
                duration.add_metric(setup, run.facts.duration_s)
            whole.add_metric(setup, float(run.is_whole))
            for name, _label, number in run.counts:
                if name != "silent":
                    counts.add_metric([*setup, name], number)
            for entry in (entry for entry in run.entries if entry.state != "silent"):
                state.add_metric([*setup, entry.id, entry.area, entry.state], 1)
                row = entry.rows[0] if entry.rows else {}
                if row.get("measured") and row["measured"]["unit"] == "s":
                    measured.add_metric([*setup, entry.id], row["measured"]["value"])
                if row.get("window"):
                    low.add_metric([*setup, entry.id], row["window"]["low_s"])
                    high.add_metric([*setup, entry.id], row["window"]["high_s"])
        yield from (started, duration, whole, counts, state, measured, low, high)


def _setup(run: Digest) -> list[str]:
    return [run.kubernetes_version, run.lab, run.profile, " ".join(run.overrides)]


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"nodeproof_{name}", text, labels=[*_SETUP, *labels], unit=unit)
