"""Judge the newest patch of each supported minor of Kubernetes: `python -m infra.versions [RUN...]`.

Writes `docs/versions.md`, and a matrix of all claims beside the runs. With RUNs, it runs nothing; with
--complete, it runs the versions that no RUN has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nodeproof import catalogue
from nodeproof.artifacts.build import Version
from nodeproof.artifacts.components import newest_patches
from nodeproof.model.problem import Problem
from nodeproof.report import comparison, digest, rundir
from nodeproof.report.digest import Digest

ROOT = Path(__file__).parents[1]
RUNS, PAGE = ROOT / "reports" / "out" / "versions", ROOT / "docs" / "versions.md"
SETUP = ("process", "fast")
"""Kind of lab and profile of a run that is made here."""


def main() -> int:
    """Run the command line; return its exit code: 2 if a run cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.versions")
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="*", help="folder of a finished run")
    parser.add_argument("--complete", action="store_true", help="run the versions that no RUN has")
    arguments = parser.parse_args()
    try:
        claims = catalogue.load()
        runs = [digest.read(run, claims) for run in arguments.runs]
        if arguments.complete or not runs:
            runs = run_missing(runs)
        write(in_order(runs))
    except Problem as problem:
        print(problem.line, file=sys.stderr)
        return digest.ABORTED
    return 0


def run_missing(runs: Sequence[Digest]) -> list[Digest]:
    """Return a run of each version, one after another; RUNs are not repeated. Raises Problem."""
    return [reusable(runs, (version, *SETUP)) or run_version(version) for version in newest_patches(print)]


def reusable(runs: Sequence[Digest], setup: tuple[str, ...]) -> Digest | None:
    """Return the last whole run with this version, kind of lab and profile, and no other settings."""
    return next((run for run in reversed(runs) if run.is_whole and run.setup == setup), None)


def run_version(version: str) -> Digest:
    """Run the profile on a version. Raises Problem if it left no run."""
    lab, profile = SETUP
    folder = rundir.new_folder(RUNS, profile, lab)
    argv = [sys.executable, "-m", "nodeproof.cli", "run", "-n", "auto", "--no-site"]
    argv += [f"--lab={lab}", f"--profile={profile}", "--kubernetes-version", version, "--run", str(folder)]
    # A run with a deviation ends with 1: the page shows it.
    subprocess.run(argv, cwd=ROOT, check=False)
    return digest.read(folder, catalogue.load())


def in_order(runs: Sequence[Digest]) -> list[Digest]:
    """Return runs by version, the oldest first.

    Raises:
        Problem: A run is not whole, has another kind of lab, profile or settings, or another run's version.
    """
    for run in runs:
        if not run.is_whole:
            raise Problem(f"the run is not whole: {run.missing[0]}", str(run.run), "choose a finished run")
        if run.setup[1:] != runs[0].setup[1:]:
            message = f"{' '.join(run.setup[1:])} is not {' '.join(runs[0].setup[1:])}"
            raise Problem(message, str(run.run), "choose runs of one kind of lab, profile and settings")
    by_version = {run.kubernetes_version: run for run in runs}
    if len(by_version) < len(runs):
        raise Problem("two runs of one version", "RUN", "choose one run of each version")
    return [by_version[version] for version in sorted(by_version, key=_order)]


def _order(version: str) -> tuple[int, int]:
    parsed = Version.parse(version)
    return parsed.minor, int(parsed.rest.partition("-")[0])


def write(runs: Sequence[Digest]) -> None:
    """Write the page and the matrix of these runs. Raises Problem."""
    compared = comparison.compare(runs)
    rundir.write_report(PAGE, comparison.versions_markdown(compared))
    matrix = RUNS / "matrix.html"
    matrix.parent.mkdir(parents=True, exist_ok=True)
    rundir.write_report(matrix, comparison.matrix_html(compared, matrix.parent))
    print(f"{PAGE}\n{matrix}")


if __name__ == "__main__":
    sys.exit(main())
