"""What is published of runs: what may be seen and nothing else, and a list that keeps earlier ones."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest

from nodeproof import cli
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import deviates
from nodeproof.report import digest, page, publish, rechecked, rundir, seal, shards
from tests.unit.secrets_told import KEYS, STATIC, TOKEN, found
from tests.unit.test_page import Read
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, Told, shard_of, tell

WELL: Sequence[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]
ILL: Sequence[Told] = [("a.py::test_a", "cordon.taint", DEVIATES)]
SECRETS = {**KEYS, "token": TOKEN, "static": STATIC}
CANARIES = "".join(f"it is {secret}\n" for secret in (*KEYS.values(), TOKEN)) + f"--token={STATIC}\n"
PROGRAM = base64.b64encode(b"login({password: asked()})").decode()
"""Allure's own: it would not run without its words."""
CHANGED = "2026-11-20T15:00:00+00:00"


def night(top: Path, number: int, told: Sequence[Told] = WELL) -> Path:
    """A run of that day, with its page and a history, and with what is not to be seen."""
    began, ended = (f"2026-11-{number:02d}T02:{minute}:00+00:00" for minute in (17, 26))
    run = tell(top / f"night-{number}", told, replace(FACTS, began=began, ended=ended))
    for scenario in (run / "scenarios").iterdir():
        (scenario / "history.jsonl").write_text("{}\n")
    page.write(run, CLAIMS)
    build(run, "<title>Allure</title>")
    return run


def build(run: Path, text: str) -> None:
    """A run's page of Allure, as this user's nodeproof builds it."""
    (run / "site" / "index.html").write_text(text)
    seal.put(run / "site" / "index.html")


