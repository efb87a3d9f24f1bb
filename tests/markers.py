"""Markers of tests, and a plugin that lists them: `pytest --collect-only -p tests.markers`."""

from __future__ import annotations

import pytest

MARKED, FALLS = "marked:", "falls:"
"""The beginnings of the plugin's lines."""
falls = pytest.mark.falls
"""Claims that deviate on the altered cluster of a test."""


def fallen_claims(item: pytest.Item) -> frozenset[str]:
    """Return the claims that a test's `falls` markers name."""
    return frozenset(claim for marker in item.iter_markers("falls") for claim in marker.args)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the markers of each test, and the claims that fall there."""
    for item in session.items:
        print(MARKED, item.nodeid, *sorted({marker.name for marker in item.iter_markers()}), sep="\t")
        if claims := fallen_claims(item):
            print(FALLS, item.nodeid, *sorted(claims), sep="\t")
