"""The package: its files, extras, versions and layout, shipped files, and the site of its documentation."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra import csi, dist
from infra.links import failure, links
from nodeproof import hints, proc
from nodeproof.hints import BASE, BOX, MACHINES, VAGRANT, Hint, hint_for, page, shipped
from nodeproof.model.problem import Problem
from tests.documented import PAGES, TOP
from tests.small_server import Page, serving

# The package: its files, its extras in the lock file, its versions, and the driver without its extra.


PINS = dict(re.findall(r"^([\w.-]+)==(\S+)", (dist.TOP / "requirements.lock").read_text(), re.MULTILINE))
PROJECT = dist.PROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [*PROJECT["dependencies"], *EXTRAS["csi"], *EXTRAS["lab"], *EXTRAS["dev"]]


def wheel_with(names: set[str], folder: Path) -> Path:
    path = folder / "nodeproof-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(names):
            archive.writestr(name, "")
    return path


def test_wheel_has_exactly_the_tracked_files(tmp_path: Path) -> None:
    names = set(dist.expected_files())
    dist.check_files(wheel_with(names, tmp_path))
    template = "nodeproof/report/templates/page.html"
    with pytest.raises(dist.CheckFailed, match=f"lacks {re.escape(str([template]))}"):
        dist.check_files(wheel_with(names - {template}, tmp_path))
    with pytest.raises(dist.CheckFailed, match="nodeproof/remains"):
        dist.check_files(wheel_with(names | {"nodeproof/remains"}, tmp_path))


def test_readme_of_the_package_has_no_relative_link(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    (source,) = (text for text in metadata.get_all("Project-URL", []) if text.startswith("Source, "))
    targets = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    root = source.removeprefix("Source, ")
    relative = [target for target in targets if not target.startswith(("https://", "#"))]
    assert (relative, f"{root}/raw/main/docs/report.png" in targets) == ([], True)
    assert f"{root}/blob/main/docs/tutorial.md" in targets


@pytest.mark.parametrize("requirement", [text for text in REQUIREMENTS if not text.startswith("nodeproof[")])
def test_lock_satisfies_the_extras(requirement: str) -> None:
    needed = Requirement(requirement)
    assert PINS[needed.name] in needed.specifier


def test_driver_has_the_version_of_the_package() -> None:
    assert PROJECT["version"] == csi.VERSION


def test_driver_without_grpc_names_its_extra() -> None:
    code = "import sys; sys.modules['grpc'] = None; import infra.csi"
    process = proc.run([sys.executable, "-c", code], timeout_s=60.0, cwd=dist.TOP, check=False)
    assert process.status == 2
    assert process.stderr == "csi driver: not installed: grpcio; run `pip install 'nodeproof[csi]'`\n"


# Shipped files and suggested fixes: in a clone and in an installed package.


@pytest.mark.parametrize("what", [BASE, BOX, MACHINES, VAGRANT])
def test_installed_package_names_its_extra_instead_of_a_setup_file(what: Hint, tmp_path: Path) -> None:
    assert hint_for(what).startswith("run `")
    assert "setup" not in hint_for(what, tmp_path)
    assert ("pip install 'nodeproof[libvirt]'" in hint_for(what, tmp_path)) is (what is MACHINES)


def test_shipped_file_is_found_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, schema = tmp_path / "site" / "nodeproof", "scenarios/claims.schema.json"
    assert shipped(schema).is_file()
    monkeypatch.setattr(hints, "_TOP", tmp_path)
    monkeypatch.setattr(hints, "__file__", str(package / "hints.py"))
    with pytest.raises(Problem, match="is missing"):
        shipped(schema)
    (package / "_data" / "scenarios").mkdir(parents=True)
    (package / "_data" / schema).touch()
    assert shipped(schema) == package / "_data" / schema


def test_page_of_an_installed_package_is_on_the_web(tmp_path: Path) -> None:
    assert page("README.md") == "README.md"
    assert page("docs/safety.md", tmp_path).startswith("https://")
    assert page("docs/safety.md", tmp_path).endswith("/docs/safety.md")


# What a plain pytest run loads of the harness, and what the plugin does there: nothing.


FOREIGN = """
import signal, sys

def test_it():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not {"nodeproof.session.run", "nodeproof.session.scenario_run"} & set(sys.modules)
"""
SCENARIO = """
import signal
from nodeproof.scenario import claims

@claims("cordon.taint")
def test_it(judge):
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
"""


def test_pytest_without_scenarios_loads_no_lab() -> None:
    code = "import sys, nodeproof.plugin; print(*sys.modules)"
    loaded = proc.run([sys.executable, "-c", code], timeout_s=120).stdout.split()
    assert "nodeproof.plugin" in loaded
    assert [name for name in loaded if name.startswith(("nodeproof.labs", "nodeproof.artifacts"))] == []


def run_pytest(folder: Path, code: str, workers: str) -> proc.Result:
    (folder / "test_it.py").write_text(code)
    argv = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", "test_it.py"]
    return proc.run(argv, timeout_s=240, cwd=folder, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_pytest_without_scenarios_is_not_disturbed(workers: str, tmp_path: Path) -> None:
    process = run_pytest(tmp_path, FOREIGN, workers)
    assert process.status == 0, process
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["test_it.py"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_scenario_begins_a_run_without_options(workers: str, tmp_path: Path) -> None:
    process = run_pytest(tmp_path, SCENARIO, workers)
    (run,) = (path for path in (tmp_path / "reports" / "out").glob("2*-fast-process-*"))
    assert (run / "verdicts.json").exists(), process
    assert f"run folder: {run}" in process.stdout


# The documentation as a site: complete, without a broken link, and without a request to another host.


TIMEOUT_S = 300.0
MOST_LINES, MOST_LINES_OF_README = 250, 150
# The resources of a page, not its links.
ELSEWHERE = re.compile(
    r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)"
)
STYLE_ELSEWHERE = re.compile(r"(?:url\(|@import\s*)[\"']?((?:https?:)?//[^\"')\s]+)")


def build(top: Path, site: Path) -> proc.Result:
    """Build the site of a folder as `make site` does."""
    argv = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return proc.run(argv, timeout_s=TIMEOUT_S, cwd=top, env=environment, check=False)


def test_site_has_no_broken_link_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    process = build(TOP, tmp_path)
    assert process.status == 0, process.stderr
    pages, styles = list(tmp_path.rglob("*.html")), list(tmp_path.rglob("*.css"))
    assert len(pages) > 30
    assert {host for page in pages for host in ELSEWHERE.findall(page.read_text())} == set()
    assert {host for style in styles for host in STYLE_ELSEWHERE.findall(style.read_text())} == set()


def test_pages_are_short() -> None:
    lines = {page: len(page.read_text().splitlines()) for page in PAGES}
    assert lines[TOP / "README.md"] <= MOST_LINES_OF_README
    assert [page for page, count in lines.items() if count > MOST_LINES] == []


# The weekly check of external links.


def test_link_is_found_once_with_all_its_pages() -> None:
    text = "[A](https://a.dev/x#part) and <https://a.dev/x#part>, `http://HOST/y`, http://b.example/z"
    assert links({"one.md": text, "two.md": text}) == {"https://a.dev/x#part": ["one.md", "two.md"]}


def test_only_a_link_that_is_not_served_fails() -> None:
    with serving(Page()) as web:
        assert failure(web.url, retries=0) == ""
        web.status = 404
        assert "404" in failure(web.url, retries=1, pause_s=0)
    assert "refused" in failure(web.url, retries=0)