def names(folder: Path) -> list[str]:
    """Every file in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def entries(folder: Path) -> list[str]:
    """What is right in a folder."""
    return sorted(path.name for path in folder.iterdir())


def listed(folder: Path) -> Read:
    """The list as a browser sees it; whatever is opened there is closed."""
    seen = Read()
    seen.feed((folder / publish.INDEX).read_text())
    assert seen.open == []
    return seen


def test_what_may_be_seen_of_a_run_is_published_and_nothing_else(tmp_path: Path) -> None:
    run, site = night(tmp_path, 20), tmp_path / "site"
    (run / "labs" / "p-1").mkdir()
    for hidden in ("labs/p-1/audit.jsonl", "allure-results/1-result.json", "plan.json", "site/.partial"):
        (run / hidden).write_text("not to be seen")
    made = publish.publish(site, [run], CLAIMS)
    slug = rundir.slug("a.py::test_a")
    assert names(site) == [
        "index.html",
        "night-20/published.json",
        "night-20/run.json",
        *(
            f"night-20/scenarios/{slug}/{name}"
            for name in ("history.jsonl", "judgments.json", "timeline.svg")
        ),
        "night-20/site/index.html",
        "night-20/site/page.html",
        "night-20/verdicts.json",
    ]
    assert made == publish.Published(site / "index.html", ("night-20",), (), ())


def test_every_link_leads_somewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20, ILL), night(tmp_path, 21)], CLAIMS)
    seen = 0
    for html in (site / "index.html", *site.glob("*/site/page.html")):
        read = Read()
        read.feed(html.read_text())
        for link in read.links:
            address, _, fragment = unquote(link).partition("#")
            if "://" not in address:
                assert (html.parent / address).exists(), f"{html}: {link}"
                assert address or fragment in read.ids
                seen += "scenarios/" in address
    assert seen > 2


def test_earlier_runs_stay_listed_the_newest_first(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for number, told in ((21, ILL), (9, WELL), (22, WELL)):
        made = publish.publish(site, [night(tmp_path, number, told)], CLAIMS)
    assert made.runs == ("night-22", "night-21", "night-9")
    text = (site / "index.html").read_text()
    days = [text.index(f"2026-11-{day} 02:17 UTC") for day in ("22", "21", "09")]
    assert days == sorted(days)
    assert text.count("1 deviate") == 1
    assert text.count("1 conform") == 2
    assert text.count("v1.36.3") == text.count("process, fast") == 3
    assert listed(site).links[1:] == [
        f"night-{number}/site/{name}" for number in (22, 21, 9) for name in ("page.html", "index.html")
    ]


def test_only_the_newest_stay(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, number) for number in (20, 21, 22)], CLAIMS)
    made = publish.publish(site, [night(tmp_path, 23)], CLAIMS, keep=2)
    assert (made.runs, made.removed) == (("night-23", "night-22"), ("night-21", "night-20"))
    assert entries(site) == ["index.html", "night-22", "night-23"]
    assert "night-21" not in (site / "index.html").read_text()
    assert (tmp_path / "night-20").is_dir(), "a run is never removed, its copy is"


def test_runs_together_are_no_larger_than_they_may_be(tmp_path: Path) -> None:
    site, runs = tmp_path / "site", [night(tmp_path, number) for number in (20, 21, 22)]
    for run in runs:
        build(run, "x" * 2**20)
    made = publish.publish(site, runs, CLAIMS, mib=3)
    assert (made.runs, made.removed) == (("night-22", "night-21"), ("night-20",))
    assert publish.publish(site, [], CLAIMS, mib=1).runs == ("night-22",), "the newest stays"
    assert publish.publish(site, [], CLAIMS).runs == ("night-22",)


def killed(top: Path, name: str, told: Sequence[Told] = WELL) -> Path:
    """A run that could not write down what it was."""
    return tell(top / name, told, None)


def test_a_run_that_broke_off_is_listed_by_when_it_was_published(tmp_path: Path) -> None:
    site, run = tmp_path / "site", killed(tmp_path, "killed")
    made = publish.publish(site, [night(tmp_path, 20), run], CLAIMS)
    assert made.runs == ("killed", "night-20")
    text = (site / "index.html").read_text()
    assert "A run that does not say when it was" in text
    assert "This run is not whole" in text
    assert "The run did not come to its end" in text
    assert "The Nodes page, judged" in (site / "killed" / "site" / "page.html").read_text()
    assert "killed/site/index.html" not in listed(site).links


def test_a_run_that_broke_off_is_listed_by_when_it_began_where_anything_tells(tmp_path: Path) -> None:
    """By its folder's name, by its recordings, and by what it says of its shard, which is not copied."""
    site, stamped = tmp_path / "site", killed(tmp_path, "20261119-021700-fast-process-0001")
    runs = [night(tmp_path, 20), stamped]
    runs.append(killed(tmp_path, "recorded"))
    (scenario,) = (runs[-1] / "scenarios").iterdir()
    moment = datetime(2026, 11, 21, 2, 17, tzinfo=UTC).timestamp()
    (scenario / "history.jsonl").write_text(json.dumps({"t": 0.0, "wall_offset_s": moment}) + "\n")
    runs.append(killed(tmp_path, "shard"))
    shards.write(runs[-1], shard_of(1, [{}], began="2026-11-18T02:17:00+00:00"))
    made = publish.publish(site, runs, CLAIMS)
    assert made.runs == ("recorded", "night-20", stamped.name, "shard")
    text = (site / "index.html").read_text()
    assert [f"2026-11-{day} 02:17 UTC" in text for day in (18, 19, 20, 21)] == [True] * 4
    assert publish.publish(site, [], CLAIMS).runs == made.runs


def test_an_older_run_that_broke_off_takes_no_newer_ones_place(tmp_path: Path) -> None:
    site, run = tmp_path / "site", killed(tmp_path, "20261119-021700-fast-process-0001")
    new = night(tmp_path, 20)
    for each in (run, new):
        (each / "site").mkdir(exist_ok=True)
        build(each, "x" * 2**20)
    publish.publish(site, [run], CLAIMS)
    made = publish.publish(site, [new], CLAIMS, mib=2)
    assert (made.runs, made.removed) == (("night-20",), (run.name,))


