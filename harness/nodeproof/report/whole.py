"""Files that are written in one step, and commands' outputs that may be files."""

from __future__ import annotations

from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.report import files

STANDARD_OUTPUT = "-"
"""As the name of a file; one that is called so is `./-`."""


def write(path: Path, content: bytes, failed: str) -> Path:
    """Write a file in one step, and leave nothing where that fails.

    Raises Problem, which says what `failed`, where it cannot be written.
    """
    next_step = "name a file in a folder of yours"
    if path.is_dir():
        raise Problem(f"{failed}: this is a folder", str(path), next_step)
    try:
        return files.write(path, content)
    except OSError as error:
        raise Problem(failed, str(path), next_step, str(error)) from error
