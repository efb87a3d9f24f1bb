"""Runs made by others: no command follows their links or publishes their scripts."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.model.problem import Problem
from nodeproof.report import digest, merge, page, publish, recheck, rundir, site
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, FACTS, content, shard_run, tell

SCENARIO = "a.py::test_a"
PARTS = ({SCENARIO: ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
PRIVATE = "a private key of whoever reads the run"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return private files that no run may reach."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text(PRIVATE)
    (home / ".profile").write_text("# mine\n")
    return home


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run as another user hands it over."""
    run = tell(tmp_path / "run", [(SCENARIO, "cordon.taint", CONFORMS)])
    (run / "site").mkdir()
    (run / "site" / "index.html").write_text("its page")
    return run


def scenario_of(run: Path) -> Path:
    """Return the folder of its only scenario."""
    return run / "scenarios" / rundir.slug(SCENARIO)


@contextmanager
def served(run: Path) -> Iterator[http.client.HTTPConnection]:
    """Open a connection to the server of a run."""
    with site.server(run) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        host, port = httpd.server_address[:2]
        connection = http.client.HTTPConnection(str(host), port, timeout=10)
        try:
            yield connection
        finally:
            connection.close()
            httpd.shutdown()
            thread.join()


def status_of(connection: http.client.HTTPConnection, path: str, host: str = "") -> int:
    """Return the server's status; `host` is the Host header."""
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_server_follows_no_link(run: Path, home: Path) -> None:
    (scenario_of(run) / "history.jsonl").symlink_to(home / ".ssh" / "id_ed25519")
    (run / "site" / "k").symlink_to(home)
    (run / "site" / "key").symlink_to(home / ".ssh" / "id_ed25519")
    os.mkfifo(run / "site" / "pipe")
    (run / "site" / "folder").mkdir()
    (run / "site" / "folder" / "index.html").symlink_to(home / ".ssh" / "id_ed25519")
    with served(run) as connection:
        assert status_of(connection, "/") == 200
        assert status_of(connection, f"/scenarios/{rundir.slug(SCENARIO)}/timeline.svg") == 200
        history = f"scenarios/{rundir.slug(SCENARIO)}/history.jsonl"
        linked = ("k/.ssh/id_ed25519", "k/", "key", "folder/", history)
        for path in (*linked, "pipe", "../run.json", "%2e%2e/run.json"):
            assert status_of(connection, f"/{path}") == 404, path


