"""A lab as scenarios and the command line use it, whatever its nodes are made of and whoever runs them."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeproof import redacted
from nodeproof.artifacts.components import Components
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import RESOURCES, SENTINEL, WATCHED, node
from nodeproof.cluster.schema import read_fields
from nodeproof.faults import Fault
from nodeproof.labs.client.cluster import Cluster
from nodeproof.labs.client.fleet import Fleet, Life
from nodeproof.labs.client.leases import Leases
from nodeproof.labs.client.measuring import Running, read_clock, read_configuration
from nodeproof.labs.client.safety import MARK, Safety
from nodeproof.labs.ground.profiles import Profile
from nodeproof.labs.kinds.kind import Kind
from nodeproof.machines.machine import MachineError
from nodeproof.model.clocks import Reading
from nodeproof.model.cluster import ZONE_LABEL, Calibration, Configuration
from nodeproof.model.judgment import Check
from nodeproof.model.needs import Needs
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.slack import loses_nodes_s
from nodeproof.recording.machine_events import MachineEvents, events_end
from nodeproof.recording.recorder import Recording, Setting
from nodeproof.safety.guard import Declared
from nodeproof.safety.injector import Cut
from nodeproof.waiting import Tell, tell_nobody, until_empty

NODES_READY_LIMIT_S = 120.0
CLEAN_LIMIT_S = 60.0
_CALIBRATION_SENTINELS = 5
UNANSWERED = (ApiError, MachineError)
"""An API server that does not answer yet is one that still has something."""
CLOCK = "clock"
"""The purpose of the connections by which clocks are read."""


class TooFewNodes(Problem):
    """So many nodes are quarantined or left out that a scenario has too few."""


@dataclass(eq=False, repr=False)
class Lab:
    """One running cluster that may be harmed: its Kubernetes, its machines, what keeps its faults from
    staying, and that it lives. What it is recorded in and judged by is here.

    To a process that leases a zone of it, its nodes are that zone's.
    """

    dir: Path
    kind: Kind
    features: frozenset[str]
    profile: Profile
    components: Components
    cluster: Cluster
    fleet: Fleet
    safety: Safety
    life: Life
    leases: Leases
    zone: str = ""
    """The leased one; empty where the lab is not shared."""
    _configuration: Configuration | None = field(default=None, init=False)
    _told: MachineEvents = field(init=False)
    left_out: Mapping[str, str] = field(default_factory=dict, init=False)
    """The nodes that somebody took out of service, and how."""

    def __post_init__(self) -> None:
        self._told = MachineEvents(self._events)

    @property
    def name(self) -> str:
        """The lab's name, by which people and processes find it."""
        return self.dir.name

    def lease(self, zone: str = "") -> bool:
        """Keep one zone to this process, any where none is named, until it closes the lab; whether somebody
        had it before. Raises InUse, Problem.
        """
        leased, had = self.leases.take_zone([zone] if zone else self.fleet.zones())
        self.narrow(leased)
        return had

    def narrow(self, zone: str) -> None:
        """Know one zone only, from now on."""
        self.zone = zone
        self.fleet.narrow(zone)
        self.safety.narrow(zone)

    def usable(self) -> list[str]:
        """The nodes that may be harmed: all whose last heal was proven, and that are not left out."""
        unusable = self.safety.injector.quarantined | self.left_out.keys()
        return [name for name in self.fleet.node_names() if name not in unusable]

    def leave_out(self) -> Mapping[str, str]:
        """Go on without the nodes that somebody took out of service, and with those that are back; gives why
        each is left out. Raises ApiError, Problem.
        """
        self.left_out = workloads.withdrawn(self.cluster.api, self.fleet.node_names())
        return self.left_out

    @property
    def placement(self) -> Mapping[str, str]:
        """The labels of the nodes that pods of a scenario may be on."""
        return {ZONE_LABEL: self.zone} if self.zone else {}

    def wait_nodes_ready(
        self,
        names: Sequence[str] | None = None,
        limit_s: float = NODES_READY_LIMIT_S,
        unready: Callable[[Api, Sequence[str]], Mapping[str, str]] = workloads.not_fit,
    ) -> None:
        """Wait until no node is `unready` any more: all are Ready, free of taints and not cordoned, and their
        Leases renewed since.

        Raises Problem, with the last lines of a log, after `limit_s` or as soon as a component has died.
        """
        wanted = names if names is not None else self.fleet.node_names()
        left = self.unready_after(wanted, limit_s, unready)
        if left:
            lines = self.life.last_lines(f"kubelet-{next(iter(left))}")
            not_fit = f"not fit after {limit_s:g} s: {with_reasons(left)}"
            raise Problem(not_fit, f"lab {self.name}", "its last log lines follow", lines)

    def unready_after(
        self, names: Sequence[str], limit_s: float, unready: Callable[[Api, Sequence[str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """Wait until no node is `unready` any more; gives those that are after `limit_s`, and why.

        Raises Problem as soon as a component has died.
        """

        def look() -> Mapping[str, str]:
            self.life.check_alive()
            return unready(self.cluster.api, names)

        return until_empty(look, *UNANSWERED, limit_s=limit_s)

    def prepare(self) -> None:
        """Make the cluster ready for scenarios, and measure how well time can be told here."""
        workloads.prepare(self.cluster.api)
        node = self.fleet.machine(self._answering()[0])
        running = Running(self.kind, self.profile, self.components, self.fleet.command_lines(), node)
        self._configuration = read_configuration(self.cluster.api, running, self.calibrate())

    @property
    def is_prepared(self) -> bool:
        """Whether the running configuration is known."""
        return self._configuration is not None

    @property
    def configuration(self) -> Configuration:
        """The running configuration as read when the lab was prepared."""
        if self._configuration is None:
            self.prepare()
        assert self._configuration is not None  # noqa: S101  set by prepare()
        return self._configuration

    def calibrate(self) -> Calibration:
        """Measure watch latency, and each node's clock against the harness's."""
        names = self._answering()
        with ThreadPoolExecutor(4) as pool:
            readings = list(pool.map(self.read_clock, names))
        setting = Setting((), names[-1], self.read_clock, self._events, sentinel_period_s=0.1)
        path = self.dir / f"calibration-{uuid.uuid4().hex[:8]}.jsonl"
        try:
            with Recording(self.cluster.api, path, setting) as recording:
                latency = recording.worst_latency_s(_CALIBRATION_SENTINELS)
        finally:
            path.unlink(missing_ok=True)
        return Calibration(latency, {reading.node: reading.offset_s for reading in readings})

    def _answering(self) -> list[str]:
        """The nodes that can be asked about themselves; of a lab with none that may be harmed all."""
        return self.usable() or self.fleet.node_names()

    def read_clock(self, name: str) -> Reading:
        """What a node's clock is ahead of ours. Raises MachineError, Problem."""
        if self.kind.has_host_clock:
            return Reading(name, round(time.monotonic(), 6), 0.0, 0.0)
        return read_clock(self.fleet.machine(name, CLOCK))

    @contextmanager
    def record(self, path: Path, targets: Collection[str], also: Collection[str] = ()) -> Iterator[Recording]:
        """Record everything until the context ends, then fence it; `also` are further resources.

        Raises Problem on a resource that can't be recorded.
        """
        self._take_in(also)
        self._settle()
        # Read before the look: what dies from here on is seen by the one or in the other.
        events_at = events_end(self._events)
        self.life.check_alive()
        names = self.fleet.node_names()
        carrier = unfaulted(names, list(targets))
        resources = (*WATCHED, *also)
        setting = Setting(
            tuple(names),
            carrier,
            self.read_clock,
            self._events,
            events_at,
            is_others=self.fleet.is_others,
            resources=resources,
        )
        with (
            Recording(self.cluster.api, path, setting) as recording,
            self.safety.injector.standing(recording.append),
        ):
            yield recording

    def _settle(self) -> None:
        """Where the lab stood still since the last recording, wait until nodes that it lost by that are back.
        It loses them at a pass of the node lifecycle controller. Raises HostTooLoaded.
        """
        limit_s = loses_nodes_s(self.configuration)
        ended = [
            told["t"] for told in self._told.read() if told["kind"] == "stall" and told["late_s"] > limit_s
        ]
        if not ended:
            return
        _sleep_until(ended[-1] + 2 * self.configuration["P"])
        left = until_empty(
            lambda: workloads.lost(self.cluster.api, self.usable()), *UNANSWERED, limit_s=CLEAN_LIMIT_S
        )
        if left:
            said = f"lost when the lab stood still, and {CLEAN_LIMIT_S:g} s later: {', '.join(left)}"
            raise HostTooLoaded(said, f"lab {self.name}", "run it again on an idle host")
        # What their taints took of the rate limiter.
        _sleep_until(time.monotonic() + 1 / self.configuration["E"])

    def _take_in(self, also: Collection[str]) -> None:
        """Make the sentinels of further resources, and learn which fields their objects have."""
        if not also:
            return
        for name in also:
            if name not in RESOURCES or name in WATCHED or list(also).count(name) > 1:
                said = ", ".join(sorted(RESOURCES.keys() - WATCHED.keys()))
                raise Problem(f"{name} cannot be recorded as well", "record(also=...)", f"there are: {said}")
            resource = RESOURCES[name]
            if resource.body is not None:
                # In a lab that is shared others record with it, too: it stays as long as the lab.
                made = {} if self.zone else {MARK: self.safety.expect(resource.sentinel(""))}
                meta = {"name": SENTINEL, "annotations": made}
                self.cluster.api.ensure(resource.home, {**resource.body, "metadata": meta})
        known = self.configuration.fields
        fields = read_fields(self.cluster.api, [name for name in also if name not in known])
        self._configuration = replace(self.configuration, fields={**known, **fields})

    def inject(self, fault: Fault, declared: Declared, recording: Recording) -> AbstractContextManager[Cut]:
        """Hold a fault for the length of the context; it is healed whatever happens."""
        return self.safety.injector.inject(fault, declared, recording.append)

    def wait_for(self, recording: Recording, check: Check, until: Tell = tell_nobody) -> None:
        """Wait until a check is decided or its window has passed; `until` is told when that is at the latest
        (s, monotonic).
        """
        recording.wait_for(check, self.configuration, until)

    def tidy(self) -> None:
        """Remove what scenarios left, and calibrations that were broken off.

        Raises ApiError, Problem, OSError.
        """
        for path in self.dir.glob("calibration-*.jsonl"):
            path.unlink(missing_ok=True)
        self.safety.remove_made()
        self.cluster.tidy(self.fleet.node_names() if self.zone else None, self.fleet.is_others)

    def clean(self, needs: Needs) -> None:
        """Between scenarios: all components live, nothing of ours is left, enough nodes are in service, all
        of those Ready.

        Raises Problem when the lab is not fit for a scenario that harms as many nodes.
        """
        self.life.check_alive()
        self.tidy()
        self.leave_out()
        quarantined, usable = self.safety.injector.quarantined, self.usable()
        broken = ", ".join(sorted(quarantined - set(self.fleet.node_names())))
        if broken:
            raise Problem(f"not proven healed: {broken}", f"lab {self.name}", "run `nodeproof heal`")
        if len(usable) < needs.faulted + (needs.radius != "cluster"):
            left = ", ".join(sorted(quarantined)) or "none"
            raise self._too_few("too few nodes that may be harmed", f"quarantined: {left}")
        if self.left_out and (needs.radius or len(usable) < needs.nodes):
            needed = "every node of its zone" if needs.radius else f"{needs.nodes} nodes"
            raise self._too_few(f"the scenario needs {needed}", "put the nodes back into service")
        self.wait_nodes_ready(usable, CLEAN_LIMIT_S)

    def _too_few(self, what: str, next_step: str) -> TooFewNodes:
        reasons = f"; left out: {with_reasons(self.left_out)}" if self.left_out else ""
        return TooFewNodes(f"{what}{reasons}", f"lab {self.name}", next_step)

    def join(self, name: str, zone: str, slot: int) -> None:
        """Let a node join while the lab runs. Raises Problem."""
        self.fleet.join(name, zone, slot, {})
        self._configuration = None

    def leave(self, name: str) -> None:
        """Power a node off for good and delete its Node. Raises Problem, ApiError."""
        self.fleet.leave(name)
        self.cluster.api.delete(node(name))
        self._configuration = None

    @property
    def journals(self) -> Path:
        """Where `fetch_journals` puts them."""
        return self.dir / "journals"

    def fetch_journals(self) -> None:
        """Fetch what machines with a journal wrote of their present boot; who does not answer has none."""
        if "systemd" in self.features:
            self.fleet.fetch_journals(self.journals)

    def keep_logs(self, into: Path) -> None:
        """Copy component logs, audit log and machine events to a run's folder, without what is secret."""
        target = into / self.name
        for folder in (self.life.logs, *filter(Path.exists, [self.journals])):
            with contextlib.suppress(shutil.Error):
                # What was made or removed this moment; the others are copied all the same.
                shutil.copytree(folder, target, copy_function=redacted.copy, dirs_exist_ok=True)
        for name in ("init.log", "events.jsonl"):
            with contextlib.suppress(OSError):
                redacted.copy(self.dir / name, target / name)

    def close(self) -> None:
        """Give up connections; the lab stays."""
        self.fleet.close()
        self.cluster.api.close()
        self.life.close()
        self.leases.close()

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        self.fleet.close()
        self.cluster.api.close()
        self.life.down()
        # What another thread has opened meanwhile.
        self.fleet.close()
        self.leases.close()
        self.safety.ledger.forget()

    @property
    def _events(self) -> Path:
        """Where whoever runs the lab writes down what happens to machines and components."""
        return self.dir / "events.jsonl"


def with_reasons(nodes: Mapping[str, str]) -> str:
    """Nodes for people, each with why it is named."""
    return ", ".join(f"{name} ({why})" for name, why in nodes.items())


def _sleep_until(t: float) -> None:
    threading.Event().wait(max(0.0, t - time.monotonic()))


def unfaulted(nodes: Sequence[str], targets: Sequence[str]) -> str:
    """A node that carries the sentinel because no fault of the scenario targets it; the first where every
    node is a target: with what it carries the API server alone has to do.
    """
    return next((name for name in nodes if name not in targets), nodes[0])
