"""The commands that README and docs show, as people copy them: each runs in a test, or says why not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PAGES = (
    *(TOP / page for page in ("README.md", "CONTRIBUTING.md")),
    *sorted((TOP / "docs").rglob("*.md")),
    *sorted((TOP / "infra").glob("*/README.md")),
)
_PROGRAMS = frozenset({"nodeproof", "pytest", "podman", "kubectl", "vagrant", "python"})
"""They need not be on this machine's PATH."""
_ASSIGNED = re.compile(r"[A-Z_]+=(?:\$\(|\w+ )")
_GOES_ON = re.compile(r" \\\n\s+")
_STATUS = re.compile(r"# exit code (\d+)$")
_COMMENT = re.compile(r"\s+# .*|\s{2,}#.*")


@dataclass(frozen=True)
class Command:
    """What is typed, and which exit code the page says that it gives."""

    text: str
    status: int


def commands(page: Path) -> Iterator[Command]:
    """Each command in a page's indented blocks: what begins with a program, or assigns what one says."""
    is_fenced, is_block, before = False, False, ""
    for line in _GOES_ON.sub(" ", page.read_text()).splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
        # A block of code begins behind an empty line.
        is_block = line.startswith("    ") and (is_block or not before.strip())
        before = line
        if is_fenced or not is_block or line.startswith("     "):
            continue
        said = _COMMENT.sub("", line.strip())
        word = said.partition(" ")[0]
        is_program = word in _PROGRAMS or word.startswith(".venv/bin/") or shutil.which(word) is not None
        if is_program or _ASSIGNED.match(said):
            told = _STATUS.search(line)
            yield Command(said, int(told[1]) if told else 0)


def name(page: Path) -> str:
    """A page as tests call it."""
    return str(page.relative_to(TOP))


