"""Writes of a scenario that go on while its faults are active."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from nodeproof.actions.action import Action, ActionContext
from nodeproof.checks.moments import WRITE
from nodeproof.cluster.api import Api
from nodeproof.model.judgment import words_in
from nodeproof.model.problem import Problem

_WRITERS = 3
"""As many as control planes: the balancer passes each new connection to the next of them."""


def write_repeatedly(namespace: str) -> Action[None]:
    """Create ConfigMaps in a namespace until the recording ends, and record each acknowledgement.

    Three writers, each over its own connection, create one twice a second; an unanswered request delays its
    writer. Judge them with `write_acknowledged` and `has_writes`.
    """

    def do(context: ActionContext) -> None:
        if context.recording is None:
            raise Problem("nothing is being recorded", "write_repeatedly(...)", "use `with lab.record():`")
        for _writer in range(_WRITERS):
            api = Api(context.lab.dir / "pki" / "admin.kubeconfig", context.lab.fleet.dial)
            context.recording.observe(WRITE, namespace, partial(_write, api, namespace))

    return Action(f"write to {namespace} repeatedly", do)


def _write(api: Api, namespace: str) -> str:
    """Create a ConfigMap and return its name. Raises ApiError."""
    name = f"write-{uuid.uuid4().hex[:8]}"
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})
    return name


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
