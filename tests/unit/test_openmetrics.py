"""Runs as OpenMetrics, and a dashboard whose queries name what the file has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nodeproof.cli import main
from tests.unit.synthetic_runs import DETECTION, FACTS, KNOWN, OTHER, ROWS, TAINT, VERSION, tell

DASHBOARD = Path(__file__).resolve().parents[2] / "infra" / "grafana" / "nodeproof.json"
SETUP = {"kubernetes_version": VERSION, "lab": "process", "profile": "fast", "settings": ""}
_SELECTOR = re.compile(r"(nodeproof_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)=~?")
_BY = re.compile(r"by \(([^)]*)\)")


def samples(path: Path) -> Iterator[Sample]:
    for family in text_string_to_metric_families(path.read_text()):  # type: ignore[no-untyped-call]
        yield from family.samples


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    """Write the metrics of a run with a claim in each state."""
    rows = [*ROWS, (OTHER, "cordon.display", KNOWN)]
    run, path = tell(tmp_path / "run", rows), tmp_path / "run.prom"
    assert main(["summary", "--openmetrics", str(path), str(run)]) == 0
    return path


def test_metrics_have_states_times_and_windows_of_claims(metrics: Path) -> None:
    values = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples(metrics)}

    def value(name: str, **labels: str) -> float:
        return values[(f"nodeproof_{name}", *sorted({**SETUP, **labels}.items()))]

    states = {"deviates": 1, "open": 1, "known": 1, "skipped": 1, "conforms": 1}
    assert {state: value("claims", state=state) for state in states} == states
    assert value("claim_state", claim=TAINT, area="cordon", state="deviates") == 1
    assert value("claim_measured_seconds", claim=DETECTION) == 13.1
    assert value("claim_window_low_seconds", claim=DETECTION) == 12.0
    assert value("claim_window_high_seconds", claim=DETECTION) == 14.62
    assert value("run_duration_seconds") == 362
    assert value("run_start_seconds") == 1795184130
    assert value("run_complete") == 1


def test_killed_run_is_incomplete_and_has_no_duration(tmp_path: Path) -> None:
    run, path = tell(tmp_path / "run", ROWS, facts=None), tmp_path / "run.prom"
    assert main(["summary", "--openmetrics", str(path), str(run)]) == 0
    values = {sample.name: sample.value for sample in samples(path)}
    assert values["nodeproof_run_complete"] == 0
    assert "nodeproof_run_duration_seconds" not in values


def test_runs_of_one_set_up_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(tell(tmp_path / name, ROWS)) for name in ("first", "second")]
    path = tmp_path / "run.prom"
    assert main(["summary", "--openmetrics", str(path), *runs]) == 2
    assert f"two runs have the set-up {VERSION} process fast" in capsys.readouterr().err
    other = tell(tmp_path / "other", ROWS, replace(FACTS, overrides=("A=true",)))
    assert main(["summary", "--openmetrics", str(path), runs[0], str(other)]) == 0


def test_each_query_of_the_dashboard_names_what_the_file_has(metrics: Path) -> None:
    labels: dict[str, set[str]] = {}
    for sample in samples(metrics):
        labels.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = set()
    for query in queries:
        selectors = _SELECTOR.findall(query)
        assert len(selectors) == query.count("nodeproof_"), query
        for name, selector in selectors:
            names.add(name)
            used = {
                *_LABEL.findall(selector),
                *(", ".join(_BY.findall(query)).split(", ") if _BY.search(query) else ()),
            }
            assert used <= labels[name], query
    assert names >= labels.keys() - {"nodeproof_claim_window_low_seconds"}


def test_variables_of_the_dashboard_are_labels_and_are_all_used() -> None:
    dashboard: Mapping[str, Any] = json.loads(DASHBOARD.read_text())
    variables = {entry["name"]: entry["query"] for entry in dashboard["templating"]["list"]}
    text = json.dumps(dashboard["panels"])
    assert {name for name in variables if f"${name}" in text or f"${{{name}}}" in text} == set(variables)
    queries = {query["query"] for name, query in variables.items() if name != "datasource"}
    assert queries == {
        f"label_values(nodeproof_run_complete, {label})" for label in SETUP if label != "settings"
    }
