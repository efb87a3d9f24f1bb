"""One pytest session: its run folder, its lab, its judgments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.model.problem import Problem


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a Problem into pytest's usage error (exit code 4)."""
    try:
        yield
    except Problem as problem:
        raise pytest.UsageError(f"nodeproof: {problem}") from problem


def output_folder(config: pytest.Config) -> Path:
    """Return the folder of runs, which is relative to that of pytest's configuration."""
    top = config.rootpath if config.inipath else config.invocation_params.dir
    return top / str(config.getini("nodeproof_out"))
