"""Judge the newest patch of each supported minor of Kubernetes: `python -m infra.versions [RUN...]`.

Writes `docs/versions.md`, and a matrix of all claims beside the runs. With RUNs, it runs nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodeproof import catalogue
from nodeproof.artifacts.components import newest_patches
from nodeproof.report import comparison, digest, page, versions

ROOT = Path(__file__).parents[1]
RUNS, PAGE = ROOT / "reports" / "out" / "versions", ROOT / "docs" / "versions.md"


def run_all() -> list[Path]:
    """Run the `fast` profile on each version; return the folders of the runs. Raises Problem."""
    folders = []
    for version in newest_patches(print):
        folder = RUNS / version
        argv = [sys.executable, "-m", "nodeproof.cli", "run", "-n", "auto", "--no-site"]
        # A run with a deviation ends with 1: the page shows it.
        subprocess.run([*argv, "--kubernetes-version", version, "--run", str(folder)], cwd=ROOT, check=False)
        folders.append(folder)
    return folders


def write(runs: list[Path]) -> None:
    """Write the page and the matrix of these runs. Raises Problem."""
    compared = comparison.compare([digest.read(run) for run in runs], catalogue.load())
    page.write_html(PAGE, versions.render(compared))
    matrix = RUNS / "matrix.html"
    matrix.parent.mkdir(parents=True, exist_ok=True)
    page.write_html(matrix, comparison.matrix_html(compared, matrix.parent))
    print(f"{PAGE}\n{matrix}")


if __name__ == "__main__":
    write([Path(run) for run in sys.argv[1:]] or run_all())