def test_a_run_whose_time_is_none_is_listed_by_when_it_was_published(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    rundir.write_facts(run, replace(rundir.read_facts(run), began="soon", ended=""))
    assert publish.publish(site, [run, night(tmp_path, 21)], CLAIMS).runs == ("night-20", "night-21")
    assert "soon" not in (site / "index.html").read_text()


def test_a_run_that_was_killed_before_its_first_scenario_is_listed_as_what_it_is(tmp_path: Path) -> None:
    site, run = tmp_path / "site", rundir.create(tmp_path / "killed")
    made = publish.publish(site, [run, night(tmp_path, 20)], CLAIMS)
    assert (made.runs, made.unread) == (("killed", "night-20"), ())
    text = (site / "index.html").read_text()
    assert "No scenario left a verdict." in text
    assert "Nothing was judged." in text
    # As earlier versions copied it.
    (site / "killed" / "scenarios").rmdir()
    made = publish.publish(site, [], CLAIMS, keep=1)
    assert (made.runs, made.removed, made.unread) == (("killed",), ("night-20",), ())


def test_what_cannot_be_read_has_its_place_among_the_others(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, number) for number in (20, 21)], CLAIMS)
    (site / "night-20" / "run.json").write_text('{"format": 99}')
    mark = site / "night-20" / publish.MARK
    rundir.write_json(mark, {**json.loads(mark.read_text()), "published": "2026-11-20T03:00:00+00:00"})
    made = publish.publish(site, [], CLAIMS, keep=1)
    assert (made.runs, made.removed, made.unread) == (("night-21",), ("night-20",), ())


def test_what_is_no_copy_of_a_run_is_named_and_stays(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20)], CLAIMS)
    (site / "mine").mkdir()
    (site / "mine" / publish.MARK).write_text('{"my": "books"}')
    made = publish.publish(site, [], CLAIMS, keep=1)
    assert made.runs == ("night-20",)
    assert [said.partition(":")[0] for said in made.unread] == ["mine"]
    assert entries(site / "mine") == [publish.MARK]


def test_a_run_that_is_there_is_replaced(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    publish.publish(site, [run], CLAIMS)
    (site / "night-20" / "site" / "old.html").write_text("old")
    (site / ".nodeproof-partial-new-night-7" / "site").mkdir(parents=True)
    publish.publish(site, [run], CLAIMS)
    assert entries(site) == ["index.html", "night-20"]
    assert entries(site / "night-20" / "site") == ["index.html", "page.html"]


def test_without_a_run_the_list_is_written_again(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20)], CLAIMS)
    (site / "night-20" / "run.json").write_text('{"format": 99}')
    made = publish.publish(site, [], CLAIMS)
    assert made.runs == ()
    assert made.unread == (
        "night-20: this run was written by a newer nodeproof (format 99, this one reads 1)",
    )
    assert "What cannot be read" in (site / "index.html").read_text()
    assert (site / "night-20").is_dir()


def again(run: Path) -> Path:
    """The run, judged again."""
    told = tell(run / rechecked.FOLDER, ILL, replace(rundir.read_facts(run), run=run.name))
    rundir.write_json(told / rechecked.FILE, {})
    return told


def test_runs_that_were_judged_again_have_names_of_their_own_and_say_so(tmp_path: Path) -> None:
    site, runs = tmp_path / "site", [night(tmp_path, 20), night(tmp_path, 21)]
    rundir.write_facts(runs[1], rundir.read_facts(runs[0]))
    judged_again = [again(run) for run in runs]
    publish.publish(site, [*runs, *judged_again], CLAIMS)
    made = publish.publish(site, judged_again, CLAIMS)
    assert made.runs == ("night-21-recheck", "night-21", "night-20-recheck", "night-20")
    assert (site / "index.html").read_text().count("again, from the recordings") == 2
    for name in made.runs:
        is_said = "again, from the recordings" in (site / name / "site" / page.FILE).read_text()
        assert is_said == digest.read(site / name).is_judged_again == name.endswith("-recheck")
    alike = again(night(tmp_path / "elsewhere", 20))
    with pytest.raises(Problem, match=r"a name of its own .* rename .*/night-20$"):
        publish.publish(site, [judged_again[0], alike], CLAIMS)
    onto = publish.publish(tmp_path / "other", [site / "night-20-recheck"], CLAIMS)
    assert onto.runs == ("night-20-recheck",), "a copy keeps its name"


def test_what_was_recorded_takes_no_place_of_what_was_judged_again(tmp_path: Path) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    publish.publish(site, [again(run)], CLAIMS)
    with pytest.raises(Problem, match=r"another run of that name .* rename .*/night-20-recheck$"):
        publish.publish(site, [run.rename(tmp_path / "night-20-recheck")], CLAIMS)


