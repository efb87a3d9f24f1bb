"""A node that swaps: by its own process, and by pods."""

from functools import partial

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes
from nodeproof.scenario.kubernetes import PRESENT, Pod, Witness
from nodeproof.scenario.types import Check, Injection, Moment, Probe

SWAP_MIB, USED_MIB, REQUEST_MIB = 128, 32, 64
LARGE_MIB, ASKS_MIB, LIMIT_MIB = 256, 96, 112
WITHIN_MIB, BEYOND_MIB, LEAST_MIB = LIMIT_MIB + 12, LIMIT_MIB + 48, 8
"""A share is about 20 MiB: 12 MiB beyond the limit fit into it, 48 MiB do not."""
GATHERED_S = 45
"""Long enough for new figures, which a kubelet gathers every 10 to 15 s."""
OTHER_MIB = 2
"""Memory that other processes of the node swap in these seconds."""
EVENTS, CURRENT = "memory.events", "memory.swap.current"


@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), duration_s="90")
def test_noswap_keeps_pods_off_swap_of_swapping_node(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    settings = faults.kubelet_settings(node, failSwapOn=False, memorySwap={"swapBehavior": "NoSwap"})
    paging = faults.swap(node, SWAP_MIB, used_mib=USED_MIB)
    memory, cpu = {"memory": f"{REQUEST_MIB}Mi"}, {"cpu": "50m"}
    # The limit applies to the runtime's start of the container, too, which takes minutes with less CPU.
    whole_request = memory | {"cpu": "400m"}

    with lab.record(), lab.inject(settings), lab.inject(paging) as fault:
        lab.run(actions.restart_kubelet(node))
        pods = lab.run(
            actions.run_witnesses(
                Witness(),
                Witness(resources={"requests": cpu | memory}),
                Witness(resources={"requests": whole_request, "limits": whole_request}),
                on=node,
            )
        )
        amount = partial(checks.amounts_to, since=fault.injected_at, until=fault.healing_at)
        for pod in pods:
            lab.observe(probes.swap_limit(pod))
            claim("swap.noswap").expect_later(amount(probes.SWAP_LIMIT, pod.name, 0, 0))
        lab.observe(probes.file_of(node, paging.used_file))
        claim("swap.noswap").expect_later(amount(paging.used_file, node, USED_MIB << 20, SWAP_MIB << 20))


@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), duration_s="180")
def test_container_swaps_beyond_memory_limit_and_metrics_show_it(lab: Lab, claim: Expectations) -> None:
    node, beyond_limit = lab.target, claim("swap.beyond-limit-memory")
    behaviour = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    # A witness whose second process is killed still has metrics.
    settings = faults.kubelet_settings(node, **behaviour, singleProcessOOMKill=True)
    paging = faults.swap(node, LARGE_MIB, used_mib=USED_MIB)
    resources = {
        "requests": {"cpu": "50m", "memory": f"{ASKS_MIB}Mi"},
        "limits": {"memory": f"{LIMIT_MIB}Mi"},
    }

    with lab.record(), lab.inject(settings), lab.inject(paging) as fault:
        lab.run(actions.restart_kubelet(node))
        run = actions.run_witnesses(
            *(Witness(resources=resources, memory_mib=mib) for mib in (WITHIN_MIB, BEYOND_MIB)), on=node
        )
        within, beyond = lab.run(run)
        beyond_limit.never(container_restart(within), throughout=GATHERED_S, after=run.ended)
        lab.observe(probes.file_of(node, paging.used_file))
        amount = partial(checks.amounts_to, since=fault.injected_at, until=fault.healing_at)
        machine_pages = amount(paging.used_file, node, USED_MIB << 20, LARGE_MIB << 20)
        for expectation in (claim("swap.limited-others-can-swap"), claim("swap-metrics.node")):
            expectation.expect_later(machine_pages)
        for pod in (within, beyond):
            lab.observe(probes.cgroup_file(pod, EVENTS))
        not_killed = checks.listed(EVENTS, within.name, "oom_kill 0", fault.injected_at, fault.healing_at)
        beyond_limit.expect_later(not_killed)
        beyond_limit.expect_later(checks.not_listed(EVENTS, beyond.name, "oom_kill 0", fault.healing_at))
        expect_figures(lab, claim, within, fault)


def expect_figures(lab: Lab, claim: Expectations, pod: Pod, fault: Injection) -> None:
    """Expect that the pod uses swap, and that the kubelet reports how much it and its node use."""
    node, pod_claim, summary = lab.target, claim("swap-metrics.pod"), claim("swap-metrics.summary")
    container, labels = claim("swap-metrics.container"), {"pod": pod.name}
    used = int(lab.observe(probes.cgroup_file(pod, CURRENT)).value)
    memory, total, free = (
        int(lab.observe(probes.meminfo(node, name)).value) for name in ("MemTotal", "SwapTotal", "SwapFree")
    )
    share = (ASKS_MIB << 20) * total // memory
    pod_pages = checks.amounts_to(
        CURRENT, pod.name, LEAST_MIB << 20, share, fault.injected_at, fault.healing_at
    )
    for expectation in (claim("swap.beyond-limit-memory"), pod_claim, container, summary):
        expectation.expect_later(pod_pages)

    def reports(probe: Probe, size: int) -> Check:
        """Observe a figure of the kubelet, and check that it is about this size (bytes)."""
        lab.observe(probe)
        low, high = 0.9 * size - (OTHER_MIB << 20), 1.1 * size + (OTHER_MIB << 20)
        return checks.amounts_to(probe.what, probe.subject, low, high, fault.injected_at, fault.healing_at)

    node_usage = probes.resource_metric(node, "node_swap_usage_bytes")
    claim("swap-metrics.node").expect_later(reports(node_usage, total - free))
    pod_claim.expect_later(reports(probes.resource_metric(node, "pod_swap_usage_bytes", **labels), used))
    container_usage = probes.resource_metric(node, "container_swap_usage_bytes", **labels, container="main")
    container.expect_later(reports(container_usage, used))
    limit = probes.resource_metric(node, "container_swap_limit_bytes", **labels, container="main")
    claim("swap-metrics.container-limit").expect_later(reports(limit, share))
    summary.expect_later(reports(probes.swap_stats(node, "swapUsageBytes"), total - free))
    summary.expect_later(reports(probes.swap_stats(node, "swapAvailableBytes"), free))
    summary.expect_later(reports(probes.swap_stats(node, "swapUsageBytes", pod), used))
    summary.expect_later(reports(probes.swap_stats(node, "swapUsageBytes", pod, "main"), used))
    summary.expect_later(reports(probes.swap_stats(node, "swapAvailableBytes", pod, "main"), share - used))


def container_restart(pod: Pod) -> Moment:
    ended = {"status": {"containerStatuses": [{"lastState": {"terminated": {"exitCode": PRESENT}}}]}}
    return pod.became(ended)
