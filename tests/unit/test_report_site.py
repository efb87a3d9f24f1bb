"""The site: which Node.js makes it, where it is installed, and that it does not report home."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.model.problem import Problem
from nodeproof.report import digest, rundir, site

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
FACTS = rundir.RunFacts(
    "r",
    "2026-11-20T14:15:30Z",
    "",
    "process",
    "fast",
    "v1.36.3",
    "pytest --profile fast",
    {"kubelet": {"path": "p", "version": "v1.36.3", "sha256": "0", "origin": "built here"}},
    ("--node-monitor-grace-period=12s", "a: b\\c"),
    (),
    (),
    "",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, and npm replaced by a script that installs a stand-in for Allure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "allure.js").write_text(ALLURE)
    npm = tmp_path / "npm"
    npm.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = ci ] && [ -f package-lock.json ] && echo x >>{tmp_path}/installs || exit 1\n'
        f"mkdir -p node_modules/allure && cp {tmp_path}/allure.js node_modules/allure/cli.js\n"
    )
    npm.chmod(0o755)
    node = site.find_node()
    monkeypatch.setattr(site, "find_node", lambda: site.Node(node.program, (str(npm),)))
    folder = rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process"))
    rundir.write_facts(folder, FACTS)
    return folder


def test_the_site_is_built_once_installed_and_keeps_home(run: Path, tmp_path: Path) -> None:
    said: list[str] = []
    page = site.generate(run, said.append, {})
    assert page == run / "site" / "index.html"
    html = page.read_text()
    assert "<p>nodeproof</p>" in html
    assert "gtag" not in html
    assert "keep()" in html
    assert len(said) == 1
    site.generate(run, said.append, {})
    assert len(said) == 1
    assert (tmp_path / "installs").read_text() == "x\n"
    assert site.history(run, FACTS).read_text().count("\n") == 1


def test_the_trend_goes_over_runs(run: Path) -> None:
    other = rundir.create(rundir.new_folder(run.parent, "fast", "process"))
    rundir.write_facts(other, FACTS)
    for folder in (run, other):
        site.generate(folder, print, {})
    assert site.history(run, FACTS).read_text().count("\n") == 2


def test_the_trend_is_of_one_kind_of_lab_and_one_profile(run: Path) -> None:
    names = [site.history(run, replace(FACTS, profile=profile)).name for profile in ("fast", "a/../b")]
    assert names == ["allure-history-process-fast.jsonl", "allure-history-process-a-..-b.jsonl"]


def test_the_quality_gate_asks_for_all_scenarios_and_no_failure(run: Path) -> None:
    rundir.write_json(run / rundir.DECLARED, {"a.py::test_a": ["x.y"], "a.py::test_b": ["x.y"]})
    site.generate(run, print, {})
    asked = json.loads((run / site.CONFIG).read_text())["qualityGate"]["rules"]
    assert asked == [{"id": "verdicts", "maxFailures": 0}, {"id": "scenarios", "minTestsCount": 2}]


def test_a_failing_allure_leaves_the_former_site(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = site.generate(run, print, {})
    monkeypatch.setenv("ALLURE_FAILS", "1")
    (run / "site" / "page.html").unlink()
    with pytest.raises(Problem, match="no results"):
        site.generate(run, print, {})
    assert page.is_file()
    assert (run / "site" / "page.html").is_file()


def test_both_pages_lead_to_each_other(run: Path) -> None:
    index = site.generate(run, print, {})
    above = '<body id="x"><nav aria-label="nodeproof" data-nodeproof><a href="page.html"'
    assert above in index.read_text()
    assert '<a href="index.html">' in index.with_name("page.html").read_text()


def test_all_of_allures_page_is_in_a_landmark_and_its_red_can_be_read(run: Path) -> None:
    page = site.generate(run, print, {}).read_text()
    assert page.endswith('<script>keep()</script><div id="app" role="main"></div>')
    (badge,) = re.findall(r"--status-label-bg:#(\w{6})", page)
    (said,) = re.findall(r"--color-status-failed-text:#(\w{6})", page)
    assert contrast(badge, "ffffff") >= 4.5
    assert contrast(said, "fff3f3") >= 4.5


def contrast(one: str, other: str) -> float:
    """Of two colours, from 1 to 21. Source: WCAG 2.2, its definition of contrast ratio."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """From 0 to 1. Source: WCAG 2.2, its definition of relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_failing_npm_is_a_problem_and_leaves_nothing_installed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = site.find_node()
    monkeypatch.setattr(site, "find_node", lambda: site.Node(node.program, ("false",)))
    with pytest.raises(Problem, match="npm"):
        site.generate(run, print, {})
    assert not list((tmp_path / "cache" / "nodeproof").glob("allure-*/node_modules"))


