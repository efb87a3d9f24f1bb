"""Pictures as SVG: real text of one size at every width, light and dark by the reader's wish, no script.

What lies along a time axis is told in percent of the width and what is written in pixels, so that a picture
needs no other layout on a narrow window: a word is left out where its place is too narrow, and its tooltip
stays. Colours are Okabe and Ito's, which people tell apart whatever they see of red and green
(https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar
from xml.sax.saxutils import escape

from nodeproof.report.plain import on_terminal

Spot = TypeVar("Spot")
LEFT, RIGHT = 2.0, 98.0
"""Where a time axis begins and ends, in percent of the width."""
LINE, LETTER = 17, 7.2
"""The height of a line and the width of a letter (px)."""
NARROW = 400
"""The narrowest window (px) for which pictures are made."""
LETTERS, HEAD_LETTERS = 46, 36
"""What goes into a line there, and into one of the head."""
VISIBLE = 1600
"""Places along an axis that can be told apart; what falls on one of them together is drawn once."""
_WIDTHS = (640, 960, 1280)

PAPER: Mapping[str, str] = {"light": "#ffffff", "dark": "#10151b"}
INK: Mapping[str, str] = {"light": "#1b1f24", "dark": "#e6edf3"}
SOFT: Mapping[str, str] = {"light": "#505a64", "dark": "#a3b0bd"}
_LINES: Mapping[str, str] = {"light": "#d5dbe1", "dark": "#36414c"}
FILLS: Mapping[str, tuple[str, str]] = {
    "ready": ("#009e73", "#000000"),
    "not-ready": ("#e69f00", "#000000"),
    "unknown": ("#cc79a7", "#000000"),
    "no-condition": ("#bbbbbb", "#000000"),
    "taint": ("#0072b2", "#ffffff"),
    "pod": ("#56b4e9", "#000000"),
    "leaving": ("#f0e442", "#000000"),
    "attaching": ("#bbbbbb", "#000000"),
    "attached": ("#56b4e9", "#000000"),
    "detaching": ("#f0e442", "#000000"),
    "fault": ("#d55e00", "#000000"),
    "conforms": ("#009e73", "#000000"),
    "deviates": ("#d55e00", "#000000"),
    "unproven": ("#c8c8c8", "#000000"),
}
"""What is filled, and what is written on it, light and dark alike."""


def document(title: str, height: float, body: Iterable[str]) -> str:
    """A picture of this height (px) that is as wide as its window."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height:.0f}" class="nodeproof">\n'
        f"<title>{text_of(title)}</title>\n<style>{_style()}</style>\n{_PATTERNS}\n"
        f'<rect width="100%" height="100%" class="paper"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def text_of(said: str, most: int = 300) -> str:
    """Others' text as XML: one line, no character that XML does not allow or that turns its direction."""
    return escape(on_terminal(said, most), {'"': "&quot;"})


def lines_of(said: str, most: int, letters: int = LETTERS) -> list[str]:
    """Others' text in lines that fit a narrow window, of so many letters in all."""
    return textwrap.wrap(on_terminal(said, most), letters, break_on_hyphens=False)


def write(x: float, y: float, said: str, classes: str = "", anchor: str = "start", tip: str = "") -> str:
    """A line of text; `x` in percent, `y` (px) its base line."""
    where = f'x="{x:.2f}%" y="{y:.1f}" class="{classes}" text-anchor="{anchor}"'
    return f"<text {where}>{text_of(said)}{_title(tip)}</text>"


def beside(offset: float, said: str, classes: str, anchor: str, tip: str = "") -> str:
    """A line of text in a bar's height, at an offset (px)."""
    where = f'x="{offset:g}" y="12" class="{classes}" text-anchor="{anchor}"'
    return f"<text {where}>{text_of(said)}{_title(tip)}</text>"


def _title(tip: str) -> str:
    return f"<title>{text_of(tip)}</title>" if tip else ""


def bar(left: float, right: float, y: float, height: float, classes: str, tip: str = "") -> str:
    """A stretch of the axis, in percent; it has a width however short it is."""
    width = max(right - left, 0.1)
    where = f'x="{left:.3f}%" y="{y:.1f}" width="{width:.3f}%" height="{height:.1f}"'
    return f'<rect {where} class="{classes}">{_title(tip)}</rect>'


def upright(x: float, top: float, bottom: float, classes: str) -> str:
    """A line across the axis."""
    return f'<line x1="{x:.3f}%" x2="{x:.3f}%" y1="{top:.1f}" y2="{bottom:.1f}" class="{classes}"/>'


