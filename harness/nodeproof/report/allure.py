"""Allure's view of a run: labels, attachments and status of each scenario, and categories of deviations.

allure-pytest writes the result of a live scenario, with the steps, attachments and labels of its author. This
module writes all others from the run's folder: of a scenario whose worker died, of one without judgments in
a merged run, and of one that was judged again. Existing files are never written to, as they may be links to
the recorded run's.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.verdict import Verdict, worst
from nodeproof.report import digest, evidence, rundir, sections
from nodeproof.report.digest import Digest, Since, verdict_of
from nodeproof.report.recheck import Rejudged

Json = Any
NEW, STANDING = "deviates: new", "deviates: since an earlier run"
NEW_BESIDE_DRIFT = "deviates: new, where page and code are known to differ"
_STATUSES = {"conforms": "passed", "deviates": "failed", "unproven": "broken"}


def labels(nodeid: str, claims: Iterable[str], catalogue: Mapping[str, Claim]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the labels of a scenario with these claims, known to the catalogue or not."""
    claims = sorted(set(claims))
    headings = dict.fromkeys(sections.section_of(claim).title for claim in claims)
    yield from (("epic", heading) for heading in headings)
    yield from (("feature", sections.feature(claim, catalogue.get(claim))) for claim in claims)
    yield "story", sections.title(nodeid)
    yield evidence.SCENARIO, nodeid
    yield from (("claim", claim) for claim in claims)


