"""Files of a run on their way to where others read them, without what is secret: also what a page embeds.

Allure's page is one file: `d("data/test-results/….json","<base64>")` for each result and attachment, and its
program as `src="data:text/javascript;base64,…"`. That program is of Allure's package and the same in every
run: it stays as it is, as words of its code look like passwords, and it would not run without them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path

from nodeproof.model import redact
from nodeproof.report import files

_LOSSLESS = "utf-8", "surrogateescape"
_PICTURES = frozenset({".png"})
_EMBEDDED = re.compile(r'(?:\bd\("[^"]*","|data:[a-z]+/([a-z0-9.+-]+);base64,)([A-Za-z0-9+/]+={0,2})(?=")')
_PROGRAM = "javascript"


def copy(source: Path, target: Path) -> None:
    """Copy a file, clean; bitmaps, which are no text, as they are. Raises OSError."""
    if source.suffix in _PICTURES:
        target.write_bytes(files.read_bytes(source))
    else:
        said = files.read_bytes(source).decode(*_LOSSLESS)
        target.write_bytes("".join(_parts(said)).encode(*_LOSSLESS))


def _parts(given: str) -> Iterator[str]:
    done = 0
    for found in _EMBEDDED.finditer(given):
        yield redact.text(given[done : found.start(2)])
        yield found[2] if found[1] == _PROGRAM else _embedded(found[2])
        done = found.end(2)
    yield redact.text(given[done:])


def _embedded(encoded: str) -> str:
    try:
        said = base64.b64decode(encoded).decode(*_LOSSLESS)
    except binascii.Error:
        return redact.text(encoded)
    clean = redact.text(said)
    return encoded if clean == said else base64.b64encode(clean.encode(*_LOSSLESS)).decode()
