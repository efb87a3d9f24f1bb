"""Settings of a kubelet: read from its command line and file, or unknown."""

from __future__ import annotations

from typing import cast

import pytest

from nodeproof.labs.client.measuring import _kubelet_settings
from nodeproof.machines.machine import Machine, MachineError
from tests.fakes import FakeMachine

FILE = '{"failSwapOn": false}'


def kubelet(*argv: str, file: str = FILE) -> Machine:
    """Return a machine whose kubelet was started with these arguments."""
    return cast("Machine", FakeMachine(lambda command: file if command[0] == "cat" else "\0".join(argv)))


def test_flags_and_configuration_fields_are_read() -> None:
    node = kubelet("kubelet", "--config=/etc/kubelet", "--node-ip=10.0.0.1")
    assert _kubelet_settings(node) == {"config": "/etc/kubelet", "node-ip": "10.0.0.1", "failSwapOn": "false"}


def test_kubelet_with_drop_ins_is_unknown() -> None:
    assert (
        _kubelet_settings(kubelet("kubelet", "--config=/etc/kubelet", "--config-dir=/etc/kubelet.d")) is None
    )
    assert _kubelet_settings(kubelet("kubelet", "--config=/etc/kubelet", "--config-dir=")) is not None


@pytest.mark.parametrize(
    "node", [kubelet("kubelet"), kubelet("kubelet", "--config=/etc/kubelet", file="{torn")]
)
def test_kubelet_without_a_readable_file_is_an_error(node: Machine) -> None:
    with pytest.raises(MachineError, match="no readable configuration file"):
        _kubelet_settings(node)
