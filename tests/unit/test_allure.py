"""Allure's site of a run, and the labels, links and categories in it."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.model.problem import Problem
from nodeproof.report import allure, digest, plain, rundir, site
from tests.fakes import executable
from tests.unit import synthetic_runs
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, tell
from tests.unit.test_foreign_runs import served, status_of

# The site: its Node.js, its installation, and no telemetry.


ALLURE = """
const fs = require("fs"), at = (name) => process.argv[process.argv.indexOf(name) + 1];
const config = JSON.parse(fs.readFileSync(at("--config")));
fs.mkdirSync(at("--output"), {recursive: true});
if (process.env.ALLURE_FAILS) { console.error("no results"); process.exit(1); }
if (config.appendHistory) fs.appendFileSync(config.historyPath, "{}\\n");
const google = '<script async src="https://www.googletagmanager.com/gtag/js?id=G-1"></script>';
const app = '<script>keep()</script><div id="app"></div>';
const tags = "</p>" + google + "\\n<script>\\ngtag('js');\\n</script>";
fs.writeFileSync(at("--output") + "/index.html", `<body id="x"><p>nodeproof${tags}${app}`);
"""
SITE_FACTS = replace(
    synthetic_runs.FACTS,
    ended="",
    components={"kubelet": {"path": "p", "version": "v1.36.3", "sha256": "0", "origin": "built here"}},
    settings=("--node-monitor-grace-period=12s", "a: b\\c"),
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run, with npm replaced by a script that installs a fake Allure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "allure.js").write_text(ALLURE)
    npm = executable(
        tmp_path / "npm",
        f'[ "$1" = ci ] && [ -f package-lock.json ] && echo x >>{tmp_path}/installs || exit 1\n'
        f"mkdir -p node_modules/allure && cp {tmp_path}/allure.js node_modules/allure/cli.js",
    )
    node = site.find_node()
    monkeypatch.setattr(site, "find_node", lambda: site.Node(node.program, (str(npm),)))
    folder = rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process"))
    rundir.write_facts(folder, SITE_FACTS)
    return folder


def test_site_is_built_with_one_installation_and_without_analytics(run: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    page = site.generate(run, messages.append, {})
    assert page == run / "site" / "index.html"
    html = page.read_text()
    assert html == '<body id="x"><p>nodeproof</p><script>keep()</script><div id="app"></div>'
    assert '<a href="index.html">' in page.with_name("page.html").read_text()
    assert len(messages) == 1
    site.generate(run, messages.append, {})
    assert len(messages) == 1
    assert site.history(run, SITE_FACTS).read_text().count("\n") == 1
    other = rundir.create(rundir.new_folder(run.parent, "fast", "process"))
    rundir.write_facts(other, SITE_FACTS)
    site.generate(other, print, {})
    assert (tmp_path / "installs").read_text() == "x\n"
    assert site.history(run, SITE_FACTS).read_text().count("\n") == 2


def test_trend_is_limited_to_one_kind_of_lab_profile_and_settings(run: Path) -> None:
    names = [site.history(run, replace(SITE_FACTS, profile=profile)).name for profile in ("fast", "a/../b")]
    assert names == ["allure-history-process-fast.jsonl", "allure-history-process-a-..-b.jsonl"]
    assert site.history(run, replace(SITE_FACTS, overrides=("--set kubelet.maxPods=50",))).name not in names


def test_quality_gate_requires_all_scenarios_and_no_failure(run: Path) -> None:
    rundir.write_json(run / rundir.DECLARED, {"a.py::test_a": ["x.y"], "a.py::test_b": ["x.y"]})
    site.generate(run, print, {})
    rules = json.loads((run / site.CONFIG).read_text())["qualityGate"]["rules"]
    assert rules == [{"id": "verdicts", "maxFailures": 0}, {"id": "scenarios", "minTestsCount": 2}]


def test_failing_allure_keeps_the_earlier_site(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = site.generate(run, print, {})
    monkeypatch.setenv("ALLURE_FAILS", "1")
    page.with_name("page.html").unlink()
    with pytest.raises(Problem, match="no results"):
        site.generate(run, print, {})
    assert page.is_file()
    assert page.with_name("page.html").is_file()


def test_failing_npm_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = site.find_node()
    monkeypatch.setattr(site, "find_node", lambda: site.Node(node.program, ("false",)))
    with pytest.raises(Problem, match="npm"):
        site.generate(run, print, {})
    assert not list((tmp_path / "cache" / "nodeproof").glob("allure-*/node_modules"))
    messages: list[str] = []
    assert site.write(run, messages.append, {}).is_file()
    assert messages[-1].startswith("no Allure site, the rest is done: npm failed")


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (SITE_FACTS.settings, "--node-monitor-grace-period=12s, a: b\\c"),
        (tuple("abcd"), "4 are not upstream's: the judged page lists them, under what ran"),
    ],
)
def test_first_page_shows_verdicts_and_settings(run: Path, settings: tuple[str, ...], shown: str) -> None:
    rundir.write_facts(run, replace(SITE_FACTS, settings=settings))
    site.generate(run, print, {})
    variables = json.loads((run / site.CONFIG).read_text())["variables"]
    assert variables["settings"] == shown
    assert variables["component kubelet"] == "v1.36.3 built here"
    assert "ended" not in variables


def test_node_of_the_wheel_is_used_if_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", {}.get)
    node = site.find_node()
    assert Path(node.program).is_file()
    assert all(Path(part).is_file() for part in node.npm)


def test_outdated_node_on_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("node", "npm"):
        executable(tmp_path / name, "echo v16.20.2")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not site.find_node().program.startswith(str(tmp_path))


def test_only_site_and_scenario_evidence_are_served_on_loopback(run: Path) -> None:
    site.generate(run, print, {})
    kinds = {"timeline.svg": "image/svg+xml", "rates.png": "image/png", "history.jsonl": ""}
    folder = run / "scenarios" / "it-1"
    folder.mkdir()
    for name in (*kinds, "configuration.json"):
        (folder / name).write_text("here")
    with served(run) as connection:
        assert connection.host == "127.0.0.1"
        assert status_of(connection, "/") == 200
        for name, kind in kinds.items():
            connection.request("GET", f"/scenarios/it-1/{name}")
            answer = connection.getresponse()
            assert answer.read() == b"here"
            assert kind in answer.headers["Content-Type"]
        for hidden in ("scenarios/it-1/configuration.json", "run.json", "scenarios/../run.json"):
            assert status_of(connection, f"/{hidden}") == 404


def test_recipe_is_locked_with_hashes_and_without_addresses() -> None:
    folder = Path(__file__).parents[2] / "infra" / "allure"
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    installed = [about for name, about in packages.items() if name]
    assert all("integrity" in about and "resolved" not in about for about in installed)


# Labels, links and categories of Allure; titles of scenarios; since when a claim deviates.


CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
DETECTION, LEASE, CORDON = "monitoring.detection-time", "heartbeat.lease-interval", "cordon.not-a-condition"
PLAIN = next(claim for claim, entry in CLAIMS.items() if not entry.drift and entry.status == "judged")


def test_scenario_is_grouped_by_headings_claims_and_sentence() -> None:
    labels = list(allure.labels(CUT, [LEASE, DETECTION, "own.claim"], CLAIMS))
    values = {name: [value for key, value in labels if key == name] for name, _value in labels}
    assert values["epic"] == ["Node heartbeats", "Node controller", "Not on the page: own"]
    assert f"{CLAIMS[LEASE].statement} ({LEASE})" in values["feature"]
    assert "own.claim" in values["feature"]
    assert (values["story"], values["scenario"]) == (["A cut node is found"], [CUT])


def test_new_deviations_have_their_own_category(tmp_path: Path) -> None:
    names = [f"a.py::test_{letter}[/?]" for letter in "abcd"]
    claims = [(0, PLAIN), (1, DETECTION), (2, LEASE), (3, LEASE), (3, PLAIN)]
    rows = [(names[number], claim, DEVIATES) for number, claim in claims]
    tell(tmp_path / "earlier", [(names[2], LEASE, DEVIATES)], replace(FACTS, began="2026-11-01T00:00:00Z"))
    run = digest.read(tell(tmp_path / "run", [*rows, ("a.py::test_e", CORDON, CONFORMS)]), CLAIMS)
    by_category = {
        category["name"]: [
            [name for name in names if re.search(matcher["labels"]["scenario"], name)]
            for matcher in category["matchers"]
        ]
        for category in allure.deviation_categories(run)
    }
    a, b, c, d = ([name] for name in names)
    assert by_category == {allure.NEW: [a, d], allure.NEW_BESIDE_DRIFT: [b], allure.STANDING: [c]}


def test_claim_shows_since_when_it_deviates(tmp_path: Path) -> None:
    def night(day: int, verdict: Any, **changed: Any) -> Path:
        facts = replace(FACTS, began=f"2026-11-{day}T02:00:00+00:00", **changed)
        return tell(tmp_path / f"night-{day}", [(CUT, DETECTION, verdict)], facts)

    night(10, DEVIATES)
    night(11, CONFORMS, kubernetes_version="v1.35.0")
    night(12, DEVIATES, kubernetes_version="v1.36.0")
    night(13, GAP)
    night(14, CONFORMS, profile="documented")
    (night(15, CONFORMS) / "verdicts.json").write_text("{")
    (night(16, CONFORMS) / "run.json").write_text("[]")
    night(17, DEVIATES)
    night(18, CONFORMS, overrides=("--set kubelet.maxPods=50",))
    run = night(19, DEVIATES)
    night(20, CONFORMS)
    histories = digest.read(run, CLAIMS).since
    assert {claim: str(history) for claim, history in histories.items()} == {
        DETECTION: "since 2026-11-12 02:00 UTC (run night-12, Kubernetes v1.36.0), in 3 consecutive runs; "
        "last conformed on 2026-11-11 02:00 UTC (run night-11, Kubernetes v1.35.0)"
    }


def test_first_deviation_is_marked_as_new(tmp_path: Path) -> None:
    run = tell(tmp_path / "b", [(CUT, DETECTION, DEVIATES), (CUT, LEASE, CONFORMS)])
    (history,) = digest.read(run, CLAIMS).since.values()
    assert (history.is_new, str(history)) == (True, "since this run; no earlier run here judged it")
    tell(tmp_path / "a", [(CUT, DETECTION, CONFORMS)], replace(FACTS, began="2026-11-01T00:00:00+00:00"))
    (history,) = digest.read(run, CLAIMS).since.values()
    assert str(history) == "since this run; last conformed on 2026-11-01 00:00 UTC (run a)"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("kubectl_describes_a_node_as_the_api_has_it", "kubectl describes a node as the API has it"),
        ("a_dead_nodes_volume_is_detached", "A dead node's volume is detached"),
        ("a_node_whose_kube_proxy_is_gone", "A node whose kube-proxy is gone"),
        ("a_node_has_noexecute[fd00::1]", "A node has NoExecute [fd00::1]"),
        ("a_node[api_x::y] (its worker died)", "A node [api_x::y] (its worker died)"),
    ],
)
def test_title_is_a_sentence(name: str, title: str) -> None:
    assert plain.title(f"scenarios/test_a.py::TestB::test_{name}") == title