TUTORIAL, SETTINGS = TOP / "docs" / "tutorial.md", TOP / "docs" / "how-to" / "my-settings.md"
ON_A_LAB = (
    ".venv/bin/nodeproof doctor --lab process",
    ".venv/bin/nodeproof status",
    ".venv/bin/nodeproof kubectl get nodes -o wide",
    ".venv/bin/nodeproof shell node-1 -- nft list ruleset",
    ".venv/bin/nodeproof logs",
    ".venv/bin/nodeproof logs kubelet-node-1",
    ".venv/bin/nodeproof logs kube-controller-manager",
    ".venv/bin/nodeproof claims",
    ".venv/bin/nodeproof components",
)
"""`tests/acceptance/test_documented.py` runs them on a lab, and before them all of the tutorial."""
ON_RUNS = (
    ".venv/bin/nodeproof recheck reports/out/latest",
    ".venv/bin/nodeproof page reports/out/latest",
    ".venv/bin/nodeproof summary reports/out/latest",
    ".venv/bin/nodeproof junit reports/out/latest",
    ".venv/bin/nodeproof merge RUN...",
    ".venv/bin/nodeproof matrix RUN...",
    ".venv/bin/nodeproof compare RUN_A RUN_B",
    ".venv/bin/nodeproof summary RUN...",
    ".venv/bin/nodeproof publish DIR RUN...",
    ".venv/bin/nodeproof publish reports/out/published reports/out/night",
    ".venv/bin/nodeproof compare reports/out/v1.35 reports/out/v1.36",
    ".venv/bin/nodeproof matrix reports/out/v1.35 reports/out/v1.36",
    ".venv/bin/nodeproof matrix reports/out/v1.35 reports/out/v1.36 --html reports/out/versions.html",
    ".venv/bin/nodeproof matrix reports/out/v1.35 reports/out/v1.36 --markdown -",
    ".venv/bin/nodeproof merge reports/out/shard-* --run reports/out/night",
    ".venv/bin/nodeproof summary reports/out/night",
    "nodeproof merge reports/out/shard-* --run reports/out/all",
)
"""`tests/unit/test_documented.py` runs them on told runs."""
COLLECTED = (
    ".venv/bin/pytest scenarios --collect-only -q",
    ".venv/bin/pytest scenarios -k partitioned",
    ".venv/bin/pytest scenarios -m 'needs(faulted=1)'",
    ".venv/bin/pytest scenarios -x",
    ".venv/bin/pytest scenarios -n 4 --dist=worksteal",
    ".venv/bin/nodeproof plan -n 3 --shard 1/2",
    "nodeproof plan -n 3 --shard 2/4",
    ".venv/bin/nodeproof run --claim cordon.taint",
    ".venv/bin/nodeproof run -n 3 --no-site --shard 1/2 --run reports/out/shard-1",
    ".venv/bin/nodeproof run -n 3 --no-site --shard 2/2 --run reports/out/shard-2",
    "nodeproof run -n 3 --shard 2/4 --no-site --run reports/out/shard-2",
    ".venv/bin/nodeproof run -n 3 --kubernetes-version v1.36.3 --run reports/out/v1.36",
    ".venv/bin/nodeproof run -n 3 --kubernetes-version v1.35.0 --run reports/out/v1.35",
    "nodeproof run",
)
"""What starts labs: `tests/unit/test_documented.py` sees what they would run. Runs of their kind are in
tests/acceptance; another version is built nowhere in the tests.
"""
EXAMPLE = ("pytest --collect-only -q", "pytest", "nodeproof run .")
"""Of docs/scenarios.md's example: collected in `tests/unit/test_documented.py`, run in
`tests/acceptance/test_documented.py`.
"""
REASONS: Mapping[str, str] = {
    "make run": "tests/acceptance/test_conformance.py runs what it calls",
    "make test": "it is what runs these tests",
    "make setup": "tests/acceptance/test_set_up.py",
    "make contract": "`make test` and `.ci/run` run its tests",
    ".venv/bin/pytest tests/contract/test_fault.py -k freeze": "part of `make contract`",
    ".venv/bin/nodeproof up --nodes 3 --zones 2": "tests/contract starts labs of its own, as of the tutorial",
    ".venv/bin/nodeproof shell node-1": "waits for somebody who types",
    ".venv/bin/nodeproof heal": "takes all labs of the user: tests/acceptance/test_safety.py names its own",
    ".venv/bin/nodeproof down": "takes all labs of the user: tests/acceptance/test_interruption.py",
    ".venv/bin/nodeproof report reports/out/latest": "serves until Ctrl-C: tests/unit/test_report_site.py",
    ".venv/bin/nodeproof report reports/out/altered": "serves until Ctrl-C: tests/unit/test_report_site.py",
    "LAB=$(.venv/bin/nodeproof up --nodes 3)": "the tutorial is tried on a lab that other tests have, too",
    '.venv/bin/nodeproof run --components "$PWD/reports/out/mine" --claim monitoring.detection-time': (
        "tests/acceptance has labs of such scripts (its conftest's altered_lab)"
    ),
    ".venv/bin/nodeproof box": "needs Vagrant: tests/vm/test_vagrant.py, at night",
    "make box": "needs Vagrant: tests/vm/test_vagrant.py, at night",
    "vagrant up": "needs Vagrant: tests/vm/test_vagrant.py, at night",
    "vagrant ssh node-1": "needs Vagrant: tests/vm/test_vagrant.py, at night",
    "vagrant destroy -f": "needs Vagrant: tests/vm/test_vagrant.py, at night",
    (
        "node ~/.cache/nodeproof/allure-*/node_modules/allure/cli.js quality-gate --config RUN/allurerc.json"
        " RUN/allure-results"
    ): "needs Node.js 22; tests/unit/test_report_site.py checks its rules",
    "podman build --tag registry.example/nodeproof:0.1.0 --file infra/ci/Containerfile .": (
        "needs a registry; tests/unit/test_job.py checks the recipe"
    ),
    'sed "s/tonight/$(date -u +%Y%m%d)/" infra/ci/job.yaml | kubectl apply -f -': (
        "somebody's cluster; tests/acceptance/test_job.py does it as a dry run"
    ),
    'sed "s/tonight/$(date -u +%Y%m%d)/" infra/ci/merge-job.yaml | kubectl apply -f -': (
        "somebody's cluster; tests/acceptance/test_job.py does it as a dry run"
    ),
    (
        "kubectl -n nodeproof wait --for=condition=complete --timeout=2h"
        ' "job/nodeproof-shards-$(date -u +%Y%m%d)"'
    ): "somebody's cluster, for hours",
    (
        "python -m infra.csi --endpoint unix:///run/c.sock --hypervisor table:/run/table"
        " --nodes node-1,node-2"
        " --node node-1=unix:///run/n1.sock --node node-2=unix:///run/n2.sock --calls /run/calls"
    ): "serves until a signal, on root's paths: tests/csi_driver.py starts it on its own",
    "python -m infra.csi.client --endpoint unix:///run/c.sock create data": (
        "needs a driver that serves: tests/unit/test_csi_driver.py asks one so"
    ),
    "python -m infra.csi.disks --hypervisor table:/run/table holders ID": (
        "needs a table: tests/unit/test_csi_driver.py asks one so"
    ),
    (
        "CGO_ENABLED=0 go build -trimpath -o components . && ln -s components hollow-kubelet"
        " && ./hollow-kubelet --version"
    ): "builds all of Kubernetes: tests have labs of what harness/nodeproof/artifacts/build.py builds",
    "CGO_ENABLED=0 go test -trimpath -vet=off ./...": "tests/go/test_executables.py",
}
"""Why a command runs in no test as it is."""


def checkout(top: Path, python: str, lab: str = "") -> Path:
    """A folder in which commands work as in a clone: its nodeproof and its pytest are this checkout's, and
    those on a lab mean the one that is named. Gives where runs are.
    """
    programs = top / ".venv" / "bin"
    programs.mkdir(parents=True)
    told = 'case "$1" in kubectl|logs|shell|status) said=$1; shift; set -- "$said" --lab-name %s "$@" ;; esac'
    body = f"{told % lab}\n" if lab else ""
    for name, module in (("nodeproof", "nodeproof.cli"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\n{body}exec {python} -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    for part in ("docs", "scenarios", "pyproject.toml"):
        (top / part).symlink_to(TOP / part)
    out = top / "reports" / "out"
    out.mkdir(parents=True)
    return out
