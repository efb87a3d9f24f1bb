"""Where the evidence of a scenario is, as links from a run's site."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.model.problem import Problem
from nodeproof.report import behaviours, files, rundir

Json = Any
PICTURES = ("timeline.svg", "rates.svg", "timeline.png", "rates.png")
"""Runs of earlier versions have bitmaps."""
FILES = (*PICTURES, "history.jsonl")


@dataclass(frozen=True)
class Evidence:
    """Links of one scenario; `allure` is empty where the site has no page of it."""

    files: tuple[tuple[str, str], ...]
    """Name and address."""
    allure: str


@dataclass(frozen=True)
class Finder:
    """Finds the evidence of scenarios in one run's folder."""

    run: Path
    pages: Mapping[str, str]
    """Allure's id of the last try of each scenario, by a name that both know it by."""

    @classmethod
    def of(cls, run: Path) -> Finder:
        """Looks into the run once."""
        has_site = (run / "site" / "index.html").is_file()
        return cls(run, _pages(run / "allure-results") if has_site else {})

    def find(self, nodeid: str) -> Evidence:
        """The links of a scenario."""
        folder = rundir.slug(nodeid)
        files = tuple(
            (name.partition(".")[0], f"../scenarios/{folder}/{name}")
            for name in FILES
            if (self.run / "scenarios" / folder / name).is_file()
        )
        page = next((self.pages[each] for each in names(nodeid) if each in self.pages), "")
        return Evidence(files, f"index.html#{page}" if page else "")


def names(nodeid: str) -> tuple[str, ...]:
    """What a scenario may be known by in Allure's results, the most exact first."""
    name = _name(nodeid)
    return nodeid, name, name.partition("[")[0]


def last_results(results: Path) -> Mapping[str, tuple[Path, Json]]:
    """Allure's result of the last try of each scenario, where it lies and what it says, by what it is known
    by.
    """
    found: dict[str, tuple[int, Path, Json]] = {}
    for path in files.entries(results):
        if not path.name.endswith("-result.json"):
            continue
        with contextlib.suppress(Problem, KeyError, TypeError, ValueError):
            told: Json = rundir.read_json(path)
            began = int(told.get("start") or 0)
            for name in (_key(told), str(told.get("fullName")), *_labelled(told)):
                if began >= (found[name][0] if name in found else 0):
                    found[name] = began, path, told
    return {name: (path, told) for name, (_began, path, told) in found.items()}


def _pages(results: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, (_path, told) in last_results(results).items():
        with contextlib.suppress(KeyError):
            # Allure's own id of a result (its convert.js).
            found[name] = hashlib.md5(str(told["uuid"]).encode(), usedforsecurity=False).hexdigest()
    return found


def _labelled(told: Mapping[str, Json]) -> list[str]:
    """The node id itself; results of earlier versions have none."""
    return [label["value"] for label in told.get("labels", ()) if label["name"] == behaviours.SCENARIO]


def _key(told: Mapping[str, Json]) -> str:
    """allure-pytest calls a test `scenarios.partition.test_cut#test_it`, whatever its parameters."""
    module = str(told["fullName"]).partition("#")[0]
    return f"{module}#{told['name']}"


def _name(nodeid: str) -> str:
    path, _, name = nodeid.partition("::")
    name, bracket, parameters = name.partition("[")
    return f"{path.removesuffix('.py').replace('/', '.')}#{name.rpartition('::')[2]}{bracket}{parameters}"
