"""What keeps a lab's faults from staying: guard, ledger, switches and the healing of what was left."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import WATCHED, node
from nodeproof.faults import fault_from_json
from nodeproof.faults.fence import heal_for_good
from nodeproof.labs.client.fleet import Fleet
from nodeproof.machines.machine import CONTROL_PLANE, MachineError
from nodeproof.model.cluster import ZONE_LABEL
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.deadman import Deadman, Switches, Timers
from nodeproof.safety.guard import CONTROL_PLANE_LABEL, LAB_LABEL, Record, Target
from nodeproof.safety.injector import HEAL_LIMIT_S, Injector, healed_at, held_off
from nodeproof.safety.janitor import heal_unfinished, sweep
from nodeproof.safety.ledger import Ledger
from nodeproof.waiting import insist

Json = Any
_ASK_LIMIT_S = 10.0
_SWEEP_LIMIT_S = 15.0
"""Longer than one command's deadline: a machine that is busy, and not gone, gets a second chance."""
MADE = "object"
"""What the ledger calls an object that a scenario made: its healing is its removal."""
JOINED = "joined"
"""What the ledger calls a node that a scenario let join: its healing is its leaving."""
CORDONED = "cordoned"
"""What the ledger calls a Node that a scenario cordoned: its healing is that pods may be scheduled there."""
_NO_FAULTS = (MADE, JOINED, CORDONED)
MARK = "nodeproof.dev/made"
"""The annotation of an object that a scenario made."""
SERVED_LIMIT_S = 60.0
"""How long an API server goes on with a request that its client gave up (--request-timeout)."""
_COMES_PERIOD_S = 0.5
_GONE_LIMIT_S = 60.0
"""An object with others' finalizers goes when they have taken them off; a namespace, when it is empty."""
_OWN_FINALIZERS = "nodeproof.dev/"
"""Scenarios name those so that they put on: nobody else takes them off, and a killed run does not, either."""
SWITCHES = "switches"
"""The purpose of the connections by which dead-man's switches reach their machines."""


