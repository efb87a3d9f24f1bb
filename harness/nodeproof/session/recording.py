"""What is kept of a scenario: history, configuration, judgments, picture; and what Allure gets of it."""

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
"""Of each log in Allure: where somebody will look for a reason, and where all was as it should be."""
_OF_NODE = re.compile(r"(?:console|journal|kubelet|node)-(.+)")


def store(
    run: Path,
    nodeid: str,
    closed: Closed,
    claims: dict[str, Claim],
    configuration: Configuration,
    history: History,
) -> None:
    """Write what the scenario is judged by, its rows and its picture; the recorder wrote the history."""
    judgments: list[Judgment] = [judgment for judgment, _verdict in closed.judged]
    rows, slack = closed.rows(claims, nodeid, configuration), slack_s(history, configuration)
    folder = write_scenario(run, nodeid, judgments, configuration, rows, slack)
    timeline.render(history, list(closed.judged), folder / "timeline.svg", behaviours.title(nodeid))
    rates.render(history, list(closed.judged), folder / "rates.svg")


def store_skipped(run: Path, nodeid: str, closed: Closed, claims: dict[str, Claim], options: Options) -> None:
    """Write the rows of a scenario that did not run; there is no recording."""
    nothing = Configuration(
        kubernetes_version=options.kubernetes_version,
        lab=options.kind,
        profile=options.profile,
        slack_limit_s=0.0,
        negative_wait_s=0.0,
        calibration=Calibration(0.0),
    )
    write_scenario(run, nodeid, [], nothing, closed.rows(claims, nodeid, nothing))


def attach(run: Path, nodeid: str, closed: Closed, configuration: Configuration) -> None:
    """Give Allure the version that ran, the picture, the judgments, and the place of the history, which is
    many times as large as all the rest.
    """
    allure.dynamic.label("kubernetes", configuration.kubernetes_version)
    folder = scenario_dir(run, nodeid)
    for name in ("timeline", "rates"):
        if (folder / f"{name}.svg").exists():
            allure.attach.file(str(folder / f"{name}.svg"), name, allure.attachment_type.SVG)
    allure.attach(wording.summary(closed.verdicts()), "verdicts", allure.attachment_type.TEXT)
    allure.attach.file(str(folder / "judgments.json"), "judgments", allure.attachment_type.JSON)
    history = f"scenarios/{folder.name}/history.jsonl"
    # Allure shows what a link within the run is called, and does not follow it: the page beside it does.
    allure.dynamic.link(f"../{history}", name=f"history: {history}")


def attach_logs(folders: Iterable[Path], nodes: Collection[str], *, short: bool) -> None:
    """Give Allure the tail of each log of the control plane and of these nodes; the run has all of them.

    A `short` one where all was as it should be.
    """
    length = _SHORT_TAIL_BYTES if short else _TAIL_BYTES
    for path in sorted(path for folder in folders for path in folder.glob("*.log")):
        of_node = _OF_NODE.fullmatch(path.stem)
        if of_node is None or of_node[1] in nodes:
            allure.attach(redacted.tail(path, length), path.name, allure.attachment_type.TEXT)


def concerned(history: History) -> set[str]:
    """The nodes that had a fault, or to whose machine something happened."""
    told = (entry for kind in ("fault", "machine") for entry in history.of_kind(kind))
    return {str(entry.data["node"]) for entry in told if entry.data.get("node")}


def last_no_execute_taint(history: History) -> float:
    """When a node last got a NoExecute taint (s, monotonic); minus infinity when none did."""
    latest = float("-inf")
    for version in history.all_versions("nodes"):
        if any(taint["effect"] == "NoExecute" for taint in version.object["spec"].get("taints") or ()):
            latest = version.t
    return latest


def label(nodeid: str, declared: Sequence[Claim], options: Options) -> None:
    """Allure: under which headings and claims of the page the scenario stands, what it links to there; lab,
    profile and versions of the page as labels.
    """
    known = {claim.id: claim for claim in declared}
    for name, value in behaviours.labels(nodeid, known, known):
        allure.dynamic.label(name, value)
    for address, name in behaviours.links(known):
        allure.dynamic.link(address, name=name)
    for page in sorted({page for claim in declared for page in claim.page_versions}):
        allure.dynamic.label("page", page)
    allure.dynamic.label("lab", options.kind)
    allure.dynamic.label("profile", options.profile)


def entitle(nodeid: str, declared: Sequence[Claim], remark: str) -> None:
    """Allure: the scenario's sentence for its function's name, its remark, and the claims in our own words.

    What is said before the scenario is set up is written over by allure-pytest.
    """
    allure.dynamic.title(behaviours.title(nodeid))
    said = [f"**{claim.id}**: {claim.statement}" for claim in declared]
    allure.dynamic.description("\n\n".join([*filter(None, [inspect.cleandoc(remark)]), *said]))
