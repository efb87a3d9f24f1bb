"""Tells a page that this user's nodeproof built from one that came with somebody else's run.

Allure's page needs its scripts, so nothing in the page itself can say whether they are Allure's. A page that
was built here has a seal beside it: the page's HMAC by a key that stays in the user's own state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from nodeproof.report import files

_KEY_BYTES = 32


def put(page: Path) -> None:
    """Write the seal of a page beside it; where the user has no state folder to keep a key in, there is none.

    Raises OSError where the page cannot be read or the seal cannot be written.
    """
    with contextlib.suppress(OSError):
        _make_key()
    if key := _key():
        files.write(_seal(page), _digest(key, files.read_bytes(page)).encode())


def is_whole(page: Path) -> bool:
    """Whether this user's nodeproof built the page, and nobody changed it since."""
    key = _key()
    try:
        page_digest, sealed = _digest(key, files.read_bytes(page)), files.read_bytes(_seal(page))
    except OSError:
        return False
    return bool(key) and hmac.compare_digest(page_digest.encode(), sealed)


def _seal(page: Path) -> Path:
    return page.with_name(f".{page.name}.seal")


def _digest(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """The user's key; empty where there is none that only the user may read."""
    path = _key_file()
    try:
        is_private = not path.stat().st_mode & 0o077
        key = files.read_bytes(path)
    except OSError:
        return b""
    return key if is_private and len(key) == _KEY_BYTES else b""


def _make_key() -> None:
    """Make the user's key where there is none, whole or not at all. Raises OSError."""
    path = _key_file()
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    try:
        # Unlike a rename, a link does not replace the key that another process made meanwhile.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink()


def _key_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "nodeproof" / "pages.key"
