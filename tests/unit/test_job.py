"""The Job that runs shards on a cluster, the one that merges them, and the recipe of their image."""

from __future__ import annotations

import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import proc
from nodeproof.model import shard
from nodeproof.report import site
from tests.unit.told_runs import CONFORMS, Told, shard_run

Json = Any
CI = Path(__file__).resolve().parents[2] / "infra" / "ci"
NAMESPACE, CLAIM, JOB = yaml.safe_load_all((CI / "job.yaml").read_text())
MERGE: Json = yaml.safe_load((CI / "merge-job.yaml").read_text())
RECIPE = CI / "Containerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")
LIMIT_S = 240.0
TOLD: list[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})


def container(job: Json) -> Json:
    (found,) = job["spec"]["template"]["spec"]["containers"]
    return found


def variables(job: Json) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(job)["env"]}


def carried_out(job: Json, top: Path, program: str, **told: str) -> proc.Result:
    """The container's command in a folder in which nodeproof is another program."""
    made = top / ".venv" / "bin" / "nodeproof"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(f"#!/bin/sh\n{program}\n")
    made.chmod(0o755)
    known = [f"{name}={value}" for name, value in {**variables(job), **told}.items()]
    return proc.run(
        ("env", *known, *container(job)["command"]), timeout_s=LIMIT_S, cwd=top, env=os.environ, check=False
    )


def test_each_index_runs_a_shard_of_its_own(tmp_path: Path) -> None:
    assert JOB["spec"]["completionMode"] == "Indexed"
    completions = JOB["spec"]["completions"]
    said = [
        carried_out(JOB, tmp_path, 'echo "$@"', JOB_COMPLETION_INDEX=str(index)).stdout.split()
        for index in range(completions)
    ]
    options = [dict(pairwise(words)) for words in said]
    asked = [shard.parse(each["--shard"]) for each in options]
    assert asked == [(number, completions) for number in range(1, completions + 1)]
    assert len({each["--run"] for each in options}) == completions


@pytest.mark.parametrize(("ended", "status"), [(0, 0), (1, 0), (3, 0), (2, 2), (137, 137)])
def test_a_shard_fails_where_it_could_not_run_and_not_by_what_it_found(
    tmp_path: Path, ended: int, status: int
) -> None:
    assert carried_out(JOB, tmp_path, f"exit {ended}", JOB_COMPLETION_INDEX="0").status == status


def test_no_shard_ends_another_or_runs_twice() -> None:
    assert JOB["spec"]["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in JOB["spec"]
    assert JOB["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_what_is_merged_is_what_the_shards_left(tmp_path: Path) -> None:
    runs, merged = tmp_path / "shards", tmp_path / "merged"
    shard_run(runs / "shard-1", 1, PARTS, TOLD)
    assert variables(MERGE)["SHARD_RUNS"] == variables(JOB)["SHARD_RUNS"]
    assert variables(MERGE)["MERGED_RUN"] != variables(JOB)["SHARD_RUNS"]
    program = f'exec {sys.executable} -m nodeproof.cli "$@" --no-site'
    done = carried_out(MERGE, tmp_path, program, SHARD_RUNS=str(runs), MERGED_RUN=str(merged))
    assert done.status == 3, "a shard is missing"
    assert "shard 2/2 is missing" in (merged / "verdicts.json").read_text()


@pytest.mark.parametrize("job", [JOB, MERGE], ids=["shards", "merge"])
def test_both_are_of_one_night_and_use_the_volume(job: Json) -> None:
    spec = job["spec"]["template"]["spec"]
    assert job["metadata"]["name"].endswith("-tonight")
    assert job["metadata"]["namespace"] == CLAIM["metadata"]["namespace"] == NAMESPACE["metadata"]["name"]
    claims = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    }
    (volume,) = claims
    assert claims[volume] == CLAIM["metadata"]["name"]
    (place,) = (each["mountPath"] for each in container(job)["volumeMounts"] if each["name"] == volume)
    assert all(value.startswith(f"{place}/") for name, value in variables(job).items() if "RUN" in name)
    assert spec["automountServiceAccountToken"] is False
    assert container(job)["image"] == container(JOB)["image"]


def test_shards_have_what_a_lab_needs() -> None:
    assert container(JOB)["securityContext"] == {"privileged": True, "runAsUser": 0}
    labels = NAMESPACE["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    places = {each["mountPath"] for each in container(JOB)["volumeMounts"]}
    assert {"/run", "/tmp"} <= places


def test_the_recipe_of_the_image_is_clean(tmp_path: Path) -> None:
    assert proc.run((str(HADOLINT), str(RECIPE)), timeout_s=LIMIT_S).stdout == ""
    wrong = tmp_path / "Containerfile"
    wrong.write_text(re.sub(r"debian:\S+", "debian", RECIPE.read_text()))
    assert "DL3006" in proc.run((str(HADOLINT), str(wrong)), timeout_s=LIMIT_S, check=False).stdout


def test_what_the_recipe_calls_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    text, called = RECIPE.read_text(), []
    assert re.findall(r"&& make ([a-z-]+)", text) == ["setup"]
    assert re.search(r"^setup:", (CI.parents[1] / "Makefile").read_text(), re.MULTILINE)
    (code,) = re.findall(r"python -c '([^']*)'", text)
    monkeypatch.setattr(site, "find_node", lambda: "node")
    monkeypatch.setattr(site, "install", lambda *given: called.append(given))
    exec(code, {})  # noqa: S102  a line of the recipe
    assert called == [("node", print)]
