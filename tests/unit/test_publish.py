"""Published runs: public files only, and a list that keeps earlier runs."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest

from nodeproof import cli
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import deviates
from nodeproof.report import digest, page, publish, rundir
from tests.unit.planted_secrets import KEYS, STATIC, TOKEN, find_secrets
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, ScenarioVerdict, shard_of, tell
from tests.unit.test_reports import parsed

WELL: Sequence[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]
ILL: Sequence[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", DEVIATES)]
SECRETS = {**KEYS, "token": TOKEN, "static": STATIC}
SECRET_LINES = "".join(f"it is {secret}\n" for secret in (*KEYS.values(), TOKEN)) + f"--token={STATIC}\n"
PROGRAM = base64.b64encode(b"login({password: asked()})").decode()
"""Allure's own text, without which it would not run."""
CHANGED = "2026-11-20T15:00:00+00:00"


def night(top: Path, number: int, rows: Sequence[ScenarioVerdict] = WELL) -> Path:
    """Write a run of that day, with its page and a history, and with private files."""
    began, ended = (f"2026-11-{number:02d}T02:{minute}:00+00:00" for minute in (17, 26))
    run = tell(top / f"night-{number}", rows, replace(FACTS, began=began, ended=ended))
    for scenario in (run / "scenarios").iterdir():
        (scenario / "history.jsonl").write_text("{}\n")
    page.write(run, CLAIMS)
    build(run, "<title>Allure</title>")
    return run


def build(run: Path, text: str) -> None:
    """Write Allure's page of a run, as this user's nodeproof builds it."""
    (run / "site" / "index.html").write_text(text)
    rundir.seal(run / "site" / "index.html")


def names(folder: Path) -> list[str]:
    """Return every file in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def entries(folder: Path) -> list[str]:
    """Return the entries of a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_only_the_public_files_of_a_run_are_published(tmp_path: Path) -> None:
    run, site = night(tmp_path, 20), tmp_path / "site"
    (run / "labs" / "p-1").mkdir()
    for hidden in ("labs/p-1/audit.jsonl", "allure-results/1-result.json", "plan.json", "site/.partial"):
        (run / hidden).write_text("not to be seen")
    published = publish.publish(site, [run], CLAIMS)
    scenario = f"scenarios/{rundir.slug('a.py::test_a')}"
    public = ["published.json", "run.json", "verdicts.json", "site/index.html", "site/page.html"]
    public += [f"{scenario}/{name}" for name in ("history.jsonl", "judgments.json", "timeline.svg")]
    assert names(site) == ["index.html", *sorted(f"night-20/{name}" for name in public)]
    assert published == publish.Published(site / "index.html", ("night-20",), (), ())


def test_every_link_is_valid(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20, ILL), night(tmp_path, 21)], CLAIMS)
    links = 0
    for html in (site / "index.html", *site.glob("*/site/page.html")):
        read = parsed(html.read_text())
        for link in read.links:
            address, _, fragment = unquote(link).partition("#")
            if "://" not in address:
                assert (html.parent / address).exists(), f"{html}: {link}"
                assert address or fragment in read.ids
                links += "scenarios/" in address
    assert links > 2


def test_only_the_newest_runs_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, number) for number in (20, 21, 22)], CLAIMS)
    assert cli.main(["publish", str(site), str(night(tmp_path, 23)), "--keep", "2"]) == 0
    removed = "nodeproof: removed, as newer ones take its place: "
    assert capsys.readouterr().err.splitlines() == [f"{removed}night-21", f"{removed}night-20"]
    assert entries(site) == ["index.html", "night-22", "night-23"]
    assert "night-21" not in (site / "index.html").read_text()
    assert (tmp_path / "night-20").is_dir(), "a run is never removed, its copy is"


def test_total_size_of_runs_is_limited(tmp_path: Path) -> None:
    site, runs = tmp_path / "site", [night(tmp_path, number) for number in (20, 21, 22)]
    for run in runs:
        build(run, "x" * 2**20)
    published = publish.publish(site, runs, CLAIMS, mib=3)
    assert (published.runs, published.removed) == (("night-22", "night-21"), ("night-20",))
    assert publish.publish(site, [], CLAIMS, mib=1).runs == ("night-22",), "the newest stays"
    assert publish.publish(site, [], CLAIMS).runs == ("night-22",)