@pytest.mark.parametrize("facts", [FACTS, replace(FACTS, exit_reason="a worker died"), None])
def test_a_copy_lacks_what_the_run_lacks(tmp_path: Path, facts: rundir.RunFacts | None) -> None:
    site, run = tmp_path / "site", tell(tmp_path / "run", WELL, facts)
    planned = ("a.py::test_a", "b.py::test_b")
    rundir.write_json(run / rundir.DECLARED, dict.fromkeys(planned, ("cordon.taint",)))
    publish.publish(site, [run], CLAIMS)
    copy = site / run.name
    assert digest.read(copy).missing == digest.read(run).missing
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


def test_no_secret_is_in_what_is_published(tmp_path: Path) -> None:
    """Planted where a run may have some: in logs, which stay behind; in verdicts, which are cleaned as they
    are written; and in the files of a run of an earlier version, which did not clean all.
    """
    told: Sequence[Told] = [("a.py::test_a", "cordon.taint", deviates(CANARIES, GAP.window, None, CANARIES))]
    run, site = night(tmp_path, 20, told), tmp_path / "site"
    (run / "labs" / "p-1").mkdir()
    for hidden in ("labs/p-1/kubelet.log", "allure-results/1-attachment.txt"):
        (run / hidden).write_text(CANARIES)
    (scenario,) = (run / "scenarios").iterdir()
    for name in ("history.jsonl", "timeline.svg", "rates.svg"):
        (scenario / name).write_text(CANARIES)
    assert found(run, SECRETS), "they are found where they are"
    publish.publish(site, [run], CLAIMS)
    assert found(site, SECRETS) == []
    for name in ("verdicts.json", "site/page.html", f"scenarios/{scenario.name}/history.jsonl"):
        assert "[redacted " in (site / run.name / name).read_text()


def allures(**embedded: str) -> str:
    """Allure's page: its program, and what it embeds."""
    data = ",".join(
        f'd("data/{name}","{base64.b64encode(said.encode()).decode()}")' for name, said in embedded.items()
    )
    program = f'<script src="data:text/javascript;base64,{PROGRAM}"></script>'
    return f"<title>Allure</title>{program}<script>Promise.allSettled([{data}])</script>"


def test_no_secret_is_in_a_page_that_is_published(tmp_path: Path) -> None:
    """A run of an earlier version has pages that were not cleaned; what Allure's embeds is base64."""
    run, site = night(tmp_path, 20), tmp_path / "site"
    embedded = allures(told=CANARIES, result=json.dumps({"message": CANARIES}), plain="שלום")
    build(run, f"{embedded}<pre>{CANARIES}</pre>")
    (run / "site" / page.FILE).write_text(f"<pre>{CANARIES}</pre>")
    (row,) = json.loads((run / "verdicts.json").read_text())
    (run / "verdicts.json").write_text(json.dumps([{**row, "reason": CANARIES}]))
    assert len(found(run / "site", SECRETS)) == 2 * len(SECRETS), "they are found where they are"
    publish.publish(site, [run], CLAIMS)
    assert found(site, SECRETS) == []
    copy = site / run.name / "site"
    judged = (copy / page.FILE).read_text()
    assert "The Nodes page, judged" in judged, "it is written anew"
    assert "[redacted private key " in judged, "of what is clean"
    shown = (copy / "index.html").read_text()
    assert (shown.count(PROGRAM), shown.count("[redacted token ") > 0) == (1, True)
    result = base64.b64decode(shown.partition('d("data/result","')[2].partition('"')[0])
    assert "[redacted private key " in json.loads(result)["message"]
    assert f'd("data/plain","{base64.b64encode("שלום".encode()).decode()}")' in shown, (
        "what is no secret stays as it is"
    )


def test_a_text_of_others_stays_text(tmp_path: Path) -> None:
    name, site = "<script>alert(1)</script>".replace("/", ""), tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20).rename(tmp_path / name)], CLAIMS)
    seen = listed(site)
    assert "script" not in seen.tags
    assert seen.loads == ["data:,"]
    assert (site / unquote(seen.links[1])).is_file()


