"""A real Prometheus reads the metrics of a run, and every query of the dashboard returns data."""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.cli import main
from nodeproof.waiting import wait_until
from tests.documented import TOP
from tests.golden_runs import thawed_run
from tests.small_server import Quiet, served

pytestmark = pytest.mark.night("downloads Prometheus; unit tests compare the dashboard with the metrics")
Json = Any
PACKAGE = "prometheus"
DOWNLOAD_TIMEOUT_S, COMMAND_TIMEOUT_S = 120.0, 30.0
START_TIMEOUT_S, SCRAPE_TIMEOUT_S, ANSWER_TIMEOUT_S = 60.0, 30.0, 10.0
EXPOSED = "nodeproof.prom"
ADDRESS = re.compile(r'"Listening on".*?address=(\S+)')
RUN = "format-1"
"""A recorded run in which claims conform, deviate and stay open."""
DASHBOARD = json.loads((TOP / "infra" / "grafana" / "nodeproof.json").read_text())
QUERIES = {panel["title"]: target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
VARIABLES = {
    entry["name"]: entry["query"] for entry in DASHBOARD["templating"]["list"] if entry["type"] == "query"
}


class Exporter(Quiet, SimpleHTTPRequestHandler):
    """Serves the metrics as OpenMetrics."""

    def guess_type(self, _path: object) -> str:
        """Return the type of every file."""
        return "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class Prometheus:
    """The API of a server."""

    address: str

    def ask(self, path: str, **parameters: str) -> Json:
        """Return the data of an answer. Raises OSError."""
        address = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=ANSWER_TIMEOUT_S) as answer:
            return json.load(answer)["data"]

    def has_metrics(self) -> bool:
        """Return whether it has read the metrics. Raises OSError."""
        return bool(self.ask("query", query="nodeproof_run_complete")["result"])


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of prometheus and promtool: installed, or of the package that apt downloads."""
    installed = shutil.which("prometheus")
    if installed and shutil.which("promtool"):
        return Path(installed).parent
    folder = tmp_path_factory.mktemp("package")
    # It is unpacked, because its installation would start a service.
    download = f"apt-get download {PACKAGE} && dpkg-deb --extract {PACKAGE}_*.deb ."
    process = proc.run(["sh", "-c", download], timeout_s=DOWNLOAD_TIMEOUT_S, cwd=folder, check=False)
    if process.status != 0:
        pytest.skip(f"no Prometheus: apt-get install {PACKAGE}")
    return folder / "usr" / "bin"


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the metrics of the recorded run."""
    folder = tmp_path_factory.mktemp("metrics")
    path, run = folder / EXPOSED, thawed_run(RUN, folder / "run")
    assert main(["summary", "--openmetrics", str(path), str(run)]) == 0
    return path


@pytest.fixture(scope="module")
def exporter(metrics: Path) -> Iterator[str]:
    """Serve the metrics on loopback."""
    with served(partial(Exporter, directory=str(metrics.parent))) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def prometheus(
    programs: Path, exporter: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Start a server that has read the metrics."""
    folder = tmp_path_factory.mktemp("prometheus")
    target = {"targets": [exporter]}
    job = {"job_name": "nodeproof", "metrics_path": f"/{EXPOSED}", "static_configs": [target]}
    # YAML has all of JSON.
    (folder / "prometheus.yml").write_text(
        json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
    )
    argv = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    log = folder / "log"
    with log.open("wb") as out:
        process = proc.start(argv, log=out.fileno())
    try:
        assert wait_until(lambda: ADDRESS.search(log.read_text()) is not None, START_TIMEOUT_S), (
            log.read_text()
        )
        server = Prometheus(str(ADDRESS.findall(log.read_text())[0]))
        assert wait_until(server.has_metrics, SCRAPE_TIMEOUT_S, errors=(OSError,)), log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait(COMMAND_TIMEOUT_S)


def test_promtool_accepts_the_metrics(programs: Path, metrics: Path) -> None:
    argv = [str(programs / "promtool"), "check", "metrics"]
    process = proc.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin=metrics.read_text(), check=False)
    assert process.status == 0, process


@pytest.mark.parametrize("panel", QUERIES)
def test_query_of_the_dashboard_returns_data(prometheus: Prometheus, panel: str) -> None:
    query = QUERIES[panel]
    for name in VARIABLES:
        # Grafana's value for all.
        query = query.replace(f"${name}", ".*")
    assert prometheus.ask("query", query=query)["result"], query


def test_variables_of_the_dashboard_have_the_values_of_the_run(prometheus: Prometheus) -> None:
    values = {
        name: prometheus.ask(f"label/{query['refId']}/values", **{"match[]": "nodeproof_run_complete"})
        for name, query in VARIABLES.items()
    }
    assert values == {"version": ["v1.36.3"], "lab": ["process"], "profile": ["fast"]}
