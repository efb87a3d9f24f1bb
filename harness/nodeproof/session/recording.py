"""Store a scenario (history, configuration, judgments, pictures) and attach it to Allure's report."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import allure

from nodeproof import redacted
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment
from nodeproof.model.slack import slack_s
from nodeproof.report import behaviours, rates, timeline, wording
from nodeproof.report.rundir import scenario_dir, write_scenario
from nodeproof.session.judging import Closed
from nodeproof.session.options import Options

_TAIL_BYTES, _SHORT_TAIL_BYTES = 8 * 1024, 4 * 1024
"""Length of a log in Allure: for a scenario that needs an explanation, and for one that conforms."""
_NODE_LOG = re.compile(r"(?:console|journal|kubelet|node)-(.+)")


def store(
    run: Path,
    nodeid: str,
    closed: Closed,
    claims: dict[str, Claim],
    configuration: Configuration,
    history: History,
) -> None:
    """Write the scenario's judgments, configuration, rows and pictures; the recorder wrote the history."""
    judgments: list[Judgment] = [judgment for judgment, _verdict in closed.judged]
    rows, slack = closed.rows(claims, nodeid, configuration), slack_s(history, configuration)
    folder = write_scenario(run, nodeid, judgments, configuration, rows, slack)
    timeline.render(history, list(closed.judged), folder / "timeline.svg", behaviours.title(nodeid))
    rates.render(history, list(closed.judged), folder / "rates.svg")


def store_skipped(run: Path, nodeid: str, closed: Closed, claims: dict[str, Claim], options: Options) -> None:
    """Write the rows of a scenario that did not run, and thus has no recording."""
    configuration = Configuration(
        kubernetes_version=options.kubernetes_version,
        lab=options.kind,
        profile=options.profile,
        slack_limit_s=0.0,
        negative_wait_s=0.0,
        calibration=Calibration(0.0),
    )
    write_scenario(run, nodeid, [], configuration, closed.rows(claims, nodeid, configuration))


def attach(run: Path, nodeid: str, closed: Closed, configuration: Configuration) -> None:
    """Attach version, pictures, verdicts and judgments to Allure; link the history, which is much larger."""
    allure.dynamic.label("kubernetes", configuration.kubernetes_version)
    folder = scenario_dir(run, nodeid)
    for name in ("timeline", "rates"):
        if (folder / f"{name}.svg").exists():
            allure.attach.file(str(folder / f"{name}.svg"), name, allure.attachment_type.SVG)
    allure.attach(wording.summary(closed.verdicts()), "verdicts", allure.attachment_type.TEXT)
    allure.attach.file(str(folder / "judgments.json"), "judgments", allure.attachment_type.JSON)
    history = f"scenarios/{folder.name}/history.jsonl"
    # Allure shows the name of a link into the run, but does not follow it; the Nodes page does.
    allure.dynamic.link(f"../{history}", name=f"history: {history}")


def attach_logs(folders: Iterable[Path], nodes: Collection[str], *, short: bool) -> None:
    """Attach the tails of the logs of the control plane and of these nodes to Allure.

    With `short`, as for a scenario that conforms, attach less. The run's folder has the complete logs.
    """
    length = _SHORT_TAIL_BYTES if short else _TAIL_BYTES
    for path in sorted(path for folder in folders for path in folder.glob("*.log")):
        node_log = _NODE_LOG.fullmatch(path.stem)
        if node_log is None or node_log[1] in nodes:
            allure.attach(redacted.tail(path, length), path.name, allure.attachment_type.TEXT)


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
    for name, value in behaviours.labels(nodeid, claims, claims):
        allure.dynamic.label(name, value)
    for address, name in behaviours.links(claims):
        allure.dynamic.link(address, name=name)
    for page in sorted({page for claim in declared for page in claim.page_versions}):
        allure.dynamic.label("page", page)
    allure.dynamic.label("lab", options.kind)
    allure.dynamic.label("profile", options.profile)


def entitle(nodeid: str, declared: Sequence[Claim], remark: str) -> None:
    """Set the scenario's title and description in Allure: its remark and the statements of its claims.

    Call it after setup: allure-pytest overwrites earlier values.
    """
    allure.dynamic.title(behaviours.title(nodeid))
    statements = [f"**{claim.id}**: {claim.statement}" for claim in declared]
    allure.dynamic.description("\n\n".join([*filter(None, [inspect.cleandoc(remark)]), *statements]))
