"""The folder of one run: its layout, and how its parts are written and read.

<run>/run.json                            what ran, on what (RunFacts)
<run>/verdicts.json                       every scenario's rows, merged
<run>/shard.json                          which shard it is, and the content of all shards (Shard)
<run>/declared-claims.json                the planned scenarios, with their claims
<run>/plan.json  <run>/times.json         the slot of each scenario, and how long it took
<run>/fields.json                         the fields that recorded objects can have, by the API's schema
<run>/broken-off                          why the run broke off, written as soon as that is known
<run>/scenarios/<slug>/history.jsonl      the recording
<run>/scenarios/<slug>/configuration.json the running configuration it is judged on
<run>/scenarios/<slug>/judgments.json     {scenario, judgments: [{claim, check}], verdicts: [row],
                                           slack: {s, limit_s}}
<run>/scenarios/<slug>/timeline.svg, and rates.svg if a rate was judged
<run>/too-loaded/<slug>-N/                tries of scenarios that were run again, with what they recorded
<run>/busiest.json                        other programs' processes, when a scenario stayed open by load
<run>/labs/<lab>/                         component logs and the audit log
<run>/allure-results/  <run>/allurerc.json  <run>/site/index.html  <run>/site/page.html
<run>/recheck/                            the run as rechecked: a folder like this one, with recheck.json

A run may be somebody else's: no symbolic link is followed. A link in its folder may lead to any file that the
reader may open or overwrite. A path here is a file directly in a run's folder, or below a folder that
`entries` returned: no part of it below the run is a link.

Allure's page needs its scripts, so nothing in the page itself shows whether they are Allure's. A page
that was built here has a seal beside it: its HMAC by a key in the user's own state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO, get_args

from nodeproof import disk, locks
from nodeproof.model import redact
from nodeproof.model.claim import Claim, page_agreement
from nodeproof.model.cluster import Configuration, select_fields
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.pattern import Json
from nodeproof.model.plan import Shard
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code, Outcome, Verdict
from nodeproof.report.plain import encodable

STANDARD_OUTPUT = "-"
"""Name of the standard output as a file; a file of that name is `./-`."""
_KEY_BYTES = 32
_KEY_TIMEOUT_S = 10.0
"""Longer than a process takes to write a key."""


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also on a link, a pipe and a folder."""
    # A pipe without O_NONBLOCK would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Raises OSError like `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """Read a regular file of UTF-8. Raises OSError like `open_file`, and UnicodeDecodeError."""
    return read_bytes(path).decode()


@contextlib.contextmanager
def explained(what: str, where: Path | str, next_step: str) -> Iterator[None]:
    """Raise an OSError of the context as a Problem."""
    try:
        yield
    except OSError as error:
        raise Problem(what, str(where), next_step, str(error)) from error


def write_report(path: Path, text: str) -> Path:
    """Write a report in one step, also to where a user wants it. Raises Problem if that fails."""
    failed, next_step = "the report cannot be written", "name a file in a folder of yours"
    if path.is_dir():
        raise Problem(f"{failed}: this is a folder", str(path), next_step)
    with explained(failed, path, next_step):
        return disk.replace(path, encodable(f"{text.rstrip()}\n").encode())


def entries(folder: Path) -> list[Path]:
    """Return a folder's entries by name, without links; a link or a missing folder has none."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def make_folder(folder: Path) -> Path:
    """Make a folder in a run if there is none. Raises OSError if a link has its name."""
    folder.mkdir(exist_ok=True)
    if folder.is_symlink():
        raise OSError(f"this is a symbolic link: {folder}")
    return folder


def remove(path: Path) -> None:
    """Remove a folder with its content, or the link of that name, if there is either. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def seal(page: Path) -> None:
    """Write the seal of a page that was built here; without a state folder for a key, there is none.

    Raises:
        Problem: Others may read the key, or another process does not end its lock.
        OSError: The page cannot be read, or the seal cannot be written.
    """
    path = _key_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locks.locked(path.with_suffix(".lock"), _KEY_TIMEOUT_S):
            if path.exists():
                disk.check_private(path)
            if not _key():
                disk.write_private(path, secrets.token_bytes(_KEY_BYTES))
    if key := _key():
        disk.replace(_seal_path(page), _page_digest(key, page))


