"""A storm: the faults of a schedule, each at its moment, on a cluster with workloads that users change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from nodeproof import actions
from nodeproof.actions import Workload
from nodeproof.checks import moments
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import tolerates
from nodeproof.faults import Fault
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Moment
from nodeproof.model.schedule import FIRST, MAX_ACTIVE, TAINT_KEY, Schedule, Step
from nodeproof.safety.injector import Injection
from nodeproof.scenario import faults
from nodeproof.scenario.lab import Lab, Node
from nodeproof.waiting import wait_until

REPLICAS, STATEFUL = 4, 3
"""Pods of the Deployment, to which a change may add one, and of the StatefulSet."""
BUDGET, MIN_AVAILABLE = "60%", 2
"""How much of the StatefulSet a budget keeps, and how many pods that is."""
ANCHOR_TIMEOUT_S = 30.0
"""How long after the previous step (s) a step begins whose anchor has not occurred.

A node may stay Ready: its fault was healed, or another fault was more important.
"""


@dataclass
class _Active:
    """A fault that is injected: what ends it, and when it is due to end (s, monotonic)."""

    step: Step
    injection: Injection
    context: ExitStack
    due_t: float


@dataclass(frozen=True)
class Workloads:
    """The workloads of a storm, which users change."""

    deployment: Workload
    stateful_set: Workload
    daemon_set: Workload
    job: Workload

    def make(self, lab: Lab) -> None:
        """Create the workloads, a Service of the Deployment, and a budget of the StatefulSet."""
        for workload in (self.deployment, self.stateful_set, self.daemon_set, self.job):
            lab.run(workload.make)
        lab.run(actions.service(self.deployment))
        lab.run(actions.disruption_budget(self.stateful_set, min_available=BUDGET))

    def replicas(self, nodes: int) -> Mapping[str, int]:
        """Return how many pods each workload must have, but the Job, which waits before it replaces one."""
        return {
            self.deployment.name: REPLICAS,
            self.stateful_set.name: STATEFUL,
            self.daemon_set.name: nodes,
        }

    def change(self, lab: Lab, number: int, step: Step) -> None:
        """Change a workload as a step wants it."""
        pod = f"{self.stateful_set.name}-{number % STATEFUL}"
        match step.change:
            case "scale":
                lab.run(actions.scale(self.deployment, REPLICAS + number % 2))
            case "roll":
                lab.run(actions.roll_out(self.deployment, str(number)))
            case "evict":
                lab.run(actions.evict(pod))
            case "delete":
                lab.run(actions.send_request("DELETE", pod_path(NAMESPACE, pod)))


def new_workloads(lab: Lab) -> Workloads:
    """Return new workloads; those with an identity or a budget tolerate a lost node for longer."""
    short, long = ([tolerates(UNREACHABLE, times * lab.toleration_s)] for times in (1, 2))
    return Workloads(
        actions.workload("Deployment", replicas=REPLICAS, tolerations=short),
        actions.workload("StatefulSet", replicas=STATEFUL, tolerations=long),
        actions.workload("DaemonSet"),
        actions.workload("Job", replicas=2, tolerations=short, restartPolicy="Never"),
    )


def run(lab: Lab, schedule: Schedule, workloads: Workloads) -> Injection:
    """Inject and heal the faults of a schedule, and return the one that was healed last.

    At most `MAX_ACTIVE` nodes have a fault at once: the oldest fault is healed for the next one, and so is
    one of the same target. A recording must be running.
    """
    storm = _Storm(lab)
    with ExitStack() as contexts:
        contexts.callback(storm.heal_all)
        for number, step in enumerate(schedule.steps):
            storm.wait_for_turn(step)
            storm.make_room(step)
            storm.inject(step)
            workloads.change(lab, number, step)
        storm.heal_when_due()
    return storm.injections[storm.last]


class _Storm:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._begun_t = time.monotonic()
        self._active: list[_Active] = []
        self.injections: list[Injection] = []
        self.last = 0
        """Number of the step that was healed last."""

    def wait_for_turn(self, step: Step) -> None:
        """Wait until a step is due, and heal meanwhile what is due to end."""
        give_up_t = time.monotonic() + ANCHOR_TIMEOUT_S
        while True:
            anchor_t = self._anchor_t(step)
            due_t = give_up_t if anchor_t is None else anchor_t + step.delay_s
            oldest = min(self._active, key=lambda active: active.due_t, default=None)
            now_t = time.monotonic()
            if oldest is not None and oldest.due_t <= min(now_t, due_t):
                self._heal(oldest)
            elif due_t <= now_t:
                return
            else:
                has_come = _never if anchor_t is not None else partial(self._anchor_t, step)
                _wait(min(due_t, oldest.due_t if oldest else due_t), has_come)

    def _anchor_t(self, step: Step) -> float | None:
        """Return when the anchor of a step occurred (s), or None."""
        if step.anchor == FIRST:
            return self._begun_t
        occurrence = self._lab.find(self._moment(step))
        return None if occurrence is None else occurrence.t

    def _moment(self, step: Step) -> Moment:
        injection = self.injections[step.of]
        if step.anchor == "injected":
            return injection.injected_at
        if step.anchor == "healed":
            return injection.healed_at
        node = Node(injection.fault.affected_nodes[0])
        return moments.first_after(node.unknown, after=injection.injected_at)

    def make_room(self, step: Step) -> None:
        """Heal the fault of the same target, and the oldest ones if too many nodes would have one."""
        for active in [active for active in self._active if active.step.excludes(step)]:
            self._heal(active)
        others = [active for active in self._active if _node(active.step) not in (None, _node(step))]
        while _node(step) is not None and len({_node(active.step) for active in others}) >= MAX_ACTIVE:
            self._heal(others.pop(0))

    def inject(self, step: Step) -> None:
        """Create a pod for the node, and inject the fault."""
        if isinstance(step.target, int):
            self._create_pod(self._lab.targets[step.target], step)
        context = ExitStack()
        injection = context.enter_context(self._lab.inject(self._fault(step)))
        self.injections.append(injection)
        self._active.append(_Active(step, injection, context, time.monotonic() + step.duration_s))

    def _create_pod(self, node: Node, step: Step) -> None:
        seconds = None if step.toleration_s < 0 else step.toleration_s
        keys = (TAINT_KEY,) if step.fault == "taint" else (NOT_READY, UNREACHABLE)
        tolerations = [tolerates(key, seconds) for key in keys]
        self._lab.run(actions.pending_pod(only_on=node, tolerations=tolerations))

    def _fault(self, step: Step) -> Fault:
        target = step.target if isinstance(step.target, str) else self._lab.targets[step.target]
        fault: Fault = getattr(faults, step.fault)(target, **step.arguments)
        return fault

    def heal_when_due(self) -> None:
        """Heal every active fault at its time."""
        while self._active:
            oldest = min(self._active, key=lambda active: active.due_t)
            _wait(oldest.due_t)
            self._heal(oldest)

    def heal_all(self) -> None:
        """Heal every active fault at once."""
        for active in reversed(self._active):
            active.context.close()

    def _heal(self, active: _Active) -> None:
        self._active.remove(active)
        self.last = self.injections.index(active.injection)
        active.context.close()


def _node(step: Step) -> int | None:
    return step.target if isinstance(step.target, int) else None


def _never() -> None: ...


def _wait(until_t: float, is_over: Callable[[], object] = _never) -> None:
    """Wait until a time (s, monotonic), or until a condition is true."""
    wait_until(is_over, max(0.0, until_t - time.monotonic()), 0.1)
