"""The contract tests that every power driver passes, for drivers of other packages, too.

A test module imports all of this module, and defines the fixture `power`, of a machine that is on and may be
cut off:

    import pytest
    from acme_power import Pdu
    from nodeproof.testing.power import *

    @pytest.fixture
    def power():
        return Power(Pdu({"host": "pdu.example", "outlet": 7}), secret_env="PDU")
"""

from __future__ import annotations

import pytest

from nodeproof.existing.power import TIMEOUT_S, Power
from nodeproof.machines.machine import CommandResult

__all__ = [
    "Power",
    "test_output_of_a_missing_program_is_no_power_state",
    "test_power_is_cut_and_restored_however_often",
    "test_secret_is_in_no_argument",
]
NODE, SECRET = "node-1", "a-secret-of-the-contract"


def test_power_is_cut_and_restored_however_often(power: Power) -> None:
    assert power.is_on(NODE)
    try:
        for _ in range(2):
            power.perform("off", NODE)
            assert not power.is_on(NODE)
    finally:
        power.perform("on", NODE)
    power.perform("on", NODE)
    assert power.is_on(NODE)


def test_secret_is_in_no_argument(power: Power) -> None:
    """All users of a machine may see arguments."""
    for action in TIMEOUT_S:
        command = power.driver.command(action, NODE, SECRET)
        assert not any(SECRET in argument for argument in command.argv)


@pytest.mark.parametrize("status", [1, 124, 127])
def test_output_of_a_missing_program_is_no_power_state(power: Power, status: int) -> None:
    with pytest.raises((LookupError, ValueError)):
        power.driver.is_on(CommandResult(status, "", "not found"))