def is_sealed(page: Path) -> bool:
    """Return whether this user's nodeproof built the page, and nobody changed it since."""
    key = _key()
    try:
        return bool(key) and hmac.compare_digest(_page_digest(key, page), read_bytes(_seal_path(page)))
    except OSError:
        return False


def _seal_path(page: Path) -> Path:
    return page.with_name(f".{page.name}.seal")


def _page_digest(key: bytes, page: Path) -> bytes:
    return hmac.new(key, read_bytes(page), hashlib.sha256).hexdigest().encode()


def _key() -> bytes:
    """Return the user's key; empty if there is none that only the user may read."""
    path = _key_file()
    try:
        is_private = not path.stat().st_mode & 0o077
        key = read_bytes(path)
    except OSError:
        return b""
    return key if is_private and len(key) == _KEY_BYTES else b""


def _key_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "nodeproof" / "pages.key"


def refuse_links(folder: Path) -> None:
    """Check that a folder that another program will read contains only folders and regular files.

    Raises:
        Problem: It is, or contains, a link, a pipe or the like.
    """
    inside = (Path(place, name) for place, *names in os.walk(folder) for name in chain(*names))
    for path in chain([folder], inside):
        mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFDIR
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "no file and no folder"
            raise Problem(f"this is {what} in a run", str(path), "remove it, if you trust the rest")


def is_plain(path: Path, root: Path) -> bool:
    """Return whether a path is a folder or regular file below `root`, with no link on the way."""
    if not path.is_relative_to(root) or ".." in path.relative_to(root).parts:
        return False
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:number]) for number in range(1, len(parts) + 1)]
    return not any(part.is_symlink() for part in below) and (path.is_file() or path.is_dir())


def link(source: Path, target: Path, omitted: Collection[str] = ()) -> None:
    """Link a file, or a folder without the names in `omitted`, to another place; copy it if links fail.

    A file that is there already stays, as it may be linked, too. A symbolic link, which may lead out of the
    run, is left out. Raises OSError.
    """
    if source.is_symlink():
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in entries(source):
            if path.name not in omitted:
                link(path, target / path.name)
    elif source.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


Row = Mapping[str, Json]
"""One line of `verdicts.json`; its fields are in `reports/verdicts.schema.json`."""
LATEST = "latest"
TOO_LOADED = "too-loaded"
RUN, VERDICTS, SHARD, DECLARED = "run.json", "verdicts.json", "shard.json", "declared-claims.json"
PLAN, TIMES, FIELDS, BUSIEST = "plan.json", "times.json", "fields.json", "busiest.json"
BROKEN_OFF = "broken-off"
RECHECK, CHANGES = "recheck", "recheck.json"
"""The folder of the rechecked run, and the file in it that marks it: what changed, and what was lost."""
PUBLISHED = "published.json"
"""The file that marks a published copy of a run."""
FORMAT = 1
"""Format of a run's folder. Additions keep the number, and readers ignore what they do not know; the number
is raised if something that exists changes its meaning.
"""
ROW_TEXTS = frozenset({"claim", "reason", "scenario", "last_state", "lab", "profile", "kubernetes_version"})
ROW_FIELDS = ROW_TEXTS | {"verdict", "code", "window", "measured", "page"}
_SLUG_CHARS = 80
_RESTORE = "restore the file, or run the scenarios again"
_STAMP = re.compile(r"(\d{8}-\d{6})-")
_PARTS = ("scenarios", "labs", "allure-results")


class Unreadable(Problem):
    """A file of a run that is missing or malformed."""


class NewerFormat(Problem):
    """A run in a format that this version does not read."""


@dataclass(frozen=True)
class RunFacts:
    """Content of `run.json`.

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
    """Of a shard, the content of `shard.json`."""
    merged: tuple[Mapping[str, str], ...] = ()
    """Of a merged run: each shard's name, its run, and why it is incomplete."""
    overrides: tuple[str, ...] = ()
    """The settings of the user (`Overrides.texts`)."""

    @property
    def duration_s(self) -> float:
        """How long the run took (s); 0 without an end."""
        if not self.ended:
            return 0.0
        took = datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.began)
        # The host's clock may have been set back.
        return max(0.0, took.total_seconds())


