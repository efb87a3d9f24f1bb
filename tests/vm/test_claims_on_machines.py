"""Claims about machines deviate if a machine or one of its components is altered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import Alteration, Cluster, check_deviations, combined, shipped, unaltered
from tests.markers import falls
from tests.vm import altering
from tests.vm.conftest import Run

FALLS = yaml.safe_load(Path(__file__).with_name("falls.yaml").read_text())
Arguments = tuple[str, ...]
Altered = Callable[[Cluster], AbstractContextManager[None]]


def rows(when: str) -> list[Any]:
    """Return alterations of this time, each with its scenarios and the claims that deviate."""
    parameters = []
    for entry in FALLS[when]:
        alterations = [getattr(altering, name) for name in entry["alter"]]
        alter = alterations[0] if len(alterations) == 1 else combined(*alterations)
        file, *options = entry["scenario"].split()
        marks, name = falls(*entry["falls"]), "-".join(entry["alter"])
        parameters.append(pytest.param(alter, (shipped(file), *options), marks=marks, id=name))
    return parameters


@pytest.mark.parametrize(("alter", "scenario"), rows("during-scenario"))
def test_claims_deviate_if_a_component_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: Arguments, claims: frozenset[str]
) -> None:
    check_deviations(run(lab, alter, *scenario), claims)


@pytest.mark.parametrize(("alter", "scenario"), rows("before-scenario"))
def test_exactly_these_claims_deviate_on_an_altered_machine(
    lab: LabHandle,
    run: Run,
    tmp_path: Path,
    alter: Altered,
    scenario: Arguments,
    claims: frozenset[str],
) -> None:
    with alter(Cluster(lab, tmp_path)):
        result = run(lab, unaltered, *scenario)
    assert result.deviating() == claims
    assert result.status == 1


@pytest.mark.parametrize(("alter", "scenario"), rows("before-scenario-among-others"))
def test_claims_deviate_among_others_on_an_altered_machine(
    lab: LabHandle,
    run: Run,
    tmp_path: Path,
    alter: Altered,
    scenario: Arguments,
    claims: frozenset[str],
) -> None:
    with alter(Cluster(lab, tmp_path)):
        check_deviations(run(lab, unaltered, *scenario), claims)
