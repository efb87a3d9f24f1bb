"""What a kubelet was given: read from its command line and its file, or not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from nodeproof.labs.client.measuring import _kubelet_settings
from nodeproof.machines.machine import CommandResult, Machine, MachineError

FILE = '{"failSwapOn": false}'


class Node:
    """A machine whose kubelet was started so."""

    name = "node-1"

    def __init__(self, *argv: str, file: str = FILE) -> None:
        self._argv, self._file = argv, file

    def run(self, argv: Sequence[str], **_how: Any) -> CommandResult:
        told = self._file if argv[0] == "cat" else "\0".join(self._argv)
        return CommandResult(0, told, "")


def given(node: Node) -> object:
    return _kubelet_settings(cast("Machine", node))


def test_flags_and_the_fields_of_its_file_are_given() -> None:
    node = Node("kubelet", "--config=/etc/kubelet", "--node-ip=10.0.0.1")
    assert given(node) == {"config": "/etc/kubelet", "node-ip": "10.0.0.1", "failSwapOn": "false"}


def test_of_one_that_drop_ins_set_too_nothing_is_known() -> None:
    assert given(Node("kubelet", "--config=/etc/kubelet", "--config-dir=/etc/kubelet.d")) is None
    assert given(Node("kubelet", "--config=/etc/kubelet", "--config-dir=")) is not None


@pytest.mark.parametrize("node", [Node("kubelet"), Node("kubelet", "--config=/etc/kubelet", file="{torn")])
def test_one_without_a_file_that_can_be_read_is_an_error(node: Node) -> None:
    with pytest.raises(MachineError, match="no readable configuration file"):
        given(node)
