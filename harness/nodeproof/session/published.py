"""Redact secrets in reports to pytest and Allure: a failure may repeat the output of components."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import allure_commons
import attr
import pytest

from nodeproof import redacted
from nodeproof.model import redact
from nodeproof.model.printable import printable

Hook = TypeVar("Hook", bound=Callable[..., object])


def _around(hook: Hook) -> Hook:
    allure_commons.hookimpl(wrapper=True)(hook)
    return hook


def _before(hook: Hook) -> Hook:
    allure_commons.hookimpl(tryfirst=True)(hook)
    return hook


def clean(report: pytest.TestReport) -> None:
    """Redact what the terminal and JUnit show of a test."""
    original = report.longreprtext
    redacted_text = printable(redact.text(original))
    if redacted_text != original:
        report.longrepr = redacted_text
    report.sections = [(name, printable(redact.text(content))) for name, content in report.sections]


def clean_allure(config: pytest.Config) -> None:
    """Redact everything that Allure writes into its results, until pytest ends."""
    results = Path(config.getoption("allure_report_dir")).resolve()
    plugin = _Clean(results)
    allure_commons.plugin_manager.register(plugin)
    config.add_cleanup(lambda: allure_commons.plugin_manager.unregister(plugin))


class _Clean:
    """A wrapper of Allure's writer that redacts attachments after, and all else before they are written."""

    def __init__(self, results: Path) -> None:
        self._results = results

    @_around
    def report_attached_data(self, file_name: str) -> Generator[None, Any, Any]:
        return (yield from self._attached(file_name))

    @_around
    def report_attached_file(self, file_name: str) -> Generator[None, Any, Any]:
        return (yield from self._attached(file_name))

    @_before
    def report_result(self, result: object) -> None:
        _clean_strings(result)

    @_before
    def report_container(self, container: object) -> None:
        _clean_strings(container)

    def _attached(self, file_name: str) -> Generator[None, Any, Any]:
        hook_result = yield
        if not file_name.endswith(".png"):
            redacted.in_place(self._results / file_name)
        return hook_result


def _clean_strings(model: Any) -> None:
    """Redact the strings in one of Allure's model objects and in the objects that it contains."""
    for field in attr.fields(type(model)):
        value = getattr(model, field.name)
        if isinstance(value, str):
            setattr(model, field.name, redact.text(value))
        elif isinstance(value, list):
            value[:] = [redact.text(part) if isinstance(part, str) else part for part in value]
        for part in value if isinstance(value, list) else [value]:
            if attr.has(type(part)):
                _clean_strings(part)
