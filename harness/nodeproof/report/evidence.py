"""Links from a run's page to the evidence of its scenarios."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.model.problem import Problem
from nodeproof.report import files, rundir

Json = Any
RESULTS = "allure-results"
SCENARIO = "scenario"
"""The label with the node id, by which a scenario's results are found."""

# Runs of earlier versions have bitmaps.
FILES = ("timeline.svg", "rates.svg", "timeline.png", "rates.png", "history.jsonl")


@dataclass(frozen=True)
class Evidence:
    """Links of one scenario: name and address of its files, and the address of its page in Allure, if any."""

    files: tuple[tuple[str, str], ...]
    allure: str


@dataclass(frozen=True)
class Finder:
    """Finds the evidence of scenarios in a run; `pages` has the address of their pages in Allure."""

    run: Path
    pages: Mapping[str, str]

    @classmethod
    def of(cls, run: Path) -> Finder:
        """Read Allure's results of the run once."""
        return cls(run, addresses(run))

    def find(self, nodeid: str) -> Evidence:
        """Return the links of a scenario."""
        folder = rundir.slug(nodeid)
        links = tuple(
            (name.partition(".")[0], f"../scenarios/{folder}/{name}")
            for name in FILES
            if (self.run / "scenarios" / folder / name).is_file()
        )
        return Evidence(links, self.pages.get(nodeid, ""))


def last_results(folder: Path) -> Mapping[str, tuple[Path, Json]]:
    """Return file and content of the result of each scenario's last try, by node id."""
    last: dict[str, tuple[Path, Json]] = {}
    starts: dict[str, int] = {}
    for path in files.entries(folder):
        if not path.name.endswith("-result.json"):
            continue
        with contextlib.suppress(Problem, AttributeError, KeyError, TypeError, ValueError):
            result = rundir.read_json(path)
            start = int(result.get("start") or 0)
            nodeids = [label["value"] for label in result["labels"] if label["name"] == SCENARIO]
            # Earlier versions wrote no such label; allure-pytest names a test by its module and its name.
            for nodeid in nodeids or [_nodeid_of(result)]:
                if start >= starts.get(nodeid, 0):
                    starts[nodeid], last[nodeid] = start, (path, result)
    return last


def _nodeid_of(result: Json) -> str:
    module = str(result["fullName"]).partition("#")[0]
    return f"{module.replace('.', '/')}.py::{result['name']}"


def addresses(run: Path) -> Mapping[str, str]:
    """Return the address in the run's site of each scenario's last try, by node id."""
    if not (run / "site" / "index.html").is_file():
        return {}
    return {
        nodeid: f"index.html#{_page_id(str(result.get('uuid')))}"
        for nodeid, (_path, result) in last_results(run / RESULTS).items()
    }


def _page_id(result_uuid: str) -> str:
    """Return Allure's own id of a result (its convert.js)."""
    return hashlib.md5(result_uuid.encode(), usedforsecurity=False).hexdigest()
