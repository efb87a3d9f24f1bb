"""What the user asked for, checked and completed before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nodeproof.artifacts.components import BUILD, DEFAULT_KUBERNETES_VERSION, check_version, supplied_version
from nodeproof.labs.client import registry
from nodeproof.labs.ground.profiles import FAST, profile_named
from nodeproof.labs.kinds import DEFAULT_KIND, KINDS
from nodeproof.model.problem import Problem


@dataclass(frozen=True)
class Options:
    """A run's lab, profile and components; `lab` is a kind to start, or the name of a lab that runs,
    `kind` what kind it is.

    `nodes` and `zones` 0 mean as many as the scenarios need.
    """

    lab: str
    profile: str
    kubernetes_version: str
    components: str
    claims: tuple[str, ...]
    nodes: int
    zones: int
    kind: str

    @property
    def is_ours(self) -> bool:
        """Whether the run starts the lab and so ends it."""
        return self.lab in KINDS


def resolve(
    lab: str, profile: str, version: str, components: str, claims: tuple[str, ...], nodes: int, zones: int
) -> Options:
    """Check what was asked for. A lab that runs decides about its profile, version and nodes itself.

    Raises Problem on an unknown lab, profile or version, on too many nodes, and where the lab is something
    else than what was asked for.
    """
    lab = lab or DEFAULT_KIND.name
    if profile:
        profile_named(profile)
    if version:
        check_version(version)
    if nodes:
        KINDS.get(lab, DEFAULT_KIND).check_nodes(nodes)
    if lab in KINDS:
        found = version or (
            DEFAULT_KUBERNETES_VERSION if components == BUILD else supplied_version(components)
        )
        return Options(lab, profile or FAST.name, found, components, claims, nodes, zones, lab)
    if lab not in registry.running():
        alive = ", ".join(registry.running()) or "none is up"
        kinds = ", ".join(KINDS)
        raise Problem(f"unknown lab {lab!r}", "--lab", f"choose {kinds}, or a running lab ({alive})")
    return _of_running(lab, profile, version, components, claims)


def _of_running(lab: str, profile: str, version: str, components: str, claims: tuple[str, ...]) -> Options:
    status: Any = registry.client(lab).status()
    asked = (
        ("--profile", profile, status["profile"]),
        ("--kubernetes-version", version, status["kubernetes_version"]),
    )
    for option, wanted, runs in asked:
        if wanted and wanted != runs:
            raise Problem(
                f"{wanted} was asked for, lab {lab} runs {runs}", option, "leave it out, or start another lab"
            )
    zones = len({node["zone"] for node in status["nodes"]})
    nodes = len(status["nodes"])
    return Options(
        lab, status["profile"], status["kubernetes_version"], components, claims, nodes, zones, status["kind"]
    )
