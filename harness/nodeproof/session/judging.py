"""Collect a scenario's judgments, evaluate all of them at its end, and show an unproven one to pytest."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import nodeproof
from nodeproof import catalogue
from nodeproof.checks.judge import abort_of, judge, unexpected_exit
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import PROBED, History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.slack import longest_stall_s
from nodeproof.model.verdict import Code, Verdict, unproven, worst
from nodeproof.model.window import WindowSpec
from nodeproof.report.rundir import Row, row
from nodeproof.safety.guard import NotPermitted

LABEL = "nodeproof_label"
"""Report property: the worst verdict of the scenario."""
RERUN = "rerun"
"""The outcome of a try that is followed by another, as in pytest-rerunfailures."""
_OPEN = "nodeproof_open"
"""Attribute of the report of an open scenario; the summary gives the reason."""
_LIBRARIES = (
    Path(nodeproof.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


class Unproven(Exception):
    """A scenario ended without evidence for or against its claims."""


@dataclass
class Judge:
    """The fixture `judge`: collects checks of the recording, which are evaluated when the scenario ends."""

    nodeid: str
    declared: tuple[str, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    judgments: list[Judgment] = field(default_factory=list)

    def __call__(self, claim: str, check: Check) -> None:
        """Decide `claim` by `check`; a claim may have several checks.

        Raises:
            Problem: The scenario's marker does not declare the claim.
        """
        if claim not in self.declared:
            message = f"claim {claim} is not declared in @claims ({', '.join(self.declared)})"
            raise Problem(message, self.nodeid, f'add it to @claims, or use the fixture claim("{claim}")')
        self.judgments.append(Judgment(claim, check))

    def window(self, claim: str) -> WindowSpec:
        """Return the window in the claim's YAML.

        Raises:
            Problem: The claim has no window.
        """
        shipped = self.claims.get(claim)
        if shipped is None or shipped.window is None:
            raise Problem(f"claim {claim} has no window", self.nodeid, "add `window` to its YAML")
        return shipped.window


@dataclass(frozen=True)
class JudgedScenario:
    """A scenario's judgments with their verdicts, and the verdicts of claims without a judgment."""

    judged: tuple[tuple[Judgment, Verdict], ...]
    unjudged: tuple[tuple[str, Verdict], ...]

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Return claim and verdict of all judgments, then of the claims without one."""
        return [(judgment.claim, verdict) for judgment, verdict in self.judged] + list(self.unjudged)

    def worst(self) -> Verdict:
        """Return the worst verdict, which decides the scenario."""
        return worst(verdict for _claim, verdict in self.verdicts())

    def rows(self, claims: dict[str, Claim], scenario: str, configuration: Configuration) -> list[Row]:
        """Return the scenario's rows for `verdicts.json`."""
        return [row(claims[claim], scenario, verdict, configuration) for claim, verdict in self.verdicts()]


def close(
    declared: Sequence[Claim],
    judgments: Sequence[Judgment],
    history: History,
    configuration: Configuration,
    broken: str,
) -> JudgedScenario:
    """Evaluate every judgment; a declared claim without one is unproven.

    `broken` is why the scenario was aborted, empty if it was not. Every declared claim of an aborted scenario
    is unproven in addition to its judgments, as more judgments may be missing. A deviation stays one.
    """
    by_id = {claim.id: claim for claim in declared}
    judged = tuple(
        (judgment, judge(by_id[judgment.claim], judgment.check, history, configuration))
        for judgment in judgments
    )
    complete = set() if broken else {judgment.claim for judgment in judgments}
    reason, code = "the scenario declares the claim and never judged it", code_of(history)
    if broken:
        reason = f"the scenario broke off: {broken}"
        has_stalled = longest_stall_s(history) > configuration.slack_limit_s
        if code == "gap" and (has_stalled or broken.startswith(HostTooLoaded.__name__)):
            code = "host-too-loaded"
        if broken.startswith(NotPermitted.__name__):
            code = "not-injected"
    unjudged = tuple((claim.id, unproven(code, reason)) for claim in declared if claim.id not in complete)
    return JudgedScenario(judged, unjudged)


def with_upgrade(configuration: Configuration, history: History) -> Configuration:
    """Return the configuration with the version to which recorded faults upgraded the control plane."""
    faults = [entry.data["fault"] for entry in history.of_kind("fault") if entry.data["step"] == "injecting"]
    versions = [fault["version"] for fault in faults if fault["fault"] == "upgrade"]
    return replace(configuration, upgraded_to=versions[-1]) if versions else configuration


def code_of(history: History) -> Code:
    """Return why unjudged claims are unproven: a fault was aborted or not injected, a death, or a gap."""
    if abort_of(history) is not None:
        return "aborted"
    if unexpected_exit(history) is not None:
        return "component-died"
    last_steps = {
        entry.data["id"]: entry.data["step"]
        for entry in history.of_kind("fault")
        if entry.data["step"] in ("injecting", *PROBED)
    }
    return "not-injected" if set(last_steps.values()) - {"injected"} else "gap"


def without_running(declared: Sequence[Claim], code: Code, reason: str) -> JudgedScenario:
    """Return all declared claims as unproven, without any judgment."""
    return JudgedScenario((), tuple((claim.id, unproven(code, reason)) for claim in declared))


def present_failure(report: pytest.TestReport, call: pytest.CallInfo[None], item: pytest.Item) -> None:
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
        setattr(report, _OPEN, True)


def is_open(report: pytest.TestReport) -> bool:
    """Return whether the scenario is unproven, and none of its own code raised."""
    return getattr(report, _OPEN, False)


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
