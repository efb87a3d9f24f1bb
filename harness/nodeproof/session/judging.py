"""Collect a scenario's judgments, evaluate, store and report them: pytest and Allure get no secret.

A failure may repeat the output of components.
"""

from __future__ import annotations

import inspect
import re
import sysconfig
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import allure
import allure_commons
import attr
import pytest

import nodeproof
from nodeproof import catalogue, redacted
from nodeproof.checks.judge import abort_of, judge, unexpected_exit
from nodeproof.model import redact
from nodeproof.model.claim import Claim, ReportedBug
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.history import PROBED, History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import HostTooLoaded, Problem, printable
from nodeproof.model.slack import longest_stall_s, slack_s
from nodeproof.model.verdict import Code, Verdict, unproven, worst
from nodeproof.model.window import WindowSpec
from nodeproof.report import plain, recovery, timeline
from nodeproof.report.allure import Attachment, attachments, labels, links
from nodeproof.report.rundir import Row, row, scenario_dir, write_scenario
from nodeproof.safety.guard import NotPermitted
from nodeproof.session.options import Options
from nodeproof.session.storm import store_coverage

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
            declared = ", ".join(self.declared)
            message = f"claim {claim} is not declared in @claims ({declared})"
            raise Problem(message, self.nodeid, f'add it to @claims, or use the fixture claim("{claim}")')
        self.judgments.append(Judgment(claim, check))

    def window(self, claim: str) -> WindowSpec:
        """Return the window in the claim's YAML.

        Raises:
            Problem: The claim has no window.
        """
        window = self.shipped_window(claim)
        if window is None:
            raise Problem(f"claim {claim} has no window", self.nodeid, "add `window` to its YAML")
        return window

    def shipped_window(self, claim: str) -> WindowSpec | None:
        """Return the window in the claim's YAML, if it has one."""
        return self.claims[claim].window if claim in self.claims else None

    def reported_bug(self, claim: str) -> ReportedBug | None:
        """Return the known bug in the claim's YAML, if it has one."""
        return self.claims[claim].reported if claim in self.claims else None


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
    reason = (
        f"the scenario broke off: {broken}"
        if broken
        else "the scenario declares the claim and never judged it"
    )
    code = code_of(history)
    is_loaded = longest_stall_s(history) > configuration.slack_limit_s or broken.startswith(
        HostTooLoaded.__name__
    )
    if broken and code == "gap" and is_loaded:
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


Hook = TypeVar("Hook", bound=Callable[..., object])
_TAIL_BYTES, _SHORT_TAIL_BYTES = 8 * 1024, 4 * 1024
"""Length of a log in Allure: for a scenario that needs an explanation, and for one that conforms."""
_NODE_LOG = re.compile(r"(?:console|journal|kubelet|node)-(.+)")


def store(
    run: Path,
    nodeid: str,
    judged: JudgedScenario,
    claims: dict[str, Claim],
    configuration: Configuration,
    history: History,
) -> None:
    """Write all that a run keeps of a scenario but its history, which the recorder wrote."""
    judgments: list[Judgment] = [judgment for judgment, _verdict in judged.judged]
    rows, slack = judged.rows(claims, nodeid, configuration), slack_s(history, configuration)
    folder = write_scenario(run, nodeid, judgments, configuration, rows, slack)
    recovery.write(folder, history, configuration)
    store_coverage(folder, history)
    timeline.render(history, list(judged.judged), folder / "timeline.svg", plain.title(nodeid))
    timeline.render_rates(history, list(judged.judged), folder / "rates.svg")


def store_skipped(
    run: Path, nodeid: str, judged: JudgedScenario, claims: dict[str, Claim], options: Options
) -> None:
    """Write the rows of a scenario that did not run, and thus has no recording."""
    configuration = Configuration(
        kubernetes_version=options.kubernetes_version,
        lab=options.kind,
        profile=options.profile,
        slack_limit_s=0.0,
        negative_wait_s=0.0,
        calibration=Calibration(0.0),
    )
    write_scenario(run, nodeid, [], configuration, judged.rows(claims, nodeid, configuration))


def attach(run: Path, nodeid: str, judged: JudgedScenario, configuration: Configuration) -> None:
    """Attach version, pictures, verdicts and judgments to Allure; link the history, which is much larger."""
    allure.dynamic.label("kubernetes", configuration.kubernetes_version)
    folder = scenario_dir(run, nodeid)
    _attach_all(attachments(folder, judged.verdicts()))
    history = f"scenarios/{folder.name}/history.jsonl"
    # Allure shows the name of a link into the run, but does not follow it; the Nodes page does.
    allure.dynamic.link(f"../{history}", name=f"history: {history}")


