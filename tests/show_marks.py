"""`pytest --collect-only -p tests.show_marks`: also the markers of each test, one line each."""

from __future__ import annotations

import pytest

SIGN = "marked:"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print them."""
    for item in session.items:
        print(SIGN, item.nodeid, *sorted({marker.name for marker in item.iter_markers()}), sep="\t")
