"""Scenarios of the documentation that need a machine."""

from __future__ import annotations

from pathlib import Path

from nodeproof.labs.client.handle import LabHandle
from tests import examples
from tests.acceptance.test_documented import labels_of


def test_documented_scenarios_prove_their_claims_on_machines(lab: LabHandle, tmp_path: Path) -> None:
    examples.write(examples.scenarios(examples.fragments()), tmp_path)
    assert labels_of(lab, tmp_path) == {
        examples.CLAIM: ["conforms"] * 5,
        "node-restriction.modify-own-only": ["conforms"],
    }
