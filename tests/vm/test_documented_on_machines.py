"""What docs/scenarios.md shows of scenarios that need a machine."""

from __future__ import annotations

from pathlib import Path

from nodeproof.labs.client.lab import Lab
from tests import examples
from tests.acceptance.test_documented import labels_of


def test_what_is_shown_of_scenarios_proves_its_claims_on_machines(lab: Lab, tmp_path: Path) -> None:
    examples.write(examples.scenarios(examples.fragments(examples.SCENARIOS)), tmp_path)
    assert labels_of(lab, tmp_path) == {
        examples.CLAIM: ["conforms"] * 5,
        "node-restriction.modify-own-only": ["conforms"],
    }
