"""`python -m tests.contract.victim LAB FAULT POINT`: a harness that dies at one step of the safety protocol.

FAULT is a fault's data; POINT is `before STEP` or `after STEP` of the ledger, or `hold`: the fault stays
injected until this process is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace

from nodeproof.faults import Fault
from nodeproof.labs.client import registry
from nodeproof.model.pattern import Json
from nodeproof.safety.guard import Declared
from nodeproof.safety.ledger import Ledger

HOLD = "hold"
DIED = 42
"""The exit status of a death at the requested step."""


class FatalLedger(Ledger):
    """A ledger whose process exits before or after one step, without flushing or unwinding."""

    def __init__(self, lab: str, point: str) -> None:
        super().__init__(lab)
        self._point = point

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        if self._point == f"before {step}":
            os._exit(DIED)
        super().write(step, fault)
        if self._point == f"after {step}":
            os._exit(DIED)


def main() -> None:
    name, data, point = sys.argv[1:]
    fault = Fault.from_json(json.loads(data))
    lab = registry.attach(name)
    lab.leases.take_lab()
    injector = replace(lab.safety.injector, ledger=FatalLedger(name, point))
    declared = Declared(fault.affected_nodes, [fault.node], "cluster")
    with injector.inject(fault, declared, lambda *_args, **_data: None):
        if point == HOLD:
            threading.Event().wait()


if __name__ == "__main__":
    main()
