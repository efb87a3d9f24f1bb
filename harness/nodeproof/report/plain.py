"""Words of all reports: foreign text as one harmless line, headings of Kubernetes' documents, and titles."""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodeproof.model.claim import Claim, Document
from nodeproof.model.problem import printable

LONG, COMPLETE = 300, 4000
"""Characters of a text, and of one that is shown completely; what is longer is cut."""
COLUMNS = 110
"""Width of wrapped text."""
_WIDEST = 1_000_000
"""Columns of a line."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def on_terminal(text: str, most: int = LONG) -> str:
    """Return one line without control characters, of at most `most` characters."""
    return shortened(" ".join(printable(text).split()), most)


def wrapped(text: str, most: int = COMPLETE, first: int = 4, rest: int = 6) -> list[str]:
    """Return the same line as several lines, indented by `first` and `rest` blanks."""
    return textwrap.wrap(
        on_terminal(text, most),
        COLUMNS,
        initial_indent=" " * first,
        subsequent_indent=" " * rest,
        break_on_hyphens=False,
    )


def in_markdown(text: str, most: int = LONG) -> str:
    """Return the same line as a code span of Markdown: nothing in it is markup, a link or a mention."""
    flat = on_terminal(text, most)
    if not flat:
        return ""
    fence = "`" * (1 + max(map(len, re.findall(r"`+", flat)), default=0))
    # A span that begins or ends with one needs a blank between, which is no part of it.
    blank = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{blank}{flat}{blank}{fence}"


def in_markdown_cell(text: str, most: int = LONG) -> str:
    """Return the same code span for a table, with broken bars.

    A line is divided into cells before code spans are read, and no escape holds after every backslash.
    """
    return in_markdown(text, most).replace("|", "¦")


def prose_in_markdown(text: str, most: int = LONG) -> str:
    """Return a sentence of the catalogue with its markup escaped, for Markdown and the HTML in it."""
    flat = on_terminal(text, most).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", flat)


def encodable(text: str) -> str:
    """Replace what no encoding has (half a surrogate pair) by a question mark."""
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: `1 verdict`, `2 verdicts`."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def duration(seconds: float) -> str:
    """Return a time in words: `1 h 5 min`, `2 min 3 s`, `9 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with its cells below each other; no cell is wrapped or cut."""
    table = Table.grid(*(("",) * len(rows[0])), padding=(0, 2), pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    # Wide enough for any content, whatever terminal or pipe the text is for.
    console = Console(file=io.StringIO(), width=_WIDEST, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


_DOCS = "https://kubernetes.io/docs/"
DOCUMENTS: Mapping[Document, tuple[str, str]] = {
    "nodes": ("Nodes", f"{_DOCS}concepts/architecture/nodes/"),
    "restart": ("What Happens After A Node Restart", f"{_DOCS}reference/node/what-happens-on-restart/"),
}
"""Title and address of each document of the catalogue."""


@dataclass(frozen=True)
class Section:
    """A heading of a document, of level 1 or 2.

    `address` is the URL of its present text (kubernetes/website, content/en/docs): of the whole page if the
    heading no longer exists there, empty if there is no such text.
    """

    title: str
    level: int
    areas: tuple[str, ...]
    address: str = ""


SECTIONS = tuple(
    Section(heading["title"], heading["level"], tuple(heading["areas"]), f"{_DOCS}{heading['page']}")
    for heading in json.loads(Path(__file__).with_name("headings.json").read_text())
)
"""In the order of the Nodes page, where headings that were moved to other pages keep their place; then those
of What Happens After A Node Restart.
"""


def sections(areas: Iterable[str]) -> tuple[Section, ...]:
    """Return the headings, followed by one for each area that no document has."""
    of_page = {area for section in SECTIONS for area in section.areas}
    others = sorted(set(areas) - of_page)
    return (*SECTIONS, *(Section(f"Not on the page: {area}", 1, (area,)) for area in others))


@cache
def section_of(claim: str) -> Section:
    """Return the heading of a claim."""
    area = claim.partition(".")[0]
    return next(section for section in sections([area]) if area in section.areas)


_WORDS = {
    word.lower().replace("-", " "): word
    for word in (
        *("API", "CIDR", "CIDRs", "CPU", "CPUs", "CSI", "DNS", "HTTP", "IP", "IPs", "IPv4", "IPv6", "JSON"),
        *("OOM", "OS", "PDB", "PID", "PIDs", "QoS", "SIGKILL", "SIGTERM", "TCP", "TLS", "UDP", "UID"),
        *("VM", "VMs", "DaemonSet", "NoExecute", "NoSchedule", "NodeRestriction", "PreferNoSchedule"),
        *("StatefulSet", "fifty-one", "hand-made", "kube-proxy", "well-known"),
    )
}
"""Spelling of terms; names of functions have neither capitals nor hyphens."""
_WORD = re.compile(rf"\b({'|'.join(sorted(_WORDS, key=len, reverse=True))})\b")
_OWNER = re.compile(
    r"(?<!ty )\b((?:an?|one) (?:dead |lost |silent )?(?:kubelet|machine|node|pod))s\b|\b(server)s(?= flags\b)"
)
"""Possessives without their apostrophe: after `a`, a word that ends in -s is not a plural."""
_PROGRAMS = ("containerd", "etcd", "kube-proxy", "kubectl", "kubelet")
"""In lower case even at the beginning of a sentence."""


def title(nodeid: str) -> str:
    """Return a scenario's title: the name of its function as a sentence, and its parameters."""
    path, bracket, parameters = nodeid.partition("[")
    name = path.rpartition("::")[2] or path
    sentence = name.removeprefix("test_").replace("_", " ")
    sentence = _OWNER.sub(lambda match: f"{match[1] or match[2]}'s", sentence)
    sentence = _WORD.sub(lambda match: _WORDS[match[1]], sentence)
    if sentence.partition(" ")[0] not in _PROGRAMS:
        sentence = sentence[:1].upper() + sentence[1:]
    return f"{sentence} [{parameters}" if bracket else sentence


def feature(claim_id: str, claim: Claim | None) -> str:
    """Return the statement of a claim with its id; only the id if the catalogue does not have it."""
    return f"{on_terminal(claim.statement)} ({claim_id})" if claim else claim_id
