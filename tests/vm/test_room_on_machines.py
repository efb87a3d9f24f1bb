"""Claims about what a machine has room for: they conform on it as it is, and fall where it does otherwise."""

from __future__ import annotations

from pathlib import Path

from nodeproof.labs.client.lab import Lab
from tests.acceptance.altered import Cluster, shipped, unaltered
from tests.vm.conftest import Run
from tests.vm.test_claims_on_machines import deviating, status_refused

OF_ITS_OWN = shipped("scheduling/test_machine_of_its_own.py")
RESERVED = ("-k", "reserved")
IN_RESERVED = {"capacity.allocatable-formula", "scheduling.reserve-for-daemons"}
FALL = IN_RESERVED
"""Every claim that falls here."""


def test_what_a_machine_has_room_for_is_as_claimed(lab: Lab, run: Run) -> None:
    ended = run(lab, unaltered, OF_ITS_OWN)

    assert {label for claim in ended.claims() for label in ended.labels(claim)} == {"conforms"}
    assert ended.status == 0


def test_a_kubelet_whose_reservations_nobody_hears_of(lab: Lab, run: Run, tmp_path: Path) -> None:
    with status_refused(Cluster(lab, tmp_path)):
        ended = run(lab, unaltered, OF_ITS_OWN, *RESERVED)

    assert deviating(ended) == IN_RESERVED
    assert ended.status == 1
