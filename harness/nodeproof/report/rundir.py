"""The folder of one run: what lies where, and reading and writing it.

<run>/run.json                            what ran, on what (RunFacts)
<run>/verdicts.json                       every scenario's rows, merged
<run>/shard.json                          which shard it is, and what is in all (Shard)
<run>/declared-claims.json                the scenarios that it was to have, with their claims
<run>/plan.json  <run>/times.json         which slot each scenario was to run in, and how long it took
<run>/fields.json                         the fields that recorded objects can have, by the API's schema
<run>/scenarios/<slug>/history.jsonl      the recording
<run>/scenarios/<slug>/configuration.json the running configuration it is judged on
<run>/scenarios/<slug>/judgments.json     {scenario, judgments: [{claim, check}], verdicts: [row],
                                           slack: {s, limit_s}}
<run>/scenarios/<slug>/timeline.svg, and rates.svg where a rate was judged: what came by when, beside what may
<run>/too-loaded/<slug>-N/                tries of scenarios that were run again, with what they recorded
<run>/busiest.json                        other programs' processes, when a scenario stayed open by load
<run>/labs/<lab>/                         component logs and the audit log
<run>/allure-results/  <run>/allurerc.json  <run>/site/index.html  <run>/site/page.html
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from nodeproof.model import redact
from nodeproof.model.claim import Claim, page_agreement
from nodeproof.model.cluster import Configuration, known_fields
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Outcome, Verdict
from nodeproof.report import files

Json = Any
Row = Mapping[str, Json]
"""One line of `verdicts.json`; its fields are in `reports/verdicts.schema.json`."""
LATEST = "latest"
TOO_LOADED = "too-loaded"
TIMES, DECLARED, FIELDS = "times.json", "declared-claims.json", "fields.json"
BUSIEST = "busiest.json"
FORMAT = 1
"""Of a run's folder. What is added keeps the number, and who reads passes over what it does not know; where
something that is there changes its meaning, the number goes up.
"""
ROW_FIELDS = frozenset(
    {
        "claim",
        "verdict",
        "code",
        "reason",
        "scenario",
        "window",
        "measured",
        "last_state",
        "page",
        "lab",
        "profile",
        "kubernetes_version",
    }
)
_SLUG_CHARS = 80
_RUN_AGAIN = "restore the file, or run the scenarios again"


class NewerFormat(Problem):
    """A run that means other things than this version reads."""


@dataclass(frozen=True)
class RunFacts:
    """What `run.json` says of a run.

    `began` and `ended` are ISO 8601 in UTC (`ended` is empty while it runs); `settings` are those that are
    not the default.
    """

    run: str
    began: str
    ended: str
    lab: str
    profile: str
    kubernetes_version: str
    command: str
    components: Mapping[str, Mapping[str, str]]
    settings: tuple[str, ...]
    quarantined: tuple[str, ...]
    selected: tuple[str, ...]
    exit_reason: str
    format: int = FORMAT
    shard: Mapping[str, Json] | None = None
    """Of one of several shards, as `shard.json` has it."""
    merged: tuple[Mapping[str, str], ...] = ()
    """Of a run that was merged: each shard's name, its run, and why it is not whole."""

    @property
    def duration_s(self) -> float:
        """How long the run took (s); 0 while it has no end."""
        if not self.ended:
            return 0.0
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.began)).total_seconds()


@dataclass(frozen=True)
class Scenario:
    """A stored scenario; `judgments` and the first as many of `rows` belong together, one to one."""

    nodeid: str
    folder: Path
    judgments: tuple[Judgment, ...]
    rows: tuple[Row, ...]

    def history(self) -> History:
        """Read the recording. Raises Problem when the file is missing or malformed."""
        path = self.folder / "history.jsonl"
        try:
            return History.parse(_read_text(path).splitlines())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise malformed(path, f"a line is no entry of a history: {error}") from error

    def configuration(self) -> Configuration:
        """Read the running configuration. Raises Problem when the file is missing or malformed."""
        path = self.folder / "configuration.json"
        try:
            return replace(Configuration.from_json(_read_object(path)), fields=self._fields())
        except (KeyError, TypeError) as error:
            raise malformed(path, f"not a configuration: {error}") from error

    def _fields(self) -> Mapping[str, frozenset[str]]:
        """The fields of the API's objects; a run of an earlier version did not keep them."""
        path = self.folder.parents[1] / FIELDS
        kept = _read_object(path) if path.exists() else {}
        return {resource: frozenset(paths) for resource, paths in kept.items()}


