"""`python -m infra.subject FILE`: check the subject of the commit message in FILE (docs/style.md)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
"""Characters, the prefix included."""
PREFIXES = ("fix", "feat", "refactor", "docs", "test", "perf", "ci", "build", "chore")
_SUBJECT = re.compile(rf"(?:{'|'.join(PREFIXES)})(?:\([\w-]+\))?!?: ([a-z][\w-]*)\b.*[^.]")
_NOT_IMPERATIVE = re.compile(r"an?|the|no|not|\w*[^e]ed|\w*ing|\w*[^s]s")
_VERBS = frozenset({"alias", "bring", "embed", "focus", "shed", "string"})
"""Imperatives that look like another form."""
_FROM_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def fault(message: str) -> str:
    """Return what is wrong with a commit message's subject, or an empty string."""
    lines = (line for line in message.splitlines() if line.strip() and not line.startswith("#"))
    subject = next(lines, "")
    if subject.startswith(_FROM_GIT):
        return ""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        expected = "'PREFIX: imperative ...' in lower case, without a full stop"
        return f"expected {expected}; PREFIX is one of {', '.join(PREFIXES)}"
    if _NOT_IMPERATIVE.fullmatch(match[1]) and match[1] not in _VERBS:
        return f"{match[1]!r} is not an imperative"
    return f"{len(subject)} characters, at most {LONGEST}" if len(subject) > LONGEST else ""


if __name__ == "__main__":
    if problem := fault(Path(sys.argv[1]).read_text()):
        sys.exit(f"commit subject: {problem}; see docs/style.md")
