"""How pytest shows a failed scenario: the scenario's own frames or a message, no frame of nodeproof."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest

import nodeproof
from nodeproof import catalogue
from nodeproof.session.judging import Unproven

_LIBRARIES = (
    Path(nodeproof.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
OPEN = "nodeproof_open"
"""Attribute of the report of an open scenario; the summary gives the reason."""


def present(report: pytest.TestReport, call: pytest.CallInfo[None], item: pytest.Item) -> None:
    """Remove nodeproof's frames from a scenario's failure, unless `--full-trace` or `--debug` is set.

    If the scenario's own code raised, its frames remain. An unproven scenario shows only a message, and is
    marked as open.
    """
    option = item.config.option
    if call.excinfo is None or not report.failed or option.fulltrace or option.debug:
        return
    error = call.excinfo.value
    is_unproven = isinstance(error, Unproven)
    cause = error.__cause__ if is_unproven and error.__cause__ else error
    excinfo = pytest.ExceptionInfo.from_exception(cause)
    if any(_is_own(entry, item) for entry in excinfo.traceback):
        report.longrepr = _own_frames(excinfo, item)
    elif is_unproven:
        report.longrepr = str(error)
        setattr(report, OPEN, True)


def is_open(report: pytest.TestReport) -> bool:
    """Return whether the scenario is unproven, and none of its own code raised."""
    return getattr(report, OPEN, False)


def _own_frames(excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Represent an error by the scenario's frames.

    The chain of causes is shown only if the scenario itself raised the error.
    """
    style = item.config.option.tbstyle
    return excinfo.getrepr(
        showlocals=item.config.option.showlocals,
        style="long" if style == "auto" else style,
        tbfilter=lambda info: info.traceback.filter(lambda entry: _is_own(entry, item)),
        chain=_is_own(excinfo.traceback[-1], item),
    )


def _is_own(entry: Any, item: pytest.Item) -> bool:
    """Return whether a frame is in a scenario or in a module of its own, not in a library or nodeproof."""
    path = Path(entry.path)
    if path == item.path or path.is_relative_to(catalogue.scenarios_dir()):
        return True
    return not any(path.is_relative_to(library) for library in _LIBRARIES)
