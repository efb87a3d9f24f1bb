"""A node that pages, by a process of its own and by pods."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    SWAP_LIMIT,
    Stage,
    Witness,
    amounts_to,
    claims,
    file_of,
    kubelet_settings,
    needs,
    restart_kubelet,
    run_witnesses,
    swap,
    swap_limit,
)

SWAP_MIB, USED_MIB, REQUEST_MIB = 128, 32, 64


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
