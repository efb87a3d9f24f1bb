"""The command `nodeproof audit`: from its options to its output and exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nodeproof import catalogue, terminal
from nodeproof.audit import running
from nodeproof.cluster import kubeconfig
from nodeproof.cluster.kubeconfig import PacedApi
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.recording.bookmarks import FENCE_S
from nodeproof.report import digest, junit, rundir, tables
from nodeproof.report.rundir import Row


def run(arguments: argparse.Namespace) -> int:
    """Audit a cluster, print the verdicts and return the exit code.

    Raises:
        Problem: The kubeconfig cannot be used, the server refuses or does not answer, or a claim is unknown.
        ApiError: The server failed during the observation.
    """
    claims = catalogue.load()
    selected = _selected(arguments.claim, claims)
    access = kubeconfig.load(arguments.kubeconfig, arguments.context)
    terminal.say(f"context {access.context}, server {access.server}, user {access.user}")
    with contextlib.closing(PacedApi(access)) as api, _folder(arguments.run) as folder:
        began = datetime.now(UTC)
        cluster = running.look(api)
        seconds = running.observed_s(cluster)
        api.watch_for(int(seconds) + 1 + FENCE_S)
        terminal.say(
            f"Kubernetes {cluster.version}, {len(cluster.nodes)} nodes: observing for {seconds:.0f} s"
        )
        history, subjects = running.record(api, cluster, seconds, folder)
        subjects = list(running.select(subjects, selected))
        rows = running.write_run(folder, began, subjects, history, claims, cluster)
        facts = rundir.read_facts(folder)
        absent = sorted(selected - set(facts.selected))
        if absent:
            terminal.say(f"not judged, as no node has the state that they are about: {', '.join(absent)}")
        _print(arguments.format, folder, rows, claims)
    return digest.exit_code(rows, arguments.claim, facts.selected)


def _selected(names: Sequence[str], claims: Mapping[str, Claim]) -> frozenset[str]:
    """Return the selected claims. Raises Problem if one does not exist or needs more than an observation."""
    for name in names:
        if catalogue.find(name, claims).id not in running.CLAIMS:
            choices = ", ".join(sorted(running.CLAIMS))
            raise Problem(f"an observation cannot decide {name}", "--claim", f"choose from: {choices}")
    return frozenset(names or running.CLAIMS)


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Make the run's folder; without `path` a temporary one. Raises Problem if the folder exists."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="nodeproof-audit-") as name:
            yield rundir.create(Path(name))
        return
    if path.exists():
        raise Problem("the folder exists", str(path), "name a new folder with --run")
    yield rundir.create(path)


def _print(format_: str, folder: Path, rows: Sequence[Row], claims: Mapping[str, Claim]) -> None:
    if format_ == "json":
        terminal.document(f"{json.dumps({'verdicts': rows}, indent=1)}\n")
    elif format_ == "junit":
        terminal.document(junit.render(digest.read(folder), claims))
    else:
        terminal.put(tables.render(rows, rundir.read_facts(folder).duration_s, ""))