def test_the_page_has_what_readers_need(tmp_path: Path) -> None:
    site = tmp_path / "site"
    publish.publish(site, [night(tmp_path, 20), night(tmp_path, 21, ILL)], CLAIMS)
    seen, text = listed(site), (site / "index.html").read_text()
    assert '<html lang="en">' in text
    assert "<title>The Nodes page, run by run</title>" in text
    assert "prefers-color-scheme: dark" in text
    assert [tag for tag in seen.tags if tag in ("header", "main", "footer")] == ["header", "main", "footer"]
    assert [tag for tag in seen.tags if tag in ("h1", "h2", "h3")] == ["h1", "h2", "h2"]
    assert len(set(seen.ids)) == len(seen.ids)


def mine(site: Path, _run: Path) -> None:
    """Somebody's own page is there."""
    (site / "index.html").write_text("<title>mine</title>")


def something(site: Path, run: Path) -> None:
    """A folder of that name is there, and no run that was published."""
    (site / run.name).mkdir()


def other(site: Path, run: Path) -> None:
    """A run of that name is published, of another time."""
    publish.publish(site, [run], CLAIMS)
    rundir.write_facts(run, replace(rundir.read_facts(run), began=CHANGED, ended=CHANGED))


def nothing(_site: Path, run: Path) -> None:
    """The run is away."""
    run.rename(run.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (mine, "did not write"),
        (something, "no published run"),
        (other, "another run of that name"),
        (nothing, "this is no run's folder"),
    ],
)
def test_what_would_harm_is_refused_and_nothing_is_written(
    tmp_path: Path, spoil: Callable[[Path, Path], None], said: str
) -> None:
    site, run = tmp_path / "site", night(tmp_path, 20)
    site.mkdir()
    spoil(site, run)
    before = names(site)
    with pytest.raises(Problem, match=said):
        publish.publish(site, [run], CLAIMS)
    assert names(site) == before


def test_nothing_is_published_into_a_run_nor_into_a_copy_of_one(tmp_path: Path) -> None:
    site, run, other = tmp_path / "site", night(tmp_path, 20), night(tmp_path, 21)
    publish.publish(site, [run], CLAIMS)
    begun = rundir.create(tmp_path / "begun")
    places = [other, other / "labs" / "none", site / "night-20", site / "night-20" / "site", begun]
    before = names(tmp_path)
    for place in places:
        with pytest.raises(Problem, match="runs cannot be published into a run"):
            publish.publish(place, [run], CLAIMS)
    assert names(tmp_path) == before
    (tmp_path / "scenarios").mkdir()
    assert publish.publish(tmp_path / "elsewhere", [run], CLAIMS).runs == ("night-20",)


def test_names_and_numbers_that_no_site_can_have_are_refused(tmp_path: Path) -> None:
    run = night(tmp_path, 20)
    with pytest.raises(Problem, match="name of its own"):
        publish.publish(tmp_path / "site", [run, run], CLAIMS)
    with pytest.raises(Problem, match="name of its own"):
        publish.publish(
            tmp_path / "site", [night(tmp_path / "runs", 21).rename(tmp_path / "runs" / "index.html")], CLAIMS
        )
    with pytest.raises(Problem, match="into itself"):
        publish.publish(run / "site" / "deep", [run], CLAIMS)
    with pytest.raises(Problem, match=r"cannot be so small \(--mib -1\)"):
        publish.publish(tmp_path / "site", [run], CLAIMS, mib=-1)
    with pytest.raises(Problem, match=r"\(--keep 0\)"):
        publish.publish(tmp_path / "site", [run], CLAIMS, keep=0)
    # Runs of one's own are never taken for published ones, nor removed.
    with pytest.raises(Problem, match="no published run"):
        publish.publish(tmp_path, [run], CLAIMS, keep=1)
    assert not (tmp_path / "site").exists()


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    runs = [str(night(tmp_path, number)) for number in (20, 21)]
    assert cli.main(["publish", str(site), *runs, "--keep", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{site / 'index.html'}\n"
    assert "removed, as newer ones take its place: night-20" in said.err
    assert cli.main(["publish", str(site), str(tmp_path / "nothing")]) == 2
    assert "this is no run's folder" in capsys.readouterr().err
