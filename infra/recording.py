"""A terminal in which commands read a recorded run, as asciicast v2 and as an animated SVG.

The SVG is a strip of screens, one of which is visible at a time: with reduced motion, the last.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char

from nodeproof import proc

COLUMNS, ROWS = 110, 30
COMMANDS = (
    "nodeproof",
    "nodeproof recheck --no-site {run} | tail -n 18",
    "nodeproof summary {run} | head -n 24",
    "nodeproof page {run}",
)
_TYPING_S, _READING_S, _FRAME_S = 0.4, 5.5, 0.1
"""Time for each typed word and after each command, and the shortest time of a screen (s)."""
_TIMEOUT_S = 120.0
_WIDTH, _HEIGHT, _SIZE = 8, 18, 13
"""Of a character, and its font's size (px)."""
_TEXT, _GROUND = "#e6e6e6", "#1c1e22"
_COLOURS = {
    "default": _TEXT,
    "black": "#9a9a9a",
    "red": "#ff8a80",
    "green": "#8fd694",
    "brown": "#f2c97d",
    "blue": "#8ab4f8",
    "magenta": "#d7aefb",
    "cyan": "#7fd8e0",
    "white": "#ffffff",
}


def record(run: Path) -> str:
    """Run the commands in a terminal, in the folder of a run, and return the recording as asciicast v2.

    Raises:
        CommandFailed: A command failed.
    """
    now_s, events = 0.0, []
    for command in COMMANDS:
        line = command.format(run=run.name)
        for word in ("$", *line.split(), "\r\n"):
            events.append((now_s, word if word == "\r\n" else f"{word} "))
            now_s += _TYPING_S
        events.append((now_s, _output(line, run.parent)))
        now_s += _READING_S
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "nodeproof reads a recorded run"}
    # The end keeps the last screen.
    entries = [[round(t, 2), "o", text] for t, text in (*events, (now_s, ""))]
    return "\n".join(json.dumps(entry) for entry in (header, *entries)) + "\n"


def _output(line: str, folder: Path) -> str:
    """Return what a command line prints on a terminal, which script(1) provides."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": programs, "SHELL": "/bin/bash", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    sized = f"stty rows {ROWS} columns {COLUMNS}; set -o pipefail; {line}"
    argv = ["script", "--quiet", "--return", "--command", sized, "/dev/null"]
    done = proc.run(argv, timeout_s=_TIMEOUT_S, cwd=folder, env={**os.environ, **own}, check=False)
    # head(1) closes the pipe of a command early, which ends with 141.
    if done.status not in (0, 141):
        raise proc.CommandFailed(argv, done.status, done.stdout)
    # The place of the run says nothing.
    return done.stdout.replace(f"{folder}{os.sep}", "")


def picture(cast: str) -> str:
    """Return a recording (asciicast v2) as an animated SVG."""
    header, *entries = (json.loads(line) for line in cast.splitlines())
    width, height = header["width"] * _WIDTH + 2 * _SIZE, header["height"] * _HEIGHT + 2 * _SIZE
    lines: dict[str, int] = {}
    starts: list[float] = []
    screens: list[str] = []
    end_s = entries[-1][0]
    for began_s, screen in _screens(header, entries):
        uses = [
            f'<use href="#l{lines.setdefault(line, len(lines))}" y="{row * _HEIGHT}"/>'
            for row, line in enumerate(screen)
            if line
        ]
        screens.append(f'<g transform="translate({len(screens) * width})">{"".join(uses)}</g>')
        starts.append(began_s)
    steps = [
        f"{100 * began_s / end_s:.3f}%{{transform:translateX({-number * width}px)}}"
        for number, began_s in enumerate(starts)
    ]
    last = f"translateX({-(len(screens) - 1) * width}px)"
    texts = "".join(f'<text id="l{number}">{line}</text>' for line, number in lines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">'
        f"<title>{escape(header['title'])}</title><style>"
        f"text{{font:{_SIZE}px monospace;fill:{_TEXT};white-space:pre}}.b{{font-weight:bold}}"
        f"#strip{{animation:strip {end_s:.1f}s step-end infinite}}"
        f"@keyframes strip{{{''.join(steps)}}}"
        f"@media (prefers-reduced-motion:reduce){{#strip{{animation:none;transform:{last}}}}}"
        f'</style><defs>{texts}</defs><rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>'
        f'<svg x="{_SIZE}" y="{2 * _SIZE}" width="{width - 2 * _SIZE}" height="{height - 2 * _SIZE}" '
        f'overflow="visible"><g id="strip">{"".join(screens)}</g></svg></svg>\n'
    )


def _screens(
    header: Mapping[str, int], entries: list[list[float | str]]
) -> Iterator[tuple[float, list[str]]]:
    """Yield the screens that differ, each with its start (s) and its lines as the content of <text>."""
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    before: list[str] = []
    for (began_s, _kind, text), (next_s, *_rest) in zip(entries, [*entries[1:], entries[-1]], strict=True):
        stream.feed(str(text))
        lines = [
            _line([screen.buffer[row][column] for column in range(screen.columns)])
            for row in range(screen.lines)
        ]
        if lines != before and float(next_s) - float(began_s) >= _FRAME_S:
            before = lines
            yield float(began_s), lines


def _line(characters: list[Char]) -> str:
    parts, column = [], 0
    for (colour, is_bold), group in groupby(characters, lambda char: (char.fg, char.bold)):
        text = "".join(char.data for char in group)
        x, column = column * _WIDTH, column + len(text)
        if not text.strip():
            continue
        # In any font, each character has the same width.
        length = len(text.rstrip()) * _WIDTH
        fill = _COLOURS.get(colour.removeprefix("bright"), f"#{colour}" if len(colour) == 6 else _TEXT)
        style = (f' fill="{fill}"' if fill != _TEXT else "") + (' class="b"' if is_bold else "")
        parts.append(f'<tspan x="{x}" textLength="{length}"{style}>{escape(text.rstrip())}</tspan>')
    return "".join(parts)
