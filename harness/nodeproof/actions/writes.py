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
from nodeproof.recording.recorder import Recording
from nodeproof.waiting import wait_until

_WRITERS = 3
"""As many as control planes: the balancer passes each new connection to the next of them."""
_LEAST, _BEGIN_TIMEOUT_S = 3 * _WRITERS, 20.0
"""Writes before the scenario goes on: an acknowledged one must be there to be lost."""


def write_repeatedly(namespace: str) -> Action[None]:
    """Create ConfigMaps in a namespace until the recording ends, and record each acknowledgement.

    The action ends once some writes are acknowledged. Three writers, each over its own connection, create one
    twice a second; an unanswered request delays its writer. Judge them with `write_acknowledged` and
    `has_writes`.
    """

    def do(context: ActionContext) -> None:
        if context.recording is None:
            raise Problem("nothing is being recorded", "write_repeatedly(...)", "use `with lab.record():`")
        for _writer in range(_WRITERS):
            api = Api(context.lab.dir / "pki" / "admin.kubeconfig", context.lab.fleet.dial)
            context.recording.observe(WRITE, namespace, partial(_write, api, namespace))
        has_begun = partial(_are_acknowledged, context.recording, namespace)
        if not wait_until(has_begun, _BEGIN_TIMEOUT_S):
            message = f"no {_LEAST} writes acknowledged within {_BEGIN_TIMEOUT_S:g} s"
            raise Problem(message, f"namespace {namespace}", "see the log of kube-apiserver")

    return Action(f"write to {namespace} repeatedly", do)


def _are_acknowledged(recording: Recording, namespace: str) -> bool:
    """Return whether enough writes were acknowledged to call the writers busy."""
    looks = recording.history().of_kind("observed")
    mine = (look for look in looks if (look.data["what"], look.data["subject"]) == (WRITE, namespace))
    return sum(look.data["value"] is not None for look in mine) >= _LEAST


def _write(api: Api, namespace: str) -> str:
    """Create a ConfigMap and return its name. Raises ApiError."""
    name = f"write-{uuid.uuid4().hex[:8]}"
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})
    return name


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
