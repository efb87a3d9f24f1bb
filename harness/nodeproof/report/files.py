"""Files of a run, which may be somebody else's: no symbolic link is followed.

A link in a run's folder may lead to any file that the reader may open or overwrite. A path here is a file
directly in a run's folder, or below a folder that `entries` returned: no part of it below the run is a link.

Allure's page needs its scripts, so nothing in the page itself shows whether they are Allure's. A page
that was built here has a seal beside it: its HMAC by a key in the user's own state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from nodeproof import disk
from nodeproof.model.problem import Problem
from nodeproof.report.plain import encodable

STANDARD_OUTPUT = "-"
"""Name of the standard output as a file; a file of that name is `./-`."""
_KEY_BYTES = 32


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also on a link, a pipe and a folder."""
    # A pipe without O_NONBLOCK would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Raises OSError like `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """Read a regular file of UTF-8. Raises OSError like `open_file`, and UnicodeDecodeError."""
    return read_bytes(path).decode()


def write_report(path: Path, text: str) -> Path:
    """Write a report in one step, also to where a user wants it. Raises Problem if that fails."""
    failed = "the report cannot be written"
    next_step = "name a file in a folder of yours"
    if path.is_dir():
        raise Problem(f"{failed}: this is a folder", str(path), next_step)
    try:
        return disk.replace(path, encodable(f"{text.rstrip()}\n").encode())
    except OSError as error:
        raise Problem(failed, str(path), next_step, str(error)) from error


def entries(folder: Path) -> list[Path]:
    """Return a folder's entries by name, without links; a link or a missing folder has none."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def make_folder(folder: Path) -> Path:
    """Make a folder in a run if there is none. Raises OSError if a link has its name."""
    folder.mkdir(exist_ok=True)
    if folder.is_symlink():
        raise OSError(f"this is a symbolic link: {folder}")
    return folder


def remove(path: Path) -> None:
    """Remove a folder with its content, or the link of that name, if there is either. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def seal(page: Path) -> None:
    """Write the seal of a page that was built here; without a state folder for a key, there is none.

    Raises:
        OSError: The page cannot be read, or the seal cannot be written.
    """
    with contextlib.suppress(OSError):
        _make_key()
    if key := _key():
        disk.replace(_seal_path(page), _page_digest(key, page))


def is_sealed(page: Path) -> bool:
    """Return whether this user's nodeproof built the page, and nobody changed it since."""
    key = _key()
    try:
        return bool(key) and hmac.compare_digest(_page_digest(key, page), read_bytes(_seal_path(page)))
    except OSError:
        return False


def _seal_path(page: Path) -> Path:
    return page.with_name(f".{page.name}.seal")


def _page_digest(key: bytes, page: Path) -> bytes:
    return hmac.new(key, read_bytes(page), hashlib.sha256).hexdigest().encode()


def _key() -> bytes:
    """Return the user's key; empty if there is none that only the user may read."""
    path = _key_file()
    try:
        is_private = not path.stat().st_mode & 0o077
        key = read_bytes(path)
    except OSError:
        return b""
    return key if is_private and len(key) == _KEY_BYTES else b""


def _make_key() -> None:
    """Make the user's key if there is none, atomically. Raises OSError."""
    path = _key_file()
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    try:
        # Unlike a rename, a link does not replace the key of another process.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(partial)
    finally:
        partial.unlink()


def _key_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "nodeproof" / "pages.key"


def refuse_links(folder: Path) -> None:
    """Check that a folder that another program will read contains only folders and regular files.

    Raises:
        Problem: It is, or contains, a link, a pipe or the like.
    """
    inside = (Path(place, name) for place, *names in os.walk(folder) for name in chain(*names))
    for path in chain([folder], inside):
        mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFDIR
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "no file and no folder"
            raise Problem(f"this is {what} in a run", str(path), "remove it, if you trust the rest")


def is_plain(path: Path, root: Path) -> bool:
    """Return whether a path is a folder or regular file below `root`, with no link on the way."""
    if not path.is_relative_to(root) or ".." in path.relative_to(root).parts:
        return False
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:number]) for number in range(1, len(parts) + 1)]
    return not any(part.is_symlink() for part in below) and (path.is_file() or path.is_dir())


def link(source: Path, target: Path, omitted: Collection[str] = ()) -> None:
    """Link a file, or a folder without the names in `omitted`, to another place; copy it if links fail.

    A file that is there already stays, as it may be linked, too. A symbolic link, which may lead out of the
    run, is left out. Raises OSError.
    """
    if source.is_symlink():
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in entries(source):
            if path.name not in omitted:
                link(path, target / path.name)
    elif source.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
