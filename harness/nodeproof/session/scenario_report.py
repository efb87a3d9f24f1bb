"""Store a scenario, and report it to pytest and Allure: what they get contains no secret.

A failure may repeat the output of components.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import allure
import allure_commons
import attr
import pytest

from nodeproof import redacted
from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment
from nodeproof.model.problem import printable
from nodeproof.model.slack import slack_s
from nodeproof.report import plain, recovery, timeline
from nodeproof.report.allure import Attachment, attachments, labels, links
from nodeproof.report.rundir import scenario_dir, write_scenario
from nodeproof.session.judging import JudgedScenario
from nodeproof.session.options import Options
from nodeproof.session.storm import store_coverage

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
    version, kind, profile = options.kubernetes_version, options.kind, options.profile
    configuration = Configuration(version, kind, profile, 0.0, 0.0, Calibration(0.0))
    write_scenario(run, nodeid, [], configuration, judged.rows(claims, nodeid, configuration))


def attach_verdicts(run: Path, nodeid: str, judged: JudgedScenario, configuration: Configuration) -> None:
    """Attach version, pictures, verdicts and judgments to Allure; link the history, which is much larger."""
    allure.dynamic.label("kubernetes", configuration.kubernetes_version)
    folder = scenario_dir(run, nodeid)
    attach(attachments(folder, judged.verdicts()))
    history = f"scenarios/{folder.name}/history.jsonl"
    # Allure shows the name of a link into the run, but does not follow it; the Nodes page does.
    allure.dynamic.link(f"../{history}", name=f"history: {history}")


def log_tails(folders: Iterable[Path], nodes: Collection[str], *, short: bool) -> Iterator[Attachment]:
    """Yield the tails of the logs of the control plane and of these nodes.

    With `short`, as for a scenario that conforms, they are shorter. The run's folder has the complete logs.
    """
    length = _SHORT_TAIL_BYTES if short else _TAIL_BYTES
    for path in sorted(path for folder in folders for path in folder.glob("*.log")):
        node_log = _NODE_LOG.fullmatch(path.stem)
        if node_log is None or node_log[1] in nodes:
            yield Attachment(path.name, redacted.tail(path, length), "text/plain", "txt")


def attach(attached: Iterable[Attachment]) -> None:
    """Attach files to Allure."""
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


class _RedactedResults:
    """A wrapper of Allure's writer that redacts attachments after, and all else before they are written."""

    def __init__(self, results: Path) -> None:
        self._results = results

    @allure_commons.hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
    def report_attached_data(self, file_name: str) -> Generator[None, Any, Any]:
        hook_result = yield
        if not file_name.endswith(".png"):
            redacted.in_place(self._results / file_name)
        return hook_result

    report_attached_file = report_attached_data

    @allure_commons.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
    def report_result(self, result: object) -> None:
        _redact_strings(result)

    @allure_commons.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
    def report_container(self, container: object) -> None:
        _redact_strings(container)


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
