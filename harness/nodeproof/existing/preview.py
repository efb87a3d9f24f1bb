"""The command `nodeproof plan --cluster`: reads a cluster, and prints what each allowed fault would hit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nodeproof import terminal
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import OWN_NAMESPACES, WATCHED, pod
from nodeproof.existing import impact, inspection
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.impact import Impact, State, full_name
from nodeproof.existing.inventory import Inventory
from nodeproof.faults.machine import PowerOff
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report.plain import counted, wrapped

_RIGHTS = (
    "get on namespaces, persistentvolumeclaims and persistentvolumes, list on nodes, pods and "
    "poddisruptionbudgets, and create on pods/eviction for dry runs"
)
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_NOT_FOUND, _NO_ANSWER = 404, (0, 401)
_NO_RIGHT = "cannot create resource"
"""Part of RBAC's message, which distinguishes it from the refusal of an admission webhook."""
_LONGEST = 100_000
"""Characters of one line of the output, before it is wrapped."""


def plan(path: Path, *, with_ssh: bool = False) -> int:
    """Print what each fault that an inventory allows would hit, and what refuses it.

    `with_ssh` asks the machines, too.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the server refuses, or a fault is refused.
    """
    with connected(path, "nodeproof-plan", _RIGHTS) as cluster:
        state = read_state(cluster)
        if with_ssh:
            state = _with_machines(state, cluster.inventory)
    impacts = _impacts(cluster.inventory, state)
    for name, by_fault in impacts.items():
        terminal.put(name)
        for faults, effect in _grouped(by_fault):
            terminal.put("\n".join(_lines(faults, effect)))
    refused = [effect.refusals for by_fault in impacts.values() for effect in by_fault.values()]
    if any(refused):
        what = f"{sum(map(bool, refused))} of {counted(len(refused), 'allowed fault')} refused"
        raise Problem(what, str(path), "remove the reasons above, or allow fewer faults")
    return 0


def read_state(cluster: ConnectedCluster) -> State:
    """Read what faults on the listed nodes would hit; an eviction is a dry run. Raises ApiError.

    Nodeproof's own pods are left out.
    """
    api, listed, nodes = cluster.api, cluster.inventory.nodes, cluster.nodes()
    pods = [entry for name in listed if name in nodes for entry in _pods_on(api, name)]
    pods = [entry for entry in pods if entry["metadata"]["namespace"] not in OWN_NAMESPACES]
    hit = {
        full_name(entry): entry
        for name, node in listed.items()
        for fault in node.faults
        for entry in impact.pods_hit(fault, name, pods)
    }
    claims = _objects(
        api,
        {
            claim: "/api/v1/namespaces/{}/persistentvolumeclaims/{}".format(*claim.split("/"))
            for entry in hit.values()
            for claim in impact.claim_names(entry)
        },
    )
    bound = filter(None, (claim["spec"].get("volumeName") for claim in claims.values()))
    return State(
        cluster.inventory.cluster.uid,
        nodes,
        pods,
        api.get(_BUDGETS)["items"],
        claims,
        _objects(api, {name: f"/api/v1/persistentvolumes/{name}" for name in bound}),
        dict(_refused_evictions(api, hit)),
    )


def _with_machines(state: State, inventory: Inventory) -> State:
    """Return a state with what the machines and their power drivers answer. Raises Problem."""
    switched = [name for name, node in inventory.nodes.items() if PowerOff.name in node.faults]
    with inspection.ssh_config(inventory) as ssh:
        power = {
            name: list(inspection.power_refusals(inventory, name, state.nodes, ssh)) for name in switched
        }
        return replace(state, machines=inspection.inspect(inventory, ssh), power=power)


def _pods_on(api: Api, node: str) -> Sequence[Json]:
    items: Sequence[Json] = api.get(WATCHED["pods"], {"fieldSelector": f"spec.nodeName={node}"})["items"]
    return items


def _objects(api: Api, paths: Mapping[str, str]) -> Mapping[str, Json]:
    """Return the objects that exist, by the keys of their paths. Raises ApiError."""
    objects = {}
    for key, path in paths.items():
        try:
            objects[key] = api.get(path)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
    return objects


def _refused_evictions(api: Api, pods: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the pods that the API server refuses to evict, and why, by dry runs. Raises ApiError."""
    for name, entry in pods.items():
        if not impact.is_evictable(entry):
            continue
        metadata = {key: entry["metadata"][key] for key in ("namespace", "name")}
        # The body says it, too: a proxy that drops the query would make it an eviction.
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        options = {"deleteOptions": {"dryRun": ["All"]}}
        try:
            api.dry_run(f"{pod(**metadata)}/eviction", body | options)
        except ApiError as error:
            if error.status in _NO_ANSWER or _NO_RIGHT in str(error):
                raise
            if error.status != _NOT_FOUND:
                yield name, str(error)


def _impacts(inventory: Inventory, state: State) -> Mapping[str, Mapping[str, Impact]]:
    """Return the impact of each allowed fault, by node and fault."""
    now = datetime.now(UTC)
    return {
        name: {fault: impact.forecast(inventory, name, fault, state, now) for fault in node.faults}
        for name, node in inventory.nodes.items()
    }


def _grouped(impacts: Mapping[str, Impact]) -> Iterator[tuple[Sequence[str], Impact]]:
    """Yield each different impact with the faults that have it."""
    remaining = dict(impacts)
    while remaining:
        first = next(iter(remaining.values()))
        faults = [fault for fault, effect in remaining.items() if effect == first]
        yield faults, first
        remaining = {fault: effect for fault, effect in remaining.items() if fault not in faults}


def _lines(faults: Sequence[str], effect: Impact) -> Iterator[str]:
    yield f"  {', '.join(faults)}: {'refused' if effect.refusals else 'can be injected'}"
    lists = {
        "pods": effect.pods,
        "disruption budgets": effect.budgets,
        "volumes": effect.volumes,
        "local volumes": effect.local_volumes,
    }
    texts = [f"refused: {reason}" for reason in effect.refusals]
    texts += [f"{title}: {', '.join(names) or 'none'}" for title, names in lists.items()]
    for text in texts:
        yield from wrapped(text, _LONGEST)
