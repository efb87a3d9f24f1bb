"""An upgrade of the control plane while nodes are lost: what holds without an upgrade holds after it, too.

The order is that of https://kubernetes.io/releases/version-skew-policy/#supported-component-upgrade-order. An
upgrade restarts kube-controller-manager, whose first pass removes the NoExecute taints of lost nodes and then
writes them again (docs/findings/controller-manager-restarts-timers.md).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Node
from nodeproof.scenario.types import Moment

SERVER, MANAGER, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
TOLERATIONS = 4
"""In tolerations of the profile: longer than the upgrade takes."""
GAP = windows.absence(12.0)
"""Longer than kube-apiserver restarts, with the time before an absence that must have no gap, too."""
STAYS = windows.pod_gc_pass()
LOST = 5
"""Nodes of a zone of eight: more than 55 percent."""
STOPPED = windows.formula("negative", "1.15/E2", "P + 2", "P + 2 + 1.15/E2")
"""As `windows.stopped`, but it begins between two writes at the normal rate, which come at 0, 2, 4, ... s."""


@contextmanager
def upgraded(lab: Lab, node: Node) -> Iterator[Moment]:
    """Upgrade the control plane until the context ends; yield when the controller manager first saw `node`.

    Watches have a gap while kube-apiserver restarts, so what is judged begins long after it, and ends before
    the older one is started again.
    """
    server, manager, scheduler = (
        faults.upgrade(component, lab.upgrade_version) for component in (SERVER, MANAGER, SCHEDULER)
    )
    registration = node.event("RegisteredNode")
    with lab.inject(server) as restart:
        lab.wait_for(node.ready.never_after(restart.injected_at, GAP))
        with lab.inject(manager) as restart, lab.inject(scheduler):
            yield moments.first_after(registration, after=restart.injected_at)
            lab.wait_until_quiet(node.unknown)


@needs(
    nodes=2, faulted=1, components=(SERVER, MANAGER, SCHEDULER), profile="fast", duration_s="2G + 60"
)  # fmt: skip
def test_node_stays_unreachable_during_upgrade_and_recovers(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    no_schedule, no_execute = (node.taint(UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute"))
    not_unknown = {"status": {"conditions": [{"type": "Ready", "status": {"$not": "Unknown"}}]}}
    end_of_unknown = node.became(not_unknown)

    with lab.record(), ExitStack() as upgrade:
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(no_execute.added.after(node.unknown, windows.taint_pass()))
            lab.wait_for(pod.deletion.after(no_execute.added, windows.toleration(lab.toleration_s)))
            started = upgrade.enter_context(upgraded(lab, node))
            tainted = moments.first_after(no_execute.added, after=started)
            unreachable = claim("taints.unreachable-noexecute")
            unreachable.expect(tainted, within=windows.taint_pass(), after=started)
            claim("monitoring.unknown-reason").expect_later(end_of_unknown.never_after(started, STAYS))
            claim("partition.no-force-delete").never(pod.removal, throughout=STAYS, after=started)
        ready = moments.first_after(node.ready, after=fault.healing_at)
        claim("monitoring.recovery").expect(ready, within=windows.recovery(), after=fault.healing_at)
        for taint, window in ((no_schedule, windows.up_to(2)), (no_execute, windows.monitor_pass())):
            removed = moments.first_after(taint.removed, after=fault.healing_at)
            claim("taints.removed-on-recovery").expect(removed, within=window, after=ready)


@needs(
    nodes=2, faulted=1, components=(SERVER, MANAGER, SCHEDULER), profile="fast", duration_s="G + 60"
)  # fmt: skip
def test_upgraded_controller_manager_does_not_restart_toleration(lab: Lab, claim: Expectations) -> None:
    """Half of a grace period after the taint. kube-apiserver is upgraded before: its restart is a gap."""
    node, tolerated_s = lab.target, TOLERATIONS * lab.toleration_s
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=tolerated_s))
    server, manager, scheduler = (
        faults.upgrade(component, lab.upgrade_version) for component in (SERVER, MANAGER, SCHEDULER)
    )

    with lab.record(), lab.inject(server) as restart:
        lab.wait_for(node.ready.never_after(restart.injected_at, GAP))
        with lab.inject(faults.partition(node)) as fault:
            tainted = moments.first_after(node.taint(UNREACHABLE).added, after=fault.injected_at)
            deletion = moments.first_after(pod.deletion, after=fault.injected_at)
            lab.wait_for(tainted.after(fault.injected_at, "G + 3P + 2"))
            lab.wait_for(deletion.never_after(tainted, "0.5G"))
            with lab.inject(manager), lab.inject(scheduler):
                survives = claim("eviction.toleration-survives-restart")
                survives.expect(deletion, within=windows.toleration(tolerated_s), after=tainted)


@needs(
    nodes=(8, 2), faulted=LOST, radius="zone", components=(SERVER, MANAGER, SCHEDULER), profile="fast",
    duration_s="G + 3/E2 + 40",
)  # fmt: skip
def test_disrupted_zone_is_not_evicted_by_upgraded_controller_manager(lab: Lab, claim: Expectations) -> None:
    """At most three nodes get their taint before the zone counts as disrupted."""
    infos = [entry for entry in lab.nodes() if entry.name in lab.targets]
    lost = moments.all_of(*(node.unknown for node in lab.targets))
    taint_writes = moments.no_execute_written(*lab.targets)

    with lab.record(), lab.inject(faults.outage(*infos)) as fault:
        lab.wait_for(lost.after(fault.injected_at, windows.detection_from_fault()))
        claim("rate-limits.small-stops").never(taint_writes, throughout=windows.stopped(), after=lost)
        with upgraded(lab, lab.target) as started:
            claim("rate-limits.small-stops").never(taint_writes, throughout=STOPPED, after=started)
