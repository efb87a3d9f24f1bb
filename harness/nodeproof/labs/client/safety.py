"""Makes sure that no fault stays in a lab: guard, ledger, dead-man's switches and cleanup."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import POD_NAMESPACE, RESOURCES, WATCHED, node
from nodeproof.faults import Fault
from nodeproof.faults.fence import heal_fenced
from nodeproof.labs.kinds.kind import Access
from nodeproof.machines.machine import CONTROL_PLANE, MachineError
from nodeproof.model.cluster import ZONE_LABEL
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.deadman import Switches, Timers
from nodeproof.safety.guard import CONTROL_PLANE_LABEL, LAB_LABEL, Record, Refused, Target
from nodeproof.safety.injector import (
    HEAL_TIMEOUT_S,
    NEVER,
    HealingFailed,
    Injector,
    heal_unfinished,
    healed_at,
    hold_off,
    permit_all,
    sweep,
)
from nodeproof.safety.ledger import FaultLedger, Ledger
from nodeproof.waiting import retry_on

_ASK_TIMEOUT_S = 10.0
_SWEEP_TIMEOUT_S = 15.0
"""Longer than one command's timeout: a machine that is only busy gets a second try."""
CREATED = "object"
"""Ledger name of an object that a scenario created; its heal is its removal."""
JOINED = "joined"
"""Ledger name of a node that a scenario let join; its heal is its leaving."""
CORDONED = "cordoned"
"""Ledger name of a Node that a scenario cordoned; its heal is the uncordon."""
_CLUSTER_CHANGES = (CREATED, JOINED, CORDONED)
_CREATED_ID = re.compile(r"[0-9a-f]{32}")
_POD_OBJECT = re.compile(
    rf"/apis?/([a-z0-9.]+/)?v[a-z0-9]+/namespaces/{POD_NAMESPACE}(/[a-z]+/[a-z0-9][a-z0-9.-]*)?"
)
"""Path of the namespace of scenarios' pods, or of an object in it."""
MARK = "nodeproof.dev/made"
"""The annotation of objects that scenarios create."""
SERVED_TIMEOUT_S = 60.0
"""How long an API server continues a request whose client has gone (--request-timeout)."""
_COMES_PERIOD_S = 0.5
_REMOVAL_TIMEOUT_S = 60.0
"""An object with finalizers of others ends once they are removed; a namespace, once it is empty."""
_OWN_FINALIZERS = "nodeproof.dev/"
"""Prefix of the finalizers that scenarios set: no other program removes them after a killed run."""
SWITCHES = "switches"
"""The purpose of the connections by which dead-man's switches reach their machines."""


