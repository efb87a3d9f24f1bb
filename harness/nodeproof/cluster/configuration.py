"""The running configuration, read from the components themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import node
from nodeproof.model.problem import Problem

Json = Any


def configz(api: Api, base: str) -> Mapping[str, Json]:
    """Return a component's own configuration, without the outer key that names its group.

    Raises:
        ApiError: The component refused or did not answer.
        Problem: There is not exactly one configuration.
    """
    return _inner(api.get_at(base, "/configz"), base)


def kubelet_configz(api: Api, name: str) -> Mapping[str, Json]:
    """Return a kubelet's configuration, through the API server's proxy and so its authenticated port."""
    return _inner(api.get(f"{node(name)}/proxy/configz"), f"kubelet {name}")


def _inner(document: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    if len(document) != 1:
        raise Problem(f"{len(document)} configurations at /configz", where, "check the component's version")
    (inner,) = document.values()
    return dict(inner)
