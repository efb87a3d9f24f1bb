"""The shipped line on an unaltered cluster: every claim that the fast profile can prove conforms."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nodeproof import catalogue
from nodeproof.model.claim import Claim
from nodeproof.report import rundir, table
from nodeproof.report.outcome import worst_by_claim
from tests.acceptance.command import TOP, Done, labs_of, nodeproof, the_run

pytestmark = pytest.mark.alone
"""It has labs of fifty nodes."""
RUN_LIMIT_S = 1500.0
LINES, LAST_LINES = 120, 40
SCALED = {
    "rate-limits.default",
    "eviction.after-five-minutes-not-ready",
    "eviction.after-five-minutes-unreachable",
    "eviction.default-tolerations-injected",
    "monitoring.grace-period-default",
    "monitoring.period-default",
    "non-graceful.force-detach-timeout",
    "non-graceful.force-detach-disable",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A whole run, and its folder."""
    cwd = tmp_path_factory.mktemp("run")
    done = nodeproof("run", "-n", "auto", "--again", "2", cwd=cwd, limit_s=RUN_LIMIT_S)
    run = the_run(cwd)
    assert run is not None, done
    return done, run


def expected_label(claim: Claim) -> str:
    """Its verdict on process nodes; what needs a machine, tests/vm proves."""
    if claim.tier == "machine":
        return "lab-lacks"
    return "scaled" if claim.id in SCALED else "conforms"


def test_every_claim_conforms_unless_this_lab_cannot_prove_it(finished: tuple[Done, Path]) -> None:
    done, run = finished
    worst = worst_by_claim(rundir.read_verdicts(run))
    judged = catalogue.judged(catalogue.load())
    assert worst.keys() == judged.keys()
    labels = {claim: row["code"] or row["verdict"] for claim, row in worst.items()}
    expected = {name: expected_label(claim) for name, claim in judged.items()}
    assert labels == expected, {claim: row["reason"] for claim, row in worst.items()}
    assert done.status == 0


def test_the_output_is_short_and_its_last_lines_tell_the_result(finished: tuple[Done, Path]) -> None:
    done, run = finished
    output, worst = done.stdout.splitlines(), worst_by_claim(rundir.read_verdicts(run))
    # A busy machine adds a line for each try that another one follows.
    retries = len(list((run / rundir.TOO_LOADED).glob("*")))
    assert len(output) + len(done.stderr.splitlines()) <= LINES + retries
    last = output[-LAST_LINES:]
    assert table.totals(worst.values()) in last
    assert f"run folder: {run}" in last
    assert any(line.startswith("took ") and ", planned " in line for line in last)
    assert str(run / "site" / "page.html") in done.stderr


def test_who_is_alone_has_a_lab_and_no_lab_is_left(finished: tuple[Done, Path]) -> None:
    _done, run = finished
    names = labs_of(run)
    told = {path.stem for path in (run / "labs").glob("*.json")}
    own = told & set(names)
    shared = set(names) - own
    # A retry at the end may start one more of either.
    assert len(own) >= 3
    assert shared
    assert {name.partition("-zone-")[0] for name in told - own} == shared
    assert {path.name for path in (run / "labs").iterdir() if path.suffix != ".json"} == set(names)
    assert not any((Path("/run/nodeproof") / name).exists() for name in names)
    for name in names:
        assert (run / "labs" / name / "kube-apiserver.log").stat().st_size > 0
        assert (run / "labs" / name / "audit.jsonl").stat().st_size > 0


def test_the_report_names_each_binary_and_opens_from_disk(finished: tuple[Done, Path]) -> None:
    _done, run = finished
    facts = rundir.read_facts(run)
    assert {"etcd", "kube-apiserver", "kubelet", "hollow-kubelet"} <= facts.components.keys()
    assert all(len(part["sha256"]) == 64 for part in facts.components.values())
    page = (run / "site" / "index.html").read_text()
    assert "fetch(" not in page.split("<body", 1)[0]
    assert (run.parent / "latest").resolve() == run.resolve()


def test_allure_results_carry_labels_steps_and_attachments(finished: tuple[Done, Path]) -> None:
    _done, run = finished
    results = [json.loads(path.read_text()) for path in (run / "allure-results").glob("*-result.json")]
    cut = next(each for each in results if each["name"].endswith("after their own toleration"))
    labels = {(label["name"], label["value"]) for label in cut["labels"]}
    assert {("epic", "Node controller"), ("epic", "Conditions"), ("lab", "process")} <= labels
    assert "**partition.terminating**: " in cut["description"]
    assert "Kubernetes: Node controller" in {link["name"] for link in cut["links"]}
    assert ("claim", "partition.terminating") in labels
    assert {value for name, value in labels if name == "page"} >= {"v1.18", "v1.28"}
    assert any(step["name"].startswith("both partition on node-") for step in cut["steps"])
    attached = {attachment["name"] for attachment in cut["attachments"]}
    assert {"timeline", "verdicts", "kube-controller-manager.log"} <= attached
    (history,) = (link["url"] for link in cut["links"] if link["name"].startswith("history: "))
    assert (run / "site" / history).is_file()


def test_verdicts_follow_their_schema(finished: tuple[Done, Path]) -> None:
    _done, run = finished
    schema = json.loads((TOP / "reports" / "verdicts.schema.json").read_text())
    jsonschema.validate(json.loads((run / "verdicts.json").read_text()), schema)


def test_recheck_gives_the_same_verdicts_without_a_cluster(finished: tuple[Done, Path]) -> None:
    _done, run = finished
    again = nodeproof("recheck", str(run), cwd=run)
    assert again.status == 0
    assert "changed:" not in again.stdout
    assert (run / "recheck" / "site" / "index.html").is_file()
