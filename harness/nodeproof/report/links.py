"""Files of one run in the folder of another: linked where the file system lets them, else copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from nodeproof.report import files


def link(source: Path, target: Path, left_out: Collection[str] = ()) -> None:
    """One file, or all of a folder but what is `left_out`; nothing where there is none. Raises OSError.

    A link in it could lead out of the run, and stays behind.
    """
    if source.is_symlink():
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in files.entries(source):
            if path.name not in left_out:
                link(path, target / path.name)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