def attach_logs(folders: Iterable[Path], nodes: Collection[str], *, short: bool) -> None:
    """Attach the ends of logs to Allure."""
    _attach_all(log_tails(folders, nodes, short=short))


def log_tails(folders: Iterable[Path], nodes: Collection[str], *, short: bool) -> Iterator[Attachment]:
    """Yield the tails of the logs of the control plane and of these nodes.

    With `short`, as for a scenario that conforms, they are shorter. The run's folder has the complete logs.
    """
    length = _SHORT_TAIL_BYTES if short else _TAIL_BYTES
    for path in sorted(path for folder in folders for path in folder.glob("*.log")):
        node_log = _NODE_LOG.fullmatch(path.stem)
        if node_log is None or node_log[1] in nodes:
            yield Attachment(path.name, redacted.tail(path, length), "text/plain", "txt")


def _attach_all(attached: Iterable[Attachment]) -> None:
    for attachment in attached:
        allure.attach(attachment.text, attachment.name, attachment.mime_type, attachment.extension)


def concerned(history: History) -> set[str]:
    """Return the nodes with a fault or a machine event in the history."""
    entries = (entry for kind in ("fault", "machine") for entry in history.of_kind(kind))
    return {str(entry.data["node"]) for entry in entries if entry.data.get("node")}


def last_no_execute_taint(history: History) -> float:
    """Return when a node was last seen with a NoExecute taint (s, monotonic), or minus infinity."""
    latest = float("-inf")
    for version in history.all_versions("nodes"):
        if any(taint["effect"] == "NoExecute" for taint in version.object["spec"].get("taints") or ()):
            latest = version.t
    return latest


def label(nodeid: str, declared: Sequence[Claim], options: Options) -> None:
    """Set Allure's labels and links: headings and claims of the Nodes page, lab, profile, page versions."""
    claims = {claim.id: claim for claim in declared}
    for name, value in labels(nodeid, claims, claims):
        allure.dynamic.label(name, value)
    for address, name in links(claims, claims):
        allure.dynamic.link(address, name=name)
    for page in sorted({page for claim in declared for page in claim.page_versions}):
        allure.dynamic.label("page", page)
    allure.dynamic.label("lab", options.kind)
    allure.dynamic.label("profile", options.profile)


def entitle(nodeid: str, declared: Sequence[Claim], remark: str) -> None:
    """Set the scenario's title and description in Allure: its remark and the statements of its claims.

    Call it after setup: allure-pytest overwrites earlier values.
    """
    allure.dynamic.title(plain.title(nodeid))
    statements = [f"**{claim.id}**: {claim.statement}" for claim in declared]
    allure.dynamic.description("\n\n".join([*filter(None, [inspect.cleandoc(remark)]), *statements]))


def redact_report(report: pytest.TestReport) -> None:
    """Redact what the terminal and JUnit show of a test."""
    original = report.longreprtext
    redacted_text = printable(redact.text(original))
    if redacted_text != original:
        report.longrepr = redacted_text
    report.sections = [(name, printable(redact.text(content))) for name, content in report.sections]


def redact_allure(config: pytest.Config) -> None:
    """Redact everything that Allure writes into its results, until pytest ends."""
    results = Path(config.getoption("allure_report_dir")).resolve()
    plugin = _RedactedResults(results)
    allure_commons.plugin_manager.register(plugin)
    config.add_cleanup(lambda: allure_commons.plugin_manager.unregister(plugin))


def _around(hook: Hook) -> Hook:
    allure_commons.hookimpl(wrapper=True)(hook)
    return hook


def _before(hook: Hook) -> Hook:
    allure_commons.hookimpl(tryfirst=True)(hook)
    return hook


class _RedactedResults:
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
        _redact_strings(result)

    @_before
    def report_container(self, container: object) -> None:
        _redact_strings(container)

    def _attached(self, file_name: str) -> Generator[None, Any, Any]:
        hook_result = yield
        if not file_name.endswith(".png"):
            redacted.in_place(self._results / file_name)
        return hook_result


def _redact_strings(model: Any) -> None:
    """Redact the strings in one of Allure's model objects and in the objects that it contains."""
    for attribute in attr.fields(type(model)):
        value = getattr(model, attribute.name)
        if isinstance(value, str):
            setattr(model, attribute.name, redact.text(value))
        elif isinstance(value, list):
            value[:] = [redact.text(part) if isinstance(part, str) else part for part in value]
        for part in value if isinstance(value, list) else [value]:
            if attr.has(type(part)):
                _redact_strings(part)
