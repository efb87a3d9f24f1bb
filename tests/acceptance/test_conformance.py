"""Conformance of the shipped scenarios on an unaltered cluster, profile fast."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from nodeproof import catalogue
from nodeproof.labs.kinds import PROCESS
from nodeproof.model.claim import includes
from nodeproof.report import rundir
from nodeproof.report.digest import totals, verdict_of, worst_by_claim
from nodeproof.session.coverage import COLUMNS, coverage
from tests.acceptance.command import TOP, CompletedCommand, labs_of, nodeproof, the_run

pytestmark = pytest.mark.alone
"""Its lab has 29 nodes."""
RUN_TIMEOUT_S = 1500.0
LINES, LAST_LINES = 120, 40
FAILED_RUN = TOP / "reports" / "out" / "failed-conformance"
SCALED_DEFAULTS = {
    "eviction.default-tolerations-injected",
    "monitoring.grace-period-default",
    "monitoring.period-default",
}
"""Claims about defaults that `fast` overrides by flags: their scenarios run, but prove nothing."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedCommand, Path]:
    """Return a whole run and its folder."""
    cwd = tmp_path_factory.mktemp("run")
    process = nodeproof("run", "-n", "auto", "--again", "2", cwd=cwd, timeout_s=RUN_TIMEOUT_S)
    run = the_run(cwd)
    assert run is not None, process
    return process, run


def expected_labels(kubernetes_version: str) -> dict[str, str]:
    """Return the expected outcome of each judged claim on process nodes, by the table of coverage.

    Only `nodeproof storm` judges the claims of a storm.
    """
    column = 2 + COLUMNS.index((PROCESS.name, "fast"))
    rows = [line.split() for line in coverage([]).partition("\n\n")[0].splitlines()[1:]]
    cells = {row[0]: "scaled" if row[0] in SCALED_DEFAULTS else row[column] for row in rows}
    claims = catalogue.load()
    bugs = {name: claim.reported for name, claim in catalogue.judged(claims).items() if claim.area != "storm"}
    judged = {
        name: "reported" if bug and includes(bug.versions, kubernetes_version) else "conforms"
        for name, bug in bugs.items()
    }
    return {name: label if cells[name] == "judged" else cells[name] for name, label in judged.items()}


def test_every_claim_conforms_unless_the_lab_cannot_prove_it(finished: tuple[CompletedCommand, Path]) -> None:
    process, run = finished
    worst = worst_by_claim(rundir.read_verdicts(run))
    verdicts = {claim: verdict_of(row) for claim, row in worst.items()}
    labels = {
        claim: "reported" if verdict.is_known else verdict.code or verdict.outcome
        for claim, verdict in verdicts.items()
    }
    expected = expected_labels(rundir.read_facts(run).kubernetes_version)
    if labels != expected:
        # pytest removes its folders after three sessions, and with them the recordings.
        shutil.copytree(run, FAILED_RUN, symlinks=True, dirs_exist_ok=True)
    assert labels == expected, {claim: row["reason"] for claim, row in worst.items()}
    assert process.status == 0


def test_output_is_short_and_ends_with_the_outcome(finished: tuple[CompletedCommand, Path]) -> None:
    process, run = finished
    output, worst = process.stdout.splitlines(), worst_by_claim(rundir.read_verdicts(run))
    # A busy machine adds a line for each retried try.
    retries = len(list((run / rundir.TOO_LOADED).glob("*")))
    assert len(output) + len(process.stderr.splitlines()) <= LINES + retries
    last = output[-LAST_LINES:]
    assert totals(worst.values()) in last
    assert f"run folder: {run}" in last
    assert any(line.startswith("took ") and ", planned " in line for line in last)
    assert str(run / "site" / "page.html") in process.stderr


def test_scenario_that_runs_alone_has_its_own_lab_and_no_lab_remains(
    finished: tuple[CompletedCommand, Path],
) -> None:
    _process, run = finished
    names = labs_of(run)
    stems = {path.stem for path in (run / "labs").glob("*.json")}
    own = stems & set(names)
    shared = set(names) - own
    # A retry may start one more lab of each kind.
    assert len(own) >= 3
    assert shared
    assert {name.partition("-zone-")[0] for name in stems - own} == shared
    assert {path.name for path in (run / "labs").iterdir() if path.suffix != ".json"} == set(names)
    assert not any((Path("/run/nodeproof") / name).exists() for name in names)
    for name in names:
        assert (run / "labs" / name / "kube-apiserver.log").stat().st_size > 0
        assert (run / "labs" / name / "audit.jsonl").stat().st_size > 0


def test_report_names_each_binary_and_opens_from_disk(finished: tuple[CompletedCommand, Path]) -> None:
    _process, run = finished
    facts = rundir.read_facts(run)
    assert {"etcd", "kube-apiserver", "kubelet", "hollow-kubelet"} <= facts.components.keys()
    assert all(len(part["sha256"]) == 64 for part in facts.components.values())
    page = (run / "site" / "index.html").read_text()
    assert "fetch(" not in page.split("<body", 1)[0]
    assert (run.parent / "latest").resolve() == run.resolve()


def test_allure_results_carry_labels_steps_and_attachments(finished: tuple[CompletedCommand, Path]) -> None:
    _process, run = finished
    results = [json.loads(path.read_text()) for path in (run / "allure-results").glob("*-result.json")]
    cut = next(result for result in results if result["name"].endswith("evicted after toleration"))
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


def test_verdicts_follow_their_schema(finished: tuple[CompletedCommand, Path]) -> None:
    _process, run = finished
    schema = json.loads((TOP / "reports" / "verdicts.schema.json").read_text())
    jsonschema.validate(json.loads((run / "verdicts.json").read_text()), schema)


def test_recheck_gives_the_same_verdicts_without_a_cluster(finished: tuple[CompletedCommand, Path]) -> None:
    _process, run = finished
    again = nodeproof("recheck", str(run), cwd=run)
    assert again.status == 0
    assert "changed:" not in again.stdout
    assert (run / "recheck" / "site" / "index.html").is_file()