class Safety:
    """One lab's; `switch` is the lab's own dead-man's switch, `not_disarmed` tells what it holds."""

    def __init__(
        self,
        folder: Path,
        api: Api,
        fleet: Fleet,
        switch: Deadman,
        not_disarmed: Callable[[], Sequence[Mapping[str, Json]]],
        has_systemd: bool,
    ) -> None:
        self._record = folder / "record.json"
        self._api = api
        self._fleet = fleet
        self._switch = switch
        self._not_disarmed = not_disarmed
        self._lab, self._zone = folder.name, ""
        self.ledger = Ledger(self._lab)
        timers = (Timers(lambda name: fleet.machine(name, SWITCHES)),) if has_systemd else ()
        self.switches = Switches((switch, *timers))
        self.injector = Injector(
            fleet.machine,
            self._targets,
            self.record_of_itself,
            self._control_planes,
            self.ledger,
            self.switches,
        )

    def narrow(self, zone: str) -> None:
        """Answer for one zone only, from now on."""
        self._zone = zone
        self.ledger = self.injector.ledger = Ledger(self._lab, lease=zone)

    def record_of_itself(self) -> Record:
        """What the lab wrote down of itself when it was made."""
        return Record(**json.loads(self._record.read_text()))

    def expect(self, path: str) -> str:
        """Remember an object of the API that is about to be made, until it is removed. Gives what it has to
        be marked with (`MARK`), so that no other is taken for it. Raises OSError.
        """
        mark = uuid.uuid4().hex
        self.ledger.write("planned", {"fault": MADE, "id": mark, "path": path})
        return mark

    def expect_node(self, name: str, node_name: str = "") -> None:
        """Remember a machine that is about to join, until it has left and its Node, which may be called
        otherwise, is gone. Raises OSError.
        """
        data = {"fault": JOINED, "id": uuid.uuid4().hex, "node": name, "as": node_name or name}
        self.ledger.write("planned", data)

    def has_joined(self, name: str) -> bool:
        """Whether a scenario let this machine join, and has not been cleaned up after since."""
        joined = [entry.fault for entry in self.ledger.unfinished() if entry.fault.get("fault") == JOINED]
        return any(data["node"] == name for data in joined)

    def expect_cordon(self, name: str) -> None:
        """Remember a Node that is about to be cordoned, until it no longer is. What is cordoned already is
        somebody else's to undo, and what is no Node is nothing. Raises ApiError, OSError.
        """
        try:
            found = self._api.get(node(name))
        except ApiError as error:
            if error.status == 404:
                return
            raise
        if not found["spec"].get("unschedulable"):
            uid = found["metadata"]["uid"]
            self.ledger.write(
                "planned", {"fault": CORDONED, "id": uuid.uuid4().hex, "node": name, "uid": uid}
            )

    def forget_cordon(self, name: str) -> None:
        """Forget a Node that was uncordoned: who cordons it from now on is somebody else. Raises OSError."""
        for entry in self.ledger.unfinished():
            if entry.fault.get("fault") == CORDONED and entry.fault["node"] == name:
                self.ledger.write("closed", entry.fault)

    def never_made(self, mark: str, path: str) -> None:
        """Forget an object that the API refused to make. Raises OSError."""
        self.ledger.write("closed", {"fault": MADE, "id": mark, "path": path})

    def unanswered(self, mark: str, path: str) -> None:
        """Remember of an object that nobody answered for that it may come yet. Raises OSError."""
        until = {"may_come_until": time.time() + SERVED_LIMIT_S}
        self.ledger.write("unanswered", {"fault": MADE, "id": mark, "path": path, **until})

    def remove_made(self) -> None:
        """Undo what scenarios did to the cluster and is still remembered, the newest first: remove the
        objects that they made and the nodes that they let join, uncordon what they cordoned.

        Raises Problem where one stays, OSError.
        """
        made = [entry.fault for entry in self.ledger.unfinished() if entry.fault.get("fault") in _NO_FAULTS]
        left = []
        for data in reversed(made):
            if self._remove(data):
                self.ledger.write("closed", data)
            else:
                left.append(str(data.get("path", data.get("node"))))
        if left:
            raise Problem(f"not undone: {', '.join(left)}", "the API", "undo it with `nodeproof kubectl`")

    def _remove(self, data: Mapping[str, Json]) -> bool:
        """Undo what a scenario did, if it is that; whether it is undone."""
        if data["fault"] == CORDONED:
            return self._uncordon(data)
        if data["fault"] == JOINED:
            return self._let_leave(str(data["node"]), str(data.get("as", data["node"])))
        path, come_until = str(data["path"]), float(data.get("may_come_until", 0))
        try:
            found = self._found(path, come_until)["metadata"]
            if (found.get("annotations") or {}).get(MARK) != data["id"]:
                return True
            self._release(path, found)
            self._api.delete(path, grace_s=0, uid=str(found["uid"]))
            insist(lambda: self._check_gone(path, found["uid"]), Problem, limit_s=_GONE_LIMIT_S)
        except ApiError as error:
            return error.status == 404
        except Problem:
            return False
        return True

    def _uncordon(self, data: Mapping[str, Json]) -> bool:
        """Let pods be scheduled on a Node again; whether they may be. A namesake is another."""
        path = node(str(data["node"]))
        try:
            found = self._api.get(path)
            if found["metadata"]["uid"] == data["uid"] and found["spec"].get("unschedulable"):
                self._api.patch(path, {"metadata": {"uid": data["uid"]}, "spec": {"unschedulable": None}})
        except ApiError as error:
            return error.status == 404
        return True

    def _release(self, path: str, found: Json) -> None:
        """Take a scenario's finalizers off its object; others' have their own reasons. Raises ApiError."""
        held = list(found.get("finalizers") or ())
        others = [name for name in held if not name.startswith(_OWN_FINALIZERS)]
        if others != held:
            # What was made anew meanwhile under the same name is another: its uid does not fit, and it stays.
            self._api.patch(path, {"metadata": {"uid": found["uid"], "finalizers": others or None}})

    def _found(self, path: str, come_until: float) -> Json:
        """An object, waited for until it can't come any more (s since the epoch). Raises ApiError (404)."""
        left_s = min(come_until - time.time(), SERVED_LIMIT_S)
        if left_s <= 0:
            return self._api.get(path)
        return insist(lambda: self._api.get(path), ApiError, limit_s=left_s, period_s=_COMES_PERIOD_S)

    def _let_leave(self, name: str, node_name: str) -> bool:
        """Power a machine off for good and delete its Node; whether both are gone. One of another zone, and a
        Node there, is another, that kept ours from joining or came after it.
        """
        try:
            if self._fleet.is_others(name):
                return True
            # One that is joining still is waited for, and then there.
            with contextlib.suppress(Problem):
                self._fleet.leave(name)
            if name in self._fleet.node_names():
                return False
            found = self._api.get(node(node_name))["metadata"]
            if self._zone in ("", (found.get("labels") or {}).get(ZONE_LABEL)):
                self._api.delete(node(node_name), uid=str(found["uid"]))
        except ApiError as error:
            return error.status == 404
        except Problem:
            return False
        return True

    def _check_gone(self, path: str, uid: str) -> None:
        """Raises Problem while it is there, ApiError (404) once nothing is; a namesake is another."""
        if self._api.get(path)["metadata"]["uid"] == uid:
            raise Problem(f"{path} is still there", "the API", "wait")

    def heal_unfinished(self) -> list[str]:
        """Heal whatever an earlier run left, by the ledger, by the dead-man's switches and by the names of
        what faults leave; gives what could not be proven healed.

        In a lab that is shared, what is left on the control plane may be in use: names don't tell whose it
        is.
        """
        armed = [fault for fault in self._not_disarmed() if self._is_ours(fault)]
        left = heal_unfinished(self.ledger, armed, self._heal)
        on = [entry.name for entry in self._fleet.nodes() if entry.on]
        with ThreadPoolExecutor(4) as pool:
            unswept = list(pool.map(self._sweep, on if self._zone else [CONTROL_PLANE, *on]))
        return [*left, *filter(None, unswept)]

    def _is_ours(self, data: Mapping[str, Json]) -> bool:
        """Whether a fault is none of another zone's."""
        try:
            fault = fault_from_json(data)
        except (KeyError, TypeError):
            return not self._zone
        return not any(map(self._fleet.is_others, (fault.node, *fault.harms)))

    def _heal(self, data: Mapping[str, Json]) -> bool:
        """Heal by a ledger's entry; whether a probe proved it. What a node had is gone with the node.

        What no fault is made of, or can't be healed now, stays open and keeps nothing else from being healed.
        """
        if data.get("fault") in _NO_FAULTS:
            return self._remove(data)
        try:
            fault = fault_from_json(data)
        except (KeyError, TypeError):
            return False
        if not self._fleet.has(fault.node):
            self._switch.arm(data, 0)
            return True
        # The lab's own switch alone: a machine's timer undoes no more than the fault.
        with held_off(self._switch, fault):
            heal = partial(heal_for_good, fault)
            healed_t = healed_at(fault, self._fleet.machine(fault.node), HEAL_LIMIT_S, heal)
        if healed_t is None:
            return False
        self.switches.arm(data, 0)
        return True

    def _sweep(self, name: str) -> str:
        """Remove what faults left on a node; why that did not work, if it did not."""
        try:
            insist(lambda: sweep(self._fleet.machine, name), MachineError, limit_s=_SWEEP_LIMIT_S)
        except (OutsideError, Problem) as error:
            return str(error)
        return ""

    def _targets(self, place: str, harms: Sequence[str]) -> list[Target]:
        """Of where a fault is done, and of every node that it harms. Of nodes that are harmed from the
        control plane's side, in the lab's own namespaces, only the cluster is asked: nobody logs in there.
        """
        names = list(dict.fromkeys((place, *harms)))
        ours = set(self._fleet.node_names())
        with ThreadPoolExecutor(2) as pool:
            # Asked at once: whoever waits for a fault waits for the slowest answer alone.
            asked_uid = pool.submit(self._api.get, "/api/v1/namespaces/kube-system")
            asked_nodes = pool.submit(self._nodes_among, names, ours)
            own = self._own_facts(place) if place in ours else None
            uid, nodes = str(asked_uid.result()["metadata"]["uid"]), asked_nodes.result()
        return [_target(name, uid, nodes.get(name), own if name == place else None) for name in names]

    def _nodes_among(self, names: Sequence[str], ours: Set[str]) -> Mapping[str, Json]:
        """Those of the names that have a Node, by one request. Raises ApiError."""
        if len(names) == 1 and names[0] in ours:
            return {names[0]: self._api.get(node(names[0]))}
        found = self._api.get(WATCHED["nodes"])["items"] if ours & set(names) else []
        return {entry["metadata"]["name"]: entry for entry in found}

    def _own_facts(self, name: str) -> _OwnFacts:
        """What a machine and its hypervisor say of it. Raises MachineError, Problem."""
        asked = self._fleet.machine(name).run(["cat", "/etc/machine-id"], deadline_s=_ASK_LIMIT_S)
        return _OwnFacts(asked.stdout.strip(), self._fleet.owner(name))

    def _control_planes(self) -> frozenset[str]:
        planes = self._api.get(WATCHED["nodes"], {"labelSelector": CONTROL_PLANE_LABEL})["items"]
        return frozenset(entry["metadata"]["name"] for entry in planes)


@dataclass(frozen=True)
class _OwnFacts:
    """The machine id of a machine, and whose its hypervisor says it is."""

    machine_id: str
    owner: str


def _target(name: str, uid: str, found: Json, own: _OwnFacts | None) -> Target:
    """`found` is its Node; nothing for what has none, such as a component of the control plane."""
    if found is None:
        return Target(name, uid)
    label = found["metadata"].get("labels", {}).get(LAB_LABEL, "")
    told = found["status"]["nodeInfo"]["machineID"]
    return (
        Target(name, uid, label, told, own.machine_id, own.owner) if own else Target(name, uid, label, told)
    )