def test_aborted_run_is_listed_by_its_start_or_publication_time(tmp_path: Path) -> None:
    """By its folder's name, by its recordings, or by its shard's facts, which are not copied."""
    site, stamped = tmp_path / "site", tell(tmp_path / "20261119-021700-fast-process-0001", WELL, None)
    killed, undated = tell(tmp_path / "killed", WELL, None), night(tmp_path, 22)
    rundir.write_facts(undated, replace(rundir.read_facts(undated), began="soon", ended=""))
    runs = [killed, undated, night(tmp_path, 20), stamped]
    runs.append(tell(tmp_path / "recorded", WELL, None))
    (scenario,) = (runs[-1] / "scenarios").iterdir()
    moment = datetime(2026, 11, 21, 2, 17, tzinfo=UTC).timestamp()
    (scenario / "history.jsonl").write_text(json.dumps({"t": 0.0, "wall_offset_s": moment}) + "\n")
    runs.append(tell(tmp_path / "shard", WELL, None))
    rundir.write_shard(runs[-1], shard_of(1, [{}], began="2026-11-18T02:17:00+00:00"))
    published = publish.publish(site, runs, CLAIMS)
    assert {*published.runs[:2]} == {"killed", "night-22"}
    assert published.runs[2:] == ("recorded", "night-20", stamped.name, "shard")
    text = (site / "index.html").read_text()
    assert [f"2026-11-{day} 02:17 UTC" in text for day in (18, 19, 20, 21)] == [True] * 4
    assert text.count("A run that does not say when it was") == 2
    assert "soon" not in text
    assert "killed/site/index.html" not in parsed(text).links
    assert publish.publish(site, [], CLAIMS).runs == published.runs


def test_unreadable_copy_keeps_its_place_and_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, number) for number in (20, 21)], CLAIMS)
    (site / "night-20" / "run.json").write_text('{"format": 99}')
    mark = site / "night-20" / rundir.PUBLISHED
    rundir.write_json(mark, {**json.loads(mark.read_text()), "published": "2026-11-20T03:00:00+00:00"})
    published = publish.publish(site, [], CLAIMS)
    reason = "night-20: this run was written by a newer nodeproof (format 99, this one reads 1)"
    assert (published.runs, published.unread) == (("night-21",), (reason,))
    assert "What cannot be read" in (site / "index.html").read_text()
    assert (site / "night-20").is_dir()
    published = publish.publish(site, [], CLAIMS, keep=1)
    assert (published.runs, published.removed, published.unread) == (("night-21",), ("night-20",), ())


def test_folder_that_is_no_copy_of_a_run_is_named_and_stays(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20)], CLAIMS)
    (site / "mine").mkdir()
    (site / "mine" / rundir.PUBLISHED).write_text('{"my": "books"}')
    published = publish.publish(site, [], CLAIMS, keep=1)
    assert published.runs == ("night-20",)
    assert [message.partition(":")[0] for message in published.unread] == ["mine"]
    assert entries(site / "mine") == [rundir.PUBLISHED]