def test_settings_that_are_many_leave_the_first_page_to_the_verdicts(run: Path) -> None:
    facts = replace(FACTS, settings=tuple(f"setting-{number}=1" for number in range(29)))
    shown = site.environment(facts, digest.read(run))["settings"]
    assert shown == "29 are not upstream's: the judged page lists them, under what ran"


def test_the_first_page_tells_the_settings(run: Path) -> None:
    site.generate(run, print, {})
    lines = (run / "allure-results" / "environment.properties").read_text().splitlines()
    assert [line.partition(" = ")[0] for line in lines][:4] == ["verdicts", "kubernetes", "lab", "profile"]
    assert lines[0] == "verdicts = conforms 0  deviates 0  unproven 0".replace("  ", " ")
    assert "settings = --node-monitor-grace-period=12s, a: b\\\\c" in lines
    assert "component\\ kubelet = v1.36.3 built here" in lines
    assert not any(line.startswith("ended") for line in lines)


def test_the_wheels_node_serves_where_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", {}.get)
    node = site.find_node()
    assert Path(node.program).is_file()
    assert all(Path(part).is_file() for part in node.npm)


def test_an_old_node_on_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v16.20.2\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not site.find_node().program.startswith(str(tmp_path))


def test_the_site_is_served_on_loopback(run: Path) -> None:
    site.generate(run, print, {})
    with site.server(run) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        host, port = httpd.server_address[:2]
        with urllib.request.urlopen(f"http://{host!s}:{port}/", timeout=10) as answer:
            assert b"nodeproof" in answer.read()
        httpd.shutdown()
    assert host == "127.0.0.1"


def test_evidence_of_scenarios_is_served_with_the_site_and_nothing_else_of_the_run(run: Path) -> None:
    site.generate(run, print, {})
    for name in ("timeline.svg", "rates.png", "history.jsonl", "configuration.json"):
        (run / "scenarios" / "it-1").mkdir(exist_ok=True)
        (run / "scenarios" / "it-1" / name).write_text("here")
    with site.server(run) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        asked = http.client.HTTPConnection("127.0.0.1", httpd.server_address[1], timeout=10)
        kinds = {"timeline.svg": "image/svg+xml", "rates.png": "image/png", "history.jsonl": ""}
        for name, kind in kinds.items():
            asked.request("GET", f"/scenarios/it-1/{name}")
            answer = asked.getresponse()
            assert answer.read() == b"here"
            assert kind in answer.headers["Content-Type"]
        for path in (
            "scenarios/it-1/configuration.json",
            "run.json",
            "scenarios/../run.json",
            "%2e%2e/run.json",
        ):
            asked.request("GET", f"/{path}")
            answer = asked.getresponse()
            assert (answer.status, b"here" in answer.read()) == (404, False)
        httpd.shutdown()


def test_a_run_without_a_site_cannot_be_served(run: Path) -> None:
    with pytest.raises(Problem, match="no site"):
        site.serve(run, print)


def test_the_recipe_is_locked_with_hashes_and_without_addresses() -> None:
    folder = Path(__file__).parents[2] / "infra" / "allure"
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    installed = [about for name, about in packages.items() if name]
    assert all("integrity" in about and "resolved" not in about for about in installed)
