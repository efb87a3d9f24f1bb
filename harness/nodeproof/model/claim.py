"""Documented, observable behaviours of nodes, and what the documents of Kubernetes state: "the page"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Agreement, Outcome, Page, Verdict
from nodeproof.model.window import WindowSpec

Kind = Literal["timing", "default", "behaviour"]
Subject = Literal["control-plane", "kubelet", "cloud-controller-manager"]
Status = Literal["judged", "planned", "cannot", "not-applicable"]
"""Whether a scenario judges the claim. `cannot`: no lab can prove it. The reason explains `cannot` and
`not-applicable`; for `judged` it may name what is simulated.
"""
Document = Literal["nodes", "restart"]
"""The page of Kubernetes that a claim is from: Nodes, or What Happens After A Node Restart."""
Tier = Literal["process", "machine"]
"""The least realistic type of node on which the claim can be proven."""


@dataclass(frozen=True)
class Constant:
    """A default compiled into a component: its value per range of Kubernetes versions, and the page's value.

    `component` and `reported` locate it in the running component (`/configz`, a dotted path; empty if it is
    not reported). `flag` is the flag or configuration field that changes it; `source` is the file in
    Kubernetes that sets it.
    """

    name: str
    component: str
    reported: str
    flag: str
    unit: str
    values: tuple[tuple[str, float], ...]
    page_value: float | None
    source: str

    def at(self, kubernetes_version: str) -> float:
        """Return the constant for a Kubernetes version.

        Raises:
            KeyError: The catalogue has no value for the version.
        """
        for versions, value in self.values:
            if includes(versions, kubernetes_version):
                return value
        raise KeyError(f"{self.name} has no value for {kubernetes_version}")


@dataclass(frozen=True)
class ReportedBug:
    """A bug of Kubernetes by which a claim deviates, as somebody reported.

    `issue` is `owner/repository#number`, `versions` the range of versions that have the bug. `window` is when
    the event of the claim's check occurs, too late or although it must not; of the shape `negative`, when it
    still has not.
    """

    issue: str
    versions: str
    window: WindowSpec

    @property
    def url(self) -> str:
        """The address of the issue."""
        return f"https://github.com/{self.issue.replace('#', '/issues/')}"

    def deviation(self, check: Check) -> Check | None:
        """Return the check of the reported deviation; None if the claim's check is not about one event."""
        if check.name not in ("after", "never"):
            return None
        name = "never" if self.window.args["shape"] == "negative" else "after"
        return Check(name, {**check.args, "window": self.window.to_json()})


@dataclass(frozen=True)
class Claim:
    """One row of the catalogue.

    `page` maps a version of `document` to `true` if it makes the statement, `false` if it does not
    mention it, else to a remark. A remark starts with CONTRARY if the page contradicts the statement, which
    then describes the source of Kubernetes. `drift` describes a known difference between page and source; it
    never affects the verdict. `versions` is the range of Kubernetes versions in which the statement holds.
    `changed` maps a minor to what it changed in what a scenario observes, with the pull request.
    `window` is the time after its anchor in which a timing claim's event may occur, if its YAML has one.
    `reported` is a bug by which it is known to deviate.
    `measure` describes how to judge a planned claim, `upstream_tests` lists the tests of Kubernetes for it,
    `defaults` the flags and fields (`kubelet.maxPods`) that must have their defaults.
    """

    id: str
    area: str
    statement: str
    kind: Kind
    subject: Subject
    versions: str
    page: Mapping[str, bool | str]
    constants: tuple[Constant, ...]
    sources: tuple[str, ...]
    drift: str = ""
    window: WindowSpec | None = None
    reported: ReportedBug | None = None
    status: Status = "judged"
    reason: str = ""
    tier: Tier = "process"
    needs: tuple[str, ...] = ()
    measure: str = ""
    upstream_tests: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)
    document: Document = "nodes"

    @property
    def page_versions(self) -> tuple[str, ...]:
        """The versions of the page that mention the claim, in any form."""
        return tuple(version for version, text in self.page.items() if text is not False)


def includes(versions: str, kubernetes_version: str) -> bool:
    """Return whether a range such as `>=1.18,<1.32` includes a version such as `v1.36.3`.

    A suffix after the three numbers (`-alpha.1`, `-eks-113cf36`, `+k3s1`) is ignored.

    Raises:
        ValueError: The version does not have three numbers.
    """
    return SpecifierSet(versions).contains(release(kubernetes_version))


def release(kubernetes_version: str) -> Version:
    """Return the three numbers of a version, by which versions are ordered.

    Raises:
        ValueError: The version does not have three numbers.
    """
    numbers = _RELEASE.match(kubernetes_version)
    if numbers is None:
        raise ValueError(f"not a Kubernetes version: {kubernetes_version!r}")
    return Version(numbers[1])


CONTRARY = "differs: "
"""Prefix of a remark by which the page contradicts the statement."""
MOVED = "moved: "
"""Prefix of a remark that only gives the new place of the sentence."""
_RELEASE = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+)(?![0-9.])")


def page_agreement(claim: Claim, kubernetes_version: str, verdict: Verdict) -> Page:
    """Compare the page with the running version's constant and with the verdict.

    `drift` is added to the result and does not change the outcome, which describes the running version.
    """
    if not claim.page_versions:
        return Page("silent", drift=claim.drift)
    if not includes(claim.versions, kubernetes_version):
        return Page("unknown", drift=claim.drift)
    for constant in claim.constants:
        if constant.page_value is None:
            continue
        page_text, version_text = (
            f"{value:g} {constant.unit}" for value in (constant.page_value, constant.at(kubernetes_version))
        )
        agrees = page_text == version_text and verdict.outcome != "deviates"
        return Page("agrees" if agrees else "differs", page_text, version_text, claim.drift)
    remark = _newest_remark(claim)
    page_text = claim.statement if remark is True else str(remark)
    if page_text.startswith(CONTRARY):
        return Page("differs" if verdict.outcome == "conforms" else "unknown", page_text, drift=claim.drift)
    return Page(_AGREEMENT[verdict.outcome], page_text, drift=claim.drift)


def _newest_remark(claim: Claim) -> bool | str:
    """Return the newest remark that does not start with MOVED; the newest one if all do."""
    remarks = [claim.page[version] for version in claim.page_versions]
    return next((remark for remark in reversed(remarks) if not str(remark).startswith(MOVED)), remarks[-1])


_AGREEMENT: Mapping[Outcome, Agreement] = {"conforms": "agrees", "deviates": "differs", "unproven": "unknown"}
