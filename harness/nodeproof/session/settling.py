"""Wait for controllers to watch the API server again after a scenario that restarted it.

A new API server refuses requests until it has its RBAC rules, and controllers retry with a backoff of up to
30 s (client-go, tools/cache/reflector.go). A controller that sees no Leases meanwhile takes nodes for lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.watches import fewer, watches
from nodeproof.labs.client.lab import Lab
from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.waiting import insist

_WATCHED_COMPONENTS = {"etcd", "kube-apiserver"}
_LIMIT_S = 75.0
"""Longer than two of the longest backoffs of a controller."""
_PERIOD_S = 0.5


@dataclass
class Settling:
    """The number of watches per resource before a scenario that may break watches.

    The minimum over the lab's scenarios counts: for minutes, the API server also counts the watches of a
    machine that has left, and these do not come back.
    """

    _fewest: dict[str, Mapping[str, int]] = field(default_factory=dict)
    _before: Mapping[str, int] = field(default_factory=dict)
    _lab: str = ""

    def begin(self, lab: Lab, needs: Needs) -> None:
        """Count the watches; `end` waits only after a scenario that may break them."""
        self._lab, self._before = lab.name, {}
        if lab.zone:
            return
        with contextlib.suppress(ApiError):
            counts = watches(lab.cluster.api)
            fewest = self._fewest.get(lab.name, counts)
            self._fewest[lab.name] = {name: min(count, fewest.get(name, 0)) for name, count in counts.items()}
        if _WATCHED_COMPONENTS & set(needs.components):
            self._before = self._fewest.get(lab.name, {})

    def end(self, lab: Lab) -> None:
        """Wait until there are as many watches as before.

        Raises:
            Problem: There are fewer watches after the time limit, or the API server does not answer.
        """
        before, self._before = self._before, {}
        if before and lab.name == self._lab:
            insist(lambda: _check(lab, before), Problem, limit_s=_LIMIT_S, period_s=_PERIOD_S)


def _check(lab: Lab, before: Mapping[str, int]) -> None:
    try:
        missing = fewer(before, watches(lab.cluster.api))
    except ApiError as error:
        raise Problem(f"no answer by the API server: {error}", f"lab {lab.name}", "see its logs") from error
    if missing:
        message = f"controllers do not watch again: {', '.join(missing)}"
        raise Problem(message, f"lab {lab.name}", "see the controller manager's log")