def arrow(x: float, y: float, height: float, way: int) -> str:
    """The head of an arrow along the axis at its end, to the right (1) or to the left (-1)."""
    half = height / 2
    path = (
        f'<path d="M{-way * (half + 2):.1f} 1L{-way * 2} {half:.1f}L{-way * (half + 2):.1f} {height - 1:.1f}"'
    )
    return f'<svg x="{x:.3f}%" y="{y:.1f}" overflow="visible">{path} class="beat"/></svg>'


def along(left: float, right: float, y: float, classes: str) -> str:
    """A line along the axis."""
    return f'<line x1="{left:.3f}%" x2="{right:.3f}%" y1="{y:.1f}" y2="{y:.1f}" class="{classes}"/>'


def stretched(left: float, right: float, y: float, height: float, inside: str) -> str:
    """What is told in thousandths of its box; lines in it keep their width."""
    where = f'x="{left:.3f}%" y="{y:.1f}" width="{right - left:.3f}%" height="{height:.1f}"'
    return (
        f'<svg {where} viewBox="0 0 1000 1000" preserveAspectRatio="none" overflow="visible">{inside}</svg>'
    )


def room(said: str, share: float) -> str | None:
    """The class of a word that is shown where so large a share of the axis has room for it; None where no
    usual window has.
    """
    needed = (len(said) + 1) * LETTER
    usable = share * (RIGHT - LEFT) / 100
    if usable * NARROW >= needed:
        return ""
    return next((f"from-{width}" for width in _WIDTHS if usable * width >= needed), None)


def thinned(spots: Sequence[Spot], places: Sequence[float]) -> list[Spot]:
    """Those that can be told apart, each at its place (0 to 1): the first of each that fall together."""
    kept: dict[int, Spot] = {}
    for spot, place in zip(spots, places, strict=True):
        kept.setdefault(int(place * VISIBLE), spot)
    return list(kept.values())


def ticks(low: float, high: float, most: int = 6) -> Iterator[float]:
    """Round numbers between the two, at most so many."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * each for each in (1, 2, 5, 10) if span / (power * each) <= most)
    first = math.ceil(low / step - 1e-9)
    yield from (number * step for number in range(first, math.floor(high / step + 1e-9) + 1))


_PATTERNS = (
    "<defs>"
    '<pattern id="np-gap" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="7" height="7" class="paper"/><rect width="3" height="7" class="inked"/></pattern>'
    '<pattern id="np-not" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect width="1.5" height="6" class="inked"/></pattern></defs>'
)


def _style() -> str:
    """What is scoped to the picture stays in it, where a page takes the picture in."""
    said = [
        _scheme("light"),
        f"@media (prefers-color-scheme:dark){{{_scheme('dark')}}}",
        ".nodeproof text{fill:var(--ink);font:13px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}",
        ".nodeproof .head{font-size:17px;font-weight:600}.nodeproof .group{font-weight:600}",
        ".nodeproof .soft{fill:var(--soft);font-size:12px}",
        ".nodeproof .paper{fill:var(--paper)}.nodeproof .inked{fill:var(--soft)}",
        ".nodeproof .grid{stroke:var(--lines)}.nodeproof .rule{stroke:var(--soft)}",
        ".nodeproof .beat{stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke;fill:none}",
        ".nodeproof .dotted{stroke:var(--soft);stroke-dasharray:2 3}",
        ".nodeproof .gap{fill:url(#np-gap);stroke:var(--soft)}.nodeproof .not{fill:url(#np-not)}",
        ".nodeproof .edged{stroke:var(--soft);stroke-width:.75}.nodeproof .faint{opacity:.3}",
        ".nodeproof .shade{opacity:.1}",
        ".nodeproof .edge{stroke:var(--ink);stroke-width:2}.nodeproof .dot{stroke:var(--paper)}",
        ".nodeproof .dots{stroke-linecap:round;stroke-width:7;vector-effect:non-scaling-stroke}",
    ]
    for name, (fill, on) in FILLS.items():
        said.append(f".nodeproof .{name}{{fill:{fill}}}.nodeproof text.on-{name}{{fill:{on};font-size:12px}}")
        said.append(f".nodeproof .dots.{name}{{stroke:{fill}}}")
    for width in _WIDTHS:
        said.append(f"@media (max-width:{width - 1}px){{.nodeproof .from-{width}{{display:none}}}}")
    return "\n".join(said)


def _scheme(name: str) -> str:
    colours = {"paper": PAPER, "ink": INK, "soft": SOFT, "lines": _LINES}
    return ".nodeproof{" + ";".join(f"--{key}:{each[name]}" for key, each in colours.items()) + "}"
