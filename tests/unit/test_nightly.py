"""The nightly workflow: what it calls exists, and it merges, says and heals whatever happened."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import cli, proc
from nodeproof.model import shard
from nodeproof.report import rundir
from tests.unit.told_runs import CONFORMS, DEVIATES, FACTS, Told, shard_run, tell

Json = Any
TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "infra" / "ci" / "nightly.yml"
WORKFLOW: Json = yaml.safe_load(FILE.read_text())
JOBS: Json = WORKFLOW["jobs"]
LINES = [line for job in JOBS.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
TARGETS = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
TOLD: list[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
SAY_NOTHING = ("shard", "sensitivity", "false-alarms")
"""What a shard says is said of the merged run; the others' tables are in their logs."""
WITHOUT_LABS = ("conformance", "publish")
CHECKER = Path(sys.executable).with_name("check-jsonschema")


RUNS = {
    ".venv/bin/nodeproof merge": "below",
    ".venv/bin/nodeproof summary": "below",
    ".venv/bin/nodeproof publish": "below",
    ".venv/bin/nodeproof doctor": "tests/acceptance/test_doctor_here.py",
    "infra/ci/runner.sh": "below, with an apt and a root of its own: no test has a runner",
    "make setup": "tests/acceptance/test_set_up.py",
    ".venv/bin/nodeproof heal": "tests/contract/test_safety.py, tests/acceptance/test_safety.py",
    "infra/setup.sh": "tests/acceptance/test_set_up.py",
    "make run": "tests/acceptance/test_conformance.py; what each shard would run, below",
    "make documented": "what it calls is in .ci/run",
    "make test-vm": "what it calls is in .ci/run",
    "make night": "takes an hour and a half; its parts are in tests/unit/test_what_is_where.py",
    "make sensitivity": "takes an hour; .ci/run has ten of its rows",
    "make false-alarms": "takes three hours; its rounds are `make run`",
}
"""Which test runs a line, or why none does."""


def of(job: str, said: str) -> Json:
    """The one step of a job that calls this."""
    (step,) = (each for each in JOBS[job]["steps"] if said in each.get("run", ""))
    return step


@pytest.mark.parametrize("line", LINES)
def test_every_line_runs_in_a_test_or_says_why_not(line: str) -> None:
    assert [said for said in RUNS if line.startswith(said)], f"{line}: nobody knows whether it works"


def expanded(text: str, number: int = 1, attempt: int = 1) -> str:
    """A text of the workflow as that run has it."""
    known = {"github.run_number": number, "github.run_attempt": attempt, "github.run_id": 1000 + number}
    return EXPRESSION.sub(lambda found: str(known.get(found[0][3:-2].strip(), number)), text)


def made(line: str) -> str:
    """The commands by which make would do what a line says."""
    # Beside another make, its jobs would be ours.
    argv = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "bash", "-c", f"{line} --dry-run")
    return proc.run(argv, timeout_s=240.0, cwd=TOP).stdout


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_make_knows_what_to_do_for_a_line(line: str) -> None:
    """As far as that can be seen without doing it: its commands, with the line's options in them."""
    said = made(expanded(line))
    assert ".venv/bin/" in said
    asked = re.search(r'ARGS="([^"]*)"', expanded(line))
    assert asked is None or asked[1] in said


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_calls_exists(line: str) -> None:
    command, *words = shlex.split(EXPRESSION.sub("1", line))
    if command == "make":
        targets = [word for word in words if "=" not in word]
        assert targets
        assert set(targets) <= TARGETS
    elif command == ".venv/bin/nodeproof":
        assert words[0] in {each.name for each in cli.COMMANDS}
    else:
        assert os.access(TOP / command, os.X_OK)


def checked(file: Path) -> proc.Result:
    """GitHub's own schema of workflows, as check-jsonschema brings it: without the internet."""
    argv = (str(CHECKER), "--builtin-schema", "vendor.github-workflows", str(file))
    return proc.run(argv, timeout_s=240.0, check=False)


def test_it_is_a_workflow(tmp_path: Path) -> None:
    assert checked(FILE).status == 0
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(FILE.read_text().replace("runs-on:", "runs-under:"))
    assert checked(wrong).status == 1


