"""Text that others wrote (a cluster, a component, somebody else's run), where a terminal shows it."""

from __future__ import annotations

_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text with its lines, and with a blank for each character that could steer a terminal, turn the
    direction of what follows, or cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else " " for char in text)