class Safety:
    """The safety of one lab.

    `switch` is the lab's own dead-man's switch; `armed_faults` returns the faults that it holds.
    `has_timers` means that the lab's machines can hold switches, too.
    """

    def __init__(self, access: Access) -> None:
        self._record = access.dir / "record.json"
        self._api, self._fleet = access.api, access.fleet
        self._switch, self._armed_faults = access.switch, access.armed_faults
        self._lab, self._zone = access.dir.name, ""
        self.ledger: FaultLedger = access.ledger or Ledger(self._lab)
        self._consent = access.consent
        has_timers = "systemd" in access.features
        timers = (Timers(lambda name: self._fleet.machine(name, SWITCHES)),) if has_timers else ()
        self.switches = Switches((self._switch, *timers))
        self.heal_command = access.heal_command
        self.injector = Injector(
            self._fleet.machine,
            self._targets,
            self.lab_record,
            self._control_planes,
            self.ledger,
            self.switches,
            permit=self._consent.permit if self._consent else permit_all,
            abort=self._consent.abort if self._consent else NEVER,
            heal_command=self.heal_command,
        )

    def restrict_to_zone(self, zone: str) -> None:
        """Restrict the responsibility to one zone from now on."""
        self._zone = zone
        self.ledger = self.injector.ledger = Ledger(self._lab, lease=zone)

    def lab_record(self) -> Record:
        """Return the record that the lab wrote of itself when it was created, or its owner's consent."""
        if self._consent is not None:
            return self._consent.record()
        return Record(**json.loads(self._record.read_text()))

    def register_object(self, path: str) -> str:
        """Record an API object that is about to be created, until it is removed.

        Return the value of its annotation `MARK`, which distinguishes it from namesakes. Raises OSError.
        """
        return self._plan(CREATED, path=path)

    def has_created(self, path: str) -> bool:
        """Return whether a scenario created this object and it has not been removed yet."""
        return any(data.get("path") == path for data in self._open_changes(CREATED))

    def register_node(self, name: str, node_name: str = "") -> None:
        """Record a machine that is about to join, until it has left and its Node `node_name` is gone.

        Raises OSError.
        """
        self._plan(JOINED, node=name, **{"as": node_name or name})

    def has_joined(self, name: str) -> bool:
        """Return whether a scenario let this machine join and it has not been cleaned up yet."""
        return any(data["node"] == name for data in self._open_changes(JOINED))

    def register_cordon(self, name: str) -> None:
        """Record a Node that is about to be cordoned, until it is uncordoned.

        Ignore a Node that is cordoned already, as a scenario did not do that, and one that does not exist.
        Raises ApiError, OSError.
        """
        try:
            api_node = self._api.get(node(name))
        except ApiError as error:
            if error.status == 404:
                return
            raise
        if not api_node["spec"].get("unschedulable"):
            self._plan(CORDONED, node=name, uid=api_node["metadata"]["uid"])

    def forget_cordon(self, name: str) -> None:
        """Forget a Node that was uncordoned: a later cordon is not a scenario's. Raises OSError."""
        for data in self._open_changes(CORDONED):
            if data["node"] == name:
                self.ledger.write("closed", data)

    def _plan(self, change: str, **data: Json) -> str:
        """Record a change that is about to be made; return its id."""
        change_id = uuid.uuid4().hex
        self.ledger.write("planned", {"fault": change, "id": change_id, **data})
        return change_id

    def _open_changes(self, *changes: str) -> list[Mapping[str, Json]]:
        """Return the recorded changes of these kinds that have not been undone, oldest first."""
        return [entry.fault for entry in self.ledger.unfinished() if entry.fault.get("fault") in changes]

    def forget_object(self, mark: str, path: str) -> None:
        """Forget an object that the API refused to create. Raises OSError."""
        self.ledger.write("closed", {"fault": CREATED, "id": mark, "path": path})

    def may_appear(self, mark: str, path: str) -> None:
        """Record that an object may still appear, as its request got no answer. Raises OSError."""
        until = {"may_come_until": time.time() + SERVED_TIMEOUT_S}
        self.ledger.write("unanswered", {"fault": CREATED, "id": mark, "path": path, **until})

    def undo_changes(self) -> None:
        """Undo the recorded changes of scenarios to the cluster, newest first.

        Remove the objects that they created and the nodes that joined, and uncordon what they cordoned.

        Raises:
            Problem: a change cannot be undone.
            OSError: the ledger cannot be written.
        """
        remaining = []
        for data in reversed(self._open_changes(*_CLUSTER_CHANGES)):
            if self._may_undo(data) and self._remove(data):
                self.ledger.write("closed", data)
            else:
                remaining.append(str(data.get("path", data.get("node"))))
        if remaining:
            message = f"not undone: {', '.join(remaining)}"
            raise Problem(message, "the API", "undo it with `nodeproof kubectl`")

    def _may_undo(self, data: Mapping[str, Json]) -> bool:
        """Return whether a run can have made a change: others can write the ledger of somebody's cluster."""
        if not self._consent:
            return True
        path = str(data.get("path"))
        sentinels = {resource.sentinel("") for resource in RESOURCES.values() if resource.body is not None}
        is_own = path in sentinels or _POD_OBJECT.fullmatch(path)
        return data["fault"] == CREATED and bool(_CREATED_ID.fullmatch(str(data["id"])) and is_own)

    def _remove(self, data: Mapping[str, Json]) -> bool:
        """Undo a scenario's change, unless it is gone; return whether it is undone."""
        undo = {CREATED: self._delete, JOINED: self._let_leave, CORDONED: self._uncordon}[data["fault"]]
        try:
            return undo(data)
        except ApiError as error:
            return error.status == 404
        except Problem:
            return False

    def _delete(self, data: Mapping[str, Json]) -> bool:
        """Delete an object, unless it is another of the same name. Raises ApiError, Problem."""
        path, come_until = str(data["path"]), float(data.get("may_come_until", 0))
        metadata = self._await_object(path, come_until)["metadata"]
        if (metadata.get("annotations") or {}).get(MARK) == data["id"]:
            uid = str(metadata["uid"])
            self._release(path, metadata)
            self._api.delete(path, grace_s=0, uid=uid)
            retry_on(lambda: self._check_removed(path, uid), Problem, timeout_s=_REMOVAL_TIMEOUT_S)
        return True

    def _uncordon(self, data: Mapping[str, Json]) -> bool:
        """Uncordon a Node, unless it is another of the same name. Raises ApiError."""
        path = node(str(data["node"]))
        api_node = self._api.get(path)
        if api_node["metadata"]["uid"] == data["uid"] and api_node["spec"].get("unschedulable"):
            self._api.patch(path, {"metadata": {"uid": data["uid"]}, "spec": {"unschedulable": None}})
        return True

    def _release(self, path: str, metadata: Json) -> None:
        """Remove a scenario's own finalizers from its object; others have their reasons. Raises ApiError."""
        finalizers = list(metadata.get("finalizers") or ())
        others = [name for name in finalizers if not name.startswith(_OWN_FINALIZERS)]
        if others != finalizers:
            # An object recreated under the same name has another uid; the patch fails and it stays.
            self._api.patch(path, {"metadata": {"uid": metadata["uid"], "finalizers": others or None}})

    def _await_object(self, path: str, come_until: float) -> Json:
        """Return an object that may appear until `come_until` (s since the epoch). Raises ApiError."""
        left_s = min(come_until - time.time(), SERVED_TIMEOUT_S)
        if left_s <= 0:
            return self._api.get(path)
        return retry_on(lambda: self._api.get(path), ApiError, timeout_s=left_s, period_s=_COMES_PERIOD_S)

    def _let_leave(self, data: Mapping[str, Json]) -> bool:
        """Power a machine off for good and delete its Node; return whether the machine has left.

        A machine or Node of another zone is a namesake, which kept this one from joining or came later; it
        stays. Raises ApiError, Problem.
        """
        name = str(data["node"])
        if self._fleet.has(name) and self._fleet.is_in_other_zone(name):
            return True
        # `leave` waits for a machine that is still joining, which then exists.
        with contextlib.suppress(Problem):
            self._fleet.leave(name)
        if name in self._fleet.node_names():
            return False
        path = node(str(data.get("as", name)))
        metadata = self._api.get(path)["metadata"]
        if self._zone in ("", (metadata.get("labels") or {}).get(ZONE_LABEL)):
            self._api.delete(path, uid=str(metadata["uid"]))
        return True

    def _check_removed(self, path: str, uid: str) -> None:
        """Raise Problem while the object exists, ApiError (404) if none does; ignore a namesake."""
        if self._api.get(path)["metadata"]["uid"] == uid:
            message = f"{path} still exists after its deletion"
            raise Problem(message, "the API", "see its finalizers with `nodeproof kubectl get ... -o yaml`")

    def heal_unfinished(self) -> list[str]:
        """Heal what an earlier run left; return what could not be proven healed.

        It is found by the ledger, the dead-man's switches and the names of what faults create. In a shared
        lab the control plane is not swept: names do not show which zone uses an object. Somebody's own
        cluster is not swept at all: only what the ledger lists is certainly ours.
        """
        armed = [fault for fault in self._armed_faults() if self._is_in_own_zone(fault)]
        unhealed = heal_unfinished(self.ledger, armed, self._heal)
        if self._consent:
            return unhealed
        on = [entry.name for entry in self._fleet.nodes() if entry.is_on]
        with ThreadPoolExecutor(4) as pool:
            unswept = list(pool.map(self._sweep, on if self._zone else [*self._planes_on(), *on]))
        return [*unhealed, *filter(None, unswept)]

    def _planes_on(self) -> list[str]:
        """Return the control plane as a whole, and each of several that is on."""
        planes = self._fleet.control_planes()
        whole = [CONTROL_PLANE] if self._fleet.has(CONTROL_PLANE) else []
        return [*whole, *(name for name in planes if self._fleet.machine(name).is_powered())]

    def _is_in_own_zone(self, data: Mapping[str, Json]) -> bool:
        """Return whether a fault affects no other zone."""
        try:
            fault = Fault.from_json(data)
        except Exception:  # a plugin's own, too
            return not self._zone
        return not any(map(self._fleet.is_in_other_zone, (fault.node, *fault.affected_nodes)))

    def _heal(self, data: Mapping[str, Json]) -> bool:
        """Heal a fault from its ledger entry; return whether a probe proved it, or its node is gone.

        An entry that is not a fault, or cannot be healed now, stays open and does not block others.
        Raises any error of a plugin's fault.
        """
        if data.get("fault") in _CLUSTER_CHANGES:
            if not self._may_undo(data):
                raise HealingFailed("no run makes such a change here; undo it by hand")
            return self._remove(data)
        try:
            fault = Fault.from_json(data)
        except (KeyError, TypeError):
            return False
        if self._consent:
            try:
                self._consent.check_open(fault)
            except Refused as error:
                raise HealingFailed(f"{error}; undo it by hand") from error
        if not self._fleet.has(fault.node) or self._fleet.is_in_other_zone(fault.node):
            self._switch.arm(data, 0)
            return True
        # A machine without power answers only once it is healed.
        if self._consent and fault.self_heal_command and not self._is_its_machine(fault.node):
            return False
        # Hold off the lab's own switch only: a machine's timer undoes no more than the fault.
        with hold_off(self._switch, fault):
            try:
                heal = partial(heal_fenced, fault)
                healed_t = healed_at(fault, self._fleet.machine(fault.node), HEAL_TIMEOUT_S, heal)
            except (OutsideError, Problem) as error:
                raise HealingFailed(str(error)) from error
        if healed_t is None or (self._consent and not self._is_its_machine(fault.node)):
            return False
        self.switches.arm(data, 0)
        return True

    def _sweep(self, name: str) -> str:
        """Remove what faults left on a node; return the error, or an empty string."""
        try:
            retry_on(lambda: sweep(self._fleet.machine, name), MachineError, timeout_s=_SWEEP_TIMEOUT_S)
        except (OutsideError, Problem) as error:
            return str(error)
        return ""

    def _targets(self, place: str, affected: Sequence[str]) -> list[Target]:
        """Return the target at `place`, where a fault is injected, and every node that it affects.

        For nodes that are affected from the control plane, in the lab's own namespaces, only the cluster is
        queried: no command runs there.
        """
        names = list(dict.fromkeys((place, *affected)))
        own_names = set(self._fleet.node_names())
        with ThreadPoolExecutor(2) as pool:
            # Query in parallel: an injection waits for the slowest answer only.
            uid_future = pool.submit(self._api.get, "/api/v1/namespaces/kube-system")
            nodes_future = pool.submit(self._nodes_among, names, own_names)
            own_facts = self._own_facts(place) if place in own_names else ()
            uid, nodes = str(uid_future.result()["metadata"]["uid"]), nodes_future.result()
        targets = (_target(name, uid, nodes.get(name), own_facts if name == place else ()) for name in names)
        return [replace(target, lab_label=None) if self._consent else target for target in targets]

    def _nodes_among(self, names: Sequence[str], own_names: Set[str]) -> Mapping[str, Json]:
        """Return the Nodes of these names that exist, by one request. Raises ApiError."""
        if len(names) == 1 and names[0] in own_names:
            return {names[0]: self._api.get(node(names[0]))}
        items = self._api.get(WATCHED["nodes"])["items"] if own_names & set(names) else []
        return {entry["metadata"]["name"]: entry for entry in items}

    def _own_facts(self, name: str) -> tuple[str, str]:
        """Return a machine's own id and its hypervisor's word for its owner. Raises MachineError, Problem."""
        completed = self._fleet.machine(name).run(["cat", "/etc/machine-id"], timeout_s=_ASK_TIMEOUT_S)
        return completed.stdout.strip(), self._fleet.owner(name)

    def _is_its_machine(self, name: str) -> bool:
        """Return whether SSH leads to the machine that the Node is of."""
        try:
            machine_id = str(self._api.get(node(name))["status"]["nodeInfo"]["machineID"])
            return self._own_facts(name)[0] == machine_id
        except (ApiError, MachineError):
            return False

    def _control_planes(self) -> frozenset[str]:
        planes = self._api.get(WATCHED["nodes"], {"labelSelector": CONTROL_PLANE_LABEL})["items"]
        return frozenset(entry["metadata"]["name"] for entry in planes)


def _target(name: str, uid: str, api_node: Json, own_facts: Sequence[str]) -> Target:
    """Build a target; `api_node` is None for what has no Node, such as a control plane component."""
    if api_node is None:
        return Target(name, uid)
    label = api_node["metadata"].get("labels", {}).get(LAB_LABEL, "")
    return Target(name, uid, label, api_node["status"]["nodeInfo"]["machineID"], *own_facts)