def test_all_shards_run_and_none_ends_another() -> None:
    (line,) = (each for each in LINES if "--shard" in each)
    strategy = JOBS["shard"]["strategy"]
    numbers = strategy["matrix"]["shard"]
    assert strategy["fail-fast"] is False
    found = re.search(r"--shard=([^ \"]+(?: [^ \"]+)*?/\d+)", line)
    assert found
    shards = [shard.parse(EXPRESSION.sub(str(number), found[1])) for number in numbers]
    assert shards == [(number, len(numbers)) for number in numbers]
    assert "${{ matrix.shard }}" in found[1]


@pytest.mark.parametrize("job", [name for name in JOBS if name not in WITHOUT_LABS])
def test_a_job_with_labs_heals_whatever_happened(job: str) -> None:
    step = of(job, "nodeproof heal")
    assert step["if"] == "always()"
    assert JOBS[job]["steps"].index(step) > max(
        number for number, each in enumerate(JOBS[job]["steps"]) if each.get("run", "").startswith("make ")
    )


def checkout(top: Path) -> Path:
    """A folder in which a line of the workflow finds nodeproof, without the site; gives where runs are."""
    program = top / ".venv" / "bin" / "nodeproof"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = merge ] && set -- "$@" --no-site\nexec {sys.executable} -m nodeproof.cli "$@"\n'
    )
    program.chmod(0o755)
    return top / "reports" / "out"


def carried_out(top: Path, line: str, number: int = 1, attempt: int = 1) -> str:
    """What a line of the workflow writes onto the page of its run, in the run of that number."""
    page = top / f"page-{number}-{attempt}.md"
    said = expanded(line, number, attempt)
    argv = ("env", f"GITHUB_STEP_SUMMARY={page}", "bash", "-e", "-c", said)
    proc.run(argv, timeout_s=240.0, cwd=top)
    return page.read_text() if page.exists() else ""


@pytest.mark.parametrize("job", [name for name in JOBS if name not in (*SAY_NOTHING, *WITHOUT_LABS)])
def test_the_nightly_run_says_it_whatever_happened(tmp_path: Path, job: str) -> None:
    step = of(job, "GITHUB_STEP_SUMMARY")
    assert step["if"] == "always()"
    out = checkout(tmp_path)
    for name in ("20261120-141530-fast", "20261120-142530-documented"):
        tell(out / name, TOLD)
    rundir.point_latest(out, out / "20261120-142530-documented")
    said = carried_out(tmp_path, step["run"])
    assert said.count("\n## Kubernetes") + said.startswith("## Kubernetes") == 2


def test_a_shard_that_is_missing_fails_the_night_and_is_named(tmp_path: Path) -> None:
    assert JOBS["conformance"]["if"] == of("conformance", "GITHUB_STEP_SUMMARY")["if"] == "always()"
    out = checkout(tmp_path)
    shard_run(out / "shards" / "shard-1", 1, PARTS, TOLD)
    with pytest.raises(proc.CommandFailed) as failed:
        carried_out(tmp_path, of("conformance", "nodeproof merge")["run"])
    assert failed.value.status == 3
    said = carried_out(tmp_path, of("conformance", "nodeproof summary")["run"])
    assert "unproven: gap: `shard 2/2 is missing" in said


def night(top: Path, number: int, told: list[Told], attempt: int = 1) -> str:
    """Carry a night's conformance job out, all shards of which came; gives what it says on the page."""
    out, job = top / "reports" / "out", "conformance"
    began, ended = (f"2026-11-{number}T0{1 + attempt}:{minute}:00+00:00" for minute in (17, 26))
    facts = replace(FACTS, began=began, ended=ended)
    for shard_number, part in enumerate(PARTS, start=1):
        mine = [each for each in told if each[0] in part]
        shard_run(out / "shards" / f"shard-{shard_number}", shard_number, PARTS, mine, facts)
    with contextlib.suppress(proc.CommandFailed):
        carried_out(top, of(job, "nodeproof merge")["run"], number, attempt)
    shutil.rmtree(out / "shards")
    said = carried_out(top, of(job, "nodeproof summary")["run"], number, attempt)
    carried_out(top, of(job, "nodeproof publish")["run"], number, attempt)
    return said


def used(job: str, action: str) -> Json:
    """The one step of a job that uses this action."""
    (step,) = (each for each in JOBS[job]["steps"] if each.get("uses", "").startswith(f"{action}@"))
    return step


def forget_all_but(top: Path, kept: str) -> None:
    """What a runner's end does to what no cache has; of a folder the cache takes all."""
    cached = {path for pattern in kept.split() for path in top.glob(pattern)}
    for path in top.glob("reports/**/*"):
        if path.is_file() and cached.isdisjoint((path, *path.parents)):
            path.unlink()


