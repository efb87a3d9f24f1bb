"""The commands of README and docs, as people copy them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PAGES = (
    *(TOP / page for page in ("README.md", "CONTRIBUTING.md")),
    *sorted((TOP / "docs").rglob("*.md")),
    *sorted((TOP / "infra").glob("*/README.md")),
)
_PROGRAMS = frozenset({"nodeproof", "pytest", "pip", "pipx", "podman", "kubectl", "vagrant", "python"})
"""Programs that need not be on this machine's PATH."""
_ASSIGNED = re.compile(r"[A-Z_]+=(?:\$\(|\w+ )")
_GOES_ON = re.compile(r" \\\n\s+")
_STATUS = re.compile(r"# exit code (\d+)$")
_COMMENT = re.compile(r"\s+# .*|\s{2,}#.*")


@dataclass(frozen=True)
class Command:
    """A command, and the exit code that the page states."""

    text: str
    status: int


def commands(page: Path) -> Iterator[Command]:
    """Yield each command in a page's indented blocks: lines with a program or an assignment of output."""
    is_fenced, is_block, before = False, False, ""
    for line in _GOES_ON.sub(" ", page.read_text()).splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
        # A block of code begins after an empty line.
        is_block = line.startswith("    ") and (is_block or not before.strip())
        before = line
        if is_fenced or not is_block or line.startswith("     "):
            continue
        text = _COMMENT.sub("", line.strip())
        word = text.partition(" ")[0]
        is_program = word in _PROGRAMS or word.startswith(".venv/bin/") or shutil.which(word) is not None
        if is_program or _ASSIGNED.match(text):
            status = _STATUS.search(line)
            yield Command(text, int(status[1]) if status else 0)


TUTORIAL = TOP / "docs" / "tutorial.md"
WHOLE = (TUTORIAL,)
"""Pages whose commands run in one test, in order."""
EXAMPLE = ("pytest --collect-only -q", "pytest", "nodeproof run .")
"""Commands of the example in docs/scenarios.md, in its own folder."""
READING = frozenset({"recheck", "page", "summary", "junit", "merge", "matrix", "compare", "publish"})
"""Commands that read runs."""
COLLECTING = frozenset({"run", "plan", "scenarios"})
"""Commands whose scenarios can be collected: `nodeproof run`, `nodeproof plan`, `pytest scenarios`."""
ON_A_LAB = frozenset({"doctor", "status", "kubectl", "shell", "logs", "claims", "components"})
_NOT_RUN = re.compile(
    r"\bnodeproof (?:up|down|heal|report)\b|\bshell node-\d+$|\brun --components\b|^make |"
    r"\b(?:run|components) --source\b|\b(?:plan|run) --cluster\b"
)
"""Commands that start or end labs of the user, wait for somebody, need a cluster of the user's, or are tested
as what they call."""


def runnable(page: Path) -> list[Command]:
    """Return the commands of a page that a test can run as they are."""
    return [command for command in commands(page) if not _NOT_RUN.search(command.text)]


def commands_of(verbs: Set[str]) -> list[str]:
    """Return the commands with one of these first arguments on the pages that no test runs as a whole."""
    texts = [command.text for page in PAGES if page not in WHOLE for command in runnable(page)]
    pattern = re.compile(rf"^(?:\.venv/bin/)?(?:nodeproof|pytest) (?:{'|'.join(sorted(verbs))})(?: |$)")
    return sorted({text for text in texts if pattern.match(text) and text not in EXAMPLE})


def checkout(top: Path, python: str, lab: str = "") -> Path:
    """Create a folder in which commands work as in a clone, and return where runs are.

    Its nodeproof and its pytest are this checkout's, and those on a lab mean `lab`.
    """
    programs = top / ".venv" / "bin"
    programs.mkdir(parents=True)
    script = (
        'case "$1" in kubectl|logs|shell|status) verb=$1; shift; set -- "$verb" --lab-name %s "$@" ;; esac'
    )
    body = f"{script % lab}\n" if lab else ""
    for name, module in (("nodeproof", "nodeproof.cli"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\n{body}exec {python} -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    for part in ("docs", "scenarios", "pyproject.toml"):
        (top / part).symlink_to(TOP / part)
    out = top / "reports" / "out"
    out.mkdir(parents=True)
    return out