@dataclass(frozen=True)
class Scenario:
    """A stored scenario; `judgments` and the first as many of `rows` belong together, one to one."""

    nodeid: str
    folder: Path
    judgments: tuple[Judgment, ...]
    rows: tuple[Row, ...]
    content: Mapping[str, Json] = field(default_factory=dict)
    """Content of `judgments.json`."""

    @property
    def slack_s(self) -> tuple[float, float] | None:
        """The slack of the recording and its limit (s); runs of earlier versions did not store it."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return float(self.content["slack"]["s"]), float(self.content["slack"]["limit_s"])
        return None

    def history(self) -> History:
        """Read the recording. Raises Problem if the file is missing or malformed."""
        path = self.folder / "history.jsonl"
        with _parsing(path, "a line is no entry of a history"):
            return History.parse(_read_text(path).splitlines())

    def configuration(self) -> Configuration:
        """Read the running configuration. Raises Problem if the file is missing or malformed."""
        path, fields_path = self.folder / "configuration.json", self.folder.parents[1] / FIELDS
        with _parsing(path, "not a configuration"):
            configuration = Configuration.from_json(_read_object(path))
            # A run of an earlier version has no fields.
            stored = _read_object(fields_path) if fields_path.exists() else {}
            fields = {resource: frozenset(paths) for resource, paths in stored.items()}
            return replace(configuration, fields=fields)


@dataclass(frozen=True)
class StoredRun:
    """Everything small in a run's folder, read once; the run may be incomplete, or killed."""

    folder: Path
    facts: RunFacts | None
    verdicts: tuple[Row, ...] | None
    scenarios: tuple[Scenario, ...]
    """The judged scenarios, by node id."""
    shard: Shard | None
    problems: Mapping[str, Unreadable]
    """Why parts cannot be read, by their paths in the folder (`run.json`, `scenarios/SLUG`)."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The merged rows; without them, the rows of the scenarios."""
        if self.verdicts is not None:
            return self.verdicts
        return tuple(row for scenario in self.scenarios for row in scenario.rows)

    @property
    def began(self) -> str:
        """When the run began, by its own files, its name, or its first recording; empty if nothing shows."""
        if self.facts:
            return self.facts.began
        return self.shard.began if self.shard else _find_start(self.folder)


def new_folder(base: Path, profile: str, lab: str) -> Path:
    """Return a new path for a run, named after the time (UTC), profile and lab."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return base / f"{stamp}-{profile}-{lab}-{uuid.uuid4().hex[:4]}"


def create(run: Path) -> Path:
    """Make a run's folder and its parts, if another worker has not."""
    for part in _PARTS:
        (run / part).mkdir(parents=True, exist_ok=True)
    return run


def refuse_inside(folder: Path, failed: str) -> None:
    """Check that a folder, which need not exist, is not in a run or in a published copy of one.

    Raises:
        Problem: It is; the message begins with `failed`.
    """
    for parent in (folder.resolve(), *folder.resolve().parents):
        if _is_run(parent):
            raise Problem(f"{failed}: {parent.name} is a run", str(folder), "name a folder outside of it")


def _is_run(folder: Path) -> bool:
    """Return whether a folder has several parts of a run; a foreign folder may have a run.json, too."""
    if (folder / PUBLISHED).is_file() and (folder / "site").is_dir():
        return True
    has_file = any((folder / name).is_file() for name in (RUN, VERDICTS, SHARD, DECLARED))
    parts = sum((folder / part).is_dir() for part in _PARTS)
    return parts == len(_PARTS) or (has_file and parts > 0)


def is_rechecked(run: Path) -> bool:
    return (run / CHANGES).is_file()


def recorded_run(run: Path) -> Path:
    """Return the folder that the run itself wrote, also of a rechecked run."""
    run = run.resolve()
    return run.parent if is_rechecked(run) else run


def display_name(run: Path) -> str:
    """Return a run's name; that of a rechecked run includes its place."""
    return f"{run.parent.name}/{run.name}" if is_rechecked(run) else run.name


def read_recheck(run: Path) -> tuple[Sequence[str], str]:
    """Return what could not be judged again, and why nothing shows when the recorded run ended, if so."""
    with contextlib.suppress(Unreadable, TypeError):
        notes = _read_object(run / CHANGES)
        return [str(sentence) for sentence in notes.get("lost", ())], str(notes.get("no_end", ""))
    return (), ""


