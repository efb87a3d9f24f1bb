"""Opens, lists and writes the files of a run, which may be somebody else's: no symbolic link is followed.

A link in a run's folder may lead to any file that the reader may open or overwrite. A path here is a file
right in a run's folder, or below a folder that `entries` gave: then no part of it below the run is a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from nodeproof.model.problem import Problem


def opened(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also on a link, a pipe and a folder."""
    # A pipe without O_NONBLOCK would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Raises OSError like `opened`."""
    with opened(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """Read a regular file of UTF-8. Raises OSError like `opened`, and UnicodeDecodeError."""
    return read_bytes(path).decode()


def write(path: Path, content: bytes) -> Path:
    """Write a file in one step: a link that has its name is replaced, and a failure leaves nothing. Raises
    OSError.
    """
    # Nobody can know the name beforehand and put a link there; the mode is that of the caller's umask.
    partial = path.with_name(f".{path.name[:100]}-{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            file.write(content)
        return partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def entries(folder: Path) -> list[Path]:
    """List a folder by name without its links; a folder that is a link, or is missing, holds nothing."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def make_folder(folder: Path) -> Path:
    """Make a folder in a run where there is none. Raises OSError where a link has its name."""
    folder.mkdir(exist_ok=True)
    if folder.is_symlink():
        raise OSError(f"this is a symbolic link: {folder}")
    return folder


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, or the link that has its name; nothing where there is neither.
    Raises OSError.
    """
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def refuse_links(folder: Path) -> None:
    """Refuse a folder that is, or holds, anything but folders and regular files: another program reads it.

    Raises Problem.
    """
    inside = (Path(place, name) for place, *names in os.walk(folder) for name in chain(*names))
    for path in chain([folder], inside):
        mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFDIR
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "no file and no folder"
            raise Problem(f"this is {what} in a run", str(path), "remove it, if you trust the rest")


def is_plain(path: Path, root: Path) -> bool:
    """Whether a path below `root` is a folder or a regular file, and no part of it below `root` is a link."""
    if not path.is_relative_to(root) or ".." in path.relative_to(root).parts:
        return False
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:number]) for number in range(1, len(parts) + 1)]
    return not any(part.is_symlink() for part in below) and (path.is_file() or path.is_dir())
