"""Allure's view of a run: labels, attachments and status of each scenario, and categories of deviations.

allure-pytest writes the result of a live scenario, with the steps, attachments and labels of its author. This
module writes all others from the run's folder: of a scenario whose worker died, of one without judgments in
a merged run, and of one that was judged again. Existing files are never written to, as they may be links to
the recorded run's.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict, worst
from nodeproof.report import digest, plain, rundir
from nodeproof.report.digest import Digest

RESULTS = "allure-results"
SCENARIO = "scenario"
"""The label with the node id, by which a scenario's results are found."""
_FROM_VERDICTS = frozenset({"timeline", "rates", "verdicts", "judgments"})
"""Names of the attachments that are made from the verdicts."""
NEW, STANDING = "deviates: new", "deviates: since an earlier run"
NEW_BESIDE_DRIFT = "deviates: new, where page and code are known to differ"
KNOWN = "known issues: deviates as reported"

_PICTURE_WIDTH_PX = 1100
"""Width of an attached picture: Allure shows one without a width of its own 300 px wide."""
_STATUSES = {"conforms": "passed", "deviates": "failed", "unproven": "broken"}


def labels(nodeid: str, claims: Iterable[str], catalogue: Mapping[str, Claim]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the labels of a scenario with these claims, known to the catalogue or not."""
    claims = sorted(set(claims))
    headings = dict.fromkeys(plain.section_of(claim).title for claim in claims)
    yield from (("epic", heading) for heading in headings)
    yield from (("feature", plain.feature(claim, catalogue.get(claim))) for claim in claims)
    yield "story", plain.title(nodeid)
    yield SCENARIO, nodeid
    yield from (("claim", claim) for claim in claims)


def links(claims: Iterable[str], catalogue: Mapping[str, Claim]) -> Iterator[tuple[str, str]]:
    """Yield address and name of the links to the claims' headings in the documentation of Kubernetes, and to
    the issues by which claims are known to deviate.

    Allure shows no link with a relative address, so none leads to the judged page.
    """
    claims = sorted(set(claims))
    for section in dict.fromkeys(map(plain.section_of, claims)):
        if section.address:
            yield section.address, f"Kubernetes: {section.title}"
    bugs = (catalogue[claim].reported for claim in claims if claim in catalogue)
    yield from dict.fromkeys((bug.url, bug.issue) for bug in bugs if bug)


@dataclass(frozen=True)
class Attachment:
    """An attachment of a scenario."""

    name: str
    text: str
    mime_type: str
    extension: str


def attachments(folder: Path, verdicts: Iterable[tuple[str, Verdict]]) -> Iterator[Attachment]:
    """Yield the pictures, verdicts and judgments of a scenario's folder."""
    for name in ("timeline", "rates"):
        path = folder / f"{name}.svg"
        if path.is_file():
            picture = path.read_text(encoding="utf-8").replace(
                'width="100%"', f'width="{_PICTURE_WIDTH_PX}"', 1
            )
            yield Attachment(name, picture, "image/svg+xml", "svg")
    yield Attachment("verdicts", digest.verdict_lines(verdicts), "text/plain", "txt")
    yield Attachment("judgments", (folder / "judgments.json").read_text(), "application/json", "json")


def status_of(verdicts: Collection[Verdict]) -> str:
    """Return Allure's status for a scenario with these verdicts, as pytest's outcome gives it."""
    if not verdicts:
        return "broken"
    decisive = worst(verdicts)
    is_skipped = decisive.is_skip or decisive.is_known
    return "skipped" if is_skipped else _STATUSES[decisive.outcome]


def new_result(
    nodeid: str, claims: Iterable[str], catalogue: Mapping[str, Claim], status: str, message: str, at_s: float
) -> dict[str, Json]:
    """Return a result of a scenario with these claims; `at_s` is its time (s since 1970)."""
    at_ms, claims = int(at_s * 1000), sorted(set(claims))
    result = {
        "uuid": str(uuid.uuid4()),
        "name": plain.title(nodeid),
        "fullName": nodeid,
        "start": at_ms,
        "stop": at_ms,
        "labels": [{"name": name, "value": value} for name, value in labels(nodeid, claims, catalogue)],
        "links": [{"type": "link", "url": url, "name": name} for url, name in links(claims, catalogue)],
        "attachments": [],
    }
    return with_status(result, status, message)


def with_status(result: Mapping[str, Json], status: str, message: str) -> dict[str, Json]:
    """Return a result with another status."""
    return {**result, "status": status, "statusDetails": {"message": message} if message else {}}


def write_result(path: Path, result: Mapping[str, Json], added: Iterable[Attachment] = ()) -> None:
    """Write a result with added attachments, which come before its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = []
    for attachment in added:
        source = f"{uuid.uuid4()}-attachment.{attachment.extension}"
        (path.parent / source).write_text(redact.text(attachment.text))
        entries.append({"name": attachment.name, "source": source, "type": attachment.mime_type})
    rundir.write_json(path, {**result, "attachments": [*entries, *result["attachments"]]})


def rewrite(path: Path, result: Mapping[str, Json], added: Iterable[Attachment] = ()) -> None:
    """Write a result with these attachments instead of those that were made from its verdicts."""
    kept = []
    for attachment in result.get("attachments") or ():
        if attachment.get("name") in _FROM_VERDICTS:
            # Only the name: an edited path may lead out of the run.
            (path.parent / Path(str(attachment.get("source"))).name).unlink(missing_ok=True)
        else:
            kept.append(attachment)
    write_result(path, {**result, "attachments": kept}, added)


def write_broken(
    run: Path,
    nodeid: str,
    claims: Iterable[str],
    reason: str,
    catalogue: Mapping[str, Claim],
    at_s: float | None = None,
) -> None:
    """Write a broken result of a scenario without verdicts; `at_s` is its time (s since 1970), else now."""
    at_s = time.time() if at_s is None else at_s
    result = new_result(nodeid, claims, catalogue, "broken", reason, at_s)
    write_result(path_of(run, result), result)


def path_of(run: Path, result: Mapping[str, Json]) -> Path:
    """Return the file of a new result in a run."""
    return run / RESULTS / f"{result['uuid']}-result.json"


def last_results(folder: Path) -> Mapping[str, tuple[Path, Json]]:
    """Return file and content of the result of each scenario's last try, by node id."""
    results = []
    for path in rundir.entries(folder):
        if path.name.endswith("-result.json"):
            with contextlib.suppress(Problem, AttributeError, KeyError, TypeError, ValueError):
                result = rundir.read_json(path)
                results += [
                    (int(result.get("start") or 0), nodeid, path, result) for nodeid in _nodeids(result)
                ]
    results.sort(key=lambda entry: entry[0])
    return {nodeid: (path, result) for _start, nodeid, path, result in results}


def _nodeids(result: Json) -> list[str]:
    """Return the node ids of a result; without a label, as earlier versions wrote it, by the test's name."""
    if nodeids := [label["value"] for label in result["labels"] if label["name"] == SCENARIO]:
        return nodeids
    module = str(result["fullName"]).partition("#")[0].replace(".", "/")
    return [f"{module}.py::{result['name']}"]


def addresses(run: Path) -> Mapping[str, str]:
    """Return the address in the run's site of each scenario's last try, by node id."""
    if not (run / "site" / "index.html").is_file():
        return {}
    addresses = {}
    for nodeid, (_path, result) in last_results(run / RESULTS).items():
        # Allure's own id of a result (its convert.js).
        id_ = hashlib.md5(str(result.get("uuid")).encode(), usedforsecurity=False).hexdigest()
        addresses[nodeid] = f"index.html#{id_}"
    return addresses


def deviation_categories(run: Digest) -> list[Json]:
    """Return the categories of the deviating scenarios: new deviations, those of earlier runs, known ones.

    The first that applies to a scenario counts.

    A known difference between page and code excuses no deviation, as verdicts are about the version that ran;
    but the catalogue may be wrong about a new version.
    """
    by_scenario: dict[str, set[str]] = {}
    for row in run.rows:
        if row["verdict"] == "deviates":
            is_known = digest.verdict_of(row).is_known
            category = KNOWN if is_known else _category(row["claim"], run)
            by_scenario.setdefault(row["scenario"], set()).add(category)
    matchers: dict[str, list[Json]] = {NEW: [], NEW_BESIDE_DRIFT: [], STANDING: [], KNOWN: []}
    for scenario, categories in sorted(by_scenario.items()):
        name = next(name for name in matchers if name in categories)
        matchers[name].append(_matcher(scenario, "skipped" if name == KNOWN else "failed"))
    return [
        {"name": name, "expand": True, "matchers": matching}
        for name, matching in matchers.items()
        if matching
    ]


def _category(claim: str, run: Digest) -> str:
    if claim in run.since and not run.since[claim].is_new:
        return STANDING
    return NEW_BESIDE_DRIFT if claim in run.claims and run.claims[claim].drift else NEW


def _matcher(scenario: str, status: str) -> Json:
    # JavaScript allows fewer escapes than Python's `re.escape` makes.
    pattern = re.sub(r"([\\^$.*+?()[\]{}|/])", r"\\\1", scenario)
    return {"statuses": [status], "labels": {SCENARIO: f"^{pattern}$"}}