WELL: list[Told] = [(scenario, "cordon.taint", CONFORMS) for part in PARTS for scenario in part]
ILL: list[Told] = [(scenario, "cordon.taint", DEVIATES) for part in PARTS for scenario in part]


def test_what_is_kept_of_a_night_is_kept_of_one_that_deviates_too() -> None:
    steps = JOBS["conformance"]["steps"]
    restored, saved = (used("conformance", f"actions/cache/{each}") for each in ("restore", "save"))
    assert saved["if"] == of("conformance", "nodeproof publish")["if"] == "always()"
    assert restored["with"]["path"] == saved["with"]["path"]
    assert restored["with"]["key"] == saved["with"]["key"]
    assert saved["with"]["key"].startswith(restored["with"]["restore-keys"])
    order = [restored, *(of("conformance", f"nodeproof {each}") for each in ("merge", "publish")), saved]
    assert sorted(order, key=steps.index) == order
    assert not [each for each in steps if each.get("uses", "").startswith("actions/cache@")]


def test_what_is_kept_of_a_night_tells_the_next_since_when_it_deviates(tmp_path: Path) -> None:
    kept = used("conformance", "actions/cache/save")["with"]["path"]
    checkout(tmp_path)
    assert "Nothing deviates" in night(tmp_path, 21, WELL)
    forget_all_but(tmp_path, kept)
    assert "since this run: it conformed on 2026-11-21 02:17 UTC (run night-21-1)" in night(tmp_path, 22, ILL)
    forget_all_but(tmp_path, kept)
    said = night(tmp_path, 23, ILL)
    assert "since 2026-11-22 02:17 UTC (run night-22-1), in 2 runs one after the other" in said


def test_what_is_published_has_the_nights_before(tmp_path: Path) -> None:
    checkout(tmp_path)
    site = tmp_path / used("conformance", "actions/upload-pages-artifact")["with"]["path"]
    for number, told in ((21, WELL), (22, ILL)):
        night(tmp_path, number, told)
        forget_all_but(tmp_path, used("conformance", "actions/cache/save")["with"]["path"])
    listed = (site / "index.html").read_text()
    assert listed.index("night-22-1/site/page.html") < listed.index("night-21-1/site/page.html")
    assert all((site / f"night-{number}-1" / "site" / "page.html").is_file() for number in (21, 22))
    assert not list(site.rglob("*.log"))


def test_a_night_may_be_tried_again(tmp_path: Path) -> None:
    checkout(tmp_path)
    night(tmp_path, 21, ILL)
    said = night(tmp_path, 21, ILL, attempt=2)
    assert "(run night-21-1), in 2 runs one after the other" in said
    key = used("conformance", "actions/cache/save")["with"]["key"]
    assert expanded(key, 21, 1) != expanded(key, 21, 2)
    # Two artifacts of one name are refused, or nobody knows which is meant.
    for job in JOBS.values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                assert step["with"]["overwrite"] is True


