"""A node with swap, and how its kubelet handles it."""

from functools import partial

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Witness
from nodeproof.scenario.sources import Journal

KUBELET = "kubelet.service"
SWAP_MIB, REQUEST_MIB = 128, 64
CPU = "400m"
"""The limit applies to the runtime's start of the container, too, which takes minutes with 10m."""
PAGE = 4096
"""The kernel rounds a limit down to whole pages (bytes)."""
START_S = 30
"""A kubelet takes a second to refuse to start, and up to 20 s on an emulated machine."""


@needs(nodes=2, faulted=1, features=("swap", "systemd"), duration_s="4G + 30")
def test_kubelet_does_not_start_on_node_with_swap(lab: Lab, claim: Expectations) -> None:
    node, config = lab.target, lab.configuration
    fail_on, at_start = claim("swap.fail-on-default"), claim("swap.detected-at-start")
    noticed_s = config["G"] + 3 * config["P"] + lab.quiet_s
    restart = moments.kubelet_restarted(node)
    refused = moments.logged(node, KUBELET, "running with swap on is not supported")
    exited = moments.logged(node, KUBELET, "Main process exited, code=exited")

    with lab.record():
        fail_on.expect_later(checks.default_of("failSwapOn"))
        with lab.inject(faults.swap(node)) as paging:
            at_start.never(node.unknown, throughout=noticed_s, after=paging.injected_at)
            lab.run(actions.restart_kubelet(node))
            lab.wait_for(node.unknown.after(restart, windows.detection_from_fault()))
            refusal = fail_on.expect(refused, within=START_S, after=restart)
            at_start.expect_later(refusal)
            fail_on.never(node.ready, throughout=lab.quiet_s, after=node.unknown)
            lab.collect(Journal(node, KUBELET))
            fail_on.expect_later(exited, within=10, after=refused)
        lab.wait_until_ready(node, paging)


@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"))
def test_limited_swap_is_for_burstable_containers_by_their_memory_request(
    lab: Lab, claim: Expectations
) -> None:
    node = lab.target
    memory, cpu = {"memory": f"{REQUEST_MIB}Mi"}, {"cpu": "50m"}
    whole_request = memory | {"cpu": CPU}
    limited = faults.kubelet_settings(node, failSwapOn=False, memorySwap={"swapBehavior": "LimitedSwap"})

    with lab.record(), lab.inject(limited), lab.inject(faults.swap(node, SWAP_MIB)) as paging:
        lab.run(actions.restart_kubelet(node))
        best_effort, burstable, guaranteed, opted_out, without_request, critical = pods = lab.run(
            actions.run_witnesses(
                Witness(),
                Witness(
                    resources={"requests": cpu | memory, "limits": {"memory": f"{2 * REQUEST_MIB}Mi"}},
                    second={"requests": memory, "limits": memory},
                ),
                Witness(resources={"requests": whole_request, "limits": whole_request}),
                Witness(resources={"requests": cpu | memory, "limits": memory}),
                Witness(resources={"requests": cpu}),
                Witness(resources={"requests": cpu | memory}, priority_class="system-cluster-critical"),
                on=node,
            )
        )
        limit_of_second = probes.swap_limit(burstable, "second")
        for probe in (*map(probes.swap_limit, pods), limit_of_second):
            lab.observe(probe)
        total = lab.observe(probes.meminfo(node, "MemTotal")).value
        swappable = lab.observe(probes.meminfo(node, "SwapTotal")).value

    limit = partial(checks.amounts_to, probes.SWAP_LIMIT, since=paging.injected_at, until=paging.healing_at)
    share = (REQUEST_MIB << 20) * swappable // total
    period = paging.injected_at, paging.healing_at
    second_opted_out = checks.amounts_to(limit_of_second.what, burstable.name, 0, 0, *period)
    claim("swap.opt-out").expect_later(second_opted_out)
    claim("swap.limited-formula").expect_later(limit(burstable.name, low=share - PAGE, high=share))
    for expectation, pods_without in (
        (claim("swap.limited-burstable-only"), (best_effort, guaranteed)),
        (claim("swap.limited-besteffort-guaranteed-zero"), (best_effort, guaranteed)),
        (claim("swap.opt-out"), (opted_out,)),
        (claim("swap.no-request-no-swap"), (without_request,)),
        (claim("swap.critical-pods-none"), (critical,)),
    ):
        expectation.expect_later(limit(burstable.name, low=1, high=SWAP_MIB << 20))
        for pod in pods_without:
            expectation.expect_later(limit(pod.name, low=0, high=0))
