"""Boots of nodes as the cluster sees them: Ready again, as posted by the kubelet of another boot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

import tenacity

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.cluster import is_ready

COMMAND_TIMEOUT_S = 20.0


def posted_boots(lab: LabHandle) -> Mapping[str, str]:
    """Return the boot id of each node that is Ready. Raises ApiError."""
    nodes = lab.cluster.api.get(WATCHED["nodes"])["items"]
    return {
        entry["metadata"]["name"]: entry["status"]["nodeInfo"]["bootID"] for entry in nodes if is_ready(entry)
    }


def wait_booted(lab: LabHandle, before: Mapping[str, str], timeout_s: float) -> Mapping[str, float]:
    """When (monotonic) each node of `before` was Ready by another boot; those that were not are left out."""
    booted: dict[str, float] = {}

    def look() -> bool:
        for name, boot in posted_boots(lab).items():
            if name in before and before[name] != boot:
                booted.setdefault(name, time.monotonic())
        return len(booted) == len(before)

    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_result(lambda there: not there)
        | tenacity.retry_if_exception_type((ApiError, MachineError)),
        retry_error_callback=lambda _state: False,
    )
    retry(look)
    return booted


def reboot(lab: LabHandle, timeout_s: float) -> Mapping[str, float]:
    """Reboot all nodes at once from inside; gives how long (s) each took to Ready, if it came back."""
    before = posted_boots(lab)
    machines = [lab.fleet.machine(name) for name in before]
    for machine in machines:
        machine.run(["true"], timeout_s=COMMAND_TIMEOUT_S)
    began = time.monotonic()
    for machine in machines:
        # The connection may break before the answer arrives.
        with contextlib.suppress(MachineError):
            machine.run(["systemctl", "reboot"], timeout_s=COMMAND_TIMEOUT_S)
    return {name: at - began for name, at in wait_booted(lab, before, timeout_s).items()}