def test_server_answers_only_requests_for_this_machine(run: Path) -> None:
    with served(run) as connection:
        port = connection.port
        for host in ("", f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
            assert status_of(connection, "/", host) == 200, host
        others = ("rebound.example", f"rebound.example:{port}", "127.0.0.1", "localhost:1")
        for host in (*others, f"127.0.0.1:{port}.x"):
            assert status_of(connection, "/", host) == 421, host


@pytest.mark.parametrize("linked", ["site", "site/index.html"])
def test_site_behind_a_link_is_not_served(run: Path, home: Path, linked: str) -> None:
    (home / "index.html").write_text(PRIVATE)
    (run / linked).rename(run / "was")
    (run / linked).symlink_to(home / linked.partition("/")[2])
    with pytest.raises(Problem, match="the run has no site"):
        site.server(run)


def test_page_is_not_written_through_a_link(run: Path, home: Path, tmp_path: Path) -> None:
    before = content(home)
    for name in (page.FILE, f".{page.FILE}.partial"):
        (run / "site" / name).symlink_to(home / ".profile")
    assert "The Nodes page, judged" in page.write(run, CLAIMS).read_text()
    assert not (run / "site" / page.FILE).is_symlink()
    (run / "site").rename(tmp_path / "was")
    (run / "site").symlink_to(home)
    with pytest.raises(Problem, match="the page cannot be written"):
        page.write(run, CLAIMS)
    assert content(home) == before


@pytest.mark.parametrize("linked", ["", "environment.properties", "1-attachment.txt", "inner/2-result.json"])
def test_allure_gets_no_link(run: Path, home: Path, monkeypatch: pytest.MonkeyPatch, linked: str) -> None:
    """Allure opens its results itself, and copies some of their content to the site."""
    evil = "x; touch pwned #"
    rundir.write_facts(run, replace(FACTS, command=evil, lab=evil))
    results, before = run / "allure-results", content(home)
    if linked:
        (results / linked).parent.mkdir(exist_ok=True)
        (results / linked).symlink_to(home / ".profile")
    else:
        results.rename(run / "was")
        results.symlink_to(home)
    monkeypatch.setattr(site, "install", lambda *_arguments: Path("/bin/false"))
    with pytest.raises(Problem, match="a symbolic link in a run"):
        site.generate(run, print, CLAIMS)
    assert content(home) == before


def test_recheck_folder_is_never_a_link(run: Path, home: Path) -> None:
    before = content(home)
    for name in (".recheck", "recheck"):
        (run / name).symlink_to(home)
    rechecked = recheck.recheck(run, CLAIMS)
    assert rechecked.digest.run == run / "recheck"
    assert not rechecked.digest.run.is_symlink()
    assert content(home) == before


@pytest.mark.parametrize("linked", ["scenarios", "labs", "allure-results"])
def test_merged_run_contains_no_link(tmp_path: Path, home: Path, linked: str) -> None:
    shards = [
        shard_run(tmp_path / name, number, PARTS, [(scenario, "cordon.taint", CONFORMS)])
        for number, (name, scenario) in enumerate((("one", SCENARIO), ("two", "b.py::test_b")), 1)
    ]
    (shards[0] / linked).rename(shards[0] / "was")
    (shards[0] / linked).symlink_to(home)
    merge.merge(shards, tmp_path / "merged", CLAIMS)
    taken = content(tmp_path / "merged")
    assert not [path for path, text in taken.items() if PRIVATE.encode() in text or "ssh" in path]


@pytest.mark.parametrize("name", ["run.json", "verdicts.json", "declared-claims.json", "shard.json"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_files_behind_links_or_pipes_are_not_read(run: Path, tmp_path: Path, name: str, kind: str) -> None:
    """A reader of a pipe waits for a writer."""
    outside = tmp_path / "outside"
    outside.write_text((run / name).read_text() if (run / name).exists() else json.dumps({"UNTOLD": []}))
    (run / name).unlink(missing_ok=True)
    if kind == "link":
        (run / name).symlink_to(outside)
    else:
        os.mkfifo(run / name)
    with pytest.raises(Problem, match="cannot be read"):
        rundir.read_json(run / name)
    assert "UNTOLD" not in page.render(digest.read(run, CLAIMS))


def test_page_built_elsewhere_is_not_published(run: Path, tmp_path: Path) -> None:
    script = "<script>fetch('../../other-run/verdicts.json')</script>"
    for name in ("index.html", "evil.html"):
        (run / "site" / name).write_text(script)
    published = publish.publish(tmp_path / "pages", [run], CLAIMS)
    pages = {name for name in content(tmp_path / "pages") if name.endswith(".html")}
    assert pages == {"index.html", "run/site/page.html"}
    assert published.foreign == (str(run),)
    rundir.seal(run / "site" / "index.html")
    assert publish.publish(tmp_path / "pages", [run], CLAIMS).foreign == ()
    assert (tmp_path / "pages" / "run" / "site" / "index.html").read_text() == script


def test_seal_is_of_one_page_and_one_user(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = run / "site" / "index.html"
    assert not rundir.is_sealed(index)
    rundir.seal(index)
    assert rundir.is_sealed(index)
    index.write_text("another page")
    assert not rundir.is_sealed(index)
    rundir.seal(index)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not rundir.is_sealed(index)


def test_key_that_others_may_read_is_refused_and_stays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    rundir.seal(run / "site" / "index.html")
    (key,) = (tmp_path / "nodeproof").glob("*.key")
    before = key.read_bytes()
    key.chmod(0o644)
    with pytest.raises(Problem, match=r"others may read this private key \(mode 0644\)"):
        rundir.seal(run / "site" / "index.html")
    assert key.read_bytes() == before
    key.chmod(0o600)
    assert rundir.is_sealed(run / "site" / "index.html")
