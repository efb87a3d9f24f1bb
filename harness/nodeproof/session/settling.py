"""After a scenario that restarted the API server: whoever watched it has to watch it again.

A new API server refuses what it has no RBAC rules for yet, and controllers ask again later and later (up to
30 s: client-go, tools/cache/reflector.go). One that sees no Leases meanwhile takes its nodes for lost.
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

_WATCHED_AT = {"etcd", "kube-apiserver"}
_LIMIT_S = 75.0
"""Longer than two of the longest waits of a controller."""
_PERIOD_S = 0.5


@dataclass
class Settling:
    """How many watched what before a scenario that may break watches.

    The fewest before any scenario of the lab: the API server still counts the watches of a machine that has
    left, for minutes, and nobody takes those up again.
    """

    _fewest: dict[str, Mapping[str, int]] = field(default_factory=dict)
    _before: Mapping[str, int] = field(default_factory=dict)
    _of: str = ""

    def begin(self, lab: Lab, needs: Needs) -> None:
        """Count; only a scenario that may break watches is waited for, and only what somebody counted."""
        self._of, self._before = lab.name, {}
        if lab.zone:
            return
        with contextlib.suppress(ApiError):
            now = watches(lab.cluster.api)
            fewest = self._fewest.get(lab.name, now)
            self._fewest[lab.name] = {name: min(many, fewest.get(name, 0)) for name, many in now.items()}
        if _WATCHED_AT & set(needs.components):
            self._before = self._fewest.get(lab.name, {})

    def end(self, lab: Lab) -> None:
        """Wait until as many watch again. Raises Problem where they do not, or nobody answers."""
        before, self._before = self._before, {}
        if before and lab.name == self._of:
            insist(lambda: _check(lab, before), Problem, limit_s=_LIMIT_S, period_s=_PERIOD_S)


def _check(lab: Lab, before: Mapping[str, int]) -> None:
    try:
        left = fewer(before, watches(lab.cluster.api))
    except ApiError as error:
        raise Problem(f"no answer: {error}", f"lab {lab.name}", "see its logs") from error
    if left:
        said = f"controllers do not watch again: {', '.join(left)}"
        raise Problem(said, f"lab {lab.name}", "see the controller manager's log")
