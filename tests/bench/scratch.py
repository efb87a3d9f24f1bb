"""A cache of the bench's own, so that the user's images and snapshots stay as they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nodeproof.artifacts.image import Image
from nodeproof.kept import cache_dir

_IMAGES, _PREFIX, _VARIABLE = "images", ".bench-", "XDG_CACHE_HOME"


@contextlib.contextmanager
def scratch_cache() -> Iterator[None]:
    """Here and in children, the cache is the user's without its images, until the context ends."""
    users = cache_dir()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=users) as folder:
        Path(folder).chmod(0o755)
        own = Path(folder, users.name)
        own.mkdir()
        for entry in users.iterdir():
            if entry.name != _IMAGES and not entry.name.startswith(_PREFIX):
                (own / entry.name).symlink_to(entry)
        with _environment(folder):
            yield


def take_image(image: Image) -> None:
    """Put an image of another cache into the present one, without its snapshots."""
    theirs = image.disk.parent
    ours = cache_dir() / _IMAGES / theirs.name
    ours.mkdir(parents=True)
    for file in theirs.iterdir():
        if file.is_file():
            (ours / file.name).symlink_to(file)


def forget_snapshots() -> None:
    """Remove every snapshot of the present cache."""
    for folder in (cache_dir() / _IMAGES).glob("*/snapshots"):
        shutil.rmtree(folder)


@contextlib.contextmanager
def _environment(folder: str) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
