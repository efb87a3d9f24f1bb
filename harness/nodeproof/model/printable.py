"""Output of text from other sources (a cluster, a component, another user's run) on a terminal."""

from __future__ import annotations

_ALLOWED = "\n\t"


def printable(text: str) -> str:
    """Return the text with a blank for each unsafe character; line breaks and tabs stay.

    Unsafe characters can control a terminal, change the text direction, or cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _ALLOWED else " " for char in text)
