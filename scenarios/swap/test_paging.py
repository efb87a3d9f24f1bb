"""A node that pages, by a process of its own and by pods."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    SWAP_LIMIT,
    Check,
    Moment,
    Pod,
    Stage,
    Witness,
    amounts_to,
    became,
    cgroup_file,
    claims,
    file_of,
    kubelet_settings,
    listed,
    meminfo,
    needs,
    not_listed,
    resource_metric,
    restart_kubelet,
    run_witnesses,
    swap,
    swap_limit,
    swap_stats,
    windows,
)

SWAP_MIB, USED_MIB, REQUEST_MIB = 128, 32, 64
LARGE_MIB, ASKS_MIB, LIMIT_MIB = 256, 96, 112
WITHIN_MIB, BEYOND_MIB, LEAST_MIB = LIMIT_MIB + 12, LIMIT_MIB + 48, 8
"""A share is some 20 MiB: what needs 12 beside its limit has room there, what needs 48 has not."""
HOLDS_S = 45
"""So long that all figures were gathered anew, which a kubelet does each 10 to 15 s."""
BESIDE_MIB = 2
"""What processes of a node take and give back in those seconds."""
EVENTS, CURRENT = "memory.events", "memory.swap.current"


@claims("swap.noswap")
@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), lasts="90")
def test_no_pod_may_page_on_a_machine_that_does(lab: Stage, judge: Judge) -> None:
    node = lab.target
    told = kubelet_settings(node, failSwapOn=False, memorySwap={"swapBehavior": "NoSwap"})
    paging = swap(node, SWAP_MIB, used_mib=USED_MIB)
    memory, cpu = {"memory": f"{REQUEST_MIB}Mi"}, {"cpu": "50m"}
    # As a limit it holds for the runtime's start of the container too, which on less takes minutes.
    all_of_it = memory | {"cpu": "400m"}

    with lab.record(), lab.inject(told), lab.inject(paging) as on:
        lab.do(restart_kubelet(node))
        pods = lab.do(
            run_witnesses(
                Witness(),
                Witness(resources={"requests": cpu | memory}),
                Witness(resources={"requests": all_of_it, "limits": all_of_it}),
                on=node,
            )
        )
        for pod in pods:
            lab.look(swap_limit(pod))
        lab.look(file_of(node, paging.used_file))

    for pod in pods:
        judge("swap.noswap", amounts_to(SWAP_LIMIT, pod.name, 0, 0, on.began, on.healing))
    low, high = USED_MIB << 20, SWAP_MIB << 20
    judge("swap.noswap", amounts_to(paging.used_file, node, low, high, on.began, on.healing))


def restarted(pod: Pod) -> Moment:
    ended = {"status": {"containerStatuses": [{"lastState": {"terminated": {"exitCode": PRESENT}}}]}}
    return became("pods", pod.name, ended, pod.namespace)


@claims(
    "swap.limited-others-can-swap",
    "swap.beyond-limit-memory",
    "swap-metrics.node",
    "swap-metrics.pod",
    "swap-metrics.container",
    "swap-metrics.summary",
)
@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), lasts="180")
def test_a_container_pages_beyond_its_limit_and_the_kubelet_says_how_much(lab: Stage, judge: Judge) -> None:
    node = lab.target
    behaviour = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    # A witness whose second process is killed has figures all the same.
    told = kubelet_settings(node, **behaviour, singleProcessOOMKill=True)
    paging = swap(node, LARGE_MIB, used_mib=USED_MIB)
    resources = {
        "requests": {"cpu": "50m", "memory": f"{ASKS_MIB}Mi"},
        "limits": {"memory": f"{LIMIT_MIB}Mi"},
    }

    with lab.record(), lab.inject(told), lab.inject(paging) as on:
        lab.do(restart_kubelet(node))
        run = run_witnesses(
            *(Witness(resources=resources, holds_mib=mib) for mib in (WITHIN_MIB, BEYOND_MIB)), on=node
        )
        modest, greedy = lab.do(run)
        stays = lab.wait_for(restarted(modest).never_after(run.ended, windows.absence(HOLDS_S)))
        lab.look(file_of(node, paging.used_file))
        for each in (modest, greedy):
            lab.look(cgroup_file(each, EVENTS))
        used = int(lab.look(cgroup_file(modest, CURRENT)).value)
        memory, total, free = (
            int(lab.look(meminfo(node, name)).value) for name in ("MemTotal", "SwapTotal", "SwapFree")
        )
        share = (ASKS_MIB << 20) * total // memory
        pod, main = {"pod": modest.name}, {"pod": modest.name, "container": "main"}
        figures = (
            ("swap-metrics.node", resource_metric(node, "node_swap_usage_bytes"), total - free),
            ("swap-metrics.pod", resource_metric(node, "pod_swap_usage_bytes", **pod), used),
            ("swap-metrics.container", resource_metric(node, "container_swap_usage_bytes", **main), used),
            ("swap-metrics.summary", swap_stats(node, "swapUsageBytes"), total - free),
            ("swap-metrics.summary", swap_stats(node, "swapAvailableBytes"), free),
            ("swap-metrics.summary", swap_stats(node, "swapUsageBytes", modest), used),
            ("swap-metrics.summary", swap_stats(node, "swapUsageBytes", modest, "main"), used),
            ("swap-metrics.summary", swap_stats(node, "swapAvailableBytes", modest, "main"), share - used),
        )
        for _claim, probe, _is in figures:
            lab.look(probe)

    def shown(what: str, subject: str, low: float, high: float) -> Check:
        return amounts_to(what, subject, low, high, on.began, on.healing)

    beside, least = BESIDE_MIB << 20, LEAST_MIB << 20
    machine_pages = shown(paging.used_file, node, USED_MIB << 20, LARGE_MIB << 20)
    pod_pages = shown(CURRENT, modest.name, least, share)
    judge("swap.limited-others-can-swap", machine_pages)
    for check in (
        stays,
        pod_pages,
        listed(EVENTS, modest.name, "oom_kill 0", on.began, on.healing),
        not_listed(EVENTS, greedy.name, "oom_kill 0", on.healing),
    ):
        judge("swap.beyond-limit-memory", check)
    for claim in ("swap-metrics.pod", "swap-metrics.container", "swap-metrics.summary"):
        judge(claim, pod_pages)
    judge("swap-metrics.node", machine_pages)
    for claim, probe, is_now in figures:
        low, high = 0.9 * is_now - beside, 1.1 * is_now + beside
        judge(claim, shown(probe.what, probe.subject, low, high))
