"""Allure's results of a run that was judged again: other verdicts and pictures, all else as it was told.

Nothing is written into a file that is there: it may be the recorded run's own, linked.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.verdict import Verdict, worst
from nodeproof.report import behaviours, evidence, rundir, wording
from nodeproof.report.outcome import verdict_of
from nodeproof.report.recheck import Again

Json = Any
_KINDS = {".svg": "image/svg+xml", ".json": "application/json", ".txt": "text/plain"}
_OURS = frozenset({"timeline", "rates", "verdicts", "judgments"})
"""The attachments that tell a verdict."""


@dataclass(frozen=True)
class Results:
    """The results in one folder, of which each scenario's last one is told anew."""

    folder: Path
    last: Mapping[str, tuple[Path, Json]]

    @classmethod
    def of(cls, folder: Path) -> Results:
        """Looks into the folder once."""
        return cls(folder, evidence.last_results(folder))

    def tell(self, scenario: Path, again: Again, claims: Mapping[str, Claim]) -> None:
        """Let a scenario's result say what it came to, with what lies in its folder. One that ended before
        its result was written gets one.
        """
        # Not by a name without parameters: that may be another scenario's.
        exact = evidence.names(again.scenario.nodeid)[:2]
        found = next((name for name in exact if name in self.last), None)
        path, told = self.last[found] if found else self._new(again, claims)
        if found and not again.judged:
            return
        if again.is_changed:
            told = _judged(told, again, claims)
        kept = self._without_ours(told)
        rundir.write_json(path, {**told, "attachments": [*self._attached(scenario, again), *kept]})

    def lose(self, folder: str, reason: str) -> None:
        """Let the result of the scenario of this folder's name say that it could not be judged again."""
        known = (told for name, told in self.last.items() if rundir.slug(name) == folder)
        for path, told in known:
            status = {"status": "broken", "statusDetails": {"message": redact.text(reason)}}
            rundir.write_json(path, {**told, **status, "attachments": self._without_ours(told)})

    def _without_ours(self, told: Json) -> list[Json]:
        """A result's attachments but those that tell a verdict, which are removed."""
        attached = told.get("attachments") or ()
        for each in attached:
            if each.get("name") in _OURS:
                # As a name only: what somebody edited may lead elsewhere.
                (self.folder / Path(str(each.get("source"))).name).unlink(missing_ok=True)
        return [each for each in attached if each.get("name") not in _OURS]

    def _new(self, again: Again, claims: Mapping[str, Claim]) -> tuple[Path, Json]:
        nodeid, name = again.scenario.nodeid, str(uuid.uuid4())
        asked = [claim for claim, _verdict in again.verdicts]
        at = int((again.scenario.folder / "judgments.json").stat().st_mtime * 1000)
        told = {
            "uuid": name,
            "name": behaviours.title(nodeid),
            "fullName": nodeid,
            "start": at,
            "stop": at,
            "labels": [
                {"name": name, "value": value} for name, value in behaviours.labels(nodeid, asked, claims)
            ],
            "links": [
                {"type": "link", "url": address, "name": said} for address, said in behaviours.links(asked)
            ],
        }
        return self.folder / f"{name}-result.json", {**told, **_status(again, claims)}

    def _attached(self, scenario: Path, again: Again) -> list[Json]:
        """Attachments of what was made anew, as the run itself attaches it."""
        found = []
        for name in ("timeline", "rates"):
            if (scenario / f"{name}.svg").is_file():
                found.append(self._attach(name, ".svg", (scenario / f"{name}.svg").read_text()))
        found.append(self._attach("verdicts", ".txt", wording.summary(again.verdicts)))
        found.append(self._attach("judgments", ".json", (scenario / "judgments.json").read_text()))
        return found

    def _attach(self, name: str, suffix: str, text: str) -> Json:
        source = f"{uuid.uuid4()}-attachment{suffix}"
        (self.folder / source).write_text(redact.text(text))
        return {"name": name, "source": source, "type": _KINDS[suffix]}


def _judged(told: Json, again: Again, claims: Mapping[str, Claim]) -> Json:
    """A result with another status; one that failed by something else than its verdicts still did."""
    before = _name([verdict_of(row) for row in again.scenario.rows])
    status = _status(again, claims)
    if told.get("status") != before and status["status"] in ("passed", "skipped"):
        return told
    return {**told, **status}


def _status(again: Again, claims: Mapping[str, Claim]) -> Mapping[str, Json]:
    """As pytest would have told Allure."""
    name = _name([verdict for _claim, verdict in again.verdicts])
    versions = {str(row["kubernetes_version"]) for row in again.rows}
    said = wording.message(again.verdicts, claims, ", ".join(sorted(versions)))
    details = {} if name == "passed" else {"message": redact.text(said)}
    return {"status": name, "statusDetails": details}


def _name(verdicts: Collection[Verdict]) -> str:
    """A scenario's status by its verdicts."""
    if not verdicts:
        return "broken"
    decides = worst(verdicts)
    if decides.is_skip:
        return "skipped"
    return {"conforms": "passed", "deviates": "failed", "unproven": "broken"}[decides.outcome]