def test_published_run_is_replaced(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    publish.publish(site, [run], CLAIMS)
    (site / "night-20" / "site" / "old.html").write_text("old")
    (site / ".nodeproof-partial-new-night-7" / "site").mkdir(parents=True)
    publish.publish(site, [run], CLAIMS)
    assert entries(site) == ["index.html", "night-20"]
    assert entries(site / "night-20" / "site") == ["index.html", "page.html"]


def again(run: Path) -> Path:
    """Recheck the run."""
    folder = tell(run / rundir.RECHECK, ILL, replace(rundir.read_facts(run), run=run.name))
    rundir.write_json(folder / rundir.CHANGES, {})
    return folder


def test_rechecked_runs_have_their_own_names_and_a_mark(tmp_path: Path) -> None:
    site, runs = tmp_path / "site", [night(tmp_path, 20), night(tmp_path, 21)]
    rundir.write_facts(runs[1], rundir.read_facts(runs[0]))
    judged_again = [again(run) for run in runs]
    publish.publish(site, [*runs, *judged_again], CLAIMS)
    published = publish.publish(site, judged_again, CLAIMS)
    assert published.runs == ("night-21-recheck", "night-21", "night-20-recheck", "night-20")
    assert (site / "index.html").read_text().count("again, from the recordings") == 2
    for name in published.runs:
        is_marked = "again, from the recordings" in (site / name / "site" / page.FILE).read_text()
        assert is_marked == digest.read(site / name, CLAIMS).is_judged_again == name.endswith("-recheck")
    alike = again(night(tmp_path / "elsewhere", 20))
    with pytest.raises(Problem, match=r"its own name .* rename .*/night-20$"):
        publish.publish(site, [judged_again[0], alike], CLAIMS)
    onto = publish.publish(tmp_path / "other", [site / "night-20-recheck"], CLAIMS)
    assert onto.runs == ("night-20-recheck",), "a copy keeps its name"


def test_recorded_run_does_not_replace_a_rechecked_one(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    publish.publish(site, [again(run)], CLAIMS)
    with pytest.raises(Problem, match=r"another run of that name .* rename .*/night-20-recheck$"):
        publish.publish(site, [run.rename(tmp_path / "night-20-recheck")], CLAIMS)


@pytest.mark.parametrize("facts", [FACTS, replace(FACTS, exit_reason="a worker died"), None])
def test_copy_lacks_the_same_files_as_the_run(tmp_path: Path, facts: rundir.RunFacts | None) -> None:
    site, run = tmp_path / "site", tell(tmp_path / "run", WELL, facts)
    planned = ("a.py::test_a", "b.py::test_b")
    rundir.write_json(run / rundir.DECLARED, dict.fromkeys(planned, ("cordon.taint",)))
    publish.publish(site, [run], CLAIMS)
    copy = site / run.name
    assert digest.read(copy, CLAIMS).missing == digest.read(run, CLAIMS).missing
    assert (copy / rundir.DECLARED).read_text() == (run / rundir.DECLARED).read_text()


def test_no_link_leads_out_of_a_run(tmp_path: Path) -> None:
    run, site, outside = night(tmp_path, 20), tmp_path / "site", tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    for name in ("key", "inner/history.jsonl", "inner/page.html"):
        (outside / name).write_text("UNTOLD")
    (scenario,) = (run / "scenarios").iterdir()
    (scenario / "rates.svg").symlink_to(outside / "key")
    (run / "scenarios" / "other").symlink_to(outside / "inner")
    (run / "site" / "inner").symlink_to(outside / "inner")
    (run / "site" / "key.html").symlink_to(outside / "key")
    (run / "verdicts.json").rename(outside / "verdicts.json")
    (run / "verdicts.json").symlink_to(outside / "verdicts.json")
    os.mkfifo(run / "site" / "pipe")
    publish.publish(site, [run], CLAIMS)
    assert not [path for path in site.rglob("*") if path.is_symlink()]
    assert [name for name in names(site) if "UNTOLD" in (site / name).read_text()] == []
    assert not (site / "night-20" / "verdicts.json").exists()


def allure_page(**embedded: str) -> str:
    """Return Allure's page: its program, and embedded data."""
    data = ",".join(
        f'd("data/{name}","{base64.b64encode(text.encode()).decode()}")' for name, text in embedded.items()
    )
    program = f'<script src="data:text/javascript;base64,{PROGRAM}"></script>'
    return f"<title>Allure</title>{program}<script>Promise.allSettled([{data}])</script>"


def test_published_files_contain_no_secret(tmp_path: Path) -> None:
    """Plant secrets where a run may have some.

    In logs, which stay behind; in verdicts, which are redacted as they are written; in the files and pages of
    a run of an earlier version, which did not redact all; and in Allure's embedded data, which is base64.
    """
    rows = [("a.py::test_a", "cordon.taint", deviates(SECRET_LINES, GAP.window, None, SECRET_LINES))]
    run, site = night(tmp_path, 20, rows), tmp_path / "site"
    (run / "labs" / "p-1").mkdir()
    (scenario,) = (run / "scenarios").iterdir()
    recorded = [scenario / name for name in ("history.jsonl", "timeline.svg", "rates.svg")]
    hidden = [run / name for name in ("labs/p-1/kubelet.log", "allure-results/1-attachment.txt")]
    for path in (*recorded, *hidden, run / "site" / page.FILE):
        path.write_text(SECRET_LINES)
    embedded = allure_page(text=SECRET_LINES, result=json.dumps({"message": SECRET_LINES}), plain="שלום")
    build(run, f"{embedded}<pre>{SECRET_LINES}</pre>")
    (row,) = json.loads((run / "verdicts.json").read_text())
    (run / "verdicts.json").write_text(json.dumps([{**row, "reason": SECRET_LINES}]))
    assert len(find_secrets(run / "site", SECRETS)) == 2 * len(SECRETS), "they are found where they are"
    publish.publish(site, [run], CLAIMS)
    assert find_secrets(site, SECRETS) == []
    copy = site / run.name
    for name in ("verdicts.json", "site/page.html", f"scenarios/{scenario.name}/history.jsonl"):
        assert "[redacted " in (copy / name).read_text()
    assert "The Nodes page, judged" in (copy / "site" / page.FILE).read_text(), "it is written anew"
    shown = (copy / "site" / "index.html").read_text()
    assert (shown.count(PROGRAM), shown.count("[redacted token ") > 0) == (1, True)
    result = base64.b64decode(shown.partition('d("data/result","')[2].partition('"')[0])
    assert "[redacted private key " in json.loads(result)["message"]
    plain = base64.b64encode("שלום".encode()).decode()
    assert f'd("data/plain","{plain}")' in shown, "what is no secret stays as it is"


def refused(site: Path, runs: Sequence[Path], message: str, **options: int) -> None:
    """Publish, which is refused; nothing is written."""
    before = names(site)
    with pytest.raises(Problem, match=message):
        publish.publish(site, runs, CLAIMS, **options)
    assert names(site) == before


def test_conflicting_folder_is_refused(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    publish.publish(site, [run], CLAIMS)
    rundir.write_facts(run, replace(rundir.read_facts(run), began=CHANGED, ended=CHANGED))
    refused(site, [run], "another run of that name")
    (site / run.name / rundir.PUBLISHED).unlink()
    refused(site, [run], "not a published run")
    (site / "index.html").write_text("<title>mine</title>")
    refused(site, [run], "did not write")


def test_nothing_is_published_into_a_run_or_a_copy_of_one(tmp_path: Path) -> None:
    site, run, other = tmp_path / "site", night(tmp_path, 20), night(tmp_path, 21)
    publish.publish(site, [run], CLAIMS)
    begun = rundir.create(tmp_path / "begun")
    for place in (other, other / "labs" / "none", site / "night-20", site / "night-20" / "site", begun):
        refused(place, [run], "runs cannot be published into a run")
    (tmp_path / "scenarios").mkdir()
    assert publish.publish(tmp_path / "elsewhere", [run], CLAIMS).runs == ("night-20",)


def test_invalid_names_and_numbers_are_refused(tmp_path: Path) -> None:
    run, site = night(tmp_path, 20), tmp_path / "site"
    refused(site, [run, run], "its own name")
    odd = night(tmp_path / "runs", 21).rename(tmp_path / "runs" / "index.html")
    refused(site, [odd], "its own name")
    refused(run / "site" / "deep", [run], "into itself")
    refused(site, [run], r"cannot be so small \(--mib -1\)", mib=-1)
    refused(site, [run], r"\(--keep 0\)", keep=0)
    # Unpublished runs are never removed.
    refused(tmp_path, [run], "not a published run", keep=1)
    assert not site.exists()