def links(claims: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield address and name of the links to the claims' headings in the documentation of Kubernetes.

    Allure shows no link with a relative address, so none leads to the judged page.
    """
    for section in dict.fromkeys(sections.section_of(claim) for claim in sorted(set(claims))):
        if section.address:
            yield section.address, f"Kubernetes: {section.title}"


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
            yield Attachment(name, path.read_text(encoding="utf-8"), "image/svg+xml", "svg")
    yield Attachment("verdicts", digest.verdict_lines(verdicts), "text/plain", "txt")
    yield Attachment("judgments", (folder / "judgments.json").read_text(), "application/json", "json")


_FROM_VERDICTS = frozenset({"timeline", "rates", "verdicts", "judgments"})


def status_of(verdicts: Collection[Verdict]) -> str:
    """Return Allure's status for a scenario with these verdicts, as pytest's outcome gives it."""
    if not verdicts:
        return "broken"
    decisive = worst(verdicts)
    return "skipped" if decisive.is_skip else _STATUSES[decisive.outcome]


def new_result(
    nodeid: str, claims: Iterable[str], catalogue: Mapping[str, Claim], status: str, message: str, at_s: float
) -> dict[str, Json]:
    """Return a result of a scenario with these claims; `at_s` is its time (s since 1970)."""
    at_ms, claims = int(at_s * 1000), sorted(set(claims))
    return {
        "uuid": str(uuid.uuid4()),
        "name": sections.title(nodeid),
        "fullName": nodeid,
        "status": status,
        "statusDetails": {"message": message} if message else {},
        "start": at_ms,
        "stop": at_ms,
        "labels": [{"name": name, "value": value} for name, value in labels(nodeid, claims, catalogue)],
        "links": [{"type": "link", "url": address, "name": name} for address, name in links(claims)],
        "attachments": [],
    }


def write_result(path: Path, result: Mapping[str, Json], added: Iterable[Attachment] = ()) -> None:
    """Write a result with added attachments, which come before its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = []
    for attachment in added:
        source = f"{uuid.uuid4()}-attachment.{attachment.extension}"
        (path.parent / source).write_text(redact.text(attachment.text))
        entries.append({"name": attachment.name, "source": source, "type": attachment.mime_type})
    rundir.write_json(path, {**result, "attachments": [*entries, *result["attachments"]]})


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
    write_result(_path(run / evidence.RESULTS, result), result)


def _path(folder: Path, result: Mapping[str, Json]) -> Path:
    return folder / f"{result['uuid']}-result.json"


@dataclass(frozen=True)
class Results:
    """The results of a run that is judged again; the result of each scenario's last try gets new verdicts."""

    folder: Path
    last: Mapping[str, tuple[Path, Json]]

    @classmethod
    def of(cls, run: Path) -> Results:
        """Read the results of a run."""
        return cls(run / evidence.RESULTS, evidence.last_results(run / evidence.RESULTS))

    def update(self, folder: Path, again: Rejudged, catalogue: Mapping[str, Claim]) -> None:
        """Write status and attachments from the new verdicts of the scenario in this folder.

        A scenario that ended before its result was written gets one.
        """
        nodeid = again.scenario.nodeid
        new_status, message = _new_status(again, catalogue)
        if nodeid in self.last:
            if not again.judged:
                return
            path, result = self.last[nodeid]
            old_status = status_of([verdict_of(row) for row in again.scenario.rows])
            # A scenario that failed for another reason than its verdicts still failed.
            failed_otherwise = result.get("status") != old_status and new_status in ("passed", "skipped")
            if again.is_changed and not failed_otherwise:
                details = {"message": message} if message else {}
                result = {**result, "status": new_status, "statusDetails": details}
        else:
            claims = [claim for claim, _verdict in again.verdicts]
            at_s = (again.scenario.folder / "judgments.json").stat().st_mtime
            result = new_result(nodeid, claims, catalogue, new_status, message, at_s)
            path = _path(self.folder, result)
        others = {**result, "attachments": self._remove_old_attachments(result)}
        write_result(path, others, attachments(folder, again.verdicts))

    def mark_lost(self, folder_name: str, reason: str) -> None:
        """Mark the scenario in the folder of this name as broken, as it could not be judged again."""
        for nodeid, (path, result) in self.last.items():
            if rundir.slug(nodeid) == folder_name:
                broken = {"status": "broken", "statusDetails": {"message": reason}}
                write_result(path, {**result, **broken, "attachments": self._remove_old_attachments(result)})

    def _remove_old_attachments(self, result: Json) -> list[Json]:
        """Remove the attachments that were made from verdicts, and return the others."""
        old = result.get("attachments") or ()
        for attachment in old:
            if attachment.get("name") in _FROM_VERDICTS:
                # Only the name: an edited path may lead out of the run.
                (self.folder / Path(str(attachment.get("source"))).name).unlink(missing_ok=True)
        return [attachment for attachment in old if attachment.get("name") not in _FROM_VERDICTS]


def _new_status(again: Rejudged, catalogue: Mapping[str, Claim]) -> tuple[str, str]:
    """Return status and message of a scenario that was judged again."""
    name = status_of([verdict for _claim, verdict in again.verdicts])
    versions = sorted({str(row["kubernetes_version"]) for row in again.rows})
    message = digest.failure_message(again.verdicts, catalogue, ", ".join(versions))
    return name, "" if name == "passed" else message


def deviation_categories(
    run: Digest, earlier: Mapping[str, Since], catalogue: Mapping[str, Claim]
) -> list[Json]:
    """Return the categories of the deviating scenarios, new deviations first; the newest one counts.

    A known difference between page and code excuses no deviation, as verdicts are about the version that ran;
    but the catalogue may be wrong about a new version.
    """
    by_scenario: dict[str, set[str]] = {}
    for row in run.rows:
        if row["verdict"] == "deviates":
            category = _category(row["claim"], earlier, catalogue)
            by_scenario.setdefault(row["scenario"], set()).add(category)
    by_category: dict[str, list[str]] = {NEW: [], NEW_BESIDE_DRIFT: [], STANDING: []}
    for scenario, categories in sorted(by_scenario.items()):
        by_category[next(name for name in by_category if name in categories)].append(scenario)
    return [
        {"name": name, "expand": True, "matchers": [_matcher(scenario) for scenario in scenarios]}
        for name, scenarios in by_category.items()
        if scenarios
    ]


def _category(claim: str, earlier: Mapping[str, Since], catalogue: Mapping[str, Claim]) -> str:
    if claim in earlier and not earlier[claim].is_new:
        return STANDING
    return NEW_BESIDE_DRIFT if claim in catalogue and catalogue[claim].drift else NEW


def _matcher(scenario: str) -> Json:
    # JavaScript allows fewer escapes than Python's `re.escape` makes.
    pattern = re.sub(r"([\\^$.*+?()[\]{}|/])", r"\\\1", scenario)
    return {"statuses": ["failed"], "labels": {evidence.SCENARIO: f"^{pattern}$"}}
