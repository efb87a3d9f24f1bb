"""`python -m infra.links [PAGE...]`: read each external link of the Markdown pages; return 1 if one fails.

Hosts without a dot or with the ending `.example` are placeholders. `make site` checks the links within the
project.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

TOP = Path(__file__).resolve().parents[1]
TIMEOUT_S, RETRIES, PAUSE_S = 30.0, 2, 20.0
_LINK = re.compile(r"https?://[^\s)\"'>`]+")


def main() -> int:
    """Print the links that fail, and the pages that have them."""
    paths = [Path(name) for name in sys.argv[1:]] or list(_tracked())
    pages = links({str(path): path.read_text() for path in paths})
    errors = {link: error for link in pages if (error := failure(link))}
    for link, error in errors.items():
        print(f"{link}: {error}; in {', '.join(pages[link])}", file=sys.stderr)
    print(f"links: {len(pages)} read, {len(errors)} failed")
    return 1 if errors else 0


def links(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the external links of Markdown texts, each with the names of its pages."""
    names: dict[str, list[str]] = {}
    for name, text in pages.items():
        for link in sorted(set(_LINK.findall(text))):
            host = urlsplit(link).hostname or ""
            if "." in host and not host.endswith(".example"):
                names.setdefault(link, []).append(name)
    return names


def failure(link: str, retries: int = RETRIES, pause_s: float = PAUSE_S) -> str:
    """Return why a link cannot be read, after `retries` more attempts; empty if it can."""
    # Only http and https: `_LINK`.
    request = urllib.request.Request(link, headers={"User-Agent": "nodeproof-links"})  # noqa: S310
    error = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(pause_s)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
                return ""
        except (OSError, http.client.HTTPException) as reason:
            error = str(reason)
    return error


def _tracked() -> Iterable[Path]:
    argv = ("git", "-C", str(TOP), "ls-files", "-z", "*.md")
    names = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return (TOP / name for name in names.split("\0") if name)


if __name__ == "__main__":
    sys.exit(main())