def test_the_site_is_published_whatever_the_night_found() -> None:
    uploaded, deployed = (
        used("conformance", "actions/upload-pages-artifact"),
        used("publish", "actions/deploy-pages"),
    )
    job = JOBS["publish"]
    assert job["needs"] == "conformance"
    assert uploaded["if"] == job["if"] == "always()"
    assert job["permissions"] == {"pages": "write", "id-token": "write"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert job["environment"]["name"] == "github-pages"
    assert deployed["with"]["artifact_name"] == "${{ needs.conformance.outputs.site }}"
    assert uploaded["with"]["name"] == JOBS["conformance"]["outputs"]["site"]
    assert "${{ github.run_attempt }}" in uploaded["with"]["name"]
    assert uploaded["with"]["path"] in of("conformance", "nodeproof publish")["run"].split()


@pytest.mark.parametrize("job", [name for name in JOBS if name != "publish"])
def test_no_run_is_uploaded_twice(job: str) -> None:
    """The action follows links; `latest` is one, beside the runs."""
    patterns = used(job, "actions/upload-artifact")["with"]["path"].split()
    assert patterns[0] != "reports/out" or patterns[1:] == ["!reports/out/**/latest"]


# In one process: most of the time that a plan takes is that of imports.
PLANS = """
import shlex, sys
from nodeproof import cli

for line in sys.stdin:
    assert cli.main(shlex.split(line)) == 0, line
    print("@@", flush=True)
"""
PLANNED = re.compile(r"^ +[\d.]+ s +(\S+::\S+)", re.MULTILINE)


def planned(lines: list[str], top: Path) -> list[list[str]]:
    """The scenarios that each of these plans has."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = (sys.executable, "-c", PLANS)
    done = proc.run(argv, timeout_s=300.0, cwd=top, env=environment, stdin="\n".join(lines))
    return [PLANNED.findall(plan) for plan in done.stdout.split("@@\n")[: len(lines)]]


def test_the_shards_are_all_of_the_profile_each_scenario_once(tmp_path: Path) -> None:
    """With the options that each runner really gives: of `nodeproof run`, as make calls it, only the plan."""
    line, step = of("shard", "--shard")["run"], used("shard", "actions/upload-artifact")
    numbers = JOBS["shard"]["strategy"]["matrix"]["shard"]
    commands = []
    for number in numbers:
        (run,) = re.findall(r"^\.venv/bin/nodeproof (run .*)$", made(expanded(line, number)), re.MULTILINE)
        assert f"--run={expanded(step['with']['path'], number)}" in run.split()
        commands.append(f"plan {run.removeprefix('run ').replace('--no-site ', '')}")
    whole = re.sub(r" --(shard|run)=\S+", "", commands[0])
    *parts, all_of_it = planned([*commands, whole], tmp_path)
    assert len(all_of_it) > 50
    assert sorted(each for part in parts for each in part) == sorted(all_of_it)
    assert all(len(part) > len(all_of_it) / len(numbers) / 3 for part in parts)
    assert not (tmp_path / "reports").exists(), "a plan starts nothing"


def runner(top: Path, known: str = "", mirror: str = "") -> tuple[proc.Result, list[str]]:
    """What `runner.sh` says below a root of its own, where apt knows these sources, and does as root."""
    programs, calls = top / "programs", top / "calls"
    programs.mkdir(exist_ok=True)
    calls.write_text("")
    (programs / "apt-get").write_text(f'#!/bin/sh\necho "{known}"\n')
    (programs / "sudo").write_text(f'#!/bin/sh\necho "$@" >>{calls}\ncase "$1" in tee) exec "$@" ;; esac\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NODEPROOF_DEBIAN_MIRROR": mirror}
    argv = (str(TOP / "infra" / "ci" / "runner.sh"), str(top))
    done = proc.run(argv, timeout_s=120.0, env=environment, check=False)
    return done, calls.read_text().splitlines()


def test_a_runner_gets_what_guests_need(tmp_path: Path) -> None:
    rules, device = tmp_path / "etc" / "udev" / "rules.d", tmp_path / "dev" / "kvm"
    rules.mkdir(parents=True)
    device.parent.mkdir()
    done, calls = runner(tmp_path, "Ubuntu|Ubuntu\nDebian|Debian")
    assert done.status == 0
    assert "guests are emulated" in done.stderr
    assert [call.split()[-1] for call in calls] == ["update", "debian-archive-keyring"]
    keyring = tmp_path / "usr" / "share" / "keyrings" / "debian-archive-keyring.gpg"
    keyring.parent.mkdir(parents=True)
    keyring.touch()
    device.touch()
    device.chmod(0o666)
    assert runner(tmp_path, mirror="file:/mirror")[1] == []
    device.chmod(0o660)
    done, calls = runner(tmp_path, mirror="file:/mirror")
    assert (done.status, done.stderr) == (0, "")
    assert [call.split()[0] for call in calls] == ["tee", "udevadm", "udevadm"]
    (rule,) = rules.iterdir()
    assert 'KERNEL=="kvm"' in rule.read_text()


def test_a_runner_without_a_mirror_of_debian_says_where_to_name_one(tmp_path: Path) -> None:
    done, calls = runner(tmp_path, "Ubuntu|Ubuntu\nDebian|Debian-Security")
    (line,) = done.stderr.splitlines()
    assert (done.status, calls) == (2, [])
    assert "apt knows no mirror of Debian" in line
    variable = "NODEPROOF_DEBIAN_MIRROR"
    assert variable in line
    assert JOBS["virtual-machines"]["env"][variable] == f"${{{{ vars.{variable} }}}}"
    assert variable in (TOP / "docs" / "how-to" / "run-at-night.md").read_text()