def write_fields(run: Path, fields: Mapping[str, frozenset[str]]) -> None:
    """Keep which fields the API's objects have, once a run."""
    write_json(run / FIELDS, {resource: sorted(paths) for resource, paths in fields.items()})


def new_folder(base: Path, profile: str, lab: str) -> Path:
    """Name the folder of a new run after the time (UTC), profile and lab; never one that exists. Makes
    nothing.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return base / f"{stamp}-{profile}-{lab}-{uuid.uuid4().hex[:4]}"


def create(run: Path) -> Path:
    """Make a planned run's folder and its parts; there already is fine, as several workers share one."""
    for part in ("scenarios", "labs", "allure-results"):
        (run / part).mkdir(parents=True, exist_ok=True)
    return run


def slug(nodeid: str) -> str:
    """A folder name for a scenario: readable, and different for different node ids."""
    words = re.sub(r"[^a-z0-9]+", "-", nodeid.rpartition("/")[2].lower().replace(".py", "")).strip("-")
    digest = hashlib.sha256(nodeid.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{words[:_SLUG_CHARS].rstrip('-')}-{digest}"


def scenario_dir(run: Path, nodeid: str) -> Path:
    """The folder of one scenario, made when it is missing; the recorder writes `history.jsonl` into it."""
    folder = run / "scenarios" / slug(nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def put_aside(run: Path, nodeid: str) -> Path:
    """Move what a scenario recorded to where no verdict is read from; gives where that is."""
    tries = run / TOO_LOADED
    tries.mkdir(exist_ok=True)
    name = slug(nodeid)
    number = 1 + max((int(path.name.rpartition("-")[2]) for path in tries.glob(f"{name}-*")), default=0)
    return scenario_dir(run, nodeid).rename(tries / f"{name}-{number}")


def run_again(run: Path) -> int:
    """How many tries of scenarios were put aside."""
    return len(list((run / TOO_LOADED).glob("*")))


def row(claim: Claim, scenario: str, verdict: Verdict, configuration: Configuration) -> Row:
    """One line of `verdicts.json`. Raises Problem when the catalogue lacks the version's constant."""
    version = configuration.kubernetes_version
    try:
        page = page_agreement(claim, version, verdict)
    except KeyError as error:
        raise Problem(
            f"no constant to compare the page with: {error.args[0]}",
            claim.id,
            "add the version's value to scenarios/claims",
        ) from error
    return {
        "claim": claim.id,
        **verdict.to_json(),
        "scenario": scenario,
        "page": asdict(page),
        "lab": configuration.lab,
        "profile": configuration.profile,
        "kubernetes_version": version,
    }


def write_scenario(
    run: Path,
    nodeid: str,
    judgments: Sequence[Judgment],
    configuration: Configuration,
    rows: Sequence[Row],
    slack_s: float | None = None,
) -> Path:
    """Store what a scenario was judged by and its rows; returns its folder.

    Rows of claims that never came to be judged (a skip, say) follow those of `judgments`. `slack_s` is
    that of the whole recording (s), where there is one.
    """
    folder = scenario_dir(run, nodeid)
    write_json(folder / "configuration.json", configuration.to_json())
    asked = [{"claim": judgment.claim, "check": judgment.check.to_json()} for judgment in judgments]
    stored: dict[str, Json] = {"scenario": nodeid, "judgments": asked, "verdicts": list(rows)}
    if slack_s is not None:
        stored["slack"] = {"s": round(slack_s, 3), "limit_s": configuration.slack_limit_s}
    write_json(folder / "judgments.json", stored)
    return folder


def read_scenarios(run: Path) -> tuple[Scenario, ...]:
    """All scenarios that were judged, by node id.

    A folder without `judgments.json` is a scenario that was interrupted before its judgments were closed, and
    is left out. Raises Problem when the run has no scenarios' folder or a `judgments.json` is malformed.
    """
    if not (run / "scenarios").is_dir():
        raise Problem("this is no run's folder", str(run), "name a folder below reports/out")
    found = [read_scenario(folder) for folder in judged_folders(run)]
    return tuple(sorted(found, key=lambda scenario: scenario.nodeid))


def judged_folders(run: Path) -> list[Path]:
    """Those of the scenarios that have a `judgments.json`, by their names."""
    return [folder for folder in files.entries(run / "scenarios") if (folder / "judgments.json").exists()]


def merge_verdicts(run: Path) -> tuple[Row, ...]:
    """Join every scenario's rows, by node id, into `verdicts.json`. Raises Problem like `read_scenarios`."""
    rows = tuple(row for scenario in read_scenarios(run) for row in scenario.rows)
    write_json(run / "verdicts.json", list(rows))
    return rows


def read_verdicts(run: Path) -> tuple[Row, ...]:
    """The merged rows. Raises Problem when `verdicts.json` is missing or malformed."""
    path = run / "verdicts.json"
    return _rows(path, read_json(path))


def write_facts(run: Path, facts: RunFacts) -> None:
    """Write `run.json`."""
    write_json(run / "run.json", asdict(facts))


def read_facts(run: Path) -> RunFacts:
    """Read `run.json`. Raises Problem when it is missing, malformed or of a newer format."""
    path = run / "run.json"
    data = known_fields(RunFacts, _read_object(path))
    lists = ("settings", "quarantined", "selected")
    try:
        if (number := data.get("format", FORMAT)) > FORMAT:
            said = f"this run was written by a newer nodeproof (format {number}, this one reads {FORMAT})"
            raise NewerFormat(said, str(path), "use that version")
        told = {name: tuple(data[name]) for name in lists}
        return RunFacts(**{**data, **told, "merged": tuple(data.get("merged", ()))})
    except (KeyError, TypeError) as error:
        raise malformed(path, f"not the facts of a run: {error}") from error


def point_latest(base: Path, run: Path) -> None:
    """Let `<base>/latest` point at `run`, by a relative link that is replaced in one step."""
    link = base / f".{LATEST}-{uuid.uuid4().hex}"
    link.symlink_to(run.name)
    link.replace(base / LATEST)


def write_json(path: Path, data: Json) -> None:
    """Write a JSON file in one step, without what is secret: a reader sees the old one or the new one."""
    files.write(path, f"{json.dumps(redact.value(data), indent=1)}\n".encode())


def read_json(path: Path) -> Json:
    """Read a JSON file. Raises Problem that names it when it is missing or malformed."""
    try:
        return json.loads(_read_text(path))
    except ValueError as error:
        raise malformed(path, str(error)) from error


def _read_text(path: Path) -> str:
    try:
        return files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem("a file of the run cannot be read", str(path), _RUN_AGAIN, str(error)) from error


def _read_object(path: Path) -> Mapping[str, Json]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise malformed(path, "it holds no JSON object")
    return data


def read_scenario(folder: Path) -> Scenario:
    """What a scenario left in its folder. Raises Problem when `judgments.json` is missing or malformed."""
    path = folder / "judgments.json"
    data = _read_object(path)
    try:
        judgments = tuple(
            Judgment(str(asked["claim"]), Check.from_json(asked["check"])) for asked in data["judgments"]
        )
        scenario = Scenario(str(data["scenario"]), folder, judgments, _rows(path, data["verdicts"]))
    except (KeyError, TypeError) as error:
        raise malformed(path, f"not the judgments of a scenario: {error}") from error
    if [judgment.claim for judgment in judgments] != [
        row["claim"] for row in scenario.rows[: len(judgments)]
    ]:
        raise malformed(path, "its verdicts are not those of its judgments")
    return scenario


def _rows(path: Path, data: Json) -> tuple[Row, ...]:
    if not isinstance(data, list):
        raise malformed(path, "it holds no list of verdicts")
    for entry in data:
        if not _is_row(entry):
            raise malformed(path, f"not a verdict: {json.dumps(entry)[:200]}")
    return tuple(data)


def _is_row(entry: Json) -> bool:
    if not isinstance(entry, dict) or not entry.keys() >= ROW_FIELDS:
        return False
    known = entry["verdict"] in get_args(Outcome) and entry["code"] in (None, *get_args(Code))
    return known and (entry["verdict"] == "unproven") == bool(entry["code"])


def malformed(path: Path, detail: str) -> Problem:
    """What to say of a file that holds something else."""
    return Problem("a file of the run is malformed", str(path), _RUN_AGAIN, detail)
