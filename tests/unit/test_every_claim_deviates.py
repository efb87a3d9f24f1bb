"""Every shipped claim deviates by a bug of infra/bugs, or in a test that alters a cluster or a machine."""

from __future__ import annotations

import sys
from collections.abc import Set
from pathlib import Path

from nodeproof import catalogue, proc
from tests import markers
from tests.sensitivity import bugs

TOP = Path(__file__).resolve().parents[2]


def fallen(folder: str) -> Set[str]:
    """Return the claims that fall in the tests of a folder."""
    options = ["--collect-only", "-q", "-p", "tests.markers", "-p", "no:cacheprovider"]
    output = proc.run([sys.executable, "-m", "pytest", *options, folder], timeout_s=240, cwd=TOP).stdout
    lines = (line.split("\t") for line in output.splitlines() if line.startswith(markers.FALLS))
    return {claim for _sign, _test, *claims in lines for claim in claims}


def test_every_judged_claim_deviates() -> None:
    by_bug = {claim for bug in bugs.load() for claim in bug.falls}
    by_bug_of_machine = {claim for bug in bugs.load() if bug.machine for claim in bug.falls}
    by_tier = {
        "process": by_bug | fallen("tests/acceptance"),
        "machine": by_bug_of_machine | fallen("tests/vm"),
    }
    judged = catalogue.judged(catalogue.load())
    assert by_tier["process"] | by_tier["machine"] <= judged.keys()
    assert {name for name, claim in judged.items() if name not in by_tier[claim.tier]} == set()
