"""What pytest and Allure are told, without what is secret: a failure repeats what components said."""

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
    """Clean what the terminal and JUnit show of a test."""
    said = report.longreprtext
    cleaned = printable(redact.text(said))
    if cleaned != said:
        report.longrepr = cleaned
    report.sections = [(name, printable(redact.text(content))) for name, content in report.sections]


def clean_allure(config: pytest.Config) -> None:
    """Clean whatever Allure writes into its results from now on, until pytest ends."""
    results = Path(config.getoption("allure_report_dir")).resolve()
    plugin = _Clean(results)
    allure_commons.plugin_manager.register(plugin)
    config.add_cleanup(lambda: allure_commons.plugin_manager.unregister(plugin))


class _Clean:
    """Stands around Allure's own writer: an attachment is cleaned once it is written, all else before."""

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
        done = yield
        if not file_name.endswith(".png"):
            redacted.in_place(self._results / file_name)
        return done


def _clean_strings(told: Any) -> None:
    """Clean the strings in one of Allure's objects and in those that it holds."""
    for field in attr.fields(type(told)):
        value = getattr(told, field.name)
        if isinstance(value, str):
            setattr(told, field.name, redact.text(value))
        elif isinstance(value, list):
            value[:] = [redact.text(part) if isinstance(part, str) else part for part in value]
        for part in value if isinstance(value, list) else [value]:
            if attr.has(type(part)):
                _clean_strings(part)