def slug(nodeid: str) -> str:
    """Return a folder name for a scenario: readable, and different for different node ids."""
    words = re.sub(r"[^a-z0-9]+", "-", nodeid.rpartition("/")[2].lower().replace(".py", "")).strip("-")
    digest = hashlib.sha256(nodeid.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{words[:_SLUG_CHARS].rstrip('-')}-{digest}"


def scenario_dir(run: Path, nodeid: str) -> Path:
    """Return the folder of one scenario, made if missing; the recorder writes `history.jsonl` into it."""
    folder = run / "scenarios" / slug(nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def put_aside(run: Path, nodeid: str) -> Path:
    """Move a scenario's folder to where no verdict is read from; return the new path."""
    tries = run / TOO_LOADED
    tries.mkdir(exist_ok=True)
    name = slug(nodeid)
    number = 1 + max((int(path.name.rpartition("-")[2]) for path in tries.glob(f"{name}-*")), default=0)
    return scenario_dir(run, nodeid).rename(tries / f"{name}-{number}")


def run_again(run: Path) -> int:
    """Return how many tries of scenarios were put aside."""
    return len(list((run / TOO_LOADED).glob("*")))


def row(claim: Claim, scenario: str, verdict: Verdict, configuration: Configuration) -> Row:
    """Return one line of `verdicts.json`. Raises Problem if the catalogue lacks the version's constant."""
    try:
        page = page_agreement(claim, verdict.kubelet_version or configuration.kubernetes_version, verdict)
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
        "page": page.to_json(),
        "lab": configuration.lab,
        "profile": configuration.profile,
        "kubernetes_version": configuration.kubernetes_version,
        **({"node_versions": dict(configuration.node_versions)} if configuration.node_versions else {}),
        **({"upgraded_to": configuration.upgraded_to} if configuration.upgraded_to else {}),
    }


def write_scenario(
    run: Path,
    nodeid: str,
    judgments: Sequence[Judgment],
    configuration: Configuration,
    rows: Sequence[Row],
    slack_s: float | None = None,
) -> Path:
    """Store a scenario's judgments and rows; return its folder.

    Rows of claims that were never judged (after a skip, for example) follow those of `judgments`. `slack_s`
    is that of the whole recording (s), if there is one.
    """
    folder = scenario_dir(run, nodeid)
    write_json(folder / "configuration.json", configuration.to_json())
    checks = [{"claim": judgment.claim, "check": judgment.check.to_json()} for judgment in judgments]
    content: dict[str, Json] = {"scenario": nodeid, "judgments": checks, "verdicts": list(rows)}
    if slack_s is not None:
        content["slack"] = {"s": round(slack_s, 3), "limit_s": configuration.slack_limit_s}
    write_json(folder / "judgments.json", content)
    return folder


def write_fields(run: Path, fields: Mapping[str, frozenset[str]]) -> None:
    """Store which fields the API's objects have, once a run."""
    write_json(run / FIELDS, {resource: sorted(paths) for resource, paths in fields.items()})


def write_facts(run: Path, facts: RunFacts) -> None:
    write_json(run / RUN, asdict(facts))


def write_shard(run: Path, shard: Shard) -> None:
    write_json(run / SHARD, shard.to_json())


def merge_verdicts(run: Path) -> tuple[Row, ...]:
    """Join every scenario's rows, by node id, into `verdicts.json`. Raises Problem like `read_scenarios`."""
    rows = tuple(row for scenario in read_scenarios(run) for row in scenario.rows)
    write_json(run / VERDICTS, list(rows))
    return rows


def point_latest(base: Path, run: Path) -> None:
    """Let `<base>/latest` point at `run`, by a relative link that is replaced atomically."""
    link = base / f".{LATEST}-{uuid.uuid4().hex}"
    link.symlink_to(run.name)
    link.replace(base / LATEST)


def write_json(path: Path, data: Json) -> None:
    """Write a JSON file atomically, without secrets."""
    disk.replace(path, f"{json.dumps(redact.value(data), indent=1)}\n".encode())


def read_json(path: Path) -> Json:
    """Read a JSON file. Raises Problem that names it if it is missing or malformed."""
    try:
        return json.loads(_read_text(path))
    except ValueError as error:
        raise malformed(path, str(error)) from error


def read_run(folder: Path) -> StoredRun:
    """Read a run, whatever exists of it. Raises NewerFormat."""
    folder, problems, scenarios = folder.resolve(), dict[str, Unreadable](), list[Scenario]()
    facts = verdicts = shard = None
    with _noting(problems, RUN):
        facts = read_facts(folder)
    with _noting(problems, VERDICTS):
        verdicts = read_verdicts(folder)
    with _noting(problems, SHARD):
        shard = read_shard(folder, facts)
    for path in judged_folders(folder):
        with _noting(problems, path.relative_to(folder).as_posix()):
            scenarios.append(read_scenario(path))
    scenarios.sort(key=lambda scenario: scenario.nodeid)
    return StoredRun(folder, facts, verdicts, tuple(scenarios), shard, problems)


@contextlib.contextmanager
def _noting(problems: dict[str, Unreadable], place: str) -> Iterator[None]:
    """Note the problem of a part of a run that cannot be read."""
    try:
        yield
    except Unreadable as problem:
        problems[place] = problem


def read_facts(run: Path) -> RunFacts:
    """Read `run.json`. Raises Problem if it is missing, malformed or of a newer format."""
    path = run / RUN
    content = select_fields(RunFacts, _read_object(path))
    with _parsing(path, "not the facts of a run"):
        if (number := content.get("format", FORMAT)) > FORMAT:
            newer = f"this run was written by a newer nodeproof (format {number}, this one reads {FORMAT})"
            raise NewerFormat(newer, str(path), "use that version")
        lists = {name: tuple(content[name]) for name in ("settings", "quarantined", "selected")}
        later = {name: tuple(content.get(name, ())) for name in ("merged", "overrides")}
        facts = RunFacts(**{**content, **lists, **later})
        _check_types(facts)
        return facts


_TEXTS = ("run", "began", "ended", "lab", "profile", "kubernetes_version", "command", "exit_reason")
_LISTS_OF_TEXTS = ("settings", "overrides", "quarantined", "selected")


def _check_types(facts: RunFacts) -> None:
    """Check the content of a file that somebody may have edited. Raises TypeError, ValueError."""
    for name in _TEXTS:
        if not isinstance(getattr(facts, name), str):
            raise TypeError(f"{name} is no text")
    for name in _LISTS_OF_TEXTS:
        if not all(isinstance(text, str) for text in getattr(facts, name)):
            raise TypeError(f"an entry of {name} is no text")
    if not all(isinstance(component, dict) for component in facts.components.values()):
        raise TypeError("a component is no object")
    for time in filter(None, (facts.began, facts.ended)):
        if datetime.fromisoformat(time).tzinfo is None:
            raise ValueError(f"{time} has no time zone")


def read_shard(run: Path, facts: RunFacts | None = None) -> Shard | None:
    """Read which shard a run is, from `shard.json` or its facts; None if it is none.

    Raises:
        Problem: `shard.json` is malformed, and the facts do not have it either.
    """
    path = run / SHARD
    in_facts = facts.shard if facts else None
    try:
        if path.exists():
            return _parse_shard(path, read_json(path))
    except Unreadable:
        if not in_facts:
            raise
    return _parse_shard(run / RUN, in_facts) if in_facts else None


def _parse_shard(path: Path, content: Json) -> Shard:
    with _parsing(path, "not a shard"):
        return Shard.from_json(content)


def read_verdicts(run: Path) -> tuple[Row, ...]:
    """Return the merged rows. Raises Problem if `verdicts.json` is missing or malformed."""
    return _rows(run / VERDICTS, read_json(run / VERDICTS))


def read_scenarios(run: Path) -> tuple[Scenario, ...]:
    """Return all judged scenarios, by node id.

    Without `judgments.json`, a scenario was interrupted before it was judged.

    Raises:
        Problem: This is no run's folder, or a `judgments.json` is malformed.
    """
    if not (run / "scenarios").is_dir():
        raise Problem("this is no run's folder", str(run), "name a folder below reports/out")
    return tuple(sorted(map(read_scenario, judged_folders(run)), key=lambda scenario: scenario.nodeid))


def read_times(path: Path) -> Mapping[str, float]:
    """Return how long each scenario took (s), and `start`, from a `times.json`; empty if it is malformed."""
    with contextlib.suppress(Problem, TypeError, ValueError, AttributeError):
        return {str(name): float(took_s) for name, took_s in read_json(path).items()}
    return {}


def read_part(run: Path, name: str) -> str:
    """Return the text of a small file of a run; empty if there is none, or it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return read_text(run / name)
    return ""


def judged_folders(run: Path) -> list[Path]:
    return [folder for folder in entries(run / "scenarios") if (folder / "judgments.json").exists()]


def read_scenario(folder: Path) -> Scenario:
    """Read a judged scenario. Raises Problem if `judgments.json` is missing or malformed."""
    path = folder / "judgments.json"
    content = _read_object(path)
    with _parsing(path, "not the judgments of a scenario"):
        judgments = tuple(
            Judgment(str(judgment["claim"]), Check.from_json(judgment["check"]))
            for judgment in content["judgments"]
        )
        rows = _rows(path, content["verdicts"])
        if [judgment.claim for judgment in judgments] != [row["claim"] for row in rows[: len(judgments)]]:
            raise malformed(path, "its verdicts are not those of its judgments")
        return Scenario(str(content["scenario"]), folder, judgments, rows, content)


def _find_start(run: Path) -> str:
    """Return when a run began, by its folder's name or else its first recording."""
    with contextlib.suppress(ValueError):
        if stamp := _STAMP.match(run.name):
            return datetime.strptime(f"{stamp[1]}+0000", "%Y%m%d-%H%M%S%z").isoformat()
    starts_s = []
    for folder in entries(run / "scenarios"):
        with (
            contextlib.suppress(OSError, ValueError, KeyError, TypeError),
            open_file(folder / "history.jsonl") as lines,
        ):
            entry = json.loads(lines.readline())
            starts_s.append(float(entry["t"]) + float(entry["wall_offset_s"]))
    return datetime.fromtimestamp(min(starts_s), UTC).isoformat(timespec="seconds") if starts_s else ""


def _read_text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable("a file of the run cannot be read", str(path), _RESTORE, str(error)) from error


def _read_object(path: Path) -> Mapping[str, Json]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise malformed(path, "it holds no JSON object")
    return content


def _rows(path: Path, content: Json) -> tuple[Row, ...]:
    if not isinstance(content, list):
        raise malformed(path, "it holds no list of verdicts")
    for row in content:
        if not _is_row(row):
            raise malformed(path, f"not a verdict: {json.dumps(row)[:200]}")
    return tuple(content)


def _is_row(row: Json) -> bool:
    if not isinstance(row, dict) or not row.keys() >= ROW_FIELDS:
        return False
    is_known = row["verdict"] in get_args(Outcome) and row["code"] in (None, *get_args(Code))
    return is_known and (row["verdict"] == "unproven") == bool(row["code"])


def malformed(path: Path, detail: str) -> Unreadable:
    return Unreadable("a file of the run is malformed", str(path), _RESTORE, detail)


@contextlib.contextmanager
def _parsing(path: Path, failed: str) -> Iterator[None]:
    """Raise as `malformed` what content of another form leads to."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(path, f"{failed}: {error}") from error


Declared = Mapping[str, tuple[str, ...]]
"""Scenarios, by node id, with their claims."""
DIED = " (its worker died)"
"""Suffix of the name of a scenario whose worker died."""
_MAX_NAMES = 5


def read_declared(run: Path) -> Declared | None:
    """Return the scenarios that the run began with; None if it has no record of them, or a malformed one."""
    with contextlib.suppress(Problem, TypeError, AttributeError):
        scenarios = read_json(run / DECLARED).items()
        return {scenario: tuple(map(str, claims)) for scenario, claims in scenarios}
    return None


def without_verdict(run: Path, rows: Iterable[Row]) -> Declared:
    """Return the scenarios of the run without a row, in order."""
    judged = {row["scenario"].removesuffix(DIED) for row in rows}
    return {name: claims for name, claims in sorted((read_declared(run) or {}).items()) if name not in judged}


def sentences_without_verdict(scenarios: Declared) -> Iterator[str]:
    """Yield a sentence that names the scenarios without a verdict, if there are any."""
    if scenarios:
        more = f", and {len(scenarios) - _MAX_NAMES} more" if len(scenarios) > _MAX_NAMES else ""
        yield f"Scenarios without a verdict: {', '.join([*scenarios][:_MAX_NAMES])}{more}."
