"""A node that pages: what its kubelet says to that."""

from functools import partial

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    SWAP_LIMIT,
    Journal,
    Stage,
    Witness,
    amounts_to,
    claims,
    condition_became,
    default_of,
    kubelet_restarted,
    kubelet_settings,
    logged,
    meminfo,
    needs,
    restart_kubelet,
    run_witnesses,
    swap,
    swap_limit,
    windows,
)

KUBELET = "kubelet.service"
SWAP_MIB, REQUEST_MIB = 128, 64
CPU = "400m"
"""As a limit it holds for the runtime's start of the container too, which on 10m takes minutes."""
PAGE = 4096
"""The kernel rounds a limit down to whole pages (bytes)."""
START_S = 30
"""A kubelet is up to its refusal in a second; emulated, in up to 20."""


@claims("swap.fail-on-default", "swap.detected-at-start")
@needs(nodes=2, faulted=1, features=("swap", "systemd"), lasts="4G + 30")
def test_a_kubelet_does_not_start_where_swap_is_on(lab: Stage, judge: Judge) -> None:
    node, known = lab.target, lab.configuration
    noticed_s = known["G"] + 3 * known["P"] + lab.quiet_s
    restart = kubelet_restarted(node)
    refused = logged(node, KUBELET, "running with swap on is not supported")
    exited = logged(node, KUBELET, "Main process exited, code=exited")
    unknown, ready_again = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))

    with lab.record():
        with lab.inject(swap(node)) as paging:
            unnoticed = lab.wait_for(unknown.never_after(paging.began, windows.absence(noticed_s)))
            lab.do(restart_kubelet(node))
            lab.wait_for(unknown.after(restart, windows.detection_from_fault()))
            refuses = lab.wait_for(refused.after(restart, windows.prompt(START_S)))
            stays_away = lab.wait_for(ready_again.never_after(unknown, windows.absence(lab.quiet_s)))
            lab.hear(Journal(node, KUBELET))
        lab.wait_for(ready_again.after(paging.healing, windows.recovery()))

    judge("swap.fail-on-default", default_of("failSwapOn"))
    judge("swap.fail-on-default", refuses)
    judge("swap.fail-on-default", exited.after(refused, windows.prompt(10)))
    judge("swap.fail-on-default", stays_away)
    for check in (unnoticed, refuses):
        judge("swap.detected-at-start", check)


@claims(
    "swap.limited-burstable-only",
    "swap.limited-besteffort-guaranteed-zero",
    "swap.limited-formula",
    "swap.opt-out",
    "swap.no-request-no-swap",
    "swap.critical-pods-none",
)
@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"))
def test_limited_swap_is_for_burstable_containers_by_their_memory_request(lab: Stage, judge: Judge) -> None:
    node = lab.target
    memory, cpu = {"memory": f"{REQUEST_MIB}Mi"}, {"cpu": "50m"}
    all_of_it = memory | {"cpu": CPU}
    limited = kubelet_settings(node, failSwapOn=False, memorySwap={"swapBehavior": "LimitedSwap"})

    with lab.record(), lab.inject(limited), lab.inject(swap(node, SWAP_MIB)) as paging:
        lab.do(restart_kubelet(node))
        best_effort, burstable, guaranteed, opted_out, without_request, critical = pods = lab.do(
            run_witnesses(
                Witness(),
                Witness(resources={"requests": cpu | memory}),
                Witness(resources={"requests": all_of_it, "limits": all_of_it}),
                Witness(resources={"requests": cpu | memory, "limits": memory}),
                Witness(resources={"requests": cpu}),
                Witness(resources={"requests": cpu | memory}, priority_class="system-node-critical"),
                on=node,
            )
        )
        for pod in pods:
            lab.look(swap_limit(pod))
        total, swappable = (lab.look(meminfo(node, name)).value for name in ("MemTotal", "SwapTotal"))

    allowed = partial(amounts_to, SWAP_LIMIT, since=paging.began, until=paging.healing)
    share = (REQUEST_MIB << 20) * swappable // total
    some = allowed(burstable.name, low=1, high=SWAP_MIB << 20)
    judge("swap.limited-formula", allowed(burstable.name, low=share - PAGE, high=share))
    for claim, pods_without in (
        ("swap.limited-burstable-only", (best_effort, guaranteed)),
        ("swap.limited-besteffort-guaranteed-zero", (best_effort, guaranteed)),
        ("swap.opt-out", (opted_out,)),
        ("swap.no-request-no-swap", (without_request,)),
        ("swap.critical-pods-none", (critical,)),
    ):
        judge(claim, some)
        for pod in pods_without:
            judge(claim, allowed(pod.name, low=0, high=0))
