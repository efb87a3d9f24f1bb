"""A documented, observable behaviour, and what the page says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from nodeproof.model.verdict import Agreement, Outcome, Page, Verdict
from nodeproof.model.window import WindowSpec

Kind = Literal["timing", "default", "behaviour"]
Subject = Literal["control-plane", "kubelet", "cloud-controller-manager"]
Status = Literal["judged", "planned", "cannot", "not-applicable"]
"""Whether a scenario judges it; `cannot` and `not-applicable` say why none does, `judged` may say what is not
the real thing in how it is.
"""
Tier = Literal["process", "machine"]
"""The least kind of node that proves it."""


@dataclass(frozen=True)
class Constant:
    """A default compiled into a component: its value per range of Kubernetes versions, and the page's value.

    `component` and `reported` say where the running component shows it (`/configz`, a dotted path; empty
    when it does not); `flag` is the flag or configuration field that changes it; `source` the file in
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
        """The constant for a Kubernetes version. Raises KeyError when the catalogue knows none."""
        for versions, value in self.values:
            if includes(versions, kubernetes_version):
                return value
        raise KeyError(f"{self.name} has no value for {kubernetes_version}")


@dataclass(frozen=True)
class Claim:
    """One row of the catalogue.

    `page` maps a version of the Nodes page to what it says (`true` as the statement, `false` nothing, else a
    remark, which begins with CONTRARY where the statement is as the code has it); `versions` is the range of
    Kubernetes versions in which the statement holds. `window` is how long after its anchor a timing claim's
    event may come, where its YAML says so. `measure` says how one that is not judged yet is to be,
    `upstream_tests` which tests of Kubernetes look at it.
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
    status: Status = "judged"
    reason: str = ""
    tier: Tier = "process"
    needs: tuple[str, ...] = ()
    measure: str = ""
    upstream_tests: tuple[str, ...] = ()

    @property
    def page_versions(self) -> tuple[str, ...]:
        """The versions of the page that say it, in any form."""
        return tuple(version for version, says in self.page.items() if says is not False)


def includes(versions: str, kubernetes_version: str) -> bool:
    """Whether a range such as `>=1.18,<1.32` holds a version such as `v1.36.3`.

    What follows the three numbers (`-alpha.1`, `-eks-113cf36`, `+k3s1`) does not matter. Raises ValueError
    when they are not there.
    """
    numbers = _RELEASE.match(kubernetes_version)
    if numbers is None:
        raise ValueError(f"not a Kubernetes version: {kubernetes_version!r}")
    return SpecifierSet(versions).contains(Version(numbers[1]))


CONTRARY = "differs: "
MOVED = "moved: "
"""Begins a remark that says only where the sentence is now."""
_RELEASE = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+)(?![0-9.])")


def page_agreement(claim: Claim, kubernetes_version: str, verdict: Verdict) -> Page:
    """Compare what the page says with the running version's constant and with the verdict.

    Known drift is shown here and never fails a run: the verdict is about the running version.
    """
    if not claim.page_versions:
        return Page("silent", drift=claim.drift)
    if not includes(claim.versions, kubernetes_version):
        return Page("unknown", drift=claim.drift)
    for constant in claim.constants:
        if constant.page_value is None:
            continue
        says, cluster = (
            f"{value:g} {constant.unit}" for value in (constant.page_value, constant.at(kubernetes_version))
        )
        agrees = says == cluster and verdict.outcome != "deviates"
        return Page("agrees" if agrees else "differs", says, cluster, claim.drift)
    said = _said(claim)
    says = claim.statement if said is True else str(said)
    if says.startswith(CONTRARY):
        return Page("differs" if verdict.outcome == "conforms" else "unknown", says, drift=claim.drift)
    return Page(_AGREEMENT[verdict.outcome], says, drift=claim.drift)


def _said(claim: Claim) -> bool | str:
    """What the newest version of the page says that says it: of what has moved, what it said before."""
    remarks = [claim.page[version] for version in claim.page_versions]
    return next((remark for remark in reversed(remarks) if not str(remark).startswith(MOVED)), remarks[-1])


_AGREEMENT: Mapping[Outcome, Agreement] = {"conforms": "agrees", "deviates": "differs", "unproven": "unknown"}
